// Runs a compiled graph node by node.
#include "execution.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <sstream>

#include "dtypes.h"
#include "node_call.h"

namespace cann_cpu::graph {
namespace {

Outputs run_node(const Node& node, Values& values, aclrtStream stream) {
  try {
    NodeCall call(node, values, stream);
    return node.custom != nullptr ? node.custom->run(call) : node.type->run(call);
  } catch (const c10::Error& error) {
    throw GraphError(describe(*node.model) + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw GraphError(describe(*node.model) + ": " + error.what());
  }
}

struct Bytes {
  const char* begin;
  const char* end;
  bool overlaps(const Bytes& other) const { return begin < other.end && other.begin < end; }
};

// The addresses that a tensor's elements lie in, whatever its strides.
Bytes extent(const at::Tensor& tensor) {
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  if (tensor.numel() == 0) {
    return {begin, begin};
  }
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size())};
}

// A node has written the result to the caller's memory already.
bool is_in_place(const at::Tensor& result, const at::Tensor& target) {
  return result.const_data_ptr() == target.const_data_ptr() && result.strides() == target.strides();
}

void check_target(size_t output, const at::Tensor& result, const at::Tensor& target) {
  if (result.sizes() != target.sizes() || result.scalar_type() != target.scalar_type()) {
    std::ostringstream text;
    text << "output " << output << " is " << dtype_name(ge_dtype(result.scalar_type())) << result.sizes()
         << ", the caller's memory is for " << dtype_name(ge_dtype(target.scalar_type())) << target.sizes();
    throw GraphError(text.str());
  }
}

}  // namespace

std::vector<at::Tensor> run_nodes(const CompiledGraph& graph, const std::vector<StoredTensor>& inputs,
                                  aclrtStream stream) {
  const c10::InferenceMode no_autograd;
  Values values(graph, inputs);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.role == Role::compute) {
      values.set(static_cast<int>(i), run_node(node, values, stream));
    }
    for (const int unused : node.last_uses) {
      values.release(unused);
    }
  }
  std::vector<at::Tensor> results;
  for (const auto& output : graph.outputs()) {
    results.push_back(values.at(output.source));
  }
  return results;
}

void write_outputs(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& targets) {
  const c10::InferenceMode no_autograd;
  std::vector<at::Tensor> sources(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (!targets[i].defined()) {
      continue;
    }
    check_target(i, results[i], targets[i]);
    if (is_in_place(results[i], targets[i])) {
      continue;
    }
    sources[i] = results[i];
    for (size_t k = 0; k < targets.size(); ++k) {
      if (targets[k].defined() && extent(results[i]).overlaps(extent(targets[k]))) {
        sources[i] = results[i].clone();
        break;
      }
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (sources[i].defined()) {
      targets[i].copy_(sources[i]);
    }
  }
}

}  // namespace cann_cpu::graph
