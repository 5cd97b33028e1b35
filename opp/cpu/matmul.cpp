// The matrix product of small blocks, by oneDNN's brgemm where it serves the machine and the type, else by ATen.
#include "cpu/matmul.h"

#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <exception>

namespace opp {
namespace {

namespace cpublas = at::native::cpublas;

// Whether brgemm multiplies this type on this machine. Only oneDNN knows, and throws if it cannot; the largest bytes
// show whether their sums saturate.
template <class Operand>
bool probe_brgemm() {
  using Of = Products<Operand>;
  using Left = typename Of::Left;
  using Sum = typename Of::Sum;
  constexpr int64_t depth = 4;
  const bool bytes = sizeof(Operand) == 1;
  Left a[kRowStep * depth];
  Operand b[kRowStep * depth];
  Sum c[kRowStep * kRowStep];
  std::ranges::fill(a, static_cast<Left>(bytes ? 255 : 1));
  std::ranges::fill(b, static_cast<Operand>(bytes ? -128 : 1));
  try {
    cpublas::brgemm(kRowStep, kRowStep, depth, depth, kRowStep, kRowStep, false, a, b, c, Of::kPacked);
    cpublas::brgemm_release(Of::kPacked);
  } catch (const std::exception&) {  // ATen's or oneDNN's
    return false;
  }
  const Sum expected = static_cast<Sum>(depth) * static_cast<Sum>(a[0]) * static_cast<Sum>(b[0]);
  return std::ranges::all_of(c, [=](Sum sum) { return sum == expected; });
}

template <class Operand>
bool has_brgemm() {
  static const bool has = probe_brgemm<Operand>();
  return has;
}

// c = a b, or c += a b, by ATen. By few rows at a time, so that a row of c does not depend on how many there are; nor
// does it with brgemm.
void multiply_by_aten(const float* a, int64_t a_stride, const float* b, int64_t width, float* c, int64_t c_stride,
                      int64_t rows, int64_t depth, bool add) {
  const auto view = [](const float* data, int64_t rows, int64_t columns, int64_t stride) {
    return at::from_blob(const_cast<float*>(data), {rows, columns}, {stride, 1});
  };
  for (int64_t row = 0; row < rows; row += kRowStep) {
    const int64_t count = std::min(kRowStep, rows - row);
    at::Tensor out = view(c + row * c_stride, count, width, c_stride);
    at::cpu::addmm_out(out, out, view(a + row * a_stride, count, depth, a_stride), view(b, depth, width, width),
                       add ? 1 : 0);
  }
}

}  // namespace

template <class Operand>
bool has_products() {
  return has_brgemm<Operand>();
}

template <class Operand>
Products<Operand>::~Products() {
  if (has_brgemm<Operand>()) cpublas::brgemm_release(kPacked);
}

template <class Operand>
void Products<Operand>::multiply(const Left* a, int64_t a_stride, const Operand* b, Sum* c, int64_t c_stride,
                                 int64_t rows, int64_t columns, int64_t depth, bool add) const {
  for (int64_t panel = 0; panel < columns; panel += kPanel) {
    const int64_t width = std::min(kPanel, columns - panel);
    const Operand* of_panel = b + panel * depth;
    if (has_brgemm<Operand>()) {
      cpublas::brgemm(rows, width, depth, a_stride, width, c_stride, add, a, of_panel, c + panel, kPacked);
    } else if constexpr (!kPacked) {
      multiply_by_aten(a, a_stride, of_panel, width, c + panel, c_stride, rows, depth, add);
    }
  }
}

template bool has_products<at::Half>();
template bool has_products<at::BFloat16>();
template bool has_products<int8_t>();
template class Products<at::Half>;
template class Products<at::BFloat16>;
template class Products<int8_t>;
template class Products<float>;

}  // namespace opp
