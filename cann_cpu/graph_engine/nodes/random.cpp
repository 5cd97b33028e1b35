// SPDX-License-Identifier: Apache-2.0
// Random numbers: a seed and an offset give the same numbers as eagerly.
#include "aclnn.h"

namespace cann_cpu::graph {
namespace {

Rule drawn() { return shaped(0, "dtype", at::kFloat); }

// The offset is the last element of a counter.
Parameter offset(size_t i) {
  return [=](AclnnCall& c) {
    const auto counter = c.node.integers(i);
    reject_unless(!counter.empty(), "an empty counter");
    plain(counter.back())(c);
  };
}
Parameter seed(size_t i) { return integer(i); }

at::Tensor permutation(NodeCall& n) { return new_tensor({n.integer(0)}, n.dtype("dtype", at::kLong)); }

// Dropout nodes say how many are kept, aclnn how many are dropped.
Parameter drop_probability(size_t kept) {
  return [=](AclnnCall& c) { plain(1 - c.node.number(kept).toDouble())(c); };
}

// One bit an element, in whole lines of 128.
at::Tensor dropout_mask(NodeCall& n) {
  const int64_t count = c10::multiply_integers(n.integers(0));
  return new_tensor({(count + 127) / 128 * 16}, at::kByte);
}

// One sample a column, of a vector or of every row of a matrix.
at::Tensor samples(NodeCall& n) {
  auto shape = n.in(0).sizes().vec();
  reject_unless(!shape.empty(), "a sample of a scalar");
  shape.back() = n.integer("numsamples");
  return new_tensor(shape, at::kLong);
}

const Parameter kFloatZero = [](AclnnCall& c) { c.arguments.real32(0); };
const Parameter kFloatOne = [](AclnnCall& c) { c.arguments.real32(1); };

}  // namespace

const NodeTable kRandomNodes = {
    // "alg", which generator, is not eager's to choose.
    {"StatelessRandomUniformV2",
     aclnn("InplaceUniform", out(drawn()), plain(0.), plain(1.), seed(1), offset(2), ignore(3))},
    {"StatelessRandomNormalV2",
     aclnn("InplaceNormal", out(drawn()), kFloatZero, kFloatOne, seed(1), offset(2), ignore(3))},
    {"StatelessBernoulli", aclnn("InplaceBernoulliTensor", out(drawn()), in(1), seed(2), offset(3))},
    {"StatelessRandperm", aclnn("Randperm", integer(0), seed(1), offset(2), out(permutation), only("layout", 0))},
    // The second seed is not eager's either.
    {"StatelessDropOutGenMask",
     aclnn("DropoutGenMask", integers(0), drop_probability(1), seed(2), offset(4), out(dropout_mask), ignore(3))},
    {"DropOutDoMask", aclnn("DropoutDoMask", in(0), in(1), drop_probability(2), out(like(0)))},
    {"MultinomialWithReplacement",
     aclnn("Multinomial", in(0), integer("numsamples"), flag("replacement", false), seed(1), offset(2), out(samples))},
};

}  // namespace cann_cpu::graph
