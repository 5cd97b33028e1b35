// SPDX-License-Identifier: Apache-2.0
// Captured graphs and their task groups, whose tasks can be replaced.
#pragma once

#include <list>

#include "event.h"

namespace cann_cpu {

enum class CaptureState { kActive, kInvalidated, kEnded };

// What a node does.
struct Work {
  Task task;
  std::shared_ptr<const TaskTensors> operands;
};

struct Node {
  aclrtStream stream;  // which may be gone at the replay
  int32_t stream_id;
  std::shared_ptr<const Work> work;  // another one after an update; changes under the graph's update_mutex
  std::vector<size_t> predecessors;  // nodes of other streams that end before this one begins
  bool is_awaited = false;           // whether it is a predecessor of another node
};

using Lane = std::vector<size_t>;  // the nodes of one stream, in their order

struct TaskGroup : HasHandle {
  std::weak_ptr<Graph> graph;
  std::vector<size_t> nodes;
  bool is_updated = false;  // by a stream now
};

struct Graph : HasHandle, std::enable_shared_from_this<Graph> {
  uint32_t id;
  int32_t device;
  aclmdlRICaptureMode mode;
  std::thread::id thread;
  const Stream* origin;

  CaptureState state = CaptureState::kActive;
  std::optional<Failure> cause;          // of the invalidation
  std::map<Stream*, Progress> progress;  // per captured stream: the nodes known to have ended before its next one
  std::vector<Node> nodes;
  std::vector<CapturedTask> tasks;   // of each node; their accesses change under update_mutex
  std::optional<size_t> collective;  // the last node that is one
  std::vector<Lane> lanes;  // the first is of the stream on which the capture began; once the capture has ended
  std::list<StreamResource> streams;  // which the replays take, for each that was captured
  std::map<const Stream*, std::shared_ptr<TaskGroup>> open_groups;
  std::vector<std::shared_ptr<TaskGroup>> groups;
  Notes notes;
  std::mutex replay_mutex;  // one replay at a time
  std::mutex update_mutex;
};

// Guards everything of captures and updates that are underway: they are rare, and cross streams.
std::mutex& capture_mutex();

// These are called under capture_mutex().
void invalidate(Graph& graph, const std::string& cause, aclError code = ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
void require_ended(const Graph& graph);

// The ranks have to come to a communicator's collectives in one order, that of the capture.
bool is_collective(const std::string& task);

// False when an open task group forbids the captured stream this task. The capture is invalid then.
bool fits_task_groups(Graph& graph, const Stream& stream, const std::string& task);
// Takes a task of the stream, which updates a task group.
void take_update(const Stream& stream, const Task& task, const CapturedTask& captured,
                 std::shared_ptr<const TaskTensors> operands);
// Forgets the update that the stream has begun, if any.
void drop_update(Stream& stream);
// Forgets the groups of a graph that is going away.
void remove_task_groups(Graph& graph);

}  // namespace cann_cpu
