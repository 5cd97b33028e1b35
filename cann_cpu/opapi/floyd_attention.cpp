// SPDX-License-Identifier: Apache-2.0
// Attention to two kinds of keys at once: query (n, m) has with key k the score of key1 (n, k) and of key2 (k, m).
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/zeros.h>

#include "attention.h"
#include "checks.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kFloydElements = int64_t{1} << 21;  // of a block's scores, and of its keys

// Of one head: query (N, M, D), key1 and value1 (N, K, D), key2 and value2 (K, M, D).
struct FloydHead {
  at::Tensor query, key1, value1, key2, value2;
  std::optional<at::Tensor> mask;  // (N, M or 1, K)
  double scale;

  int64_t columns() const { return query.size(1); }

  int64_t columns_at_once() const {
    const int64_t each = std::max(query.size(0), query.size(2)) * key1.size(1);
    return std::max<int64_t>(kFloydElements / std::max<int64_t>(each, 1), 1);
  }

  // From (K, M, D), those of a block as (block, K, D).
  static at::Tensor of_block(const at::Tensor& tensor, int64_t begin, int64_t count) {
    return tensor.narrow(1, begin, count).transpose(0, 1).to(at::kFloat);
  }

  // Products with a matrix for each n, and with one for each m: (N, block, ...).
  static at::Tensor products(const at::Tensor& rows, const at::Tensor& by_n, const at::Tensor& by_m) {
    return at::bmm(rows, by_n).add_(at::bmm(rows.transpose(0, 1), by_m).transpose(0, 1));
  }

  at::Tensor scores(int64_t begin, int64_t count) const {
    auto scores = products(query.narrow(1, begin, count).to(at::kFloat), key1.to(at::kFloat).mT(),
                           of_block(key2, begin, count).mT())
                      .mul_(scale);
    if (mask.has_value()) {
      const auto hidden = mask->size(1) == 1 ? *mask : mask->narrow(1, begin, count);
      scores.masked_fill_(hidden.to(at::kBool), kMinusInfinity);
    }
    return scores;
  }

  void forward(const at::Tensor& maximum, const at::Tensor& sum, const at::Tensor& out) const {
    for (int64_t m = 0; m < columns(); m += columns_at_once()) {
      const int64_t count = std::min(columns_at_once(), columns() - m);
      auto weights = scores(m, count);
      auto highest = weights.amax({-1}, /*keepdim=*/true);
      highest.masked_fill_(highest.isinf(), 0);
      weights.sub_(highest).exp_();
      const auto total = weights.sum({-1}, /*keepdim=*/true);
      weights.div_(total).masked_fill_(total.eq(0), 0);
      out.narrow(1, m, count).copy_(products(weights, value1.to(at::kFloat), of_block(value2, m, count)));
      maximum.narrow(1, m, count).copy_(highest);
      sum.narrow(1, m, count).copy_(total);
    }
  }

  void backward(const at::Tensor& grad, const at::Tensor& maximum, const at::Tensor& sum, const at::Tensor& out,
                const FloydHead& gradients) const {
    const at::Tensor dk1 = at::zeros(key1.sizes(), at::kFloat), dv1 = at::zeros(key1.sizes(), at::kFloat);
    for (int64_t m = 0; m < columns(); m += columns_at_once()) {
      const int64_t count = std::min(columns_at_once(), columns() - m);
      const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(1, m, count).to(at::kFloat); };
      const auto total = part(sum.slice(-1, 0, 1)), dy = part(grad), rows = part(query);
      const auto p =
          scores(m, count).sub_(part(maximum.slice(-1, 0, 1))).exp_().div_(total).masked_fill_(total.eq(0), 0);
      auto ds = products(dy, value1.to(at::kFloat).mT(), of_block(value2, m, count).mT());
      ds.sub_((dy * part(out)).sum({-1}, /*keepdim=*/true)).mul_(p).mul_(scale);
      gradients.query.narrow(1, m, count).copy_(products(ds, key1.to(at::kFloat), of_block(key2, m, count)));
      dk1.baddbmm_(ds.mT(), rows);
      dv1.baddbmm_(p.mT(), dy);
      const auto by_m = [&](const at::Tensor& weights, const at::Tensor& with) {  // (K, block, D)
        return at::bmm(weights.transpose(0, 1).mT(), with.transpose(0, 1)).transpose(0, 1);
      };
      gradients.key2.narrow(1, m, count).copy_(by_m(ds, rows));
      gradients.value2.narrow(1, m, count).copy_(by_m(p, dy));
    }
    gradients.key1.copy_(dk1);
    gradients.value1.copy_(dv1);
  }
};

struct Floyd {
  In query, key1, value1, key2, value2;
  OptionalIn atten_mask;
  double scale;

  void check() const {
    for (const auto& [name, tensor] : {std::pair<const char*, In>("query", query), {"key1", key1}, {"key2", key2}}) {
      check_rank(name, tensor, 5);
    }
    const auto q = query.sizes();
    check_shape("key1", key1, {q[0], q[1], q[2], key1.size(3), q[4]});
    check_shape("value1", value1, key1.sizes());
    check_shape("key2", key2, {q[0], q[1], key1.size(3), q[3], q[4]});
    check_shape("value2", value2, key2.sizes());
    if (!atten_mask.has_value()) return;
    check_rank("atten_mask", *atten_mask, 5);
    const std::vector<int64_t> most{q[0], q[1], q[2], q[3], key1.size(3)};
    for (int64_t d = 0; d < 5; ++d) {
      TORCH_CHECK(atten_mask->size(d) == most[d] || (d < 4 && atten_mask->size(d) == 1), "atten_mask has shape ",
                  atten_mask->sizes(), "; expected ", Ints(most), ", or 1 in the first four dimensions");
    }
  }

  void check_statistics(In maximum, In sum) const {
    const auto q = query.sizes();
    check_shape("softmax_max", maximum, {q[0], q[1], q[2], q[3], 8});
    check_shape("softmax_sum", sum, maximum.sizes());
  }

  void for_each_head(const std::function<void(const FloydHead&, int64_t b, int64_t h)>& body) const {
    for (int64_t b = 0; b < query.size(0); ++b) {
      for (int64_t h = 0; h < query.size(1); ++h) {
        FloydHead head{query[b][h], key1[b][h], value1[b][h], key2[b][h], value2[b][h], std::nullopt, scale};
        if (atten_mask.has_value()) {
          const auto of_batch = (*atten_mask)[atten_mask->size(0) == 1 ? 0 : b];
          head.mask = of_batch[of_batch.size(0) == 1 ? 0 : h];
        }
        body(head, b, h);
      }
    }
  }
};

#define FLOYD_DTYPES                                                                            \
  "query: float16 bfloat16; key1, value1, key2, value2: as query; atten_mask: bool uint8 int8;" \
  "softmax_max, softmax_sum: float32;"

}  // namespace

ACLNN_TYPED_CHECKED(FusedFloydAttention, FLOYD_DTYPES "attention_out: as query",
                    [](Phase phase, In query, In key1, In value1, In key2, In value2, OptionalIn atten_mask,
                       double scale_value, Out softmax_max, Out softmax_sum, Out attention_out) {
                      const Floyd floyd(query, key1, value1, key2, value2, atten_mask, scale_value);
                      floyd.check();
                      floyd.check_statistics(softmax_max, softmax_sum);
                      check_shape("attention_out", attention_out, query.sizes());
                      if (phase == Phase::Check) return;
                      Floyd(query, key1, value1, key2, value2, atten_mask, scale_value)
                          .for_each_head([&](const FloydHead& head, int64_t b, int64_t h) {
                            head.forward(softmax_max[b][h], softmax_sum[b][h], attention_out[b][h]);
                          });
                    });

ACLNN_TYPED_CHECKED(FusedFloydAttentionGrad, FLOYD_DTYPES "dy, attention_in, dq, dk1, dv1, dk2, dv2: as query",
                    [](Phase phase, In query, In key1, In value1, In key2, In value2, In dy, OptionalIn atten_mask,
                       In softmax_max, In softmax_sum, In attention_in, double scale_value, Out dq, Out dk1, Out dv1,
                       Out dk2, Out dv2) {
                      const Floyd floyd(query, key1, value1, key2, value2, atten_mask, scale_value);
                      floyd.check();
                      floyd.check_statistics(softmax_max, softmax_sum);
                      check_shape("dy", dy, query.sizes());
                      check_shape("attention_in", attention_in, query.sizes());
                      check_shape("dq", dq, query.sizes());
                      check_shape("dk1", dk1, key1.sizes());
                      check_shape("dv1", dv1, key1.sizes());
                      check_shape("dk2", dk2, key2.sizes());
                      check_shape("dv2", dv2, key2.sizes());
                      if (phase == Phase::Check) return;
                      Floyd(query, key1, value1, key2, value2, atten_mask, scale_value)
                          .for_each_head([&](const FloydHead& head, int64_t b, int64_t h) {
                            head.backward(
                                dy[b][h], softmax_max[b][h], softmax_sum[b][h], attention_in[b][h],
                                FloydHead{dq[b][h], dk1[b][h], dv1[b][h], dk2[b][h], dv2[b][h], std::nullopt, 1});
                          });
                    });
