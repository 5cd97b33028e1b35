// SPDX-License-Identifier: Apache-2.0
// Task groups of captured graphs: tasks that a program may replace by tasks of the same names, with other arguments.
//
// The new tasks are collected while a stream updates a group, and checked at the end. They take the old ones' place as
// a task of that stream, all at once: a node that begins later runs the new one.
#include <algorithm>

#include "capture.h"

namespace cann_cpu {
namespace {

// An update that is underway.
struct Update {
  struct NewTask {
    CapturedTask captured;
    std::shared_ptr<const Work> work;
  };
  std::shared_ptr<TaskGroup> group;
  std::vector<NewTask> tasks;
  std::optional<Failure> failure;
};

Registry<TaskGroup>& task_groups() {
  static auto* registry = new Registry<TaskGroup>("task group");
  return *registry;
}

// Changes under capture_mutex().
std::map<const Stream*, Update>& updates() {
  static auto* all = new std::map<const Stream*, Update>;
  return *all;
}

// Neither a function of the runtime nor a collective: CANN takes tasks of the Cube and Vector cores alone.
bool is_operator(const std::string& task) {
  return !task.starts_with("aclrt") && task != "captured graph" && !is_collective(task);
}

std::shared_ptr<Stream> find_outside_stream(aclrtStream handle) {
  require_pointer(handle, "stream");
  std::shared_ptr<Stream> stream = find_own_stream(handle);
  if (is_running(stream->handle)) fail(ACL_ERROR_RT_STREAM_CONTEXT, "called from inside a task of the stream");
  return stream;
}

// Under capture_mutex().
Graph& captured_by(const Stream& stream) {
  Graph* graph = stream.graph;
  if (graph == nullptr) fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "stream %d is not being captured", stream.id);
  return *graph;
}

void begin_group(aclrtStream handle) {
  const std::shared_ptr<Stream> stream = find_outside_stream(handle);
  std::lock_guard lock(capture_mutex());
  Graph& graph = captured_by(*stream);
  const auto [open, is_new] = graph.open_groups.try_emplace(stream.get());
  if (!is_new) {
    fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "a task group of stream %d is open; task groups do not nest", stream->id);
  }
  open->second = std::make_shared<TaskGroup>();
}

void end_group(aclrtStream handle, aclrtTaskGrp* group) {
  require_pointer(group, "handle");
  *group = nullptr;
  const std::shared_ptr<Stream> stream = find_outside_stream(handle);
  std::lock_guard lock(capture_mutex());
  Graph& graph = captured_by(*stream);
  auto open = graph.open_groups.extract(stream.get());
  if (open.empty()) fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "no task group of stream %d is open", stream->id);
  if (graph.cause) fail(graph.cause->code, "the capture was invalidated: %s", graph.cause->message.c_str());
  open.mapped()->graph = graph.weak_from_this();
  graph.groups.push_back(open.mapped());
  *group = task_groups().add(open.mapped());
}

void begin_update(aclrtStream handle, aclrtTaskGrp group_handle) {
  require_pointer(group_handle, "handle");
  const std::shared_ptr<Stream> stream = find_outside_stream(handle);
  const std::shared_ptr<TaskGroup> group = task_groups().find(group_handle);
  std::lock_guard lock(capture_mutex());
  if (stream->graph != nullptr) {
    fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %d is being captured; another stream updates tasks", stream->id);
  }
  if (updates().contains(stream.get())) {
    fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream %d updates a task group already", stream->id);
  }
  if (group->is_updated) fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "another stream updates the task group");
  const std::shared_ptr<Graph> graph = group->graph.lock();
  if (!graph) fail(ACL_ERROR_RT_INVALID_HANDLE, "the graph of the task group was destroyed");
  require_ended(*graph);
  if (stream->context->device != graph->device) {
    fail(ACL_ERROR_RT_STREAM_CONTEXT, "the graph is of device %d, stream %d of device %d", graph->device, stream->id,
         stream->context->device);
  }
  group->is_updated = true;
  updates()[stream.get()].group = group;
  stream->updates_tasks = true;
  profiler::begin_capture();  // the new tasks may be profiled later
}

// Why the tasks cannot replace those of the group.
std::optional<std::string> mismatch(const Graph& graph, const Update& update) {
  const std::vector<size_t>& nodes = update.group->nodes;
  for (size_t i = 0; i < std::min(nodes.size(), update.tasks.size()); ++i) {
    const std::string& captured = graph.tasks[nodes[i]].name;
    const std::string& name = update.tasks[i].captured.name;
    if (name != captured) {
      return "task " + std::to_string(i) + " of the task group is " + captured + ", and the update has " + name;
    }
  }
  if (nodes.size() == update.tasks.size()) return std::nullopt;
  return "the task group has " + std::to_string(nodes.size()) + " tasks, and the update has " +
         std::to_string(update.tasks.size());
}

void replace(Graph& graph, const std::vector<size_t>& nodes, std::vector<Update::NewTask>& tasks) {
  std::lock_guard lock(graph.update_mutex);
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::swap(graph.nodes[nodes[i]].work, tasks[i].work);
    std::swap(graph.tasks[nodes[i]].accesses, tasks[i].captured.accesses);
  }
}

void end_update(aclrtStream handle) {
  const std::shared_ptr<Stream> stream = find_outside_stream(handle);
  Update update;
  std::shared_ptr<Graph> graph;
  {
    std::lock_guard lock(capture_mutex());
    if (stream->graph != nullptr) fail(ACL_ERROR_RT_STREAM_CAPTURED, "stream %d is being captured", stream->id);
    auto found = updates().find(stream.get());
    if (found == updates().end()) {
      fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream %d updates no task group", stream->id);
    }
    update = found->second;
    drop_update(*stream);
    graph = task_groups().find(update.group->handle)->graph.lock();
  }
  if (update.failure) throw *update.failure;
  if (const auto reason = mismatch(*graph, update)) {
    fail(ACL_ERROR_RT_INTERNAL_ERROR, "%s; the graph keeps its tasks", reason->c_str());
  }
  append_uncaptured(
      *stream, "aclmdlRICaptureTaskUpdate",
      [graph, group = update.group, tasks = std::make_shared<std::vector<Update::NewTask>>(std::move(update.tasks))] {
        replace(*graph, group->nodes, *tasks);
        return ACL_SUCCESS;
      });
}

}  // namespace

bool fits_task_groups(Graph& graph, const Stream& stream, const std::string& task) {
  if (graph.open_groups.empty()) return true;
  const auto open = graph.open_groups.find(&stream);
  if (open == graph.open_groups.end()) {
    invalidate(graph,
               "stream " + std::to_string(stream.id) + " was given " + task + " while a task group of stream " +
                   std::to_string(graph.open_groups.begin()->first->id) + " was open",
               ACL_ERROR_STREAM_TASK_GROUP_INTR);
    return false;
  }
  if (!is_operator(task)) {
    invalidate(graph, task + " is not an operator, and a task group takes operators only",
               ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT);
    return false;
  }
  return true;
}

void take_update(const Stream& stream, const Task& task, const CapturedTask& captured,
                 std::shared_ptr<const TaskTensors> operands) {
  Update& update = updates().at(&stream);
  if (!is_operator(captured.name) && !update.failure) {
    update.failure = {ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT,
                      captured.name + " is not an operator, and an update of a task group takes operators only"};
  }
  update.tasks.push_back({captured, std::make_shared<const Work>(task, std::move(operands))});
}

void drop_update(Stream& stream) {
  auto update = updates().extract(&stream);
  if (update.empty()) return;
  stream.updates_tasks = false;
  update.mapped().group->is_updated = false;
  profiler::end_capture();
}

void remove_task_groups(Graph& graph) {
  for (const auto& group : graph.groups) task_groups().remove(group->handle);
  graph.groups.clear();
}

}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
  return call(__func__, [&] { begin_group(stream); });
}

aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp* handle) {
  return call(__func__, [&] { end_group(stream, handle); });
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle) {
  return call(__func__, [&] { begin_update(stream, handle); });
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
  return call(__func__, [&] { end_update(stream); });
}
