// SPDX-License-Identifier: Apache-2.0
// The steps of a batch normalization whose statistics are those of all ranks. Channels are the second dimension.
#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>

#include "checks.h"
#include "product.h"

using namespace cann_cpu;

namespace {

// Some channels of a call, in float.
class Channels {
 public:
  Channels(In input, int64_t first, int64_t count) : input_(input), first_(first), count_(count) {
    for (int64_t dim = 2; dim < input.dim(); ++dim) dims_.push_back(dim);
  }

  at::Tensor of(In tensor) const { return tensor.narrow(1, first_, count_).to(at::kFloat); }
  // A number for each channel, which broadcasts to its elements.
  at::Tensor number(In numbers) const {
    std::vector<int64_t> shape(static_cast<size_t>(input_.dim()), 1);
    shape[1] = count_;
    return numbers.narrow(0, first_, count_).to(at::kFloat).reshape(shape);
  }
  at::Tensor sum(const at::Tensor& values) const { return at::sum(values, dims_); }

  void write(Out out, const at::Tensor& values) const { out.narrow(1, first_, count_).copy_(values); }
  void write_numbers(const std::optional<at::Tensor>& out, const at::Tensor& numbers) const {
    if (out.has_value()) out->narrow(0, first_, count_).copy_(numbers.flatten());
  }

 private:
  const at::Tensor& input_;
  int64_t first_, count_;
  std::vector<int64_t> dims_{0};
};

int64_t elements_of_channel(In input) { return input.numel() / std::max<int64_t>(input.size(1), 1); }

template <class Body>
void by_channels(In input, Body body) {
  constexpr int64_t kElements = 1 << 21;
  const int64_t most = std::max<int64_t>(kElements / std::max<int64_t>(elements_of_channel(input), 1), 1);
  by_steps(input.size(1), most, [&](int64_t first, int64_t count) { body(Channels(input, first, count)); });
}

using GivenEpsilon = Ignored<double>;  // of invstd, which is given

void check_input(const char* name, In input) {
  TORCH_CHECK(input.dim() >= 2 && input.dim() <= 8, name, " has ", input.dim(), " dimensions; expected 2 to 8");
}

void check_numbers(const char* name, OptionalIn numbers, In input) {
  if (numbers.has_value()) check_shape(name, *numbers, {input.size(1)});
}

// Statistics of all ranks, and what they change of the running ones.
void write_statistics(const at::Tensor& mean, const at::Tensor& variance, const at::Tensor& count, double momentum,
                      double eps, const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_variance, Out out_mean, Out out_invstd) {
  const auto update = [&](const std::optional<at::Tensor>& running, const at::Tensor& value) {
    if (running.has_value()) running->copy_(*running * at::Scalar(1 - momentum) + value * at::Scalar(momentum));
  };
  update(running_mean, mean);
  update(running_variance, variance * (count / (count - at::Scalar(1))));
  out_mean.copy_(mean);
  out_invstd.copy_(at::rsqrt(variance + at::Scalar(eps)));
}

}  // namespace

ACLNN_TYPED_CHECKED(BatchNormStats, "input: float32 float16; mean, invstd: float32",
                    [](Phase phase, In input, double eps, Out mean, Out invstd) {
                      check_input("input", input);
                      check_numbers("mean", mean, input);
                      check_numbers("invstd", invstd, input);
                      if (phase == Phase::Check) return;
                      const at::Scalar count(elements_of_channel(input));
                      by_channels(input, [&](const Channels& channels) {
                        const auto x = channels.of(input);
                        const auto average = channels.sum(x) / count;
                        channels.write_numbers(mean, average);
                        const auto difference = x - channels.number(mean);
                        channels.write_numbers(
                            invstd, at::rsqrt(channels.sum(difference * difference) / count + at::Scalar(eps)));
                      });
                    });

ACLNN_TYPED_CHECKED(BatchNormReduce, "x: float32 float16 bfloat16; sum, square_sum: float32",
                    [](Phase phase, In x, Out sum, Out square_sum) {
                      check_input("x", x);
                      check_numbers("sum", sum, x);
                      check_numbers("square_sum", square_sum, x);
                      if (phase == Phase::Check) return;
                      by_channels(x, [&](const Channels& channels) {
                        const auto values = channels.of(x);
                        channels.write_numbers(sum, channels.sum(values));
                        channels.write_numbers(square_sum, channels.sum(values * values));
                      });
                    });

ACLNN_TYPED_CHECKED(BatchNormElemt,
                    "input: float32 float16; weight, bias, mean, invstd: float32 float16; output: as input",
                    [](Phase phase, In input, OptionalIn weight, OptionalIn bias, In mean, In invstd, GivenEpsilon,
                       Out output) {
                      check_input("input", input);
                      check_numbers("weight", weight, input);
                      check_numbers("bias", bias, input);
                      check_numbers("mean", mean, input);
                      check_numbers("invstd", invstd, input);
                      check_shape("output", output, input.sizes());
                      if (phase == Phase::Check) return;
                      by_channels(input, [&](const Channels& channels) {
                        auto y = (channels.of(input) - channels.number(mean)) * channels.number(invstd);
                        if (weight.has_value()) y.mul_(channels.number(*weight));
                        if (bias.has_value()) y.add_(channels.number(*bias));
                        channels.write(output, y);
                      });
                    });

ACLNN_TYPED_CHECKED(BatchNormReduceBackward,
                    "grad_out, input: float32 float16; mean, invstd, weight: float32 float16; "
                    "sum_dy, sum_dy_xmu, grad_weight, grad_bias: float32 float16",
                    [](Phase phase, In grad_out, In input, In mean, In invstd, OptionalIn weight, bool input_g,
                       bool weight_g, bool bias_g, OptionalOut sum_dy, OptionalOut sum_dy_xmu, OptionalOut grad_weight,
                       OptionalOut grad_bias) {
                      check_input("input", input);
                      check_shape("grad_out", grad_out, input.sizes());
                      check_numbers("mean", mean, input);
                      check_numbers("invstd", invstd, input);
                      check_numbers("weight", weight, input);
                      const auto check_result = [&](const char* name, OptionalOut result, const char* flag,
                                                    bool is_wanted) {
                        TORCH_CHECK(!is_wanted || result.has_value(), name, " is null; ", flag, " is true");
                        check_numbers(name, result, input);
                      };
                      check_result("sum_dy", sum_dy, "input_g", input_g);
                      check_result("sum_dy_xmu", sum_dy_xmu, "input_g", input_g);
                      check_result("grad_weight", grad_weight, "weight_g", weight_g);
                      check_result("grad_bias", grad_bias, "bias_g", bias_g);
                      if (phase == Phase::Check) return;
                      by_channels(input, [&](const Channels& channels) {
                        const auto dy = channels.of(grad_out);
                        const auto sum = channels.sum(dy);
                        const auto product = channels.sum(dy * (channels.of(input) - channels.number(mean)));
                        if (input_g) {
                          channels.write_numbers(sum_dy, sum);
                          channels.write_numbers(sum_dy_xmu, product);
                        }
                        if (weight_g) channels.write_numbers(grad_weight, product * channels.number(invstd).flatten());
                        if (bias_g) channels.write_numbers(grad_bias, sum);
                      });
                    });

ACLNN_TYPED_CHECKED(
    BatchNormElemtBackward,
    "grad_out, input: float32 float16; mean, invstd, weight, sum_dy, sum_dy_xmu: float32 float16; counter: int32; "
    "grad_input: as input",
    [](Phase phase, In grad_out, In input, In mean, In invstd, OptionalIn weight, In sum_dy, In sum_dy_xmu, In counter,
       Out grad_input) {
      check_input("input", input);
      check_shape("grad_out", grad_out, input.sizes());
      check_numbers("mean", mean, input);
      check_numbers("invstd", invstd, input);
      check_numbers("weight", weight, input);
      check_numbers("sum_dy", sum_dy, input);
      check_numbers("sum_dy_xmu", sum_dy_xmu, input);
      check_rank("counter", counter, 1);
      check_shape("grad_input", grad_input, input.sizes());
      if (phase == Phase::Check) return;
      const auto count = counter.sum().to(at::kFloat);
      by_channels(input, [&](const Channels& channels) {
        const auto scale = channels.number(invstd);
        const auto slope = scale * scale * channels.number(sum_dy_xmu) / count;
        auto dx = channels.of(grad_out) - channels.number(sum_dy) / count -
                  (channels.of(input) - channels.number(mean)) * slope;
        dx.mul_(scale);
        if (weight.has_value()) dx.mul_(channels.number(*weight));
        channels.write(grad_input, dx);
      });
    });

ACLNN_TYPED_CHECKED(
    BatchNormGatherStatsWithCounts,
    "input: float32 float16; mean, invstd, running_mean, running_var, counts, mean_all, invstd_all: float32 float16",
    [](Phase phase, In input, In mean, In invstd, OptionalOut running_mean, OptionalOut running_var, double momentum,
       double eps, In counts, Out mean_all, Out invstd_all) {
      check_input("input", input);
      check_rank("counts", counts, 1);
      check_shape("mean", mean, {counts.size(0), input.size(1)});
      check_shape("invstd", invstd, mean.sizes());
      check_numbers("running_mean", running_mean, input);
      check_numbers("running_var", running_var, input);
      check_numbers("mean_all", mean_all, input);
      check_numbers("invstd_all", invstd_all, input);
      if (phase == Phase::Check) return;
      const auto count = counts.to(at::kFloat).unsqueeze(1), total = counts.to(at::kFloat).sum();
      const auto means = mean.to(at::kFloat);
      const auto average = (means * count).sum(0) / total;
      const auto variances = invstd.to(at::kFloat).square().reciprocal() - at::Scalar(eps);
      const auto variance = ((variances + (means - average).square()) * count).sum(0) / total;
      write_statistics(average, variance, total, momentum, eps, running_mean, running_var, mean_all, invstd_all);
    });

ACLNN_TYPED_CHECKED(SyncBatchNormGatherStats,
                    "total_sum, total_square_sum: float32 float16; sample_count: int32; "
                    "mean, variance, batch_mean, batch_invstd: as total_sum",
                    [](Phase phase, In total_sum, In total_square_sum, In sample_count, Out mean, Out variance,
                       float momentum, float eps, Out batch_mean, Out batch_invstd) {
                      check_rank("total_sum", total_sum, 2);
                      check_shape("total_square_sum", total_square_sum, total_sum.sizes());
                      check_shape("sample_count", sample_count, {total_sum.size(0)});
                      check_numbers("mean", mean, total_sum);
                      check_numbers("variance", variance, total_sum);
                      check_numbers("batch_mean", batch_mean, total_sum);
                      check_numbers("batch_invstd", batch_invstd, total_sum);
                      if (phase == Phase::Check) return;
                      const auto total = sample_count.sum().to(at::kFloat);
                      const auto average = total_sum.to(at::kFloat).sum(0) / total;
                      const auto of_batch = total_square_sum.to(at::kFloat).sum(0) / total - average * average;
                      write_statistics(average, of_batch, total, momentum, eps, mean, variance, batch_mean,
                                       batch_invstd);
                    });
