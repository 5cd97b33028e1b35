// SPDX-License-Identifier: Apache-2.0
#include "hifloat8.h"

#include <ATen/ops/empty.h>

#include <array>
#include <cmath>
#include <limits>

namespace cann_cpu {
namespace {

constexpr uint8_t kNotANumber = 0x80, kInfinite = 0x6F, kSign = 0x80;
constexpr float kPastGreatest = 49152;  // what infinity stands for

float hifloat8_magnitude(int code) {
  if (code == 0) return 0;
  if (code == kInfinite) return std::numeric_limits<float>::infinity();
  if (code < 8) return std::ldexp(1.0F, code - 23);
  const int exponent_bits = code >= 0x20 ? (code >> 5) + 1 : code >> 4;
  const int mantissa_bits = exponent_bits == 4 ? 1 : exponent_bits == 3 ? 2 : 3;
  const float mantissa = 1 + std::ldexp(static_cast<float>(code & ((1 << mantissa_bits) - 1)), -mantissa_bits);
  if (exponent_bits == 0) return mantissa;
  const int sign = 1 << (exponent_bits - 1), field = code >> mantissa_bits & (2 * sign - 1);
  const int magnitude = sign + (field & (sign - 1));
  return std::ldexp(mantissa, (field & sign) != 0 ? -magnitude : magnitude);
}

struct HiFloat8Table {
  std::array<float, 256> values{};
  std::array<uint8_t, 128> codes{};     // by magnitude
  std::array<float, 127> boundaries{};  // from which on the next magnitude is nearest

  HiFloat8Table() {
    for (int code = 0; code < kSign; ++code) {
      codes[static_cast<size_t>(code)] = static_cast<uint8_t>(code);
      values[static_cast<size_t>(code)] = hifloat8_magnitude(code);
      values[static_cast<size_t>(code) + kSign] = -hifloat8_magnitude(code);
    }
    values[kNotANumber] = std::numeric_limits<float>::quiet_NaN();
    std::sort(codes.begin(), codes.end(), [&](uint8_t a, uint8_t b) { return values[a] < values[b]; });
    for (size_t i = 0; i < boundaries.size(); ++i) {
      boundaries[i] = (values[codes[i]] + std::min(values[codes[i + 1]], kPastGreatest)) / 2;
    }
  }
};

const HiFloat8Table& hifloat8_table() {
  static const HiFloat8Table table;
  return table;
}

}  // namespace

at::Tensor in_wide_float(In tensor) {
  if (tensor.scalar_type() != kHiFloat8) return tensor.to(at::kFloat);
  const at::Tensor bytes = tensor.view(at::kByte).contiguous(), result = at::empty(tensor.sizes(), at::kFloat);
  const auto* from = bytes.const_data_ptr<uint8_t>();
  auto* to = result.mutable_data_ptr<float>();
  const auto& values = hifloat8_table().values;
  for (int64_t i = 0; i < bytes.numel(); ++i) to[i] = values[from[i]];
  return result;
}

at::Tensor in_hifloat8(In x) {
  const at::Tensor wide = x.to(at::kFloat).contiguous(), result = at::empty(x.sizes(), at::kByte);
  const auto* from = wide.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<uint8_t>();
  const auto& [values, codes, boundaries] = hifloat8_table();
  for (int64_t i = 0; i < wide.numel(); ++i) {
    const auto above = std::upper_bound(boundaries.begin(), boundaries.end(), std::abs(from[i]));
    const uint8_t code = codes[static_cast<size_t>(above - boundaries.begin())];
    to[i] = std::isnan(from[i]) ? kNotANumber : code | (std::signbit(from[i]) && code != 0 ? kSign : 0);
  }
  return result.view(kHiFloat8);
}

}  // namespace cann_cpu
