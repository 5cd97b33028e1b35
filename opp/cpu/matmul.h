// SPDX-License-Identifier: Apache-2.0
// The kernels' matrix product of small blocks, by oneDNN through ATen or by tiles.
#pragma once

#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/buffer.h"
#include "cpu/tiles.h"

namespace opp {

// B lies in panels of this many columns, the widest that oneDNN takes in packed form.
constexpr int64_t kPanel = 64;
// Up to this depth, products of float are sums in the order of the depth: MKL, which ATen falls back to where oneDNN
// has none, adds up parts of deeper ones.
constexpr int64_t kFloatBlock = 192;
// Sizes that depend on the data are multiples of this, so that oneDNN generates few kernels.
constexpr int64_t kRowStep = 16;

inline int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// How B lies in a panel: row by row, or so that the elements of one column that make 32 bits lie side by side, those of
// two rows or of four (VNNI). Which of them oneDNN takes depends on the type and the machine. For tiles of our own
// (tiles.h) they lie as for VNNI.
enum class Layout { kRows, kVnni, kTiles };

// Products of matrices of T, summed in float, in one thread: a kernel makes one for each of its threads, and a thread
// has one at a time. Those of int8 are summed exactly in int32; except for tiles they have no signs on the left, as
// machines multiply bytes.
template <class T, Layout layout>
class Products {
 public:
  using Operand = T;
  using Left = std::conditional_t<std::is_same_v<Operand, int8_t> && layout != Layout::kTiles, uint8_t, Operand>;
  using Sum = std::conditional_t<std::is_same_v<Operand, int8_t>, int32_t, float>;
  static constexpr Layout kLayout = layout;
  // Rows of B whose elements lie side by side.
  static constexpr int64_t kGroup = layout == Layout::kRows ? 1 : sizeof(float) / sizeof(Operand);
  // What depths are multiples of; zeros pad them.
  static constexpr int64_t kDepthStep = layout == Layout::kTiles ? kGroup * kTileRows : kGroup;

  // Whether this machine multiplies so, and fast enough to be preferred to float.
  static bool is_right();
  static bool is_fast();

  Products();
  Products(const Products&) = delete;
  ~Products();

  // Where element (row, column) of B lies in its panels, for `depth` rows and `columns` columns.
  static int64_t place(int64_t row, int64_t column, int64_t depth, int64_t columns) {
    const int64_t panel = column / kPanel * kPanel;
    const int64_t width = std::min(kPanel, columns - panel);
    return panel * depth + row / kGroup * kGroup * width + (column - panel) * kGroup + row % kGroup;
  }

  // c = a b, or c += a b: a is rows x depth with rows `a_stride` apart, b is depth x columns in panels, c has rows
  // `c_stride` apart. depth is a multiple of kDepthStep, columns of kRowStep. A row of c does not depend on how many
  // there are.
  void multiply(const Left* a, int64_t a_stride, const Operand* b, Sum* c, int64_t c_stride, int64_t rows,
                int64_t columns, int64_t depth, bool add = false) const;
};

using FloatProducts = Products<float, Layout::kRows>;
using TileProducts = Products<at::BFloat16, Layout::kTiles>;

extern template class Products<at::Half, Layout::kRows>;
extern template class Products<at::Half, Layout::kVnni>;
extern template class Products<at::BFloat16, Layout::kRows>;
extern template class Products<at::BFloat16, Layout::kVnni>;
extern template class Products<at::BFloat16, Layout::kTiles>;
extern template class Products<int8_t, Layout::kVnni>;
extern template class Products<int8_t, Layout::kTiles>;
extern template class Products<float, Layout::kRows>;

// What CUSTOM_PYPTO_PRODUCTS allows, for tests: "tiles" (the default), "vnni", without tiles, "rows", so
// that nothing is packed by twos or fours, or "float", so that everything is converted. Throws std::invalid_argument
// for other words.
enum class Allowed { kTiles, kVnni, kRows, kFloat };
Allowed allowed_products();

// Calls run.template operator()<P>() with the Products P that multiply elements of this type best on this machine:
// their own, or those of float.
template <class Element, class Run>
decltype(auto) with_products(Run&& run) {
  const Allowed allowed = allowed_products();
  if constexpr (!std::is_same_v<Element, at::Half>) {
    using Tiles = Products<Element, Layout::kTiles>;
    if (allowed == Allowed::kTiles && Tiles::is_fast()) return run.template operator()<Tiles>();
  }
  const bool packed = allowed == Allowed::kTiles || allowed == Allowed::kVnni;
  using Vnni = Products<Element, Layout::kVnni>;
  if (packed && Vnni::is_fast()) return run.template operator()<Vnni>();
  if constexpr (!std::is_same_v<Element, int8_t>) {
    using Rows = Products<Element, Layout::kRows>;
    if (allowed == Allowed::kRows ? Rows::is_right() : packed && Rows::is_fast()) {
      return run.template operator()<Rows>();
    }
  }
  return run.template operator()<FloatProducts>();
}

}  // namespace opp
