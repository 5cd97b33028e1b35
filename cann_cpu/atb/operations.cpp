// SPDX-License-Identifier: Apache-2.0
// The operations that CreateOperation makes, but for attention (attention.cpp).
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/matmul.h>

#include "expert_groups.h"
#include "opapi/gating.h"
#include "opapi/normalization.h"
#include "opapi/pages.h"
#include "opapi/quantization.h"
#include "opapi/rotary.h"
#include "operation.h"

using namespace cann_cpu;

ATB_ROW(ReshapeAndCache, "key, key_cache: float16 bfloat16 int8; value, value_cache: as key; slots: int32",
        [](Phase phase, In key, OptionalIn value, Out key_cache, OptionalOut value_cache, In slots) {
          check_rank("slots", slots, 1);
          const Pages keys = pages_of("key_cache", key_cache, CacheLayout::Rows);
          check_tokens("key", key, keys, slots.size(0));
          if (value.has_value()) {
            check_tokens("value", *value, pages_of("value_cache", *value_cache, CacheLayout::Rows), slots.size(0));
          }
          if (phase == Phase::Check) return;
          check_values("slots", slots, std::numeric_limits<int32_t>::min(), keys.slots() - 1);
          const auto places = slots.to(at::kLong);
          scatter(keys, key, places);
          if (value.has_value()) scatter(pages_of("value_cache", *value_cache, CacheLayout::Rows), *value, places);
        });

atb::Operation* atb::make(const infer::ReshapeAndCacheParam& param) {
  using Param = infer::ReshapeAndCacheParam;
  require(param.compression == 0, "compressType", param.compression, "0 (none)");
  require(param.cache_config == Param::kKeyAndValue || param.cache_config == Param::kKeyOnly, "kvCacheCfg",
          param.cache_config, "0 (key and value) or 1 (key only); caches in FRACTAL_NZ are not implemented");
  const bool has_value = param.cache_config == Param::kKeyAndValue;
  return new_operation("ReshapeAndCacheOperation", has_value ? 5 : 3, has_value ? 2 : 1,
                       ReshapeAndCachePhaseOne::call_with, [=](const VariantPack& t, Arguments& arguments) {
                         if (has_value) {
                           arguments(t.inputs[0], t.inputs[1], t.outputs[0], t.outputs[1], t.inputs[4]);
                         } else {
                           arguments(t.inputs[0], nullptr, t.outputs[0], nullptr, t.inputs[2]);
                         }
                       });
}

namespace {

// A view of shape (tokens, heads, head size); a token's heads may lie in one dimension.
at::Tensor by_head(const char* name, const at::Tensor& x, int64_t head_size) {
  TORCH_CHECK(x.dim() >= 2 && x.numel() / std::max<int64_t>(x.size(0), 1) % head_size == 0, name, " has shape ",
              x.sizes(), "; expected heads of the size of cos, ", head_size);
  return x.view({x.size(0), -1, head_size});
}

using SequenceLengths = Ignored<In>;  // cos and sin have a row for each token of all sequences

}  // namespace

ATB_ROW(Rope, "query, query_out: float16 bfloat16 float32; key, key_out: as query; cos, sin: float16 bfloat16 float32",
        [](Phase phase, In query, In key, In cos, In sin, SequenceLengths, int64_t coefficient, Out query_out,
           Out key_out) {
          check_rank("cos", cos, 2);
          check_shape("sin", sin, cos.sizes());
          TORCH_CHECK(coefficient == 2 || coefficient == cos.size(1), "rotaryCoeff is ", coefficient,
                      "; expected 2 (halves) or the size of a head, ", cos.size(1), " (neighbours)");
          for (const auto& [name, x, out] : {std::tuple("query", query, query_out), std::tuple("key", key, key_out)}) {
            (void)by_head(name, x, cos.size(1));
            TORCH_CHECK(x.size(0) == cos.size(0), name, " has ", x.size(0), " tokens, cos has ", cos.size(0));
            check_shape("the output", out, x.sizes());
          }
          if (phase == Phase::Check) return;
          const auto pairs = coefficient == 2 ? Pairs::Half : Pairs::Interleave;
          const auto angle_cos = cos.unsqueeze(1), angle_sin = sin.unsqueeze(1);
          for (const auto& [x, out] : {std::pair(query, query_out), std::pair(key, key_out)}) {
            by_head("x", out, cos.size(1)).copy_(rotated(by_head("x", x, cos.size(1)), angle_cos, angle_sin, pairs));
          }
        });

atb::Operation* atb::make(const infer::RopeParam& param) {
  require(param.cosine_format == 0, "cosFormat", param.cosine_format, "0");
  return new_operation("RopeOperation", 5, 2, RopePhaseOne::call_with, [=](const VariantPack& t, Arguments& arguments) {
    arguments(t.inputs[0], t.inputs[1], t.inputs[2], t.inputs[3], t.inputs[4], param.coefficient, t.outputs[0],
              t.outputs[1]);
  });
}

namespace {

using Positions = Ignored<In>;  // 0, 1, 2, ..., which the NPU sorts by

}  // namespace

ATB_ROW(GroupTopk, "x, out: float16 bfloat16",
        [](Phase phase, In x, Positions, int64_t groups, int64_t k, int64_t n, Out out) {
          check_shape("the output", out, x.sizes());
          check_expert_groups(x, groups, k, n);
          if (phase == Phase::Check) return;
          assign(out, with_best_groups(x.to(at::kFloat), groups, k, n, /*hidden=*/0));
        });

atb::Operation* atb::make(const infer::GroupTopkParam& param) {
  using Param = infer::GroupTopkParam;
  require(param.score == Param::kLargest || param.score == Param::kSumOfLargest, "groupMultiFlag", param.score,
          "0 (the largest) or 1 (the sum of the n largest)");
  const int64_t n = param.score == Param::kLargest ? 1 : param.n;
  return new_operation("GroupTopkOperation", 2, 1, GroupTopkPhaseOne::call_with,
                       [=](const VariantPack& t, Arguments& arguments) {
                         arguments(t.inputs[0], t.inputs[1], param.groups, param.k, n, t.outputs[0]);
                       });
}

namespace {

at::Tensor transposed_if(bool is_transposed, const at::Tensor& x) { return is_transposed ? x.mT() : x; }

}  // namespace

ATB_ROW(Linear, "x: float16 bfloat16; weight: as x; sum: float32",
        [](Phase phase, In x, In weight, bool transpose_x, bool transpose_weight, Out sum) {
          check_rank("x", x, 2);
          check_rank("weight", weight, 2);
          const auto left = transposed_if(transpose_x, x);
          const auto right = transposed_if(transpose_weight, weight);
          TORCH_CHECK(left.size(1) == right.size(0), "x of shape ", x.sizes(), " and weight of shape ", weight.sizes(),
                      " have no product with transposeA ", transpose_x, " and transposeB ", transpose_weight);
          check_shape("the sum", sum, {left.size(0), right.size(1)});
          if (phase == Phase::Check) return;
          constexpr int64_t kElements = 1 << 22;  // of a block that is converted to float
          const int64_t depth = left.size(1),
                        step = std::max<int64_t>(kElements / std::max<int64_t>(right.size(1), 1), 1);
          for (int64_t begin = 0; begin < depth; begin += step) {
            const int64_t count = std::min(step, depth - begin);
            const auto rows = right.narrow(0, begin, count).to(at::kFloat);
            const int64_t tall = std::max<int64_t>(kElements / count, 1);
            for (int64_t row = 0; row < left.size(0); row += tall) {
              auto part = sum.narrow(0, row, std::min(tall, left.size(0) - row));
              const auto factor = left.narrow(0, row, part.size(0)).narrow(1, begin, count).to(at::kFloat);
              at::addmm_out(part, part, factor, rows);
            }
          }
        });

atb::Operation* atb::make(const infer::LinearParam& param) {
  require(param.accumulates, "enAccum", param.accumulates, "true; a product that is not added is not implemented");
  require(!param.has_bias, "hasBias", param.has_bias, "false with enAccum");
  require(param.out_dtype == ACL_DT_UNDEFINED, "outDataType", param.out_dtype, "ACL_DT_UNDEFINED with enAccum");
  return new_operation(
      "LinearOperation", 3, 1, LinearPhaseOne::call_with, [=](const VariantPack& t, Arguments& arguments) {
        arguments(t.inputs[0], t.inputs[1], int64_t{param.transpose_a}, int64_t{param.transpose_b}, t.outputs[0]);
      });
}

ATB_ROW(Elewise, "x: float16 bfloat16; scale: as x; offset, y: int8",
        [](Phase phase, In x, In scale, OptionalIn offset, Out y) {
          check_shape("y", y, x.sizes());
          (void)scale.expand(x.sizes());
          if (offset.has_value() && offset->numel() > 0) (void)offset->expand(x.sizes());
          if (phase == Phase::Check) return;
          auto value = (x.to(at::kFloat) / scale.to(at::kFloat)).round_();  // before the offset is added
          if (offset.has_value() && offset->numel() > 0) value.add_(*offset);
          assign(y, saturated(value, at::kChar));
        });

atb::Operation* atb::make(const infer::ElewiseParam& param) {
  require(param.type == infer::ElewiseParam::kQuantPerChannel, "elewiseType", param.type,
          "17 (ELEWISE_QUANT_PER_CHANNEL); the others are not implemented");
  return new_operation("ElewiseOperation", 3, 1, ElewisePhaseOne::call_with,
                       [](const VariantPack& t, Arguments& arguments) {
                         arguments(t.inputs[0], t.inputs[1], t.inputs[2], t.outputs[0]);
                       });
}

// y = round((x / sqrt(mean(x ^ 2) + epsilon) * gamma + beta) / scale + offset)
ATB_ROW(RmsNorm, "x: float16 bfloat16; gamma, beta, scale: as x; offset, y: int8",
        [](Phase phase, In x, In gamma, In beta, In scale, In offset, double epsilon, Out y) {
          check_shape("scale", scale, {1});
          check_or_run(phase, QuantizedRmsNorm({x, gamma, beta, scale, offset, epsilon, /*divides=*/true, y, {}}));
        });

atb::Operation* atb::make(const infer::RmsNormParam& param) {
  require(param.layer_type == infer::RmsNormParam::kNorm, "layerType", param.layer_type, "1 (RMS_NORM_NORM)");
  require(param.norm.quantization == infer::kInt8, "normParam.quantType", param.norm.quantization, "2 (QUANT_INT8)");
  require(param.norm.dynamic_quantization == infer::kNotDynamic, "normParam.dynamicQuantType",
          param.norm.dynamic_quantization, "0 (static)");
  return new_operation("RmsNormOperation", 5, 1, RmsNormPhaseOne::call_with, [=](const VariantPack& t, Arguments& a) {
    a(t.inputs[0], t.inputs[1], t.inputs[2], t.inputs[3], t.inputs[4], param.norm.epsilon, t.outputs[0]);
  });
}
