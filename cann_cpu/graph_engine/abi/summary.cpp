// SPDX-License-Identifier: Apache-2.0
// ge::CompiledGraphSummary.
#include "summary.h"

namespace ge {

bool CompiledGraphSummary::IsStatic() const { return data_->graph->is_static(); }

namespace {

// The engine needs none of the caller's memory, but torchair allocates the given size and does not accept 0.
constexpr size_t kSmallestBlock = 512;

}  // namespace

Status CompiledGraphSummary::GetConstMemorySize(size_t& size) const {
  size = kSmallestBlock;
  return SUCCESS;
}
Status CompiledGraphSummary::GetFeatureMemorySize(size_t& size) const {
  size = kSmallestBlock;
  return SUCCESS;
}
Status CompiledGraphSummary::GetFixedFeatureMemorySize(size_t& size) const {
  size = kSmallestBlock;
  return SUCCESS;
}
Status CompiledGraphSummary::GetRefreshableFeatureMemorySize(size_t& size) const {
  size = kSmallestBlock;
  return SUCCESS;
}
Status CompiledGraphSummary::GetStreamNum(size_t& num) const {
  num = 0;
  return SUCCESS;
}
Status CompiledGraphSummary::GetEventNum(size_t& num) const {
  num = 0;
  return SUCCESS;
}
Status CompiledGraphSummary::GetIOIndexesWithSameAddr(std::vector<std::pair<uint32_t, uint32_t>>& io_indexes) const {
  io_indexes.clear();
  const auto& outputs = data_->graph->outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].reused_input >= 0) io_indexes.emplace_back(outputs[i].reused_input, i);
  }
  return SUCCESS;
}
Status CompiledGraphSummary::GetFeatureMemoryBaseRefreshable(bool& v) const {
  v = false;
  return SUCCESS;
}

Status CompiledGraphSummary::GetOutputShapes(std::vector<ge::Shape>& shapes) const {
  shapes.clear();
  for (const auto& output : data_->graph->outputs()) {
    shapes.emplace_back(output.shape);
  }
  return SUCCESS;
}

Status CompiledGraphSummary::GetOutputDtypes(std::vector<ge::DataType>& dtypes) const {
  dtypes.clear();
  for (const auto& output : data_->graph->outputs()) {
    dtypes.push_back(output.dtype);
  }
  return SUCCESS;
}

}  // namespace ge
