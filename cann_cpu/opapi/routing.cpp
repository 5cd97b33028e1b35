// SPDX-License-Identifier: Apache-2.0
// Routes tokens to experts and back. Each token has a row for each of its experts. `places` has the position of each
// row in the order of experts. A position past the last row means that the row was dropped.
#include <ATen/TensorOperators.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/zeros.h>

#include "table.h"

using namespace cann_cpu;

namespace {

void reject_padding(bool padded) { TORCH_CHECK(!padded, "paddedMode true is not implemented; expected false"); }

// The rows in the order of the tokens, in float; those dropped are 0.
at::Tensor fetched(const at::Tensor& rows, const at::Tensor& places) {
  const auto indices = places.reshape({-1}).to(at::kLong);
  const auto dropped = indices.ge(rows.size(0));
  const auto first = indices.masked_fill(dropped, 0);
  return in_float(rows).index_select(0, first).masked_fill_(dropped.unsqueeze(1), 0);
}

// The inverse of fetched: each row to its place among so many.
at::Tensor sent(const at::Tensor& rows, const at::Tensor& places, int64_t count) {
  const auto indices = places.reshape({-1}).to(at::kLong);
  const auto kept = indices.lt(count).nonzero().reshape({-1});
  auto result = at::zeros({count, rows.size(1)}, rows.options());
  result.index_copy_(0, indices.index_select(0, kept), rows.index_select(0, kept));
  return result;
}

// One row a token and expert, of tokens with so many rows in all.
at::Tensor by_token(const at::Tensor& rows, int64_t tokens) {
  TORCH_CHECK(tokens > 0 && rows.size(0) % tokens == 0, rows.size(0), " rows do not divide among ", tokens, " tokens");
  return rows.unflatten(0, {tokens, -1});
}

}  // namespace

ACLNN(MoeTokenPermute, [](In tokens, In experts, int64_t count, bool padded, Out permuted, Out places) {
  reject_padding(padded);
  TORCH_CHECK(permuted.size(0) == count, "numOutTokens is ", count, ", the given output has ", permuted.size(0),
              " rows");
  const int64_t each = experts.dim() > 1 ? experts.size(1) : 1;
  const auto order = at::argsort(experts.reshape({-1}), /*stable=*/true, 0, /*descending=*/false);
  const auto source = order.narrow(0, 0, count).div(each, "floor");
  assign(permuted, tokens.index_select(0, source));
  assign(places, at::argsort(order, /*stable=*/true, 0, /*descending=*/false).reshape(places.sizes()));
});
ACLNN(MoeTokenPermuteGrad, [](In grad, In places, int64_t each, bool padded, Out out) {
  reject_padding(padded);
  TORCH_CHECK(places.numel() == out.size(0) * each, "numTopk is ", each, ", so for ", out.size(0), " tokens ",
              out.size(0) * each, " indices are expected, got ", places.numel());
  assign(out, by_token(fetched(grad, places), out.size(0)).sum(1));
});
ACLNN(MoeTokenUnpermute,
      [](In permuted, In places, OptionalIn weights, bool padded, Ignored<OptionalInts> /* of padded rows */, Out out) {
        reject_padding(padded);
        auto rows = by_token(fetched(permuted, places), out.size(0));
        if (weights.has_value()) rows = rows * in_float(*weights).unsqueeze(2);
        assign(out, rows.sum(1));
      });
ACLNN(MoeTokenUnpermuteGrad,
      [](OptionalIn permuted, In grad, In places, OptionalIn weights, bool padded,
         Ignored<OptionalInts> /* of padded rows */, Out grad_permuted, OptionalOut grad_weights) {
        reject_padding(padded);
        const auto dy = in_float(grad).unsqueeze(1);  // of each of the token's rows
        const auto each = by_token(places.reshape({-1}), grad.size(0)).size(1);
        auto rows = dy.expand({-1, each, -1});
        if (weights.has_value()) rows = rows * in_float(*weights).unsqueeze(2);
        assign(grad_permuted, sent(rows.flatten(0, 1), places, grad_permuted.size(0)));
        if (!weights.has_value() || !grad_weights.has_value()) return;
        TORCH_CHECK(permuted.has_value(), "the gradient of probs takes permutedTokens, which are null");
        assign(grad_weights, (by_token(fetched(*permuted, places), grad.size(0)) * dy).sum(2));
      });
