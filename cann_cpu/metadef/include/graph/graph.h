// SPDX-License-Identifier: Apache-2.0
// ge::Graph: a graph read from a serialized model.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "graph/gnode.h"

namespace ge {

class GraphImpl;

class CANN_EXPORT Graph {
 public:
  explicit Graph(const char_t* name);
  Graph() = default;
  ~Graph() = default;

  // Reads a serialized ge.proto.ModelDef; fails on anything else (GEGetErrorMsg says why).
  graphStatus LoadFromSerializedModelArray(const void* serialized_model, size_t size);
  // The same for a file, such as torchair.dynamo_export's .air.
  graphStatus LoadFromFile(const char_t* file_name);
  // Writes the serialized model as it was read.
  graphStatus SaveToFile(const char_t* file_name) const;
  graphStatus CopyFrom(const Graph& src_graph);
  std::vector<GNode> GetAllNodes() const;

 private:
  friend class GraphImpl;
  std::shared_ptr<GraphImpl> impl_;
};

}  // namespace ge
