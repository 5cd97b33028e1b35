// SPDX-License-Identifier: Apache-2.0
// ge::Session, callable from Python: compiles a serialized model, and runs it in the ways that take ge::Tensor.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "acl/acl_rt.h"
#include "ge/ge_api.h"

namespace {

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
  static ge::Session instance({});
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
  return loaded == ge::GRAPH_SUCCESS && session().AddGraph(id, graph, {}) == ge::SUCCESS;
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

CANN_EXPORT int live_blocks() { return allocator->blocks; }
}
