// SPDX-License-Identifier: Apache-2.0
// gert::TilingContext: what a tiling function reads of a call, and where it leaves what the launch needs.
#pragma once

#include "exe_graph/runtime/extended_kernel_context.h"
#include "exe_graph/runtime/tiling_data.h"

namespace fe {
class PlatFormInfos;
}

namespace gert {

class CANN_EXPORT TilingContext : public ExtendedKernelContext {
 public:
  using ExtendedKernelContext::ExtendedKernelContext;

  const StorageShape* GetInputShape(size_t i) const { return shape_of(Input(i)); }
  const StorageShape* GetRequiredInputShape(size_t i) const { return shape_of(InputOf(i, 0)); }
  const StorageShape* GetOptionalInputShape(size_t i) const { return shape_of(InputOf(i, 0)); }
  const StorageShape* GetDynamicInputShape(size_t i, size_t of_it) const { return shape_of(InputOf(i, of_it)); }
  const Tensor* GetInputTensor(size_t i) const { return Input(i); }
  const Tensor* GetRequiredInputTensor(size_t i) const { return InputOf(i, 0); }
  const Tensor* GetOptionalInputTensor(size_t i) const { return InputOf(i, 0); }
  const Tensor* GetDynamicInputTensor(size_t i, size_t of_it) const { return InputOf(i, of_it); }
  const StorageShape* GetOutputShape(size_t i) const { return shape_of(Output(i)); }

  // The struct that the kernel reads, zero at first; null if it is larger than the room for it.
  template <class T>
  T* GetTilingData() {
    TilingData* raw = GetRawTilingData();
    if (sizeof(T) > raw->GetCapacity()) return nullptr;
    if (raw->GetDataSize() < sizeof(T)) raw->Expand<Bytes<T>>();
    raw->SetDataSize(sizeof(T));
    return static_cast<T*>(raw->GetData());
  }
  TilingData* GetRawTilingData();
  ge::graphStatus SetBlockDim(uint32_t blocks);
  uint32_t GetBlockDim() const;
  ge::graphStatus SetTilingKey(uint64_t key);
  uint64_t GetTilingKey() const;
  ge::graphStatus SetScheduleMode(uint32_t mode);
  ge::graphStatus SetNeedAtomic(bool) { return ge::GRAPH_SUCCESS; }
  ge::graphStatus SetTilingCond(int32_t) { return ge::GRAPH_SUCCESS; }
  ge::graphStatus SetLocalMemorySize(uint32_t) { return ge::GRAPH_SUCCESS; }
  // The sizes of `count` workspaces, to be set; a kernel gets their sum.
  size_t* GetWorkspaceSizes(size_t count);
  fe::PlatFormInfos* GetPlatformInfo() const;
  int32_t GetDeterministic() const { return 0; }
  template <class T>
  const T* GetCompileInfo() const {
    return static_cast<const T*>(CompileInfo());
  }
  const void* GetCompileInfo() const { return CompileInfo(); }

 private:
  template <class T>
  struct Bytes {
    char bytes[sizeof(T)];
  };
  static const StorageShape* shape_of(const Tensor* tensor) {
    return tensor == nullptr ? nullptr : &tensor->GetShape();
  }
  const void* CompileInfo() const;
};

}  // namespace gert
