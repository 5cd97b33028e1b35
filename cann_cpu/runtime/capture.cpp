// SPDX-License-Identifier: Apache-2.0
// Captured graphs: begin and end, forks and joins through events, replay.
//
// A graph's nodes are kept in the order in which they were recorded. Every node was recorded after what it depends on,
// so a replay runs them in this order, as one task of the replaying stream.
#include "capture.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "cann_cpu/json_text.h"
#include "checks/cost.h"
#include "checks/memory.h"

namespace cann_cpu {

enum class CaptureState { kActive, kInvalidated, kEnded };

struct Node {
  race::Recorded recorded;
  const Stream* stream;  // for its address: it may be gone at the replay
  int32_t stream_id;
  Task task;
  std::shared_ptr<const TaskTensors> operands;
};

struct Graph {
  uint32_t id;
  int32_t device;
  aclmdlRICaptureMode mode;
  std::thread::id thread;
  const Stream* origin;

  CaptureState state = CaptureState::kActive;
  std::string cause;                     // of the invalidation
  std::map<Stream*, Progress> progress;  // of each captured stream: the nodes known to be behind it
  std::vector<Node> nodes;
  Shadow memory;            // that the nodes use
  std::mutex replay_mutex;  // one replay at a time
};

namespace {

std::atomic<uint32_t> next_graph_id{1};
std::atomic<int> active_captures{0};
thread_local aclmdlRICaptureMode thread_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

// Guards everything of captures that are underway: they are rare, and cross streams.
std::mutex& capture_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

Registry<Graph>& graphs() {
  static auto* registry = new Registry<Graph>("captured graph", "captured graphs");
  return *registry;
}

void invalidate(Graph& graph, const std::string& cause) {
  if (graph.state != CaptureState::kActive) return;
  graph.state = CaptureState::kInvalidated;
  graph.cause = cause;
}

// Releases the captured streams.
void end_capture(Graph& graph) {
  for (auto& [stream, progress] : graph.progress) stream->graph = nullptr;
  graph.progress.clear();
  graph.state = CaptureState::kEnded;
  --active_captures;
  profiler::end_capture();
}

void begin_capture(aclrtStream handle, aclmdlRICaptureMode mode) {
  require_pointer(handle, "stream");
  if (mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
    fail(ACL_ERROR_INVALID_PARAM, "mode is %d; 0 to 2", mode);
  }
  std::shared_ptr<Stream> stream = streams().find(handle);
  if (is_running(stream.get())) fail(ACL_ERROR_RT_STREAM_CONTEXT, "called from inside a task of the stream");
  auto graph = std::make_shared<Graph>();
  graph->id = next_graph_id++;
  graph->device = stream->context->device;
  graph->mode = mode;
  graph->thread = std::this_thread::get_id();
  graph->origin = stream.get();
  std::lock_guard lock(capture_mutex());
  if (stream->graph != nullptr) fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %d is being captured already", stream->id);
  graph->progress[stream.get()] = {};
  graphs().add(graph);
  stream->graph = graph.get();
  ++active_captures;
  profiler::begin_capture();
}

// A captured stream has work that its capture's first stream never waited for.
const Stream* find_unjoined(const Graph& graph, const Stream& origin) {
  const Progress& reached = graph.progress.at(const_cast<Stream*>(&origin));
  for (const auto& [stream, progress] : graph.progress) {
    auto own = progress.find(stream);
    if (own == progress.end()) continue;
    auto seen = reached.find(stream);
    if (seen == reached.end() || seen->second < own->second) return stream;
  }
  return nullptr;
}

void finish_capture(aclrtStream handle, aclmdlRI* model) {
  require_pointer(handle, "stream");
  require_pointer(model, "modelRI");
  *model = nullptr;
  std::shared_ptr<Stream> stream = streams().find(handle);
  std::lock_guard lock(capture_mutex());
  Graph* graph = stream->graph;
  if (graph == nullptr) fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "stream %d is not being captured", stream->id);
  if (graph->origin != stream.get()) {
    fail(ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, "the capture that stream %d is part of began on another stream",
         stream->id);
  }
  if (graph->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && graph->thread != std::this_thread::get_id()) {
    fail(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, "the capture began in another thread");
  }
  const Stream* unjoined = find_unjoined(*graph, *stream);
  std::string cause = graph->cause;
  bool valid = graph->state == CaptureState::kActive && unjoined == nullptr;
  end_capture(*graph);
  if (valid) {
    *model = graph;
    return;
  }
  graphs().remove(graph);
  if (!cause.empty()) {
    fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "the capture was invalidated: %s", cause.c_str());
  }
  fail(ACL_ERROR_RT_STREAM_UNJOINED,
       "stream %d took part in the capture and has work that the capture's stream never waited for", unjoined->id);
}

std::optional<Failure> replay(Graph& graph, const std::optional<schedule::Launch>& launch) {
  std::lock_guard lock(graph.replay_mutex);
  std::optional<Failure> first;
  for (const Node& node : graph.nodes) {
    std::optional<profiler::Row> row;
    if (is_profiling()) {
      if (auto of = profiler::Row::within(node.recorded.task, "", node.operands)) {
        of->stream = node.stream_id;
        row.emplace(*std::move(of));
      }
    }
    std::optional<Failure> failure = run_task_as(node.stream, node.task);
    row.reset();
    if (launch) {
      schedule::keep_digest(*launch, &node - graph.nodes.data() + 1, "captured graph: " + node.recorded.task,
                            node.recorded.accesses);
    }
    if (failure && !first) first = Failure{failure->code, node.recorded.task + ": " + failure->message};
  }
  return first;
}

void execute(aclmdlRI model, aclrtStream stream) {
  require_pointer(model, "modelRI");
  std::shared_ptr<Graph> graph = graphs().find(model);
  {
    std::lock_guard lock(capture_mutex());
    if (graph->state != CaptureState::kEnded) fail(ACL_ERROR_RT_MODEL_CAPTURED, "the graph is still being captured");
  }
  const std::shared_ptr<Stream> on = find_stream(stream);
  int32_t device = on->context->device;
  if (device != graph->device) {
    fail(ACL_ERROR_RT_STREAM_CONTEXT, "the graph is of device %d, the stream of device %d", graph->device, device);
  }
  if (!is_running(on.get())) cost::launched("captured graph");
  if (accesses_are_checked() && !is_running(on.get())) {
    const std::string where = race::where();
    for (const Node& node : graph->nodes) {
      race::replayed(*on, node.recorded, where);
      if (is_on(Check::kMemory)) memory::used(*on, node.recorded.accesses);
    }
  }
  std::optional<schedule::Launch> launch;
  if (schedule::are_digests_kept()) launch = schedule::launch();
  append(stream, "captured graph", [graph, launch] {
    std::optional<Failure> failure = replay(*graph, launch);
    return failure ? error(failure->code, "%s", failure->message.c_str()) : ACL_SUCCESS;
  });
}

std::shared_ptr<Graph> find_graph(aclmdlRI model) {
  require_pointer(model, "modelRI");
  return graphs().find(model);
}

std::string describe(const Graph& graph) {
  std::string text =
      "{\"id\": " + std::to_string(graph.id) + ", \"device\": " + std::to_string(graph.device) + ", \"nodes\": [";
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    text += (i == 0 ? "\n" : ",\n");
    text += "  {\"name\": " + quote(graph.nodes[i].recorded.task) +
            ", \"stream\": " + std::to_string(graph.nodes[i].stream_id) + "}";
  }
  return text + "\n]}\n";
}

}  // namespace

bool record_task(Stream& stream, const Task& task, const race::Recorded& recorded,
                 std::shared_ptr<const TaskTensors> operands) {
  std::lock_guard lock(capture_mutex());
  Graph* graph = stream.graph;
  if (graph == nullptr) return false;
  if (graph->state == CaptureState::kInvalidated) return true;
  graph->nodes.push_back({recorded, &stream, stream.id, task, std::move(operands)});
  Progress& progress = graph->progress[&stream];
  progress[&stream] = graph->nodes.size();
  race::captured_task(graph->memory, stream, progress, recorded);
  return true;
}

bool record_event_mark(Stream& stream, Event& event) {
  std::lock_guard lock(capture_mutex());
  Graph* graph = stream.graph;
  if (graph == nullptr) return false;
  std::shared_ptr<Graph> shared = graphs().find(graph);
  std::lock_guard event_lock(event.mutex);
  event.graph = shared;
  event.progress = graph->progress[&stream];
  return true;
}

bool join_capture(Stream& stream, Event& event) {
  if (active_captures == 0 && stream.graph == nullptr) {
    std::lock_guard event_lock(event.mutex);
    if (!event.graph) return false;
  }
  std::lock_guard lock(capture_mutex());
  std::lock_guard event_lock(event.mutex);
  Graph* own = stream.graph;
  Graph* other = event.graph.get();
  if (own == nullptr && (other == nullptr || other->state == CaptureState::kEnded)) return false;
  if (own != nullptr && own != other) {
    bool was_recorded = other != nullptr || event.latest != nullptr;
    if (was_recorded) {
      invalidate(*own, "stream " + std::to_string(stream.id) + " waited for an event that was recorded outside of it");
    }
    return true;
  }
  stream.graph = other;
  Progress& progress = other->progress[&stream];
  for (const auto& [behind, count] : event.progress) progress[behind] = std::max(progress[behind], count);
  return true;
}

void stop_capture(Stream& stream) {
  std::lock_guard lock(capture_mutex());
  Graph* graph = stream.graph;
  if (graph == nullptr) return;
  invalidate(*graph, "a stream of it was destroyed");
  stream.graph = nullptr;
  graph->progress.erase(&stream);
  if (graph->origin != &stream) return;
  end_capture(*graph);
  graphs().remove(graph);
}

void forbid_during_capture(Stream& stream) {
  if (stream.graph == nullptr) return;
  std::lock_guard lock(capture_mutex());
  Graph* graph = stream.graph;
  if (graph == nullptr) return;
  invalidate(*graph, "the host asked for the state of stream " + std::to_string(stream.id));
  fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %d is being captured and cannot be waited for or queried", stream.id);
}

void forbid_unsafe_during_capture() {
  if (active_captures == 0 || is_worker() || thread_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return;
  std::lock_guard lock(capture_mutex());
  auto forbidding = graphs().find_if([](const Graph& graph) {
    if (graph.state == CaptureState::kEnded || graph.mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return false;
    bool is_own = graph.thread == std::this_thread::get_id();
    bool is_global = graph.mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL && thread_mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
    return is_own || is_global;
  });
  if (forbidding.empty()) return;
  for (const auto& graph : forbidding) {
    if (graph->thread == std::this_thread::get_id())
      invalidate(*graph, "a call that works beside the streams was made");
  }
  fail(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
       "not allowed while a stream is being captured (aclmdlRICaptureThreadExchangeMode can allow it)");
}

bool reject_pageable(aclrtStream handle) {
  if (active_captures == 0 || is_running(handle)) return false;
  std::shared_ptr<Stream> stream = find_stream(handle);
  std::lock_guard lock(capture_mutex());
  Graph* graph = stream->graph;
  if (graph == nullptr || is_running(stream.get())) return false;
  invalidate(*graph, "an asynchronous copy used host memory that is not pinned");
  return true;
}

}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
  return call(__func__, [&] { begin_capture(stream, mode); });
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* modelRI) {
  return call(__func__, [&] { finish_capture(stream, modelRI); });
}

aclError aclmdlRICaptureGetInfo(aclrtStream handle, aclmdlRICaptureStatus* status, aclmdlRI* modelRI) {
  return call(__func__, [&] {
    require_pointer(status, "status");
    *status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    if (modelRI != nullptr) *modelRI = nullptr;
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream->graph == nullptr) return;
    std::lock_guard lock(capture_mutex());
    Graph* graph = stream->graph;
    if (graph == nullptr) return;
    bool active = graph->state == CaptureState::kActive;
    *status = active ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE : ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
    if (modelRI != nullptr) *modelRI = graph;
  });
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
  return call(__func__, [&] {
    require_pointer(mode, "mode");
    if (*mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || *mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
      fail(ACL_ERROR_INVALID_PARAM, "mode is %d; 0 to 2", *mode);
    }
    std::swap(*mode, thread_mode);
  });
}

aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream) {
  return call(__func__, [&] { execute(modelRI, stream); });
}

aclError aclmdlRIExecute(aclmdlRI modelRI, int32_t timeout) {
  return call(__func__, [&] {
    execute(modelRI, nullptr);
    if (aclError code = aclrtSynchronizeStreamWithTimeout(nullptr, timeout)) throw Failure{code, take_message()};
  });
}

aclError aclmdlRIDestroy(aclmdlRI modelRI) {
  return call(__func__, [&] {
    std::shared_ptr<Graph> graph = find_graph(modelRI);
    {
      std::lock_guard lock(capture_mutex());
      if (graph->state != CaptureState::kEnded) fail(ACL_ERROR_RT_MODEL_CAPTURED, "the graph is still being captured");
      graphs().remove(modelRI);
    }
    if (is_on(Check::kMemory)) memory::graph_ended(modelRI);
  });
}

aclError aclmdlRIGetId(aclmdlRI modelRI, uint32_t* modelRIId) {
  return call(__func__, [&] {
    require_pointer(modelRIId, "modelRIId");
    *modelRIId = find_graph(modelRI)->id;
  });
}

aclError aclmdlRIDebugPrint(aclmdlRI modelRI) {
  return call(__func__, [&] {
    std::shared_ptr<Graph> graph = find_graph(modelRI);
    std::lock_guard lock(capture_mutex());
    std::fputs(describe(*graph).c_str(), stdout);
  });
}

aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char* path, uint32_t) {
  return call(__func__, [&] {
    require_pointer(path, "path");
    std::shared_ptr<Graph> graph = find_graph(modelRI);
    std::lock_guard lock(capture_mutex());
    std::ofstream file(path);
    if (const int code = fault_of("disk", ACL_ERROR_WRITE_FILE)) throw Failure{code, take_message()};
    if (!(file << describe(*graph)).flush()) fail(ACL_ERROR_WRITE_FILE, "cannot write %s", path);
  });
}
