// SPDX-License-Identifier: Apache-2.0
// ge::Session, callable from Python: compiles a serialized model, and runs it in the ways that take ge::Tensor.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl_rt.h"
#include "exe_graph/runtime/tensor.h"
#include "ge/ge_api.h"

namespace {

using Options = std::map<ge::AscendString, ge::AscendString>;

class CountingAllocator : public ge::Allocator {
 public:
  ge::MemBlock* Malloc(size_t size) override {
    ++blocks;
    return new ge::MemBlock(*this, std::malloc(size), size);
  }
  void Free(ge::MemBlock* block) override {
    --blocks;
    std::free(block->address());
    delete block;
  }
  int blocks = 0;
};

const std::shared_ptr<CountingAllocator> allocator = std::make_shared<CountingAllocator>();

ge::Session& session() {
  static const ge::Status ready = ge::GEInitialize(Options{});
  if (ready != ge::SUCCESS) std::abort();
  static ge::Session instance(Options{});
  return instance;
}

int fail(char* text, size_t capacity) {
  std::strncpy(text, ge::GEGetErrorMsg().c_str(), capacity - 1);
  return -1;
}

// A model in memory, or the name of its file and no size.
bool add(uint32_t id, const char* model, size_t size) {
  ge::Graph graph("graph");
  const auto loaded = size == 0 ? graph.LoadFromFile(model) : graph.LoadFromSerializedModelArray(model, size);
  return loaded == ge::GRAPH_SUCCESS && session().AddGraph(id, graph, Options{}) == ge::SUCCESS;
}

ge::Tensor float_tensor(float* data, const int64_t* dims, size_t rank, ge::Placement placement) {
  ge::Tensor tensor;
  ge::TensorDesc description(ge::Shape({dims, dims + rank}), ge::FORMAT_ND, ge::DT_FLOAT);
  description.SetPlacement(placement);
  size_t count = 1;
  for (size_t i = 0; i < rank; ++i) {
    count *= static_cast<size_t>(dims[i]);
  }
  tensor.SetTensorDesc(description);
  tensor.SetData(reinterpret_cast<uint8_t*>(data), count * sizeof(float), [](uint8_t*) {});
  return tensor;
}

// Lets the stream wait for a value that nobody writes, and destroys it in another thread, a little later.
std::thread destroy_later(aclrtStream stream) {
  void* value = nullptr;
  aclrtMalloc(&value, sizeof(uint64_t), ACL_MEM_MALLOC_HUGE_FIRST);
  aclrtMemset(value, sizeof(uint64_t), 0, sizeof(uint64_t));
  aclrtValueWait(value, 1, ACL_STREAM_WAIT_VALUE_EQ, stream);
  return std::thread([stream, value] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    aclrtSetDevice(0);
    aclrtDestroyStreamForce(stream);
    aclrtFree(value);
  });
}

}  // namespace

extern "C" {

CANN_EXPORT int compile(const char* model, size_t size, char* text, size_t capacity) {
  constexpr uint32_t kId = 1;
  const bool done = add(kId, model, size) && session().CompileGraph(kId) == ge::SUCCESS;
  const int result = done ? 0 : fail(text, capacity);
  session().RemoveGraph(kId);
  return result;
}

// Adds a graph with an option and compiles it.
CANN_EXPORT int compile_with(const char* model, size_t size, const char* name, const char* value, char* text,
                             size_t capacity) {
  constexpr uint32_t kId = 3;
  ge::Graph graph("graph");
  const bool done = graph.LoadFromSerializedModelArray(model, size) == ge::GRAPH_SUCCESS &&
                    session().AddGraph(kId, graph, Options{{name, value}}) == ge::SUCCESS &&
                    session().CompileGraph(kId) == ge::SUCCESS;
  const int result = done ? 0 : fail(text, capacity);
  session().RemoveGraph(kId);
  return result;
}

// Whether the engine takes memory for a graph.
CANN_EXPORT int give_memory(const char* model, size_t size, const void* memory, size_t bytes, char* text,
                            size_t capacity) {
  constexpr uint32_t kId = 4;
  const bool done = add(kId, model, size) && session().CompileGraph(kId) == ge::SUCCESS &&
                    session().SetGraphConstMemoryBase(kId, memory, bytes) == ge::SUCCESS;
  const int result = done ? 0 : fail(text, capacity);
  session().RemoveGraph(kId);
  return result;
}

// Runs a graph of one float input and one float output; way 0: RunGraph, 1: RunGraphWithStreamAsync, 2: the same in a
// stream that is busy until it is destroyed. Gives the output's rank and dimensions, and its elements.
CANN_EXPORT int run(int way, const char* model, size_t size, float* input, const int64_t* dims, size_t rank,
                    int64_t* output_dims, float* output, char* text, size_t capacity) {
  constexpr uint32_t kId = 2;
  std::vector<ge::Tensor> outputs(1);
  ge::Status status = add(kId, model, size) ? ge::SUCCESS : ge::FAILED;
  if (status == ge::SUCCESS && way == 0) {
    status = session().RunGraph(kId, {float_tensor(input, dims, rank, ge::kPlacementHost)}, outputs);
  } else if (status == ge::SUCCESS) {
    aclrtStream stream = nullptr;
    aclrtCreateStream(&stream);
    session().RegisterExternalAllocator(stream, allocator);
    std::thread destroying;
    if (way == 2) destroying = destroy_later(stream);
    status = session().RunGraphWithStreamAsync(kId, stream, {float_tensor(input, dims, rank, ge::kPlacementDevice)},
                                               outputs);
    if (way == 2) {
      destroying.join();
    } else {
      aclrtSynchronizeStream(stream);
      aclrtDestroyStream(stream);
    }
    session().RegisterExternalAllocator(stream, nullptr);
  }
  const int result = status == ge::SUCCESS ? 0 : fail(text, capacity);
  if (result == 0) {
    const auto shape = outputs[0].GetTensorDesc().GetShape().GetDims();
    output_dims[0] = static_cast<int64_t>(shape.size());
    std::copy(shape.begin(), shape.end(), output_dims + 1);
    std::memcpy(output, outputs[0].GetData(), outputs[0].GetSize());
  }
  outputs.clear();
  session().RemoveGraph(kId);
  return result;
}

// Adds a graph before GEInitialize, after it, and after GEFinalize.
CANN_EXPORT void add_at_all_times(const char* model, size_t size, uint32_t* statuses, char* text, size_t capacity) {
  ge::Session early(Options{});
  const auto add_to_it = [&](uint32_t id) {
    ge::Graph graph("graph");
    graph.LoadFromSerializedModelArray(model, size);
    return early.AddGraph(id, graph, Options{});
  };
  statuses[0] = add_to_it(0);
  fail(text, capacity);
  ge::GEInitialize(Options{});
  statuses[1] = add_to_it(1);
  ge::GEFinalize();
  statuses[2] = add_to_it(2);
  ge::GEInitialize(Options{});
}

// Takes each step before the one that it needs, and gives the text of the first that is not rejected, or "".
CANN_EXPORT void take_steps(const char* model, size_t size, char* text, size_t capacity) {
  constexpr uint32_t kId = 5;
  std::vector<gert::Tensor> none;
  std::string wrong;
  const auto rejected = [&](const char* step, bool failed, const std::string& words) {
    if (!failed || ge::GEGetErrorMsg().find(words) == std::string::npos) wrong += std::string(step) + "; ";
  };
  const auto load = [] { return GeSessionLoadGraph(session(), kId, {}, nullptr); };
  const auto execute = [&] { return GeSessionExecuteGraphWithStreamAsync(session(), kId, nullptr, none, none); };
  const char* const unknown = "there is no graph 5 in this session";
  const char* const not_compiled = "graph 5 is not compiled; CompileGraph comes first";
  const char* const not_loaded = "graph 5 is not loaded; LoadGraph comes first";
  rejected("load what is not added", load() != ge::SUCCESS, unknown);
  add(kId, model, size);
  rejected("load", load() != ge::SUCCESS, not_compiled);
  rejected("summary", session().GetCompiledGraphSummary(kId) == nullptr, not_compiled);
  rejected("memory", session().UpdateGraphFeatureMemoryBase(kId, nullptr, 0) != ge::SUCCESS, not_compiled);
  rejected("execute", execute() != ge::SUCCESS, not_loaded);
  session().CompileGraph(kId);
  rejected("execute what is compiled", execute() != ge::SUCCESS, not_loaded);
  if (load() != ge::SUCCESS || session().GetCompiledGraphSummary(kId) == nullptr) wrong += "the right order; ";
  rejected("execute without inputs", execute() != ge::SUCCESS, "has 1 inputs and 1 outputs");
  session().RemoveGraph(kId);
  std::strncpy(text, wrong.c_str(), capacity - 1);
}

CANN_EXPORT int live_blocks() { return allocator->blocks; }
}
