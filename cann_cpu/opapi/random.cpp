// SPDX-License-Identifier: Apache-2.0
// Random numbers: a function of the seed and the offset that torch_npu's generator hands out with every call.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/rrelu_with_noise.h>
#include <ATen/ops/where.h>

#include "dropout_mask.h"
#include "table.h"

namespace cann_cpu {

at::Tensor unpack_dropout_mask(const at::Tensor& mask, at::IntArrayRef shape) {
  const int64_t count = c10::multiply_integers(shape);
  TORCH_CHECK(mask.numel() * 8 >= count, "the mask has ", mask.numel(), " bytes, ", count, " bits are needed");
  const auto packed = mask.contiguous();
  const auto keep = at::empty({count}, at::kBool);
  const auto* bytes = static_cast<const uint8_t*>(packed.const_data_ptr());
  bool* kept = keep.mutable_data_ptr<bool>();
  for (int64_t i = 0; i < count; ++i) kept[i] = (bytes[i / 8] >> (i % 8)) & 1;
  return keep.reshape(shape);
}

}  // namespace cann_cpu

using namespace cann_cpu;

namespace {

// ATen's generator starts from 32 bits, so seed and offset are mixed into them (the finaliser of SplitMix64).
at::Generator generator(uint64_t seed, uint64_t offset) {
  uint64_t state = seed + offset * 0x9E3779B97F4A7C15;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
  return at::detail::createCPUGenerator(state ^ (state >> 31));
}

// In a captured graph seed and offset lie in device memory and are read by each replay.
at::Generator generator(const at::Tensor& seed, const at::Tensor& offset, uint64_t offset_in_graph) {
  return generator(seed.item<int64_t>(), offset.item<int64_t>() + offset_in_graph);
}

void draw_dropout_mask(double drop_probability, const at::Generator& random, at::IntArrayRef shape, at::Tensor& mask) {
  const int64_t count = c10::multiply_integers(shape);
  TORCH_CHECK(mask.numel() * 8 >= count, "the mask has ", mask.numel(), " bytes, ", count, " bits are needed");
  const auto keep = at::empty({count}, at::kBool).bernoulli_(1 - drop_probability, random);
  const auto packed = at::empty(mask.sizes(), at::kByte).zero_();
  const bool* kept = keep.const_data_ptr<bool>();
  auto* bytes = packed.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < count; ++i) bytes[i / 8] |= static_cast<uint8_t>(kept[i]) << (i % 8);
  mask.copy_(packed);
}

void apply_dropout(const at::Tensor& self, const at::Tensor& mask, double drop_probability, at::Tensor& out) {
  const double scale = drop_probability < 1 ? 1 / (1 - drop_probability) : 0;
  assign(out, at::where(unpack_dropout_mask(mask, self.sizes()), self * scale, at::Scalar(0)));
}

}  // namespace

ACLNN(InplaceUniform, [](Out self, double from, double to, uint64_t seed, uint64_t offset) {
  self.uniform_(from, to, generator(seed, offset));
});
ACLNN(InplaceUniformTensor, [](Out self, double from, double to, In seed, In offset, uint64_t in_graph) {
  self.uniform_(from, to, generator(seed, offset, in_graph));
});
ACLNN(InplaceNormal, [](Out self, float mean, float std, int64_t seed, int64_t offset) {
  self.normal_(mean, std, generator(seed, offset));
});
ACLNN(InplaceNormalTensor, [](Out self, float mean, float std, In seed, In offset, uint64_t in_graph) {
  self.normal_(mean, std, generator(seed, offset, in_graph));
});
ACLNN(NormalTensorTensor, [](In mean, In std, int64_t seed, int64_t offset, Out out) {
  at::normal_out(out, mean, std, generator(seed, offset));
});
ACLNN(NormalTensorFloat, [](In mean, float std, int64_t seed, int64_t offset, Out out) {
  at::normal_out(out, mean, std, generator(seed, offset));
});
ACLNN(NormalFloatTensor, [](float mean, In std, int64_t seed, int64_t offset, Out out) {
  at::normal_out(out, mean, std, generator(seed, offset));
});
ACLNN(NormalFloatFloat, [](float mean, float std, int64_t seed, int64_t offset, Out out) {
  out.normal_(mean, std, generator(seed, offset));
});
ACLNN(InplaceRandom, [](Out self, int64_t from, int64_t to, uint64_t seed, uint64_t offset) {
  self.random_(from, to, generator(seed, offset));
});
ACLNN(InplaceRandomTensor, [](Out self, int64_t from, int64_t to, In seed, In offset, uint64_t in_graph) {
  self.random_(from, to, generator(seed, offset, in_graph));
});
// All whole numbers that the dtype has without a gap, from 0.
ACLNN(InplaceRandomWithoutFromTo,
      [](Out self, int64_t seed, int64_t offset) { self.random_(generator(seed, offset)); });
ACLNN(InplaceRandomWithoutFromToTensor,
      [](Out self, In seed, In offset, int64_t in_graph) { self.random_(generator(seed, offset, in_graph)); });
ACLNN(InplaceBernoulli, [](Out self, Scalar probability, uint64_t seed, uint64_t offset) {
  self.bernoulli_(probability.toDouble(), generator(seed, offset));
});
ACLNN(InplaceBernoulliTensor, [](Out self, In probability, uint64_t seed, uint64_t offset) {
  self.bernoulli_(probability.expand_as(self), generator(seed, offset));
});
ACLNN_TYPED_CHECKED(StatelessExponentialTensor, "self: float32 float16 bfloat16; seed, offset: int64",
                    [](Phase phase, InOut self, In seed, In offset, int64_t in_graph, double lambd) {
                      TORCH_CHECK(seed.numel() == 1 && offset.numel() == 1, "seed and offset have shapes ",
                                  seed.sizes(), " and ", offset.sizes(), "; expected a number each");
                      TORCH_CHECK(lambd > 0, "lambd is ", lambd, "; expected a positive number");
                      if (phase == Phase::Check) return;
                      self.exponential_(lambd, generator(seed, offset, static_cast<uint64_t>(in_graph)));
                    });
ACLNN_TYPED_CHECKED(SimThreadExponential, "self: float32 float16 bfloat16",
                    [](Phase phase, InOut self, int64_t count, double lambda, int64_t seed, int64_t offset) {
                      TORCH_CHECK(count == self.numel(), "count is ", count, "; expected ", self.numel(),
                                  ", the elements of self");
                      TORCH_CHECK(lambda > 0, "lambda is ", lambda, "; expected a positive number");
                      TORCH_CHECK(offset % 4 == 0, "offset is ", offset, "; expected a multiple of 4");
                      if (phase == Phase::Check) return;
                      self.exponential_(lambda, generator(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)));
                    });
ACLNN(Randperm,
      [](int64_t n, uint64_t seed, uint64_t offset, Out out) { at::randperm_out(out, n, generator(seed, offset)); });
ACLNN(Multinomial, [](In self, int64_t samples, bool replacement, uint64_t seed, uint64_t offset, Out out) {
  at::multinomial_out(out, self, samples, replacement, generator(seed, offset));
});
ACLNN(MultinomialTensor,
      [](In self, int64_t samples, bool replacement, In seed, In offset, uint64_t in_graph, Out out) {
        at::multinomial_out(out, self, samples, replacement, generator(seed, offset, in_graph));
      });

namespace {

// ATen reads and writes all three as if they were contiguous and had self's shape.
void rrelu(In self, Out noise, Scalar lower, Scalar upper, bool training, const at::Generator& random, Out out) {
  TORCH_CHECK(noise.sizes() == self.sizes(), "self has shape ", self.sizes(), ", noise has ", noise.sizes());
  at::Tensor drawn = noise.contiguous();
  assign(out, at::rrelu_with_noise(self.contiguous(), drawn, lower, upper, training, random));
  noise.copy_(drawn);
}

}  // namespace

ACLNN(RReluWithNoise, [](In self, Out noise, Scalar lower, Scalar upper, bool training, int64_t seed, int64_t offset,
                         Out out) { rrelu(self, noise, lower, upper, training, generator(seed, offset), out); });
ACLNN(InplaceRReluWithNoise,
      [](Out self, Out noise, Scalar lower, Scalar upper, bool training, int64_t seed, int64_t offset) {
        rrelu(self, noise, lower, upper, training, generator(seed, offset), self);
      });

ACLNN(DropoutGenMask, [](Ints shape, double probability, uint64_t seed, uint64_t offset, Out mask) {
  draw_dropout_mask(probability, generator(seed, offset), shape, mask);
});
ACLNN(DropoutGenMaskV2, [](Ints shape, double probability, uint64_t seed, uint64_t offset, Dtype, Out mask) {
  draw_dropout_mask(probability, generator(seed, offset), shape, mask);
});
ACLNN(DropoutGenMaskV2Tensor,
      [](Ints shape, double probability, In seed, In offset, uint64_t in_graph, Dtype, Out mask) {
        draw_dropout_mask(probability, generator(seed, offset, in_graph), shape, mask);
      });
ACLNN(DropoutDoMask,
      [](In self, In mask, double probability, Out out) { apply_dropout(self, mask, probability, out); });
ACLNN(DropoutV3, [](In self, Absent<"optionalNoiseShape", OptionalIn>, double probability, uint64_t seed,
                    uint64_t offset, Out out, Out mask) {
  draw_dropout_mask(probability, generator(seed, offset), self.sizes(), mask);
  apply_dropout(self, mask, probability, out);
});
ACLNN_TYPED(DropoutV3Grad, "grad_y: float32 float16 bfloat16; mask: uint8; grad_x: float32 float16 bfloat16",
            [](In grad_y, In mask, double scale, Out grad_x) {
              const auto kept = unpack_dropout_mask(mask, grad_y.sizes());
              assign(grad_x, in_float(grad_y) * kept * at::Scalar(scale));
            });
