// SPDX-License-Identifier: Apache-2.0
// The Graph Engine's interface: sessions that compile and run graphs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ge/ge_allocator.h"
#include "ge/ge_error_codes.h"
#include "ge/ge_graph_compile_summary.h"
#include "graph/graph.h"
#include "graph/tensor.h"

namespace gert {
class Tensor;
}

namespace ge {

CANN_EXPORT Status GEInitialize(const std::map<AscendString, AscendString>& options);
#if !_GLIBCXX_USE_CXX11_ABI
CANN_EXPORT Status GEInitialize(const std::map<std::string, std::string>& options);
#endif
CANN_EXPORT Status GEFinalize();
// What went wrong in this thread's last call that failed. It is exported with the string ABI of before C++11.
CANN_EXPORT std::string GEGetErrorMsg();
CANN_EXPORT AscendString GEGetWarningMsgV2();

class CANN_EXPORT Session {
 public:
  explicit Session(const std::map<AscendString, AscendString>& options);
  ~Session();

#if !_GLIBCXX_USE_CXX11_ABI
  explicit Session(const std::map<std::string, std::string>& options);
  Status AddGraph(uint32_t graph_id, const Graph& graph, const std::map<std::string, std::string>& options);
  // What a graph's node of this type would call, Summary or Save; a graph with one is rejected when it is compiled.
  using Callback = Status (*)(uint32_t graph_id, const std::map<std::string, Tensor>& params);
  Status RegisterCallBackFunc(const std::string& key, const Callback& callback);
#endif
  Status AddGraph(uint32_t graph_id, const Graph& graph, const std::map<AscendString, AscendString>& options);
  Status RemoveGraph(uint32_t graph_id);
  Status CompileGraph(uint32_t graph_id);
  CompiledGraphSummaryPtr GetCompiledGraphSummary(uint32_t graph_id);

  // Runs a graph and waits. Outputs are made in host memory.
  Status RunGraph(uint32_t graph_id, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs);
  // Appends a graph to the stream. An output without data is allocated by the stream's external allocator; then the
  // call waits for the graph, whose outputs' shapes are known only afterwards.
  Status RunGraphWithStreamAsync(uint32_t graph_id, void* stream, const std::vector<Tensor>& inputs,
                                 std::vector<Tensor>& outputs);
  Status RegisterExternalAllocator(const void* const stream, std::shared_ptr<Allocator> allocator) const;
  Status UnregisterExternalAllocator(const void* const stream) const;

  // Memory that the summary asked for. Constants and inner values live in host memory, so it is not used.
  Status SetGraphConstMemoryBase(uint32_t graph_id, const void* const memory, size_t size);
  Status UpdateGraphFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size);
  Status SetGraphFixedFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size);
  Status UpdateGraphRefreshableFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size);

  uint64_t id() const { return sessionId_; }

 private:
  uint64_t sessionId_;
};

}  // namespace ge

extern "C" {
CANN_EXPORT ge::Status GeSessionLoadGraph(ge::Session& session, uint32_t graph_id,
                                          const std::map<ge::AscendString, ge::AscendString>& options, void* stream);
CANN_EXPORT ge::Status GeSessionExecuteGraphWithStreamAsync(ge::Session& session, uint32_t graph_id, void* stream,
                                                            const std::vector<gert::Tensor>& inputs,
                                                            std::vector<gert::Tensor>& outputs);
// Lists an operator's inputs (name; required, optional or dynamic), outputs and attributes (name; type) in IR order.
CANN_EXPORT ge::Status GetRegisteredIrDef(const char* op_type,
                                          std::vector<std::pair<ge::AscendString, ge::AscendString>>& inputs,
                                          std::vector<std::pair<ge::AscendString, ge::AscendString>>& outputs,
                                          std::vector<std::pair<ge::AscendString, ge::AscendString>>& attributes);
}
