// The matrix product of small blocks that the kernels are made of, by oneDNN through ATen, and memory for its operands.
#pragma once

#include <ATen/native/CPUBlas.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace opp {

// B lies in panels of this many columns, the widest that oneDNN takes in packed form.
constexpr int64_t kPanel = 64;
// Sizes that depend on the data are multiples of this, so that oneDNN generates few kernels.
constexpr int64_t kRowStep = 16;

inline int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// Memory for `count` elements, aligned for vectors.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count) : memory_(c10::GetCPUAllocator()->allocate(count * sizeof(T))) {}
  T* data() { return static_cast<T*>(memory_.get()); }

 private:
  at::DataPtr memory_;
};

// Whether products() takes operands of this type on this machine.
template <class Operand>
bool has_products();
extern template bool has_products<at::Half>();
extern template bool has_products<at::BFloat16>();
extern template bool has_products<int8_t>();

// Products of matrices of Operand, summed in float, in one thread: a kernel makes one for each of its threads. Those of
// int8 are summed exactly in int32, and have no signs on the left, as machines multiply bytes.
template <class Operand>
class Products {
 public:
  using Left = std::conditional_t<std::is_same_v<Operand, int8_t>, uint8_t, Operand>;
  using Sum = std::conditional_t<std::is_same_v<Operand, int8_t>, int32_t, float>;
  // Operands narrower than float lie in pairs of rows of B, or fours (VNNI).
  static constexpr bool kPacked = !std::is_same_v<Operand, float>;
  static constexpr int64_t kPair = sizeof(float) / sizeof(Operand);

  Products() = default;
  Products(const Products&) = delete;
  ~Products();

  // Where element (row, column) of B lies in its panels, for `depth` rows and `columns` columns.
  static int64_t place(int64_t row, int64_t column, int64_t depth, int64_t columns) {
    const int64_t panel = column / kPanel * kPanel;
    const int64_t width = std::min(kPanel, columns - panel);
    return panel * depth + row / kPair * kPair * width + (column - panel) * kPair + row % kPair;
  }

  // c = a b, or c += a b: a is rows x depth with rows `a_stride` apart, b is depth x columns in panels, c has rows
  // `c_stride` apart. depth is a multiple of kPair, columns of kRowStep.
  void multiply(const Left* a, int64_t a_stride, const Operand* b, Sum* c, int64_t c_stride, int64_t rows,
                int64_t columns, int64_t depth, bool add = false) const;
};

extern template class Products<at::Half>;
extern template class Products<at::BFloat16>;
extern template class Products<int8_t>;
extern template class Products<float>;

}  // namespace opp
