// SPDX-License-Identifier: Apache-2.0
// Mmad: sums of products of a matrix in L0A and one in L0B, in L0C.
#pragma once

#include "ascendc/gemm.h"
#include "ascendc/tensor.h"

namespace AscendC {

struct MmadParams {
  constexpr MmadParams() = default;
  constexpr MmadParams(uint16_t m, uint16_t n, uint16_t k, uint8_t unit_flag, bool from_bias, bool from_zero)
      : m(m), n(n), k(k), unitFlag(unit_flag), cmatrixSource(from_bias), cmatrixInitVal(from_zero) {}
  constexpr MmadParams(uint16_t m, uint16_t n, uint16_t k, bool accumulate, int32_t offset, bool sparse,
                       bool winograd_a, bool winograd_b)
      : m(m),
        n(n),
        k(k),
        isBias(accumulate),
        fmOffset(offset),
        enSsparse(sparse),
        enWinogradA(winograd_a),
        enWinogradB(winograd_b) {}

  uint16_t m = 0, n = 0, k = 0;
  bool isBias = false;  // adds to what is in L0C; the older name of cmatrixInitVal false
  int32_t fmOffset = 0;
  bool enSsparse = false, enWinogradA = false, enWinogradB = false;
  uint8_t unitFlag = 0;          // 2, 3: Fixpipe with its own flag waits for each piece of 512 bytes
  bool kDirectionAlign = false;  // float: k goes up to a multiple of 16 in L0A and L0B, not of 8
  bool cmatrixSource = false;    // L0C begins with the bias
  bool cmatrixInitVal = true;    // L0C begins with 0
};

enum class HF32Mode : uint8_t { DISABLE, ENABLE };
enum class HF32TransMode : uint8_t { NEAREST_EVEN, NEAREST_ZERO };

namespace cpu {

struct MmadCall {
  Where where;
  const LocalMemory& sums;
  const LocalMemory& a;
  const LocalMemory& b;
  const LocalMemory* bias;
  const MmadParams& params;
};

ASCENDC_CPU_EXPORT void mmad(Factors factors, const MmadCall& call);

template <class Sum, class A, class B>
constexpr Factors checked_factors() {
  static_assert(
      (std::is_same_v<Sum, float> && std::is_same_v<A, B> && OneOf<A, half, bfloat16_t, float>) ||
          (std::is_same_v<Sum, int32_t> && std::is_same_v<A, int8_t> && std::is_same_v<B, int8_t>),
      "Mmad: half, bfloat16_t or float make float sums, int8_t makes int32_t sums; both factors are of one dtype");
  return factors_of<A>();
}

}  // namespace cpu

// dst[m, n] = fm[m, k] filter[k, n]: m, n, k are of the elements that count, in fractals that are whole. A row of one
// element lies in L0A as it is, without fractals.
template <class T, class U, class S>
void Mmad(const LocalTensor<T>& dst, const LocalTensor<U>& fm, const LocalTensor<S>& filter,
          const MmadParams& mmadParams, cpu::Where where = cpu::Where::current()) {
  cpu::mmad(cpu::checked_factors<T, U, S>(), {where, dst.memory(), fm.memory(), filter.memory(), nullptr, mmadParams});
}
// The same; the sums begin with bias[n], of the bias table.
template <class T, class U, class S, class V>
void Mmad(const LocalTensor<T>& dst, const LocalTensor<U>& fm, const LocalTensor<S>& filter, const LocalTensor<V>& bias,
          const MmadParams& mmadParams, cpu::Where where = cpu::Where::current()) {
  static_assert(std::is_same_v<T, V>, "Mmad: the bias has the dtype of the sums");
  cpu::mmad(cpu::checked_factors<T, U, S>(),
            {where, dst.memory(), fm.memory(), filter.memory(), &bias.memory(), mmadParams});
}

// Rounds float factors to 11 bits after the point before they are multiplied.
inline void SetHF32Mode(bool enable, cpu::Where where = cpu::Where::current()) {
  cpu::block(where).matrix_unit.hf32 = enable;
}
inline void SetHF32Mode(HF32Mode mode, cpu::Where where = cpu::Where::current()) {
  SetHF32Mode(mode == HF32Mode::ENABLE, where);
}
inline void SetHF32TransMode(bool toward_zero, cpu::Where where = cpu::Where::current()) {
  cpu::block(where).matrix_unit.hf32_toward_zero = toward_zero;
}
inline void SetHF32TransMode(HF32TransMode mode, cpu::Where where = cpu::Where::current()) {
  SetHF32TransMode(mode == HF32TransMode::NEAREST_ZERO, where);
}

// In which direction the matrix unit goes through L0C; its sums are the same.
inline void SetMMLayoutTransform(bool) {}
inline void SetMMColumnMajor() {}
inline void SetMMRowMajor() {}

}  // namespace AscendC
