// SPDX-License-Identifier: Apache-2.0
// Products of few rows with a weight matrix that lies row by row, of which some rows at a time are made ready in the L1
// cache.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstddef>
#include <cstdint>

#include "cpu/matmul.h"
#include "cpu/prefetch.h"

namespace opp {

// Columns that are multiplied at once.
constexpr int64_t kUnpackedColumns = 64;

// The types of the numbers that are made ready and of the sums. kGroup is what numbers of rows are multiples of; kAdded
// is added to each number of the weight. The products of kBlock rows are added up before they are added to the rest;
// with 0 the sums are the same in every order.
template <class ReadyOf, class SumOf, int64_t group, int64_t added, int64_t block>
struct UnpackedTypes {
  static constexpr bool kExist = true;
  using Ready = ReadyOf;
  using Sum = SumOf;
  static constexpr int64_t kGroup = group;
  static constexpr int64_t kAdded = added;
  static constexpr int64_t kBlock = block;
};

struct NoUnpackedTypes {
  static constexpr bool kExist = false;
  using Ready = std::byte;
  using Sum = std::byte;
};

// By fours (VNNI) and pairs (AVX512-BF16); by AVX2, where Products of rows are those of float.
template <class Element, Layout layout>
struct UnpackedTypesOf : NoUnpackedTypes {};
template <>
struct UnpackedTypesOf<int8_t, Layout::kVnni> : UnpackedTypes<int8_t, int32_t, 4, 128, 0> {};
template <>
struct UnpackedTypesOf<at::BFloat16, Layout::kVnni> : UnpackedTypes<at::BFloat16, float, 2, 0, 384> {};
template <>
struct UnpackedTypesOf<int8_t, Layout::kRows> : UnpackedTypes<int16_t, int32_t, 2, 0, 0> {};
template <>
struct UnpackedTypesOf<at::BFloat16, Layout::kRows> : UnpackedTypes<float, float, 1, 0, kFloatBlock> {};

// Multiplies a weight of ElementOf in the place of the Products of that layout, if kExist.
template <class ElementOf, Layout layout>
struct UnpackedProducts : UnpackedTypesOf<ElementOf, layout> {
  using Element = ElementOf;
  using typename UnpackedTypesOf<Element, layout>::Ready;
  using typename UnpackedTypesOf<Element, layout>::Sum;

  // Rows that are made ready at once. Their lines and those of as many rows ahead lie in the L2 cache, in few of its
  // places where rows are a multiple of 4 KiB apart; that of processors without AVX-512 has half as many.
  static constexpr int64_t kRows = layout == Layout::kRows ? 16 : 32;

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

using ByteFours = UnpackedProducts<int8_t, Layout::kVnni>;
using BFloat16Pairs = UnpackedProducts<at::BFloat16, Layout::kVnni>;
using ShortPairs = UnpackedProducts<int8_t, Layout::kRows>;
using Floats = UnpackedProducts<at::BFloat16, Layout::kRows>;

extern template struct UnpackedProducts<int8_t, Layout::kVnni>;
extern template struct UnpackedProducts<at::BFloat16, Layout::kVnni>;
extern template struct UnpackedProducts<int8_t, Layout::kRows>;
extern template struct UnpackedProducts<at::BFloat16, Layout::kRows>;

}  // namespace opp
