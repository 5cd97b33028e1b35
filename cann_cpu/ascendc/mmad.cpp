// SPDX-License-Identifier: Apache-2.0
#include "ascendc/mmad.h"

#include "instruction_trace.h"

namespace AscendC::cpu {
namespace {

constexpr int64_t ceil(int64_t number, int64_t by) { return (number + by - 1) / by; }

struct Layout {
  int64_t m, n, k;
  int64_t piece;            // elements of 32 bytes
  int64_t depth_fractals;   // of k
  int64_t column_fractals;  // of n
};

void multiply_factors(Factors factors, const MmadCall& call, const Layout& of) {
  const MatrixUnit& unit = block(call.where).matrix_unit;
  const Hf32 rounding = !unit.hf32 || factors != Factors::Float ? Hf32::Off
                        : unit.hf32_toward_zero                 ? Hf32::TowardZero
                                                                : Hf32::ToEven;
  // A fractal of L0A has rows of the matrix, one of L0B a row for each column, turned. A single row has no fractals.
  const FactorLayout a{call.a.data, kBlockBytes, of.depth_fractals * int64_t{kFractalBytes},
                       of.m == 1 ? kBlockBytes : kFractalBytes};
  const FactorLayout b{.data = call.b.data,
                       .line = kBlockBytes,
                       .lines_16 = kFractalBytes,
                       .piece = of.column_fractals * int64_t{kFractalBytes},
                       .turned = true};
  const int64_t stripe = ceil(of.m, kFractalRows) * kFractalRows * kFractalRows;
  auto* const sums = reinterpret_cast<int32_t*>(call.sums.data);
  if (call.bias != nullptr) {
    constexpr auto kSum = static_cast<int64_t>(sizeof(*sums));
    int32_t bias[kFractalRows] = {};
    for (int64_t j = 0; j < of.n; j += kFractalRows) {
      const int64_t columns = std::min<int64_t>(kFractalRows, of.n - j);
      std::memcpy(bias, call.bias->data + j * kSum, static_cast<size_t>(columns * kSum));
      std::fill(bias + columns, std::end(bias), 0);
      for (int64_t i = 0; i < of.m; ++i) {
        std::copy_n(bias, kFractalRows, sums + j / kFractalRows * stripe + i * kFractalRows);
      }
    }
  }
  const bool accumulate = call.bias != nullptr || call.params.isBias || !call.params.cmatrixInitVal;
  multiply(factors, {sums, kFractalRows, stripe, a, b, of.m, of.n, of.k, accumulate, rounding});
}

void check_memories(const MmadCall& call) {
  need_memory("Mmad", call.where, call.sums, {Hardware::L0C}, "dst");
  need_memory("Mmad", call.where, call.a, {Hardware::L0A}, "fm");
  need_memory("Mmad", call.where, call.b, {Hardware::L0B}, "filter");
  if (call.bias != nullptr) need_memory("Mmad", call.where, *call.bias, {Hardware::BIAS}, "bias");
  const MmadParams& p = call.params;
  constexpr uint16_t kMax = 4095;
  if (p.m > kMax || p.n > kMax || p.k > kMax) {
    fail(call.where, "Mmad: m %u, n %u, k %u; the device takes 0 to 4095", p.m, p.n, p.k);
  }
  if (p.enSsparse || p.enWinogradA || p.enWinogradB || p.fmOffset != 0) {
    fail(call.where, "Mmad: enSsparse, enWinogradA, enWinogradB and fmOffset do not exist on Atlas A2");
  }
  if (p.cmatrixSource && !p.cmatrixInitVal && call.bias == nullptr) {
    fail(call.where, "Mmad: cmatrixSource says that a bias is there; give it as an argument");
  }
}

// Before anything is computed.
void check_uses(Checker& checker, const MmadCall& call, const Layout& of, uint32_t itemsize) {
  const MmadParams& p = call.params;
  const Checker::Instruction reads{"Mmad", call.where, PIPE_M};
  // A product of ten fractals or more waits by itself for the sums that an earlier one has written.
  const bool in_order = int64_t{p.m / 16} * (p.n / 16) >= 10;
  const Checker::Instruction sums{"Mmad", call.where, PIPE_M, p.unitFlag != 0, in_order};
  if (Recorder* recorder = checker.recorder()) {
    recorder->products({reads.name, reads.where, reads.pipe},
                       static_cast<uint64_t>(ceil(of.m, kFractalRows) * of.column_fractals * of.depth_fractals),
                       itemsize == 4 && !block(call.where).matrix_unit.hf32);
  }
  checker.check_alignment(reads, call.a, kFractalBytes);
  checker.check_alignment(reads, call.b, kFractalBytes);
  checker.check_alignment(sums, call.sums, 1024);
  const int64_t a_bytes = of.m == 1 ? of.k * itemsize : ceil(of.m, kFractalRows) * of.depth_fractals * kFractalBytes;
  checker.touch(reads, Use::Read, call.a, 0, of.m == 1 ? whole_blocks(a_bytes) : a_bytes);
  checker.touch(reads, Use::Read, call.b, 0, ceil(of.k, of.piece) * of.column_fractals * kFractalBytes);
  if (call.bias != nullptr) {
    checker.check_alignment(reads, *call.bias, 64);
    checker.touch(reads, Use::Read, *call.bias, 0, of.n * static_cast<int64_t>(sizeof(float)));
  }
  const bool accumulates = call.bias == nullptr && (p.isBias || !p.cmatrixInitVal);
  const int64_t stripe = ceil(of.m, kFractalRows) * kFractalRows * kFractalRows * static_cast<int64_t>(sizeof(float));
  for (int64_t j = 0; j < of.column_fractals; ++j) {
    const int64_t bytes = of.m * kFractalRows * static_cast<int64_t>(sizeof(float));
    if (accumulates) checker.touch(sums, Use::Read, call.sums, j * stripe, bytes);
    checker.touch(sums, Use::Write, call.sums, j * stripe, bytes);
  }
}

}  // namespace

void mmad(Factors factors, const MmadCall& call) {
  if (!has_matrix_unit("Mmad", call.where)) return;
  check_memories(call);
  const MmadParams& p = call.params;
  if (p.m == 0 || p.n == 0 || p.k == 0) return;
  const uint32_t itemsize = factors == Factors::Float ? 4 : factors == Factors::Int8 ? 1 : 2;
  const int64_t piece = kBlockBytes / itemsize;
  const bool by_16 = p.kDirectionAlign && factors == Factors::Float;
  const Layout of{
      p.m, p.n, p.k, piece, by_16 ? ceil(p.k, kFractalRows) * 2 : ceil(p.k, piece), ceil(p.n, kFractalRows)};
  if (Checker* checker = cpu::checker()) check_uses(*checker, call, of, itemsize);
  multiply_factors(factors, call, of);
}

}  // namespace AscendC::cpu
