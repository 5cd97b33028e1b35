// SPDX-License-Identifier: Apache-2.0
// Shared by the definitions of operators: lists of dtypes, and functions with which inference and tiling read a call
// and reject it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "acl/acl_base.h"
#include "register/op_def_registry.h"
#include "tiling/platform/platform_ascendc.h"

// CANN's build opens the library without ACL, to read the definitions.
#pragma weak aclAppLog

namespace opp {

using Types = std::vector<ge::DataType>;

// All combinations of one dtype from each list, as CANN wants them: a list for each parameter, all equally long.
inline std::vector<Types> combinations(const std::vector<Types>& choices) {
  std::vector<Types> lists(choices.size());
  std::size_t count = 1;
  for (const Types& types : choices) count *= types.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t rest = i;
    for (std::size_t k = choices.size(); k-- > 0; rest /= choices[k].size()) {
      lists[k].push_back(choices[k][rest % choices[k].size()]);
    }
  }
  return lists;
}

inline ops::OpParamDef& of_types(ops::OpParamDef& parameter, ops::Option presence, const Types& types) {
  const std::vector<ge::Format> nd(types.size(), ge::FORMAT_ND);
  return parameter.ParamType(presence).DataType(types).Format(nd).UnknownShapeFormat(nd);
}

// A matrix in ND or in FRACTAL_NZ. The tiling data has the format, so one binary serves both.
inline ops::OpParamDef& matrix_of_types(ops::OpParamDef& parameter, const Types& types) {
  return parameter.ParamType(ops::REQUIRED)
      .DataType(types)
      .FormatList({ge::FORMAT_ND, ge::FORMAT_FRACTAL_NZ})
      .FormatForBinQuery({ge::FORMAT_ND, ge::FORMAT_ND});
}

// The SoCs that the kernels are compiled for: Atlas A2 and A3.
inline void for_all_socs(ops::OpAICoreDef& core) {
  core.AddConfig("ascend910b");
  core.AddConfig("ascend910_93");
}

// What rejects a call says why in the application log, which cann_cpu shows in the error.
inline ge::graphStatus reject(const std::string& why) {
  if (aclAppLog != nullptr) aclAppLog(ACL_ERROR, "tiling", __FILE__, __LINE__, "%s", why.c_str());
  return ge::GRAPH_FAILED;
}

inline std::vector<int64_t> sizes_of(const gert::Shape& shape) {
  std::vector<int64_t> sizes;
  for (std::size_t i = 0; i < shape.GetDimNum(); ++i) sizes.push_back(shape.GetDim(i));
  return sizes;
}

inline std::string text_of(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

inline gert::Shape shape_of(const std::vector<int64_t>& sizes) {
  gert::Shape shape;
  for (const int64_t size : sizes) shape.AppendDim(size);
  return shape;
}

// Tensors are contiguous here: generated aclnn functions copy those that are not, and copy back what is written.
struct StridedShape {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t itemsize;

  StridedShape(const gert::StorageShape& shape, ge::DataType type)
      : sizes(sizes_of(shape.GetStorageShape())), strides(sizes.size(), 1), itemsize(ge::GetSizeByDataType(type)) {
    for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  }

  int64_t elements() const { return sizes.empty() ? 1 : sizes[0] * strides[0]; }
  int64_t bytes() const { return elements() * itemsize; }
};

inline StridedShape required(const gert::TilingContext& context, std::size_t input) {
  return {*context.GetRequiredInputShape(input), context.GetRequiredInputDesc(input)->GetDataType()};
}

inline StridedShape output(const gert::TilingContext& context, std::size_t i) {
  return {*context.GetOutputShape(i), context.GetOutputDesc(i)->GetDataType()};
}

inline bool is_in_blocks(const gert::TilingContext& context, std::size_t input) {
  return context.GetRequiredInputDesc(input)->GetStorageFormat() == ge::FORMAT_FRACTAL_NZ;
}

inline uint32_t cube_cores(gert::TilingContext& context) {
  return platform_ascendc::PlatformAscendC(context.GetPlatformInfo()).GetCoreNumAic();
}

inline uint32_t vector_cores(gert::TilingContext& context) {
  return platform_ascendc::PlatformAscendC(context.GetPlatformInfo()).GetCoreNumAiv();
}

// Sets the cores and the workspace of a launch. Kernels that need no workspace get none. The others also get the
// workspace of Ascend C itself.
inline ge::graphStatus launch(gert::TilingContext& context, uint32_t blocks, uint64_t workspace = 0) {
  context.SetBlockDim(blocks);
  if (workspace != 0) {
    workspace += platform_ascendc::PlatformAscendC(context.GetPlatformInfo()).GetLibApiWorkSpaceSize();
  }
  context.GetWorkspaceSizes(1)[0] = workspace;
  return ge::GRAPH_SUCCESS;
}

// The same of a kernel whose cores wait for each other: none begins before there is room for all.
inline ge::graphStatus launch_together(gert::TilingContext& context, uint32_t blocks, uint64_t workspace) {
  if (context.SetScheduleMode(1) != ge::GRAPH_SUCCESS) return reject("the schedule mode is not taken");
  return launch(context, blocks, workspace);
}

}  // namespace opp
