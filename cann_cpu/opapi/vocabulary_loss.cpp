// SPDX-License-Identifier: Apache-2.0
// Cross entropy of a linear layer whose vocabulary is divided among ranks: what each rank computes before and after the
// ranks exchange their maxima and sums, and the gradient.
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "checks.h"

using namespace cann_cpu;

namespace {

// Logits exist for so many elements at a time where no output holds them.
constexpr int64_t kLogits = int64_t{1} << 21;
constexpr int64_t kBits = 8;  // of a byte of a mask, the first in the highest bit

int64_t rows_at_once(int64_t columns) { return std::max<int64_t>(kLogits / std::max<int64_t>(columns, 1), 1); }

void set_masked(const at::Tensor& mask, int64_t row) {
  mask.mutable_data_ptr<uint8_t>()[row / kBits] |= static_cast<uint8_t>(1U << (kBits - 1 - row % kBits));
}

bool is_masked(const at::Tensor& mask, int64_t row) {
  return (mask.const_data_ptr<uint8_t>()[row / kBits] >> (kBits - 1 - row % kBits) & 1) != 0;
}

void check_rows(const char* name, const at::Tensor& tensor, int64_t rows) { check_shape(name, tensor, {rows}); }

void check_linear(In input, In weight) {
  check_rank("input", input, 2);
  check_rank("weight", weight, 2);
  TORCH_CHECK(weight.size(1) == input.size(1) && weight.size(0) > 0, "weight has shape ", weight.sizes(),
              "; expected at least 1 row of ", input.size(1), " columns, as input");
}

int64_t bytes_of(int64_t rows) { return (rows + kBits - 1) / kBits; }

}  // namespace

ACLNN_TYPED_CHECKED(
    FusedLinearOnlineMaxSum,
    "input: float16 bfloat16; weight: as input; target: int32 int64;"
    "logits_max, sum_exp_logits, predicted_logits: float32; target_mask: uint8; masked_target: as target;"
    "vocab_parallel_logits: as input",
    [](Phase phase, In input, In weight, In target, int64_t vocab_start_index, int64_t vocab_end_index, Out logits_max,
       Out sum_exp_logits, Out predicted_logits, Out target_mask, Out masked_target,
       OptionalOut vocab_parallel_logits) {
      check_linear(input, weight);
      const int64_t rows = input.size(0);
      check_rows("target", target, rows);
      TORCH_CHECK(vocab_start_index >= 0, "vocab_start_index is ", vocab_start_index, "; expected at least 0");
      TORCH_CHECK(vocab_end_index >= vocab_start_index, "vocab_end_index is ", vocab_end_index, "; expected at least ",
                  vocab_start_index);
      check_rows("logits_max", logits_max, rows);
      check_rows("sum_exp_logits", sum_exp_logits, rows);
      check_rows("predicted_logits", predicted_logits, rows);
      check_rows("masked_target", masked_target, rows);
      check_rows("target_mask", target_mask, bytes_of(rows));
      if (vocab_parallel_logits.has_value()) {
        check_shape("vocab_parallel_logits", *vocab_parallel_logits, {rows, weight.size(0)});
      }
      if (phase == Phase::Check) return;
      const int64_t most = rows_at_once(weight.size(0));
      const auto targets = target.to(at::kLong).contiguous();
      const at::Tensor mask = at::zeros({bytes_of(rows)}, at::kByte), places = at::zeros({rows}, at::kLong);
      for (int64_t row = 0; row < bytes_of(rows) * kBits; ++row) {
        const int64_t given = row < rows ? targets.const_data_ptr<int64_t>()[row] : -1;
        if (row >= rows || given < vocab_start_index || given > vocab_end_index) {
          set_masked(mask, row);
          continue;
        }
        TORCH_CHECK(given - vocab_start_index < weight.size(0), "target[", row, "] is ", given, "; expected less than ",
                    vocab_start_index + weight.size(0));
        places.mutable_data_ptr<int64_t>()[row] = given - vocab_start_index;
      }
      for (int64_t row = 0; row < rows; row += most) {
        const int64_t count = std::min(most, rows - row);
        auto logits = at::mm(input.narrow(0, row, count).to(at::kFloat), weight.to(at::kFloat).t());
        if (vocab_parallel_logits.has_value()) vocab_parallel_logits->narrow(0, row, count).copy_(logits);
        const auto maximum = logits.amax({1}, /*keepdim=*/true);
        logits.sub_(maximum);
        auto predicted = logits.gather(1, places.narrow(0, row, count).unsqueeze(1)).squeeze(1);
        for (int64_t i = 0; i < count; ++i) {
          if (is_masked(mask, row + i)) predicted[i].zero_();
        }
        predicted_logits.narrow(0, row, count).copy_(predicted);
        logits_max.narrow(0, row, count).copy_(maximum.squeeze(1));
        sum_exp_logits.narrow(0, row, count).copy_(logits.exp_().sum(1));
      }
      target_mask.copy_(mask);
      masked_target.copy_(places);
    });

namespace {

using LossInput = Absent<"input", OptionalIn>;
using LossWeight = Absent<"weight", OptionalIn>;

}  // namespace

ACLNN_TYPED_CHECKED(FusedCrossEntropyLossWithMaxSum,
                    "logits_max, sum_exp_logits, predicted_logits, loss, softmax: float32;"
                    "vocab_parallel_logits: float32 float16 bfloat16",
                    [](Phase phase, In logits_max, In sum_exp_logits, In predicted_logits, float label_smoothing,
                       LossInput, LossWeight, OptionalIn vocab_parallel_logits, Out loss, OptionalOut softmax) {
                      if (phase == Phase::Check) {
                        TORCH_CHECK(label_smoothing == 0, "label_smoothing is ", label_smoothing, "; expected 0");
                        check_rank("logits_max", logits_max, 1);
                        check_shape("sum_exp_logits", sum_exp_logits, logits_max.sizes());
                        check_shape("predicted_logits", predicted_logits, logits_max.sizes());
                        check_shape("loss", loss, logits_max.sizes());
                        TORCH_CHECK(
                            vocab_parallel_logits.has_value() == softmax.has_value(),
                            "softmax is written where vocab_parallel_logits is given; expected both or neither");
                        if (!softmax.has_value()) return;
                        check_rank("vocab_parallel_logits", *vocab_parallel_logits, 2);
                        TORCH_CHECK(vocab_parallel_logits->size(0) == logits_max.size(0),
                                    "vocab_parallel_logits has shape ", vocab_parallel_logits->sizes(), "; expected ",
                                    logits_max.size(0), " rows");
                        check_shape("softmax", *softmax, vocab_parallel_logits->sizes());
                        return;
                      }
                      assign(loss, sum_exp_logits.log() - predicted_logits);
                      if (!softmax.has_value()) return;
                      softmax->copy_(*vocab_parallel_logits);
                      softmax->sub_(logits_max.unsqueeze(1)).exp_().div_(sum_exp_logits.unsqueeze(1));
                    });

ACLNN_TYPED_CHECKED(
    FusedLinearCrossEntropyLossGrad,
    "grad: float32; input: float16 bfloat16; weight, input_grad, weight_grad: as input; target_mask: uint8;"
    "masked_target: int32 int64; logits_max, sum_exp_logits, softmax: float32",
    [](Phase phase, In grad, In input, In weight, In target_mask, In masked_target, float label_smoothing,
       OptionalIn logits_max, OptionalIn sum_exp_logits, OptionalIn softmax, Out input_grad, Out weight_grad) {
      check_linear(input, weight);
      const int64_t rows = input.size(0);
      TORCH_CHECK(label_smoothing == 0, "label_smoothing is ", label_smoothing, "; expected 0");
      check_rows("grad", grad, rows);
      check_rows("target_mask", target_mask, bytes_of(rows));
      check_rows("masked_target", masked_target, rows);
      check_shape("input_grad", input_grad, input.sizes());
      check_shape("weight_grad", weight_grad, weight.sizes());
      if (softmax.has_value()) {
        check_shape("softmax", *softmax, {rows, weight.size(0)});
      } else {
        TORCH_CHECK(logits_max.has_value(), "logits_max is null; expected a tensor without softmax");
        TORCH_CHECK(sum_exp_logits.has_value(), "sum_exp_logits is null; expected a tensor without softmax");
        check_rows("logits_max", *logits_max, rows);
        check_rows("sum_exp_logits", *sum_exp_logits, rows);
      }
      if (phase == Phase::Check) return;
      check_values("masked_target", masked_target, 0, weight.size(0) - 1);
      const int64_t most = rows_at_once(weight.size(0));
      const auto mask = target_mask.contiguous(), places = masked_target.to(at::kLong).contiguous();
      const auto factors = weight.to(at::kFloat);
      const at::Tensor sum = at::zeros(weight.sizes(), at::kFloat);
      for (int64_t row = 0; row < rows; row += most) {
        const int64_t count = std::min(most, rows - row);
        const auto part = [&](In tensor) { return tensor.narrow(0, row, count); };
        const auto inputs = part(input).to(at::kFloat);
        auto logits = softmax.has_value() ? part(*softmax).clone()
                                          : at::mm(inputs, factors.t())
                                                .sub_(part(*logits_max).unsqueeze(1))
                                                .exp_()
                                                .div_(part(*sum_exp_logits).unsqueeze(1));
        for (int64_t i = 0; i < count; ++i) {
          if (!is_masked(mask, row + i)) logits[i][places.const_data_ptr<int64_t>()[row + i]].sub_(1);
        }
        logits.mul_(part(grad).unsqueeze(1));
        part(input_grad).copy_(at::mm(logits, factors));
        sum.addmm_(logits.t(), inputs);
      }
      weight_grad.copy_(sum);
    });
