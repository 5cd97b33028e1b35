// SPDX-License-Identifier: Apache-2.0
// ge::GNode: a node of a graph, to look at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"

namespace ge {

class GNode;
class NodeImpl;
using GNodePtr = std::shared_ptr<GNode>;

class CANN_EXPORT GNode {
 public:
  GNode() = default;
  ~GNode() = default;
  explicit GNode(std::shared_ptr<NodeImpl> impl) : impl_(std::move(impl)) {}

  graphStatus GetType(AscendString& type) const;
  graphStatus GetName(AscendString& name) const;
  size_t GetInputsSize() const;  // without control edges
  size_t GetOutputsSize() const;
  // The other end of data input `index`, and the output that it is; null where there is none.
  std::pair<GNodePtr, int32_t> GetInDataNodesAndPortIndexs(const int32_t index) const;
  // The nodes that read output `index`, and by which input.
  std::vector<std::pair<GNodePtr, int32_t>> GetOutDataNodesAndPortIndexs(const int32_t index) const;
  std::vector<GNodePtr> GetInControlNodes() const;
  std::vector<GNodePtr> GetOutControlNodes() const;

 private:
  friend class NodeImpl;
  std::shared_ptr<NodeImpl> impl_;
};

}  // namespace ge
