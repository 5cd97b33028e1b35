// SPDX-License-Identifier: Apache-2.0
// The contexts of inference and tiling over a call.
#include "context.h"

#include "exe_graph/runtime/infer_datatype_context.h"
#include "exe_graph/runtime/infer_shape_context.h"
#include "exe_graph/runtime/tiling_parse_context.h"
#include "platform.h"

namespace gert {
namespace {

template <class T>
auto* element(T& list, size_t i) {
  return i < list.size() ? &list[i] : nullptr;
}

const CompileTimeTensorDesc* desc_of(const Tensor* tensor) { return tensor == nullptr ? nullptr : &tensor->GetDesc(); }

// With the thread's limits on cores.
fe::PlatFormInfos* platform_of_thread() {
  thread_local const auto chip = std::make_shared<fe::PlatFormInfosImpl>(cann_cpu::soc());
  thread_local fe::PlatFormInfos infos;
  chip->cores = cann_cpu::cores_of_thread();
  infos = fe::PlatFormInfos(chip->cores.cube, chip);
  return &infos;
}

// For what is parsed once, whatever the limits of who calls first.
fe::PlatFormInfos* platform_of_process() {
  static const auto chip = std::make_shared<fe::PlatFormInfosImpl>(cann_cpu::soc());
  static fe::PlatFormInfos infos(chip->cores.cube, chip);
  return &infos;
}

}  // namespace

size_t RuntimeAttrs::GetAttrNum() const { return call_->attributes.size(); }
const void* RuntimeAttrs::Find(size_t i) const { return i < call_->attributes.size() ? call_->attributes[i] : nullptr; }

const char* ExtendedKernelContext::GetNodeType() const { return call_->type.c_str(); }
size_t ExtendedKernelContext::GetComputeNodeInputNum() const { return call_->inputs.size(); }
size_t ExtendedKernelContext::GetComputeNodeOutputNum() const { return call_->outputs.size(); }
const Tensor* ExtendedKernelContext::Input(size_t i) const { return element(call_->inputs, i); }
const Tensor* ExtendedKernelContext::Output(size_t i) const { return element(call_->outputs, i); }
const Tensor* ExtendedKernelContext::InputOf(size_t defined, size_t of_it) const {
  const auto* span = element(call_->input_spans, defined);
  return span == nullptr || of_it >= span->count ? nullptr : &call_->inputs[span->first + of_it];
}
const CompileTimeTensorDesc* ExtendedKernelContext::GetInputDesc(size_t i) const { return desc_of(Input(i)); }
const CompileTimeTensorDesc* ExtendedKernelContext::GetOutputDesc(size_t i) const { return desc_of(Output(i)); }
const CompileTimeTensorDesc* ExtendedKernelContext::GetDynamicInputDesc(size_t i, size_t of_it) const {
  return desc_of(InputOf(i, of_it));
}

TilingData* TilingContext::GetRawTilingData() { return &call_->tiling; }
ge::graphStatus TilingContext::SetBlockDim(uint32_t blocks) { return call_->blocks = blocks, ge::GRAPH_SUCCESS; }
uint32_t TilingContext::GetBlockDim() const { return call_->blocks; }
ge::graphStatus TilingContext::SetTilingKey(uint64_t key) { return call_->key = key, ge::GRAPH_SUCCESS; }
uint64_t TilingContext::GetTilingKey() const { return call_->key; }
// Blocks that wait for each other run at the same time in any mode.
ge::graphStatus TilingContext::SetScheduleMode(uint32_t) { return ge::GRAPH_SUCCESS; }
size_t* TilingContext::GetWorkspaceSizes(size_t count) {
  call_->workspaces.resize(count);
  return call_->workspaces.data();
}
fe::PlatFormInfos* TilingContext::GetPlatformInfo() const { return platform_of_thread(); }
fe::PlatFormInfos* TilingParseContext::GetPlatformInfo() const { return platform_of_process(); }
const void* TilingContext::CompileInfo() const { return call_->compile_info; }
void* TilingParseContext::CompileInfo() { return call_->compile_info; }

Shape* InferShapeContext::GetOutputShape(size_t i) { return element(call_->shapes, i); }
ge::DataType InferDataTypeContext::GetOutputDataType(size_t i) const {
  return i < call_->types.size() ? call_->types[i] : ge::DT_UNDEFINED;
}
ge::graphStatus InferDataTypeContext::SetOutputDataType(size_t i, ge::DataType type) {
  if (i >= call_->types.size()) return ge::GRAPH_FAILED;
  return call_->types[i] = type, ge::GRAPH_SUCCESS;
}

}  // namespace gert
