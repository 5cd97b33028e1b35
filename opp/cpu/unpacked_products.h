// SPDX-License-Identifier: Apache-2.0
// Products of few rows with a weight matrix that lies row by row, in the order of memory.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstddef>
#include <cstdint>

#include "cpu/matmul.h"

namespace opp {

// Numbers of columns are multiples of this.
constexpr int64_t kUnpackedColumns = 64;

// The type of the sums. kGroup is what numbers of rows are multiples of; kAdded is added to each number of the weight.
// The products of kBlock rows are added up before they are added to the rest; with 0 the sums are the same in every
// order.
template <class SumOf, int64_t group, int64_t added, int64_t block>
struct UnpackedTypes {
  static constexpr bool kExist = true;
  using Sum = SumOf;
  static constexpr int64_t kGroup = group;
  static constexpr int64_t kAdded = added;
  static constexpr int64_t kBlock = block;
};

struct NoUnpackedTypes {
  static constexpr bool kExist = false;
  static constexpr int64_t kBlock = 0;
  using Sum = std::byte;
};

// By fours (VNNI) and pairs (AVX512-BF16), or pairs in tiles; by AVX2, where Products of rows are those of float.
template <class Element, Layout layout>
struct UnpackedTypesOf : NoUnpackedTypes {};
template <>
struct UnpackedTypesOf<int8_t, Layout::kVnni> : UnpackedTypes<int32_t, 4, 128, 0> {};
template <>
struct UnpackedTypesOf<at::BFloat16, Layout::kVnni> : UnpackedTypes<float, 2, 0, 384> {};
template <>
struct UnpackedTypesOf<at::BFloat16, Layout::kTiles> : UnpackedTypes<float, 32, 0, 768> {};
template <>
struct UnpackedTypesOf<int8_t, Layout::kRows> : UnpackedTypes<int32_t, 2, 0, 0> {};
template <>
struct UnpackedTypesOf<at::BFloat16, Layout::kRows> : UnpackedTypes<float, 1, 0, kFloatBlock> {};

// Rows of a weight, how far they lie apart, in elements, and how many columns they have, a multiple of
// kUnpackedColumns.
template <class Element>
struct WeightRows {
  const Element* data;
  int64_t stride;
  int64_t rows;
  int64_t columns;
};

// Multiplies a weight of ElementOf in the place of the Products of that layout, if kExist.
template <class ElementOf, Layout layout>
struct UnpackedProducts : UnpackedTypesOf<ElementOf, layout> {
  using Element = ElementOf;
  using typename UnpackedTypesOf<Element, layout>::Sum;

  // Rows of a weight that are multiplied at once, at most.
  static constexpr int64_t kRows = 32;
  // And columns: the longer the pieces of rows, the faster they are read. What is brought to the L2 cache has to fit.
  static constexpr int64_t kMaxColumns = (layout == Layout::kRows ? 8192 : 4096) / sizeof(Element);

  // Whether this processor has them.
  static bool are_here();
  // Adds x[r][k] * weight[k][c] to the sums of all r and c, group of k after group. Of x `rows` rows lie x_stride
  // apart; of the weight there are at most kRows. Sums of kUnpackedColumns columns of all rows follow one another. The
  // weight's rows that come next begin at `next`, if that is not null. By tiles there are at most kTileRows rows of x,
  // and the thread has its Products meanwhile, whose tiles these are.
  static void add_products(const Element* x, int64_t x_stride, int64_t rows, const WeightRows<Element>& weight,
                           Sum* sums, const Element* next);
  // Sorts the sums of one row and kUnpackedColumns columns by their columns, from the internal order.
  static void order(const Sum* sums, Sum* ordered);
};

using ByteFours = UnpackedProducts<int8_t, Layout::kVnni>;
using BFloat16Pairs = UnpackedProducts<at::BFloat16, Layout::kVnni>;
using BFloat16Tiles = UnpackedProducts<at::BFloat16, Layout::kTiles>;
using ShortPairs = UnpackedProducts<int8_t, Layout::kRows>;
using Floats = UnpackedProducts<at::BFloat16, Layout::kRows>;

extern template struct UnpackedProducts<int8_t, Layout::kVnni>;
extern template struct UnpackedProducts<at::BFloat16, Layout::kVnni>;
extern template struct UnpackedProducts<at::BFloat16, Layout::kTiles>;
extern template struct UnpackedProducts<int8_t, Layout::kRows>;
extern template struct UnpackedProducts<at::BFloat16, Layout::kRows>;

}  // namespace opp
