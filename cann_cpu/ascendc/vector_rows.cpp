// SPDX-License-Identifier: Apache-2.0
// Rows of floats: of and to numbers of 16 bits, and what the libraries of whole algorithms do with them.
#include <cmath>
#include <cstring>
#include <limits>

#include "ascendc/library.h"
#include "vector_loops.h"

namespace AscendC::cpu {
namespace {

// row = operation(row, other), or with a scalar.
void apply(Operation operation, float* row, size_t count, float scalar, const float* other = nullptr) {
  OperandRows rows{};
  rows.dst = reinterpret_cast<std::byte*>(row);
  rows.src[0] = rows.dst, rows.src[1] = reinterpret_cast<const std::byte*>(other);
  rows.rows = 1, rows.count = static_cast<uint32_t>(count);
  loops().elements[static_cast<size_t>(operation)][static_cast<size_t>(Dtype::Float)](rows, scalar_bits(scalar));
}

}  // namespace

void widen(const half* from, float* to, uint32_t count) {
  loops().widen[0](reinterpret_cast<const std::byte*>(from), to, count);
}
void widen(const bfloat16_t* from, float* to, uint32_t count) {
  loops().widen[1](reinterpret_cast<const std::byte*>(from), to, count);
}
void narrow(const float* from, half* to, uint32_t count) {
  loops().narrow[0](from, reinterpret_cast<std::byte*>(to), count);
}
void narrow(const float* from, bfloat16_t* to, uint32_t count) {
  loops().narrow[1](from, reinterpret_cast<std::byte*>(to), count);
}

void read_floats(Dtype dtype, const std::byte* from, float* to, size_t count) {
  if (dtype == Dtype::Float) {
    if (count != 0) std::memcpy(to, from, count * sizeof(float));
  } else {
    loops().widen[dtype == Dtype::Half ? 0 : 1](from, to, static_cast<uint32_t>(count));
  }
}

void write_floats(Dtype dtype, const float* from, std::byte* to, size_t count) {
  if (dtype == Dtype::Float) {
    if (count != 0) std::memcpy(to, from, count * sizeof(float));
  } else {
    loops().narrow[dtype == Dtype::Half ? 0 : 1](from, to, static_cast<uint32_t>(count));
  }
}

double sum_of(const std::vector<float>& row) { return loops().sum(row.data(), static_cast<uint32_t>(row.size())); }

double sum_of_squares(const std::vector<float>& row, float mean) {
  return loops().sum_of_squares(row.data(), static_cast<uint32_t>(row.size()), mean);
}

float largest(const std::vector<float>& row) {
  float maximum = -std::numeric_limits<float>::infinity();
  if (!row.empty()) {
    float best;
    loops().bests(row.data(), 1, static_cast<uint32_t>(row.size()), true, &best);
    if (best == best) return best;
  }
  for (const float number : row) maximum = number > maximum ? number : maximum;  // NaN is not among them
  return maximum;
}

void exponentials(std::vector<float>& row, float shift) {
  apply(Operation::Adds, row.data(), row.size(), -shift);
  apply(Operation::Exp, row.data(), row.size(), 0);
}

void divide(std::vector<float>& row, float divisor) {
  for (float& number : row) number /= divisor;
}

void add(std::vector<float>& row, float number) { apply(Operation::Adds, row.data(), row.size(), number); }
void multiply(std::vector<float>& row, float factor) { apply(Operation::Muls, row.data(), row.size(), factor); }
void multiply(std::vector<float>& row, const std::vector<float>& factors) {
  apply(Operation::Mul, row.data(), row.size(), 0, factors.data());
}
void add(std::vector<float>& row, const std::vector<float>& numbers) {
  apply(Operation::Add, row.data(), row.size(), 0, numbers.data());
}

}  // namespace AscendC::cpu
