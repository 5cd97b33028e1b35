// SPDX-License-Identifier: Apache-2.0
// ge::Session and the C exports: adds, compiles and runs graphs.
#include <ATen/core/Tensor.h>

#include <functional>
#include <future>
#include <mutex>

#include "acl/acl_rt.h"
#include "bindings.h"
#include "cann_cpu/device_memory.h"
#include "cann_cpu/runtime.h"
#include "cann_cpu/waiting.h"
#include "errors.h"
#include "ge/ge_api.h"
#include "graph_api.h"
#include "graph_engine/execution/execution.h"
#include "graph_engine/packages/prototypes.h"
#include "options.h"
#include "summary.h"

namespace cann_cpu::graph {
namespace {

using StringMap = std::map<ge::AscendString, ge::AscendString>;

struct AddedGraph {
  std::shared_ptr<const Model> model;
  Options options;
  std::shared_ptr<const CompiledGraph> compiled;
  bool is_loaded = false;  // for GeSessionExecuteGraphWithStreamAsync
};

// The engine's options; a session and a graph may override them.
struct EngineOptions {
  std::mutex mutex;
  std::optional<Options> options;  // none before GEInitialize
};
EngineOptions& engine() {
  static auto* const instance = new EngineOptions;
  return *instance;
}

class SessionState {
 public:
  // Options that are wrong fail with the first graph: a constructor returns no status.
  explicit SessionState(const StringMap& options) : session_options_(options) {}

  static SessionState& of(uint64_t id) { return *reinterpret_cast<SessionState*>(id); }

  void add(uint32_t id, const ge::Graph& graph, const StringMap& options) {
    AddedGraph added;
    {
      EngineOptions& all = engine();
      const std::lock_guard lock(all.mutex);
      if (!all.options) throw NotInitialized();
      added.options = *all.options;
    }
    added.model = ge::GraphImpl::model(graph);
    Options own = checked_options(options);
    own.merge(checked_options(session_options_));
    own.merge(std::move(added.options));
    added.options = std::move(own);
    const std::lock_guard lock(mutex_);
    if (!graphs_.emplace(id, std::move(added)).second) {
      throw GraphError("graph " + std::to_string(id) + " was added before");
    }
  }

  void remove(uint32_t id) {
    const std::lock_guard lock(mutex_);
    find(id);
    graphs_.erase(id);
  }

  std::shared_ptr<const CompiledGraph> compile(uint32_t id) {
    const std::lock_guard lock(mutex_);
    AddedGraph& graph = find(id);
    if (graph.compiled == nullptr) {
      graph.compiled = std::make_shared<const CompiledGraph>(graph.model, graph.options);
    }
    return graph.compiled;
  }

  // The compiled graph; throws if neither CompileGraph nor a run has compiled it.
  std::shared_ptr<const CompiledGraph> compiled(uint32_t id) {
    const std::lock_guard lock(mutex_);
    return require_compiled(id).compiled;
  }

  void load(uint32_t id) {
    const std::lock_guard lock(mutex_);
    require_compiled(id).is_loaded = true;
  }

  void require_loaded(uint32_t id) {
    const std::lock_guard lock(mutex_);
    if (!find(id).is_loaded) throw GraphError("graph " + std::to_string(id) + " is not loaded; LoadGraph comes first");
  }

  std::optional<Cores> cores(uint32_t id) {
    const std::lock_guard lock(mutex_);
    return cores_of(find(id).options);
  }

  void set_allocator(const void* stream, std::shared_ptr<ge::Allocator> allocator) {
    const std::lock_guard lock(mutex_);
    allocators_[stream] = std::move(allocator);
  }

  std::shared_ptr<ge::Allocator> allocator(const void* stream) {
    const std::lock_guard lock(mutex_);
    const auto found = allocators_.find(stream);
    if (found == allocators_.end() || found->second == nullptr) {
      throw GraphError("an output has no memory, and no external allocator is registered for the stream");
    }
    return found->second;
  }

 private:
  AddedGraph& find(uint32_t id) {
    const auto found = graphs_.find(id);
    if (found == graphs_.end()) {
      throw GraphError("there is no graph " + std::to_string(id) + " in this session");
    }
    return found->second;
  }

  AddedGraph& require_compiled(uint32_t id) {
    AddedGraph& graph = find(id);
    if (graph.compiled != nullptr) return graph;
    throw GraphError("graph " + std::to_string(id) + " is not compiled; CompileGraph comes first");
  }

  const StringMap session_options_;
  std::mutex mutex_;
  std::map<uint32_t, AddedGraph> graphs_;
  std::map<const void*, std::shared_ptr<ge::Allocator>> allocators_;
};

constexpr const char* kTaskName = "graph";

// One execution: what its task needs, and nothing of the caller's that may go away.
struct Execution {
  std::shared_ptr<const CompiledGraph> graph;
  std::vector<StoredTensor> inputs;
  std::vector<at::Tensor> targets;  // undefined: the engine allocates the output
  std::optional<Cores> cores;       // that nodes may use
  aclrtStream stream = nullptr;

  std::vector<at::Tensor> run() const {
    const CoresOfThread limited(cores);
    try {
      auto results = run_nodes(*graph, inputs, targets, stream);
      write_outputs(results, targets);
      return results;
    } catch (const GraphError& error) {
      throw GraphError("graph '" + graph->name() + "': " + error.what());
    }
  }
};

// The accesses of the graph's inputs and outputs. Arguments are numbered through both.
Accesses accesses_of(const Execution& execution) {
  Accesses accesses;
  if (!accesses_are_checked()) return accesses;
  auto add = [&, argument = 0U](const at::Tensor& tensor, bool is_write) mutable {
    ++argument;
    if (!tensor.defined() || tensor.numel() == 0 || !tensor.is_non_overlapping_and_dense()) return;
    const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    accesses.push_back({begin, begin + tensor.nbytes(), is_write, argument});
  };
  for (const StoredTensor& input : execution.inputs) add(input.tensor, false);
  for (const at::Tensor& target : execution.targets) add(target, true);
  return accesses;
}

bool is_capturing(aclrtStream stream) {
  if (stream == nullptr) return false;  // the default stream takes no part in a capture
  aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  aclmdlRI model = nullptr;
  return aclmdlRICaptureGetInfo(stream, &status, &model) == ACL_SUCCESS && status == ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
}

void enqueue(std::shared_ptr<const Execution> execution) {
  const aclError code = launch(
      execution->stream, kTaskName,
      [execution]() -> aclError {
        try {
          execution->run();
          return ACL_SUCCESS;
        } catch (const std::exception& failure) {
          return error(ACL_ERROR_RT_INTERNAL_ERROR, "%s", failure.what());
        }
      },
      accesses_of(*execution));
  if (code != ACL_SUCCESS) {
    throw GraphError(std::string("the graph cannot be launched: ") + aclGetRecentErrMsg());
  }
}

// Runs on the stream's worker and waits, as the shapes of the outputs are known only afterwards. The results are also
// processed there, as they may be memory of the device.
std::vector<at::Tensor> run_and_wait(const Execution& execution,
                                     const std::function<void(const std::vector<at::Tensor>&)>& use = {}) {
  if (is_capturing(execution.stream)) {
    throw GraphError("graph '" + execution.graph->name() +
                     "' cannot be captured: the sizes of its outputs are known only after it has run");
  }
  auto promise = std::make_shared<std::promise<std::vector<at::Tensor>>>();  // the task's alone: it breaks with it
  auto results = promise->get_future();
  const aclError code = launch(
      execution.stream, kTaskName,
      [&execution, &use, promise = std::move(promise)]() -> aclError {
        try {
          auto found = execution.run();
          if (use) use(found);
          promise->set_value(std::move(found));
        } catch (...) {
          promise->set_exception(std::current_exception());
        }
        return ACL_SUCCESS;
      },
      accesses_of(execution));
  if (code != ACL_SUCCESS) {
    throw GraphError(std::string("the graph cannot be launched: ") + aclGetRecentErrMsg());
  }
  wait_for(execution.stream);
  try {
    return results.get();
  } catch (const std::future_error&) {
    throw GraphError("graph '" + execution.graph->name() + "': its stream was destroyed before it ran");
  }
}

template <class T>
std::shared_ptr<Execution> prepare(SessionState& session, uint32_t id, aclrtStream stream, const std::vector<T>& inputs,
                                   const std::vector<T>& outputs) {
  auto execution = std::make_shared<Execution>();
  execution->graph = session.compile(id);
  execution->cores = session.cores(id);
  execution->stream = stream;
  const CompiledGraph& graph = *execution->graph;
  if (inputs.size() != graph.input_count() || outputs.size() != graph.outputs().size()) {
    throw GraphError("graph '" + graph.name() + "' has " + std::to_string(graph.input_count()) + " inputs and " +
                     std::to_string(graph.outputs().size()) + " outputs, it was called with " +
                     std::to_string(inputs.size()) + " and " + std::to_string(outputs.size()));
  }
  for (const T& input : inputs) {
    try {
      execution->inputs.push_back(bind_input(input));
    } catch (const std::invalid_argument& e) {
      throw GraphError("graph '" + graph.name() + "': input " + std::to_string(execution->inputs.size()) + " " +
                       e.what() + "; torchair keeps the formats of a graph's first call");
    }
  }
  for (const T& output : outputs) {
    execution->targets.push_back(bind_output(output));
  }
  return execution;
}

at::Tensor in_place_target(const StoredTensor& input) {
  if (input.format != ACL_FORMAT_ND) {
    throw GraphError("an input in FRACTAL_NZ is written in place; cast it to ND with torch_npu.npu_format_cast(x, 2)");
  }
  return input.tensor;
}

// An output without memory that reuses an input gets the input's memory. An empty output needs none. Returns whether
// the engine has to allocate any.
template <class T>
bool complete_targets(Execution& execution, std::vector<T>& outputs) {
  bool incomplete = false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const GraphOutput& output = execution.graph->outputs()[i];
    if (execution.targets[i].defined()) {
      continue;
    }
    if (output.reused_input >= 0) {
      execution.targets[i] = in_place_target(execution.inputs[output.reused_input]);
      share_output(execution.targets[i], outputs[i]);
      continue;
    }
    const bool empty =
        execution.graph->is_static() && std::find(output.shape.begin(), output.shape.end(), 0) != output.shape.end();
    incomplete = incomplete || !empty;
  }
  return incomplete;
}

template <class T>
void execute(SessionState& session, uint32_t id, aclrtStream stream, const std::vector<T>& inputs,
             std::vector<T>& outputs) {
  auto execution = prepare(session, id, stream, inputs, outputs);
  if (!complete_targets(*execution, outputs)) {
    enqueue(std::move(execution));
    return;
  }
  const auto allocator = session.allocator(stream);
  const auto results = run_and_wait(*execution);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!execution->targets[i].defined()) {
      allocate_output(results[i], *allocator, stream, outputs[i]);
    }
  }
}

}  // namespace
}  // namespace cann_cpu::graph

static_assert(sizeof(ge::Session) == sizeof(uint64_t), "torchair allocates sessions by this size");

namespace ge {

using cann_cpu::graph::GraphError;
using cann_cpu::graph::guarded;
using cann_cpu::graph::SessionState;

Status GEInitialize(const std::map<AscendString, AscendString>& options) {
  return guarded(__func__, [&] {
    auto checked = cann_cpu::graph::checked_options(options);
    auto& engine = cann_cpu::graph::engine();
    const std::lock_guard lock(engine.mutex);
    engine.options = std::move(checked);
    cann_cpu::graph::package_errors();  // loads the packages' prototypes
  });
}

Status GEFinalize() {
  auto& engine = cann_cpu::graph::engine();
  const std::lock_guard lock(engine.mutex);
  engine.options.reset();
  return SUCCESS;
}

AscendString GEGetWarningMsgV2() { return AscendString(cann_cpu::graph::package_errors().c_str()); }

Session::Session(const std::map<AscendString, AscendString>& options)
    : sessionId_(reinterpret_cast<uint64_t>(new SessionState(options))) {}

Session::~Session() { delete &SessionState::of(sessionId_); }

Status Session::AddGraph(uint32_t graph_id, const Graph& graph, const std::map<AscendString, AscendString>& options) {
  return guarded(__func__, [&] { SessionState::of(sessionId_).add(graph_id, graph, options); });
}

Status Session::RemoveGraph(uint32_t graph_id) {
  return guarded(__func__, [&] { SessionState::of(sessionId_).remove(graph_id); });
}

Status Session::CompileGraph(uint32_t graph_id) {
  return guarded(__func__, [&] { SessionState::of(sessionId_).compile(graph_id); });
}

CompiledGraphSummaryPtr Session::GetCompiledGraphSummary(uint32_t graph_id) {
  CompiledGraphSummaryPtr summary;
  guarded(__func__, [&] {
    auto data = std::make_shared<CompiledGraphSummary::SummaryData>();
    data->graph = SessionState::of(sessionId_).compiled(graph_id);
    summary = std::make_shared<CompiledGraphSummary>(std::move(data));
  });
  return summary;
}

Status Session::RunGraph(uint32_t graph_id, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  return guarded(__func__, [&] {
    auto& session = SessionState::of(sessionId_);
    outputs.assign(session.compile(graph_id)->outputs().size(), Tensor());
    const auto execution = cann_cpu::graph::prepare(session, graph_id, nullptr, inputs, outputs);
    cann_cpu::graph::run_and_wait(*execution, [&](const std::vector<at::Tensor>& results) {
      for (size_t i = 0; i < outputs.size(); ++i) cann_cpu::graph::host_output(results[i], outputs[i]);
    });
  });
}

Status Session::RunGraphWithStreamAsync(uint32_t graph_id, void* stream, const std::vector<Tensor>& inputs,
                                        std::vector<Tensor>& outputs) {
  return guarded(__func__,
                 [&] { cann_cpu::graph::execute(SessionState::of(sessionId_), graph_id, stream, inputs, outputs); });
}

Status Session::RegisterExternalAllocator(const void* const stream, std::shared_ptr<Allocator> allocator) const {
  return guarded(__func__, [&] { SessionState::of(sessionId_).set_allocator(stream, std::move(allocator)); });
}

Status Session::UnregisterExternalAllocator(const void* const stream) const {
  return guarded(__func__, [&] { SessionState::of(sessionId_).set_allocator(stream, nullptr); });
}

namespace {

// A graph needs none of it, whatever its summary says for torchair: constants are its own, intermediates come and go.
Status accept_memory(const char* function, uint64_t session, uint32_t graph_id, const void* memory, size_t size) {
  return guarded(function, [&] {
    SessionState::of(session).compiled(graph_id);
    if (size > 0 && cann_cpu::require_device_memory(function, memory, size) != ACL_SUCCESS) {
      throw GraphError("the memory for graph " + std::to_string(graph_id) +
                       " is not a device's memory: " + aclGetRecentErrMsg());
    }
  });
}

}  // namespace

Status Session::SetGraphConstMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return accept_memory(__func__, sessionId_, graph_id, memory, size);
}
Status Session::UpdateGraphFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return accept_memory(__func__, sessionId_, graph_id, memory, size);
}
Status Session::SetGraphFixedFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return accept_memory(__func__, sessionId_, graph_id, memory, size);
}
Status Session::UpdateGraphRefreshableFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return accept_memory(__func__, sessionId_, graph_id, memory, size);
}

}  // namespace ge

ge::Status GeSessionLoadGraph(ge::Session& session, uint32_t graph_id,
                              const std::map<ge::AscendString, ge::AscendString>& options, void*) {
  return cann_cpu::graph::guarded(__func__, [&] {
    cann_cpu::graph::checked_options(options);
    cann_cpu::graph::SessionState::of(session.id()).load(graph_id);
  });
}

ge::Status GeSessionExecuteGraphWithStreamAsync(ge::Session& session, uint32_t graph_id, void* stream,
                                                const std::vector<gert::Tensor>& inputs,
                                                std::vector<gert::Tensor>& outputs) {
  return cann_cpu::graph::guarded(__func__, [&] {
    auto& state = cann_cpu::graph::SessionState::of(session.id());
    state.require_loaded(graph_id);
    cann_cpu::graph::execute(state, graph_id, stream, inputs, outputs);
  });
}
