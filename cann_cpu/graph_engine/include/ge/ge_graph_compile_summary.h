// SPDX-License-Identifier: Apache-2.0
// ge::CompiledGraphSummary: what a compiled graph needs and gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ge/ge_error_codes.h"
#include "graph/tensor.h"

namespace ge {

class CANN_EXPORT CompiledGraphSummary {
 public:
  class SummaryData;

  explicit CompiledGraphSummary(std::shared_ptr<SummaryData> data) : data_(std::move(data)) {}
  CompiledGraphSummary(const CompiledGraphSummary&) = delete;
  CompiledGraphSummary& operator=(const CompiledGraphSummary&) = delete;

  bool IsStatic() const;
  // Bytes that the caller provides before the first execution.
  Status GetConstMemorySize(size_t& size) const;
  Status GetFeatureMemorySize(size_t& size) const;
  Status GetFixedFeatureMemorySize(size_t& size) const;
  Status GetRefreshableFeatureMemorySize(size_t& size) const;
  Status GetFeatureMemoryBaseRefreshable(bool& v) const;
  // What a run uses besides the stream that it is given: nothing.
  Status GetStreamNum(size_t& num) const;
  Status GetEventNum(size_t& num) const;
  // Inputs and the outputs that are written to their memory.
  Status GetIOIndexesWithSameAddr(std::vector<std::pair<uint32_t, uint32_t>>& io_indexes) const;
  // For a static graph. An unknown dimension is -1.
  Status GetOutputShapes(std::vector<ge::Shape>& shapes) const;
  Status GetOutputDtypes(std::vector<ge::DataType>& dtypes) const;

 private:
  std::shared_ptr<SummaryData> data_;
};

using CompiledGraphSummaryPtr = std::shared_ptr<CompiledGraphSummary>;

}  // namespace ge
