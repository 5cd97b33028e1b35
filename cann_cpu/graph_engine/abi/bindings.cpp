// SPDX-License-Identifier: Apache-2.0
// Converts between gert::Tensor, ge::Tensor and ATen's tensors.
#include "bindings.h"

#include <algorithm>
#include <cstring>

#include "acl/acl_rt.h"
#include "cann_cpu/runtime.h"
#include "graph_engine/compiled_graph/stored_tensor.h"
#include "graph_engine/model/dtypes.h"
#include "graph_engine/model/model.h"

namespace cann_cpu::graph {
namespace {

std::vector<int64_t> dims_of(const gert::Shape& shape) {
  return {shape.dims, shape.dims + std::min(shape.dim_num, gert::Shape::kMaxDimNum)};
}

StoredTensor stored_at(void* memory, const gert::Tensor& tensor) {
  return stored_tensor(memory, tensor.data_type, dims_of(tensor.storage_shape.origin_shape),
                       tensor.storage_format.storage_format, dims_of(tensor.storage_shape.storage_shape));
}

// For a tensor stored row by row in host memory, torchair sets no origin shape.
StoredTensor stored_at(void* memory, const ge::Tensor& tensor) {
  const ge::TensorDesc description = tensor.GetTensorDesc();
  const auto storage_shape = description.GetShape().GetDims();
  const bool in_blocks = description.GetFormat() == ge::FORMAT_FRACTAL_NZ;
  return stored_tensor(memory, tensor.GetDataType(), in_blocks ? description.GetOriginShape().GetDims() : storage_shape,
                       description.GetFormat(), storage_shape);
}

StoredTensor owned(StoredTensor host) {
  host.tensor = host.tensor.clone();
  return host;
}

at::Tensor output_of(const StoredTensor& stored) {
  if (stored.format != ACL_FORMAT_ND) {
    throw GraphError("an output is to be written to memory in FRACTAL_NZ; outputs are in ND");
  }
  return stored.tensor;
}

// The bytes get there by a task of the stream: the host does not touch the device's memory.
ge::MemBlock* allocate(const at::Tensor& result, ge::Allocator& allocator, aclrtStream stream) {
  const size_t size = result.nbytes();
  ge::MemBlock* block = allocator.Malloc(std::max<size_t>(size, 1));
  if (block == nullptr) {
    throw GraphError("the external allocator has no " + std::to_string(size) + " bytes for an output");
  }
  if (size == 0) return block;
  void* const to = block->address();
  const auto begin = reinterpret_cast<uintptr_t>(to);
  Accesses accesses;
  if (accesses_are_checked()) accesses = {{begin, begin + size, true, 1}};
  const aclError code = launch(
      stream, "output of a graph",
      [result, to, size] {
        std::memcpy(to, result.contiguous().const_data_ptr(), size);
        return ACL_SUCCESS;
      },
      accesses);
  if (code != ACL_SUCCESS) {
    block->release();
    throw GraphError(std::string("an output cannot be written: ") + aclGetRecentErrMsg());
  }
  return block;
}

ge::graphStatus manage_block(void* address, gert::TensorOperateType operation, void** out) {
  auto* block = static_cast<ge::MemBlock*>(address);
  switch (operation) {
    case gert::kGetTensorAddress:
      *out = block->address();
      return ge::GRAPH_SUCCESS;
    case gert::kFreeTensor:
      block->release();
      return ge::GRAPH_SUCCESS;
    case gert::kPlusShareCount:
      block->retain();
      return ge::GRAPH_SUCCESS;
  }
  return ge::GRAPH_FAILED;
}

void describe_output(const at::Tensor& result, gert::Tensor& output) {
  gert::Shape& shape = output.storage_shape.origin_shape;
  if (result.dim() > static_cast<int64_t>(gert::Shape::kMaxDimNum)) {
    throw GraphError("an output has more than 25 dimensions");
  }
  shape.dim_num = result.dim();
  std::copy(result.sizes().begin(), result.sizes().end(), shape.dims);
  output.storage_shape.storage_shape = shape;
  output.storage_format.origin_format = ge::FORMAT_ND;
  output.storage_format.storage_format = ge::FORMAT_ND;
  output.data_type = ge_dtype(result.scalar_type());
  output.tensor_data.size = result.nbytes();
  output.tensor_data.placement = gert::kOnDeviceHbm;
}

void describe_output(const at::Tensor& result, ge::Placement placement, ge::Tensor& output) {
  ge::TensorDesc description(ge::Shape(result.sizes().vec()), ge::FORMAT_ND, ge_dtype(result.scalar_type()));
  description.SetOriginShape(description.GetShape());
  description.SetPlacement(placement);
  output.SetTensorDesc(description);
}

}  // namespace

StoredTensor bind_input(const gert::Tensor& tensor) {
  const bool on_host =
      tensor.tensor_data.placement == gert::kOnHost || tensor.tensor_data.placement == gert::kFollowing;
  void* memory = tensor.tensor_data.placement == gert::kFollowing ? const_cast<gert::Tensor*>(&tensor + 1)
                                                                  : tensor.tensor_data.pointer();
  const StoredTensor stored = stored_at(memory, tensor);
  return on_host ? owned(stored) : stored;
}

StoredTensor bind_input(const ge::Tensor& tensor) {
  const StoredTensor stored = stored_at(const_cast<uint8_t*>(tensor.GetData()), tensor);
  return tensor.GetPlacement() == ge::kPlacementHost ? owned(stored) : stored;
}

at::Tensor bind_output(const gert::Tensor& tensor) {
  void* memory = tensor.tensor_data.pointer();
  return memory == nullptr ? at::Tensor() : output_of(stored_at(memory, tensor));
}

at::Tensor bind_output(const ge::Tensor& tensor) {
  void* memory = const_cast<uint8_t*>(tensor.GetData());
  return memory == nullptr ? at::Tensor() : output_of(stored_at(memory, tensor));
}

void allocate_output(const at::Tensor& result, ge::Allocator& allocator, aclrtStream stream, gert::Tensor& output) {
  output.tensor_data.address = allocate(result, allocator, stream);
  output.tensor_data.manager = manage_block;
  describe_output(result, output);
}

void allocate_output(const at::Tensor& result, ge::Allocator& allocator, aclrtStream stream, ge::Tensor& output) {
  ge::MemBlock* block = allocate(result, allocator, stream);
  output.SetData(static_cast<uint8_t*>(block->address()), result.nbytes(), [block](uint8_t*) { block->release(); });
  describe_output(result, ge::kPlacementDevice, output);
}

void share_output(const at::Tensor& memory, gert::Tensor& output) {
  output.tensor_data.address = memory.data_ptr();
  output.tensor_data.manager = nullptr;
  describe_output(memory, output);
}

void share_output(const at::Tensor& memory, ge::Tensor& output) {
  output.SetData(static_cast<uint8_t*>(memory.data_ptr()), memory.nbytes(), nullptr);
  describe_output(memory, ge::kPlacementDevice, output);
}

void host_output(const at::Tensor& result, ge::Tensor& output) {
  const at::Tensor contiguous = result.contiguous();
  auto bytes = std::make_unique<uint8_t[]>(std::max<size_t>(contiguous.nbytes(), 1));
  if (contiguous.nbytes() > 0) {
    std::memcpy(bytes.get(), contiguous.const_data_ptr(), contiguous.nbytes());
  }
  output.SetData(bytes.release(), contiguous.nbytes(), [](uint8_t* data) { delete[] data; });
  describe_output(contiguous, ge::kPlacementHost, output);
}

}  // namespace cann_cpu::graph
