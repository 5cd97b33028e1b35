// SPDX-License-Identifier: Apache-2.0
// The matrix product of small blocks by brgemm: oneDNN's where it serves the machine, the type and the layout, else the
// product that ATen falls back to.
#include "cpu/matmul.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace opp {
namespace {

namespace cpublas = at::native::cpublas;

// How to call brgemm with operands of a type in a layout.
struct Method {
  bool is_right = false;  // it gives their product
  bool is_vnni = false;   // by oneDNN, which ATen asks by this name whatever the layout is; float needs no asking
  bool by_steps = false;  // a row's bits depend on how many there are: as many at a time as make a step
};

// A product of random matrices, to find out what brgemm does on this machine.
template <class Operand, Layout layout>
class Trial {
 public:
  using Of = Products<Operand, layout>;
  using Left = typename Of::Left;
  using Sum = typename Of::Sum;

  // The elements are integers, so that every order of the additions gives the same sums, times `scale`. The largest
  // bytes show whether sums of bytes saturate; sums of halves would not hold these numbers.
  Trial(int64_t rows, int64_t columns, int64_t depth, float scale = 1)
      : rows_(rows), columns_(columns), depth_(depth), a_(rows * a_stride()), b_(depth * columns) {
    std::minstd_rand random(static_cast<uint32_t>(rows * columns * depth));
    const auto fill = [&](auto& elements, int low, int high) {
      using Element = typename std::remove_reference_t<decltype(elements)>::value_type;
      for (Element& element : elements) {
        element = static_cast<Element>(static_cast<float>(low + static_cast<int>(random() % (high - low + 1))) * scale);
      }
    };
    constexpr bool bytes = sizeof(Operand) == 1;
    fill(a_, bytes ? 0 : -127, bytes ? 255 : 127);
    fill(b_, bytes ? -128 : -127, 127);
  }

  // Whether the product is right, and added to what is there.
  bool is_right(bool is_vnni) const {
    for (const bool add : {false, true}) {
      std::vector<Sum> c(rows_ * c_stride(), Sum(3));
      multiply(is_vnni, add, 0, rows_, c.data());
      for (int64_t row = 0; row < rows_; ++row) {
        for (int64_t column = 0; column < columns_; ++column) {
          if (c[row * c_stride() + column] != expected(row, column) + Sum(add ? 3 : 0)) return false;
        }
      }
    }
    return true;
  }

  // Whether rows multiplied alone have the bits that they have together.
  bool has_independent_rows(bool is_vnni) const {
    std::vector<Sum> together(rows_ * c_stride());
    std::vector<Sum> alone(rows_ * c_stride());
    multiply(is_vnni, false, 0, rows_, together.data());
    for (int64_t row = 0; row < rows_; ++row) multiply(is_vnni, false, row, 1, alone.data() + row * c_stride());
    return together == alone;
  }

 private:
  // Wider than the matrices, as those of the kernels are.
  int64_t a_stride() const { return depth_ + 4; }
  int64_t c_stride() const { return columns_ + kRowStep; }

  void multiply(bool is_vnni, bool add, int64_t first_row, int64_t rows, Sum* c) const {
    cpublas::brgemm(rows, columns_, depth_, a_stride(), columns_, c_stride(), add, a_.data() + first_row * a_stride(),
                    b_.data(), c, is_vnni);
  }

  Sum expected(int64_t row, int64_t column) const {
    Sum sum = 0;
    for (int64_t k = 0; k < depth_; ++k) {
      sum += static_cast<Sum>(a_[row * a_stride() + k]) * static_cast<Sum>(b_[Of::place(k, column, depth_, columns_)]);
    }
    return sum;
  }

  int64_t rows_;
  int64_t columns_;
  int64_t depth_;
  std::vector<Left> a_;
  std::vector<Operand> b_;
};

// Sizes of the kinds that the kernels use: one row and many, narrow panels and whole ones, shallow and deep.
constexpr std::array<std::array<int64_t, 3>, 5> kSizes = {
    {{16, 16, 4}, {1, 64, 64}, {5, 32, 20}, {48, 48, 128}, {64, 64, 384}}};

template <class Operand, Layout layout>
bool is_right(bool is_vnni) {
  try {
    const bool right = std::ranges::all_of(
        kSizes, [=](const auto& size) { return Trial<Operand, layout>(size[0], size[1], size[2]).is_right(is_vnni); });
    cpublas::brgemm_release(is_vnni);
    return right;
  } catch (const std::exception&) {  // ATen's or oneDNN's: not on this machine
    return false;
  }
}

template <class Operand, Layout layout>
Method find_method() {
  constexpr bool is_float = std::is_same_v<Operand, float>;
  for (const bool is_vnni : {true, false}) {
    if (is_vnni ? is_float : layout == Layout::kVnni) continue;
    if (!is_right<Operand, layout>(is_vnni)) continue;
    const bool by_steps = !Trial<Operand, layout>(37, kPanel, 384, 0.1F).has_independent_rows(is_vnni);
    cpublas::brgemm_release(is_vnni);
    return {true, is_vnni, by_steps};
  }
  TORCH_INTERNAL_ASSERT(!is_float, "ATen's brgemm gives wrong products of floats on this machine");
  return {};
}

// How brgemm gives these products on this machine, by trying.
template <class Operand, Layout layout>
const Method& method() {
  static const Method found = find_method<Operand, layout>();
  return found;
}

// Products::multiply by brgemm.
template <class Of>
void multiply_by_brgemm(const typename Of::Left* a, int64_t a_stride, const typename Of::Operand* b,
                        typename Of::Sum* c, int64_t c_stride, int64_t rows, int64_t columns, int64_t depth, bool add) {
  using Left = typename Of::Left;
  using Operand = typename Of::Operand;
  using Sum = typename Of::Sum;
  const Method& by = method<Operand, Of::kLayout>();
  for (int64_t panel = 0; panel < columns; panel += kPanel) {
    const int64_t width = std::min(kPanel, columns - panel);
    const Operand* of_panel = b + panel * depth;
    const auto brgemm = [&](int64_t count, const Left* from, int64_t from_stride, Sum* to, int64_t to_stride) {
      cpublas::brgemm(count, width, depth, from_stride, width, to_stride, add, from, of_panel, to, by.is_vnni);
    };
    const int64_t whole = by.by_steps ? rows / kRowStep * kRowStep : rows;
    const int64_t step = by.by_steps ? kRowStep : rows;
    for (int64_t row = 0; row < whole; row += step) {
      brgemm(step, a + row * a_stride, a_stride, c + row * c_stride + panel, c_stride);
    }
    if (whole < rows) {
      std::vector<Left> padded_a(kRowStep * depth);
      std::vector<Sum> padded_c(kRowStep * width);
      for (int64_t row = whole; row < rows; ++row) {
        std::copy_n(a + row * a_stride, depth, padded_a.data() + (row - whole) * depth);
        std::copy_n(c + row * c_stride + panel, width, padded_c.data() + (row - whole) * width);
      }
      brgemm(kRowStep, padded_a.data(), depth, padded_c.data(), width);
      for (int64_t row = whole; row < rows; ++row) {
        std::copy_n(padded_c.data() + (row - whole) * width, width, c + row * c_stride + panel);
      }
    }
  }
}

}  // namespace

template <class Operand, Layout layout>
bool Products<Operand, layout>::is_right() {
  if constexpr (layout == Layout::kTiles) {
    return is_fast();
  } else {
    return method<Operand, layout>().is_right;
  }
}

template <class Operand, Layout layout>
bool Products<Operand, layout>::is_fast() {
  if constexpr (layout == Layout::kTiles) {
    return std::is_same_v<Operand, int8_t> ? has_byte_tiles() : has_tiles();
  } else {
    return method<Operand, layout>().is_vnni;
  }
}

template <class Operand, Layout layout>
Products<Operand, layout>::Products() {
  if constexpr (layout == Layout::kTiles) {
    cpublas::brgemm_release(true);  // ATen is to set up the tiles again for oneDNN's next product
    begin_tiles();
  }
}

template <class Operand, Layout layout>
Products<Operand, layout>::~Products() {
  if constexpr (layout == Layout::kTiles) {
    end_tiles();
  } else {
    cpublas::brgemm_release(method<Operand, layout>().is_vnni);
  }
}

template <class Operand, Layout layout>
void Products<Operand, layout>::multiply(const Left* a, int64_t a_stride, const Operand* b, Sum* c, int64_t c_stride,
                                         int64_t rows, int64_t columns, int64_t depth, bool add) const {
  if constexpr (layout == Layout::kTiles) {
    for (int64_t panel = 0; panel < columns; panel += kPanel) {
      multiply_tiles(a, a_stride, b + panel * depth, c + panel, c_stride, rows, std::min(kPanel, columns - panel),
                     depth, add);
    }
  } else {
    multiply_by_brgemm<Products>(a, a_stride, b, c, c_stride, rows, columns, depth, add);
  }
}

Allowed allowed_products() {
  static const Allowed allowed = [] {
    const char* variable = std::getenv("CUSTOM_PYPTO_PRODUCTS");
    const std::string name = variable == nullptr || *variable == '\0' ? "tiles" : variable;
    constexpr std::array kNames = {"tiles", "vnni", "rows", "float"};
    const auto* found = std::ranges::find(kNames, name);
    if (found != kNames.end()) return static_cast<Allowed>(found - kNames.begin());
    throw std::invalid_argument("CUSTOM_PYPTO_PRODUCTS is '" + name + "', but must be tiles, vnni, rows or float");
  }();
  return allowed;
}

template class Products<at::Half, Layout::kRows>;
template class Products<at::Half, Layout::kVnni>;
template class Products<at::BFloat16, Layout::kRows>;
template class Products<at::BFloat16, Layout::kVnni>;
template class Products<at::BFloat16, Layout::kTiles>;
template class Products<int8_t, Layout::kVnni>;
template class Products<int8_t, Layout::kTiles>;
template class Products<float, Layout::kRows>;

}  // namespace opp
