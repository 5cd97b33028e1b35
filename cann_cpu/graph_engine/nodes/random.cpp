// SPDX-License-Identifier: Apache-2.0
// Random numbers: eager's own functions, so that a seed and an offset give the same numbers in both.
#include "table.h"

#include <ATen/ops/empty.h>

#include "../aclnn_function.h"
namespace cann_cpu::graph {
namespace {

const AclnnFunction& function(const char* name) {
  static std::map<std::string, AclnnFunction> found;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto entry = found.find(name);
  if (entry == found.end()) {
    std::string reason;
    const auto function = find_aclnn(name, reason);
    if (!function) {
      throw GraphError(reason);
    }
    entry = found.emplace(name, *function).first;
  }
  return entry->second;
}

at::Tensor result(const NodeCall& n) {
  return at::empty(n.integers(0), at::TensorOptions().dtype(n.dtype("dtype", at::kFloat)));
}

// The offset is the last element of a counter.
uint64_t offset(const NodeCall& n, size_t i) { return static_cast<uint64_t>(n.integers(i).back()); }
uint64_t seed(const NodeCall& n, size_t i) { return static_cast<uint64_t>(n.integer(i)); }

Outputs uniform(NodeCall& n) {
  const at::Tensor y = result(n);
  AclnnArguments arguments;
  arguments.tensor(y).real(0).real(1).integer(seed(n, 1)).integer(offset(n, 2));
  arguments.call(function("aclnnInplaceUniform"), n.stream());
  return y;
}

Outputs normal(NodeCall& n) {
  const at::Tensor y = result(n);
  AclnnArguments arguments;
  arguments.tensor(y).real32(0).real32(1).integer(seed(n, 1)).integer(offset(n, 2));
  arguments.call(function("aclnnInplaceNormal"), n.stream());
  return y;
}

Outputs bernoulli(NodeCall& n) {
  const at::Tensor y = result(n);
  AclnnArguments arguments;
  arguments.tensor(y).tensor(n.in(1).contiguous()).integer(seed(n, 2)).integer(offset(n, 3));
  arguments.call(function("aclnnInplaceBernoulliTensor"), n.stream());
  return y;
}

Outputs permutation(NodeCall& n) {
  const int64_t count = n.integer(0);
  const at::Tensor y = at::empty({count}, at::TensorOptions().dtype(n.dtype("dtype", at::kLong)));
  AclnnArguments arguments;
  arguments.integer(static_cast<uint64_t>(count)).integer(seed(n, 1)).integer(offset(n, 2)).tensor(y);
  arguments.call(function("aclnnRandperm"), n.stream());
  return y;
}

// One bit an element, in whole lines of 128.
Outputs dropout_mask(NodeCall& n) {
  const auto shape = n.integers(0);
  int64_t count = 1;
  for (const int64_t dim : shape) {
    count *= dim;
  }
  const at::Tensor mask = at::empty({(count + 127) / 128 * 16}, at::TensorOptions().dtype(at::kByte));
  AclnnArguments arguments;
  arguments.array(shape).real(1 - scalar(n.in(1)).toDouble());
  arguments.integer(seed(n, 2)).integer(offset(n, 4)).tensor(mask);
  arguments.call(function("aclnnDropoutGenMask"), n.stream());
  return mask;
}

Outputs apply_dropout(NodeCall& n) {
  const at::Tensor x = n.in(0).contiguous();
  const at::Tensor y = at::empty(x.sizes(), x.options());
  AclnnArguments arguments;
  arguments.tensor(x).tensor(n.in(1).contiguous()).real(1 - scalar(n.in(2)).toDouble()).tensor(y);
  arguments.call(function("aclnnDropoutDoMask"), n.stream());
  return y;
}

}  // namespace

const NodeTable kRandomNodes = {
    {"StatelessRandomUniformV2", uniform}, {"StatelessRandomNormalV2", normal},       {"StatelessBernoulli", bernoulli},
    {"StatelessRandperm", permutation},    {"StatelessDropOutGenMask", dropout_mask}, {"DropOutDoMask", apply_dropout},
};

}  // namespace cann_cpu::graph
