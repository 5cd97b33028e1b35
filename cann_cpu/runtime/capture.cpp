// SPDX-License-Identifier: Apache-2.0
// Captured graphs: begin and end, forks and joins through events, replay.
//
// A replay is one task of the replaying stream. Each captured stream's nodes run in their order, those of the first in
// the replaying stream and those of the others in streams beside it, and wait for the nodes that events put before
// them.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "cann_cpu/json.h"
#include "capture.h"

namespace cann_cpu {

std::mutex& capture_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

void invalidate(Graph& graph, const std::string& cause, aclError code) {
  if (graph.state != CaptureState::kActive) return;
  graph.state = CaptureState::kInvalidated;
  graph.cause = {code, cause};
}

void require_ended(const Graph& graph) {
  if (graph.state != CaptureState::kEnded) fail(ACL_ERROR_RT_MODEL_CAPTURED, "the graph is still being captured");
}

bool is_collective(const std::string& task) {
  const auto has = [&](const char* part) { return task.find(part) != std::string::npos; };
  return task.starts_with("Hccl") || has("AllReduce") || has("AllGather") || has("ReduceScatter") || has("AlltoAll");
}

namespace {

std::atomic<uint32_t> next_graph_id{1};
std::atomic<int> active_captures{0};
thread_local aclmdlRICaptureMode thread_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

Registry<Graph>& graphs() {
  static auto* registry = new Registry<Graph>("captured graph", "captured graphs");
  return *registry;
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
    fail(ACL_ERROR_INVALID_PARAM, "mode is %d; expected 0 to 2", mode);
  }
  std::shared_ptr<Stream> stream = find_own_stream(handle);
  if (is_running(stream->handle)) fail(ACL_ERROR_RT_STREAM_CONTEXT, "called from inside a task of the stream");
  auto graph = std::make_shared<Graph>();
  graph->id = next_graph_id++;
  graph->device = stream->context->device;
  graph->mode = mode;
  graph->thread = std::this_thread::get_id();
  graph->origin = stream.get();
  graph->streams.emplace_back(find_device(graph->device));
  std::lock_guard lock(capture_mutex());
  if (stream->graph != nullptr) fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %d is being captured already", stream->id);
  if (stream->updates_tasks) fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream %d updates a task group", stream->id);
  graph->progress[stream.get()] = {};
  graphs().add(graph);
  stream->graph = graph.get();
  ++active_captures;
  profiler::begin_capture();
}

void remove(const void* model) {
  const std::shared_ptr<Graph> graph = graphs().remove(model);
  graph->streams.clear();  // events hold on to graphs
  remove_task_groups(*graph);
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

std::vector<Lane> lanes_of(const Graph& graph) {
  std::map<aclrtStream, size_t> lane_of{{graph.origin->handle, 0}};
  std::vector<Lane> lanes(1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto [lane, is_new] = lane_of.try_emplace(graph.nodes[i].stream, lanes.size());
    if (is_new) lanes.emplace_back();
    lanes[lane->second].push_back(i);
  }
  return lanes;
}

void finish_capture(aclrtStream handle, aclmdlRI* model) {
  require_pointer(handle, "stream");
  require_pointer(model, "modelRI");
  *model = nullptr;
  std::shared_ptr<Stream> stream = find_own_stream(handle);
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
  const std::optional<Failure> cause = graph->cause;
  const Stream* in_group = graph->open_groups.empty() ? nullptr : graph->open_groups.begin()->first;
  const int32_t in_group_id = in_group == nullptr ? 0 : in_group->id;
  bool valid = graph->state == CaptureState::kActive && in_group == nullptr && unjoined == nullptr;
  end_capture(*graph);
  if (valid) {
    graph->lanes = lanes_of(*graph);
    *model = graph->handle;
    return;
  }
  remove(graph->handle);
  if (cause) fail(cause->code, "the capture was invalidated: %s", cause->message.c_str());
  if (in_group != nullptr) {
    fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "the task group that was begun on stream %d was not ended", in_group_id);
  }
  fail(ACL_ERROR_RT_STREAM_UNJOINED,
       "stream %d took part in the capture and has work that the capture's stream never waited for", unjoined->id);
}

// A replay that is underway.
class Replay {
 public:
  Replay(std::shared_ptr<Graph> graph, const Observer::TaskEnds& task_ends)
      : graph_(std::move(graph)), task_ends_(task_ends), done_(graph_->nodes.size()) {
    if (is_profiling()) row_ = profiler::Row::within("", "", nullptr);
  }

  // In the worker of the stream that runs these nodes.
  void run(const Lane& lane) {
    for (const size_t i : lane) {
      if (is_cut_ || !wait_for(graph_->nodes[i].predecessors)) return;
      run(i);
    }
  }

  bool is_done() const { return lanes_done_ + 1 == graph_->lanes.size(); }
  // No node begins any more, and none is waited for.
  void cut() {
    is_cut_ = true;
    notify_waits();
  }
  void lane_done() {
    ++lanes_done_;
    notify_waits();
  }
  std::optional<Failure> failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  bool wait_for(const std::vector<size_t>& nodes) {
    for (const size_t i : nodes) {
      if (done_[i]) continue;
      running_stream()->block_until([&] { return done_[i] || is_cut_; }, /*poll=*/false);
      if (!done_[i]) return false;
    }
    return true;
  }

  void run(size_t i) {
    const Node& node = graph_->nodes[i];
    const std::string& name = graph_->tasks[i].name;
    const std::shared_ptr<const Work> work = work_of(node);
    std::optional<profiler::Row> row;
    if (row_) {
      profiler::Row::Of of = *row_;
      of.name = name;
      of.operands = work->operands;
      of.stream = node.stream_id;
      row.emplace(std::move(of));
    }
    std::optional<Failure> failure = run_task_as(node.stream, work->task);
    row.reset();
    for (const auto& task_ends : task_ends_) task_ends(i);
    if (failure) {
      keep(i, Failure{failure->code, name + ": " + failure->message});
      if (running_stream()->context->stops_on_failure) cut();
    }
    done_[i] = true;
    if (node.is_awaited) notify_waits();
  }

  std::shared_ptr<const Work> work_of(const Node& node) {
    const std::lock_guard lock(graph_->update_mutex);
    return node.work;
  }

  void keep(size_t node, Failure failure) {
    const std::lock_guard lock(mutex_);
    if (failure_ && failed_node_ < node) return;
    failure_ = std::move(failure);
    failed_node_ = node;
  }

  const std::shared_ptr<Graph> graph_;
  const Observer::TaskEnds task_ends_;
  std::optional<profiler::Row::Of> row_;  // which the nodes' rows are copied from
  std::vector<std::atomic<bool>> done_;   // of each node
  std::atomic<size_t> lanes_done_{0};     // but for the first
  std::atomic<bool> is_cut_{false};
  std::mutex mutex_;
  std::optional<Failure> failure_;  // of the first node that failed
  size_t failed_node_ = 0;
};

std::optional<Failure> replay(const std::shared_ptr<Graph>& graph, const Observer::TaskEnds& task_ends) {
  std::lock_guard lock(graph->replay_mutex);
  const auto replay = std::make_shared<Replay>(graph, task_ends);
  Stream& stream = *running_stream();
  try {
    for (size_t i = 1; i < graph->lanes.size(); ++i) {
      std::shared_ptr<void> done(nullptr, [replay](void*) { replay->lane_done(); });
      stream.beside(i).push(
          "captured graph",
          [replay, graph, i, done] {
            replay->run(graph->lanes[i]);
            return ACL_SUCCESS;
          },
          IfStopped::kRun);
    }
  } catch (...) {
    replay->cut();
    throw;
  }
  replay->run(graph->lanes[0]);
  if (!replay->is_done() &&
      !stream.block_until([&] { return replay->is_done(); }, /*poll=*/false)) {  // it is being discarded
    replay->cut();
    stream.end_streams_beside();
  }
  return replay->failure();
}

void execute(aclmdlRI model, aclrtStream stream) {
  require_pointer(model, "modelRI");
  std::shared_ptr<Graph> graph = graphs().find(model);
  {
    std::lock_guard lock(capture_mutex());
    require_ended(*graph);
  }
  const std::shared_ptr<Stream> on = find_own_stream(stream);
  if (on->graph != nullptr && !is_running(on->handle)) {
    fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %d is being captured, and graphs within graphs are not supported",
         on->id);
  }
  int32_t device = on->context->device;
  if (device != graph->device) {
    fail(ACL_ERROR_RT_STREAM_CONTEXT, "the graph is of device %d, the stream of device %d", graph->device, device);
  }
  if (!is_running(on->handle)) notify(&Observer::on_request, "captured graph");
  Observer::TaskEnds task_ends;  // which may refer to the tasks
  std::shared_ptr<const std::vector<CapturedTask>> tasks;
  if (observers != nullptr) {
    {
      const std::lock_guard lock(graph->update_mutex);
      tasks = std::make_shared<const std::vector<CapturedTask>>(graph->tasks);
    }
    notify(&Observer::on_replay, *on, *tasks, task_ends);
  }
  append(stream, "captured graph", [graph, tasks, task_ends = std::move(task_ends)] {
    std::optional<Failure> failure = replay(graph, task_ends);
    return failure ? error(failure->code, "%s", failure->message.c_str()) : ACL_SUCCESS;
  });
}

std::shared_ptr<Graph> find_graph(aclmdlRI model) {
  require_pointer(model, "modelRI");
  return graphs().find(model);
}

// A graph whose capture has ended, as a trace for chrome://tracing: a row for each stream, a place for each node.
std::string describe(aclmdlRI model) {
  std::shared_ptr<Graph> graph = find_graph(model);
  std::lock_guard lock(capture_mutex());
  require_ended(*graph);
  const std::string process = "graph " + std::to_string(graph->id) + " of device " + std::to_string(graph->device);
  Json::Array events;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    events.push_back(Json::Object{{"name", graph->tasks[i].name},
                                  {"ph", "X"},
                                  {"pid", process},
                                  {"tid", "stream " + std::to_string(graph->nodes[i].stream_id)},
                                  {"ts", i},
                                  {"dur", 1},
                                  {"args", Json::Object{{"task id", i}}}});
  }
  return to_text(Json::Object{{"traceEvents", std::move(events)}}) + "\n";
}

void require_capturable(const Event& event) {
  if (event.reusable) return;
  fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "a capture takes events of aclrtCreateEventExWithFlag only");
}

struct Captures final : TaskRecorder {
  bool record(Stream& stream, const Task& task, const CapturedTask& captured,
              std::shared_ptr<const TaskTensors> operands) override {
    std::unique_lock lock(capture_mutex());
    if (stream.updates_tasks) {
      take_update(stream, task, captured, std::move(operands));
      return true;
    }
    Graph* graph = stream.graph;
    if (graph == nullptr) return false;
    if (graph->state == CaptureState::kInvalidated || !fits_task_groups(*graph, stream, captured.name)) return true;
    const auto group = graph->open_groups.find(&stream);
    if (group != graph->open_groups.end()) group->second->nodes.push_back(graph->nodes.size());
    Progress& progress = graph->progress[&stream];
    Node node{stream.handle, stream.id, std::make_shared<const Work>(task, std::move(operands)), {}};
    for (const auto& [other, count] : progress) {
      if (other == &stream || count == 0) continue;
      node.predecessors.push_back(count - 1);
      graph->nodes[count - 1].is_awaited = true;
    }
    if (is_collective(captured.name)) {
      const auto before = std::exchange(graph->collective, graph->nodes.size());
      if (before && graph->nodes[*before].stream != &stream) {
        node.predecessors.push_back(*before);
        graph->nodes[*before].is_awaited = true;
      }
    }
    graph->nodes.push_back(std::move(node));
    graph->tasks.push_back(captured);
    progress[&stream] = graph->nodes.size();
    if (observers == nullptr) return true;
    const std::shared_ptr<Graph> kept = graphs().find(graph->handle);
    std::map<int32_t, size_t> known;
    for (const auto& [earlier, count] : progress) known[earlier->id] = count;
    lock.unlock();
    notify(&Observer::on_capture, stream, captured, known, kept->notes);
    return true;
  }

  bool mark(Stream& stream, Event& event) override {
    std::lock_guard lock(capture_mutex());
    if (stream.updates_tasks) {
      take_update(stream, {}, {"aclrtRecordEvent", {}}, {});
      return true;
    }
    Graph* graph = stream.graph;
    if (graph == nullptr) return false;
    require_capturable(event);
    fits_task_groups(*graph, stream, "aclrtRecordEvent");
    std::shared_ptr<Graph> shared = graphs().find(graph->handle);
    std::lock_guard event_lock(event.mutex);
    event.graph = shared;
    event.progress = graph->progress[&stream];
    return true;
  }

  bool join(Stream& stream, Event& event) override {
    if (active_captures == 0 && stream.graph == nullptr && !stream.updates_tasks) {
      std::lock_guard event_lock(event.mutex);
      if (!event.graph) return false;
    }
    std::lock_guard lock(capture_mutex());
    if (stream.updates_tasks) {
      take_update(stream, {}, {"aclrtStreamWaitEvent", {}}, {});
      return true;
    }
    std::lock_guard event_lock(event.mutex);
    Graph* own = stream.graph;
    Graph* other = event.graph.get();
    if (own == nullptr && (other == nullptr || other->state == CaptureState::kEnded)) return false;
    require_capturable(event);
    if (stream.context->is_default(stream)) {
      fail(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "the default stream cannot take part in a capture");
    }
    if (own != nullptr && own != other) {
      bool was_recorded = other != nullptr || event.latest != nullptr;
      if (was_recorded) {
        invalidate(*own,
                   "stream " + std::to_string(stream.id) + " waited for an event that was recorded outside of it");
      }
      return true;
    }
    fits_task_groups(*other, stream, "aclrtStreamWaitEvent");
    if (own == nullptr) {
      try {
        other->streams.emplace_back(find_device(stream.context->device));
      } catch (const Failure& failure) {
        invalidate(*other, failure.message, failure.code);
      }
    }
    stream.graph = other;
    Progress& progress = other->progress[&stream];
    for (const auto& [earlier, count] : event.progress) progress[earlier] = std::max(progress[earlier], count);
    return true;
  }

  void stop(Stream& stream) override {
    std::lock_guard lock(capture_mutex());
    if (stream.updates_tasks) drop_update(stream);
    Graph* graph = stream.graph;
    if (graph == nullptr) return;
    invalidate(*graph, "a stream of it was destroyed");
    graph->open_groups.erase(&stream);
    stream.graph = nullptr;
    graph->progress.erase(&stream);
    if (graph->origin != &stream) return;
    end_capture(*graph);
    remove(graph->handle);
  }

  void forbid(Stream& stream) override {
    if (stream.graph == nullptr) return;
    std::lock_guard lock(capture_mutex());
    Graph* graph = stream.graph;
    if (graph == nullptr) return;
    invalidate(*graph, "the host asked for the state of stream " + std::to_string(stream.id));
    fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %d is being captured and cannot be waited for or queried", stream.id);
  }

  void forbid_unsafe(aclError code) override {
    if (active_captures == 0 || is_worker() || thread_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return;
    std::lock_guard lock(capture_mutex());
    auto forbidding = graphs().find_if([](const Graph& graph) {
      if (graph.state == CaptureState::kEnded || graph.mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return false;
      bool is_own = graph.thread == std::this_thread::get_id();
      bool is_global =
          graph.mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL && thread_mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
      return is_own || is_global;
    });
    if (forbidding.empty()) return;
    for (const auto& graph : forbidding) {
      if (graph->thread == std::this_thread::get_id())
        invalidate(*graph, "a call that works beside the streams was made");
    }
    fail(code, "not allowed while a stream is being captured (aclmdlRICaptureThreadExchangeMode can allow it)");
  }

  bool reject_pageable(aclrtStream handle) override {
    if (active_captures == 0 || is_running(handle)) return false;
    std::shared_ptr<Stream> stream = find_stream(handle);
    std::lock_guard lock(capture_mutex());
    Graph* graph = stream->graph;
    if (graph == nullptr || is_running(stream->handle)) return false;
    invalidate(*graph, "an asynchronous copy used host memory that is not pinned");
    return true;
  }
} captures;

const bool is_recorder_set = (task_recorder = &captures) != nullptr;

}  // namespace
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
    require_pointer(handle, "stream");
    if (status == nullptr) require_pointer(modelRI, "status, and so is modelRI,");
    aclmdlRICaptureStatus found = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    std::shared_ptr<Stream> stream = streams().find(handle);
    std::lock_guard lock(capture_mutex());
    Graph* graph = stream->graph;
    if (graph != nullptr) {
      bool active = graph->state == CaptureState::kActive;
      found = active ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE : ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
    }
    if (status != nullptr) *status = found;
    if (modelRI != nullptr) *modelRI = graph == nullptr ? nullptr : graph->handle;
  });
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
  return call(__func__, [&] {
    require_pointer(mode, "mode");
    if (*mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || *mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
      fail(ACL_ERROR_INVALID_PARAM, "mode is %d; expected 0 to 2", *mode);
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
      require_ended(*graph);
      remove(modelRI);
    }
    notify(&Observer::on_graph_destroyed, graph.get());
  });
}

aclError aclmdlRIGetId(aclmdlRI modelRI, uint32_t* modelRIId) {
  return call(__func__, [&] {
    require_pointer(modelRIId, "modelRIId");
    *modelRIId = find_graph(modelRI)->id;
  });
}

aclError aclmdlRIDebugPrint(aclmdlRI modelRI) {
  return call(__func__, [&] { std::fputs(describe(modelRI).c_str(), stdout); });
}

aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char* path, uint32_t flags) {
  return call(__func__, [&] {
    require_pointer(path, "path");
    if (flags > 1) fail(ACL_ERROR_RT_PARAM_INVALID, "flags is %u; 0 for a summary, 1 for all", flags);
    const std::string text = describe(modelRI);
    std::ofstream file(path);
    if (const int code = fault_of("disk", ACL_ERROR_WRITE_FILE)) throw Failure{code, take_message()};
    if (!(file << text).flush()) fail(ACL_ERROR_WRITE_FILE, "cannot write %s", path);
  });
}
