// SPDX-License-Identifier: Apache-2.0
// Products of few rows with a weight matrix that lies row by row, of which some rows at a time are made ready in the L1
// cache.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

#include "cpu/matmul.h"
#include "cpu/prefetch.h"

namespace opp {

// Columns that are multiplied at once.
constexpr int64_t kUnpackedColumns = 64;

// What multiplies a weight of Element in the place of the Products of that layout: for Layout::kVnni by fours (VNNI) or
// pairs (AVX512-BF16), for Layout::kRows, where they are those of float, by AVX2.
template <class Element, Layout layout>
struct UnpackedProducts {
  static constexpr bool kExist = false;
  using Ready = Element;
};

// kGroup is what numbers of rows are multiples of; kAdded is added to each number of the weight. The products of kBlock
// rows are added up before they are added to the rest; with 0 the sums are the same in every order.
template <class ElementOf, class ReadyOf, class SumOf, int64_t group, int64_t added, int64_t block>
struct UnpackedProductsOf {
  static constexpr bool kExist = true;
  using Element = ElementOf;
  using Ready = ReadyOf;
  using Sum = SumOf;
  static constexpr int64_t kGroup = group;
  static constexpr int64_t kAdded = added;
  static constexpr int64_t kBlock = block;

  // Whether this processor has them.
  static bool are_here();
  // Makes rows of a weight that lie `stride` apart ready, kUnpackedColumns columns after the other.
  static void make_ready(const Element* weight, int64_t stride, int64_t rows, int64_t columns, Ready* ready);
  // sums[r][c] += sum over k < depth of x[r][k] * weight[k][c], group of k after group, for kUnpackedColumns columns of
  // a weight of which `depth` rows were made ready. Rows of x lie x_stride apart, those of the sums follow one another.
  // Brings of `ahead`, if that is not null, as many lines as these columns of the weight have.
  static void add_products(const Element* x, int64_t x_stride, int64_t rows, const Ready* ready, int64_t depth,
                           Sum* sums, RowsAhead* ahead);
  // The sums of one row by their columns, which have an order of their own till then.
  static void order(const Sum* sums, Sum* ordered);
};

using ByteFours = UnpackedProductsOf<int8_t, int8_t, int32_t, 4, 128, 0>;
using BFloat16Pairs = UnpackedProductsOf<at::BFloat16, at::BFloat16, float, 2, 0, 384>;
using ShortPairs = UnpackedProductsOf<int8_t, int16_t, int32_t, 2, 0, 0>;
using Floats = UnpackedProductsOf<at::BFloat16, float, float, 1, 0, kFloatBlock>;
extern template struct UnpackedProductsOf<int8_t, int8_t, int32_t, 4, 128, 0>;
extern template struct UnpackedProductsOf<at::BFloat16, at::BFloat16, float, 2, 0, 384>;
extern template struct UnpackedProductsOf<int8_t, int16_t, int32_t, 2, 0, 0>;
extern template struct UnpackedProductsOf<at::BFloat16, float, float, 1, 0, kFloatBlock>;

template <>
struct UnpackedProducts<int8_t, Layout::kVnni> : ByteFours {};
template <>
struct UnpackedProducts<at::BFloat16, Layout::kVnni> : BFloat16Pairs {};
template <>
struct UnpackedProducts<int8_t, Layout::kRows> : ShortPairs {};
template <>
struct UnpackedProducts<at::BFloat16, Layout::kRows> : Floats {};

}  // namespace opp
