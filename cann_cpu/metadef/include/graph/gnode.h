// SPDX-License-Identifier: Apache-2.0
// ge::GNode: a node of a graph, to look at.
#pragma once

#include <memory>

#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"

namespace ge {

class NodeImpl;

class CANN_EXPORT GNode {
 public:
  GNode() = default;
  ~GNode() = default;
  explicit GNode(std::shared_ptr<NodeImpl> impl) : impl_(std::move(impl)) {}

  graphStatus GetType(AscendString& type) const;
  graphStatus GetName(AscendString& name) const;

 private:
  std::shared_ptr<NodeImpl> impl_;
};

}  // namespace ge
