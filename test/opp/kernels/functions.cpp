// SPDX-License-Identifier: Apache-2.0
// Compares the functions that the kernels of opp/cpu use with plain loops in double, on random numbers, odd counts and
// special values: NaN, infinities, denormals. Prints a line for each case; ends with 1 if one failed.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "cpu/linear.h"
#include "cpu/matmul.h"
#include "cpu/pairs.h"
#include "cpu/prolog.h"
#include "cpu/simd.h"
#include "cpu/tiles.h"
#include "cpu/top_k.h"
#include "cpu/unpacked_products.h"

namespace {

using at::BFloat16;
using at::Half;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::bit_cast<float>(0x7FC00001U);  // not the NaN that calculations give
constexpr double kFloatUnit = 0x1p-24;                     // half the distance of 1 to the next float
constexpr int64_t kCounts[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 200};

// A case that this CPU has nothing to do for throws it.
struct NotHere {};

// ---- numbers

std::mt19937_64 random_bits;

int64_t random_integer(int64_t min, int64_t max) {
  return std::uniform_int_distribution<int64_t>(min, max)(random_bits);
}

// About normal, and the same on every machine.
std::vector<float> random_floats(int64_t count) {
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    for (int i = 0; i < 12; ++i) number += static_cast<float>(random_integer(-0x8000, 0x7FFF)) * 0x1p-16F;
  }
  return numbers;
}

// Numbers of all magnitudes, and what is none.
std::vector<float> any_floats(int64_t count) {
  constexpr float kSpecial[] = {0.0F, -0.0F, kInfinity, -kInfinity, kNaN, 0x1p-149F, -0x1p-140F, 65504.0F, 65520.0F};
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    number = random_integer(0, 7) == 0 ? kSpecial[random_integer(0, std::size(kSpecial) - 1)]
                                       : std::bit_cast<float>(static_cast<uint32_t>(random_bits()));
  }
  return numbers;
}

template <class T>
std::vector<T> random_vector(int64_t count) {
  std::vector<T> numbers(count);
  const std::vector<float> floats = random_floats(count);
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<T>) {
      numbers[i] = static_cast<T>(random_bits());
    } else {
      numbers[i] = floats[i];
    }
  }
  return numbers;
}

// How a type of 16 bits stores a number.
template <class T>
struct Format;
template <>
struct Format<Half> {
  static constexpr int kFraction = 10, kMinExponent = -14;
};
template <>
struct Format<BFloat16> {
  static constexpr int kFraction = 7, kMinExponent = -126;
};

template <class T>
double value_of(T number) {
  if constexpr (sizeof(T) != 2) {
    return static_cast<double>(number);
  } else {
    using Of = Format<T>;
    const double sign = number.x >> 15 ? -1 : 1;
    const int exponent = (number.x & 0x7FFF) >> Of::kFraction;
    const int fraction = number.x & ((1 << Of::kFraction) - 1);
    if (exponent == 0x7FFF >> Of::kFraction) return fraction ? kNaN : sign * kInfinity;
    const int whole = exponent ? fraction + (1 << Of::kFraction) : fraction;
    return sign * std::ldexp(whole, std::max(exponent, 1) - 1 + Of::kMinExponent - Of::kFraction);
  }
}

// The number of type T that is nearest to x, ties to even.
template <class T>
double nearest(double x) {
  if constexpr (sizeof(T) != 2) {
    return static_cast<T>(x);
  } else {
    using Of = Format<T>;
    if (!std::isfinite(x) || x == 0) return x;
    const double unit = std::ldexp(1, std::max(std::ilogb(x), Of::kMinExponent) - Of::kFraction);
    const double rounded = std::nearbyint(x / unit) * unit;
    return std::abs(rounded) < std::ldexp(1, 2 - Of::kMinExponent) ? rounded : std::copysign(kInfinity, x);
  }
}

// How far a result of type T is from the exact one that it is rounded from.
template <class T>
double rounding_error(double x) {
  if constexpr (sizeof(T) != 2) {
    return std::abs(x) * kFloatUnit;
  } else {
    using Of = Format<T>;
    return std::ldexp(std::max(std::abs(x), std::ldexp(1, Of::kMinExponent)), -Of::kFraction - 1);
  }
}

// ---- comparisons

template <class... Parts>
std::string text(const Parts&... parts) {
  return c10::str(parts...);
}

// what is a text, or makes one.
template <class What>
void expect(bool right, const What& what) {
  if (right) return;
  if constexpr (std::is_invocable_v<What>)
    throw std::runtime_error(what());
  else
    throw std::runtime_error(what);
}

bool is_near(double found, double expected, double tolerance) {
  return found == expected || (std::isnan(found) && std::isnan(expected)) || std::abs(found - expected) <= tolerance;
}

// The digest of all numbers found. Every NaN counts as the same number, as its bits depend on the processor.
uint64_t digest = 0xCBF29CE484222325;

void add_to_digest(double number) {
  const auto bits = std::isnan(number) ? ~uint64_t{0} : std::bit_cast<uint64_t>(number);
  for (int shift = 0; shift < 64; shift += 8) digest = (digest ^ (bits >> shift & 0xFF)) * 0x100000001B3;  // FNV-1a
}

void expect_near(double found, double expected, double tolerance, const std::string& what) {
  add_to_digest(found);
  expect(is_near(found, expected, tolerance), [&] { return text(what, " is ", found, " instead of ", expected); });
}

// found[i] is expected(i), a double, or as far from it as tolerance(i).
template <class T, class Expected, class Tolerance>
void compare(const std::vector<T>& found, int64_t count, const Expected& expected, const Tolerance& tolerance,
             const std::string& what) {
  for (int64_t i = 0; i < count; ++i) {
    const double number = value_of(found[i]);
    add_to_digest(number);
    expect(is_near(number, expected(i), tolerance(i)),
           [&] { return text(what, ": element ", i, " of ", count, " is ", number, " instead of ", expected(i)); });
  }
}

template <class T, class Expected>
void compare(const std::vector<T>& found, int64_t count, const Expected& expected, const std::string& what) {
  compare(found, count, expected, [](int64_t) { return 0; }, what);
}

// The value after the elements that a function writes.
template <class T>
void expect_untouched(const std::vector<T>& found, int64_t count, const std::string& what) {
  for (size_t i = count; i < found.size(); ++i) {
    expect(value_of(found[i]) == 7, [&] { return text(what, ": writes element ", i, " past ", count); });
  }
}

template <class T>
std::vector<T> room(int64_t count) {
  return std::vector<T>(count + 2 * opp::kLanes, T(7));
}

// ---- simd.h

template <class T>
void every_number_to_float() {
  std::vector<T> numbers(1 << 16);
  for (uint32_t bits = 0; bits < numbers.size(); ++bits) numbers[bits].x = bits;
  for (const int64_t count : {int64_t{1} << 16, int64_t{65521}}) {
    auto floats = room<float>(count);
    opp::simd().to_float(numbers.data(), count, floats.data());
    compare(floats, count, [&](int64_t i) { return value_of(numbers[i]); }, "to_float");
    expect_untouched(floats, count, "to_float");
  }
}

void every_byte_to_float() {
  for (const int64_t count : kCounts) {
    const auto bytes = random_vector<int8_t>(count);
    auto floats = room<float>(count);
    opp::simd().to_float(bytes.data(), count, floats.data());
    compare(floats, count, [&](int64_t i) { return bytes[i]; }, "to_float");
    expect_untouched(floats, count, "to_float");
  }
}

// Every number of the type, what is halfway to the next, and the floats beside that.
template <class T>
std::vector<float> hard_to_round() {
  std::vector<float> numbers = any_floats(100'003);
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    T low, high;
    low.x = bits;
    high.x = bits + 1;
    if (!std::isfinite(value_of(low)) || !std::isfinite(value_of(high))) continue;
    const auto middle = static_cast<float>((value_of(low) + value_of(high)) / 2);
    for (float number : {static_cast<float>(value_of(low)), middle, std::nextafter(middle, kInfinity),
                         std::nextafter(middle, -kInfinity)}) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

template <class T>
void every_float_to() {
  std::vector<float> floats = hard_to_round<T>();
  std::vector<int64_t> counts(std::begin(kCounts), std::end(kCounts));
  counts.push_back(floats.size());
  for (const int64_t count : counts) {
    auto numbers = room<T>(count);
    opp::simd().from_float(floats.data(), count, numbers.data());
    compare(numbers, count, [&](int64_t i) { return nearest<T>(floats[i]); }, "from_float");
    expect_untouched(numbers, count, "from_float");
  }
  floats.resize(floats.size() / opp::kLanes * opp::kLanes);
  std::vector<T> high(floats.size()), low(floats.size());
  opp::simd().split(floats.data(), floats.size(), high.data(), low.data());
  const auto rest = [&](int64_t i) { return static_cast<float>(floats[i] - nearest<T>(floats[i])); };
  compare(high, floats.size(), [&](int64_t i) { return nearest<T>(floats[i]); }, "split, high");
  compare(low, floats.size(), [&](int64_t i) { return nearest<T>(rest(i)); }, "split, low");
  for (const float divisor : {3.0F, 1e-30F, kInfinity, 0.0F}) {
    opp::simd().divide(floats.data(), floats.size(), divisor, high.data());
    compare(high, floats.size(), [&](int64_t i) { return nearest<T>(floats[i] / divisor); }, text("divide, ", divisor));
  }
}

void weighted_relu_sums() {
  for (int64_t heads = 1; heads <= 70; ++heads) {
    const int64_t rows = 9, stride = opp::round_up(heads, opp::kLanes) + 16;
    auto products = random_floats(rows * stride);
    const auto weights = random_floats(opp::round_up(heads, opp::kLanes));
    products[stride + heads - 1] = kNaN;
    products[2 * stride + heads - 1] = kInfinity;
    products[3 * stride + heads - 1] = -kInfinity;
    for (int64_t r = 0; r < rows; ++r) std::fill_n(products.begin() + r * stride + heads, 16, kNaN);
    auto scores = room<float>(rows);
    opp::simd().weighted_relu_sums(products.data(), stride, rows, weights.data(), heads, scores.data());
    const auto sum = [&](int64_t r, bool absolute) {
      double total = 0;
      for (int64_t h = 0; h < heads; ++h) {
        const double x = products[r * stride + h];
        const double term = weights[h] * (x < 0 ? 0 : x);
        total += absolute ? std::abs(term) : term;
      }
      return total;
    };
    compare(
        scores, rows, [&](int64_t r) { return sum(r, false); },
        [&](int64_t r) { return static_cast<double>(heads) * kFloatUnit * sum(r, true); }, text(heads, " heads"));
    expect_untouched(scores, rows, "weighted_relu_sums");

    // Products that wrap around when they are shifted.
    std::vector<int32_t> shifts(stride, INT32_MAX), shifted(rows * stride);
    for (float& product : products) product = std::isfinite(product) ? std::round(product * 1000) : 0;
    for (int64_t i = 0; i < rows * stride; ++i) {
      shifted[i] = static_cast<int32_t>(static_cast<uint32_t>(INT32_MAX) + static_cast<int32_t>(products[i]));
    }
    opp::simd().weighted_relu_sums(shifted.data(), shifts.data(), stride, rows, weights.data(), heads, scores.data());
    compare(
        scores, rows, [&](int64_t r) { return sum(r, false); },
        [&](int64_t r) { return static_cast<double>(heads) * kFloatUnit * sum(r, true); },
        text(heads, " heads, of int32"));
    expect_untouched(scores, rows, "weighted_relu_sums of int32");
  }
}

void sums() {
  for (const int64_t count : kCounts) {
    for (const bool special : {false, true}) {
      auto x = random_floats(count);
      if (special) x[count - 1] = kNaN;
      const float mean = 0.25F;
      double sum = 0, absolute = 0, squares = 0;
      for (const float number : x) {
        sum += number;
        absolute += std::abs(number);
        squares += std::pow(number - static_cast<double>(mean), 2);
      }
      const double error = static_cast<double>(count + 2) * kFloatUnit;
      expect_near(opp::simd().sum(x.data(), count), sum, error * absolute, text("sum of ", count));
      expect_near(opp::simd().sum_of_squares(x.data(), count, mean), squares, 2 * error * squares,
                  text("sum_of_squares of ", count));
    }
  }
}

template <class T>
void mean_square() {
  for (const int64_t count : kCounts) {
    const auto x = random_vector<T>(count);
    double squares = 0;
    for (const T number : x) squares += value_of(number) * value_of(number);
    expect_near(opp::simd().mean_square(x.data(), count), squares / count, (count + 2) * kFloatUnit * squares / count,
                text("mean_square of ", count));
  }
}

void products_of_elements() {
  for (const int64_t count : kCounts) {
    const auto from = random_vector<int32_t>(count);
    const auto scales = random_floats(count);
    const float scale = 0.01F;
    auto to = room<float>(count);
    opp::simd().dequantise(from.data(), count, scale, scales.data(), to.data());
    const auto dequantised = [&](int64_t i) { return static_cast<double>(from[i]) * scale * scales[i]; };
    compare(to, count, dequantised, [&](int64_t i) { return 4 * kFloatUnit * std::abs(dequantised(i)); }, "dequantise");
    expect_untouched(to, count, "dequantise");

    const auto x = random_floats(count), gamma = random_floats(count), beta = random_floats(count);
    for (const float* shift : {beta.data(), static_cast<const float*>(nullptr)}) {
      to = room<float>(count);
      opp::simd().scale_and_shift(x.data(), count, 0.5F, 3.0F, gamma.data(), shift, to.data());
      const auto shifted = [&](int64_t i) { return (x[i] - 0.5) * 3 * gamma[i] + (shift ? shift[i] : 0); };
      compare(to, count, shifted, [](int64_t) { return 1e-5; }, "scale_and_shift");
      expect_untouched(to, count, "scale_and_shift");
    }

    if (count % opp::kLanes != 0) continue;
    auto row = any_floats(count), sum = any_floats(count);
    const auto factors = row, terms = sum;
    opp::simd().multiply(row.data(), count, 0.3F);
    compare(row, count, [&](int64_t i) { return factors[i] * 0.3F; }, "multiply");
    opp::simd().add(row.data(), count, sum.data());
    compare(sum, count, [&](int64_t i) { return terms[i] + row[i]; }, "add");
  }
}

void quantise() {
  for (const int64_t count : kCounts) {
    for (const double magnitude : {1.0, 1e-39, 1e30, 5e37, 0.0}) {
      auto x = random_floats(count);
      for (float& number : x) number = static_cast<float>(nearest<BFloat16>(number * magnitude));
      const auto amax = [&] {
        double largest = 0;
        for (const float number : x) largest = std::max(largest, std::abs(static_cast<double>(number)));
        return largest;
      };
      const auto check = [&](double expected, const char* what) {
        auto bytes = room<int8_t>(count);
        const float found = opp::simd().quantise(x.data(), count, bytes.data());
        expect_near(found, expected, 0, text(what, ": amax"));
        const auto byte = [&](int64_t i) {
          const double number = std::nearbyint(x[i] * 127.0 / expected);
          return std::isnan(number) ? 0 : number;
        };
        compare(bytes, count, byte, text(what, ", magnitude ", magnitude));
        expect_untouched(bytes, count, what);
      };
      check(amax(), "numbers");
      x[count / 2] = -kInfinity;
      check(kInfinity, "an infinity");
      x[count - 1] = -kNaN;
      check(kNaN, "NaN");
    }
  }
}

void rotate() {
  for (const int64_t half : {1, 2, 7, 16, 32, 33}) {
    for (const bool interleaved : {false, true}) {
      const auto x = random_floats(2 * half), cos = random_floats(2 * half), sin = random_floats(2 * half);
      auto to = room<float>(2 * half);
      opp::simd().rotate(x.data(), half, interleaved, cos.data(), sin.data(), to.data());
      const auto rotated = [&](int64_t j) {
        const int64_t i = j % half;
        const double first = x[interleaved ? 2 * i : i], second = x[interleaved ? 2 * i + 1 : half + i];
        return j < half ? first * cos[j] - second * sin[j] : second * cos[j] + first * sin[j];
      };
      compare(to, 2 * half, rotated, [](int64_t) { return 2e-6; }, text("half ", half, ", interleaved ", interleaved));
      expect_untouched(to, 2 * half, "rotate");
    }
  }
}

void softmax() {
  for (const int64_t count : kCounts) {
    for (const float special : {0.0F, kNaN, -kInfinity}) {
      auto row = random_floats(opp::round_up(count, opp::kLanes));
      for (float& number : row) number *= 40;
      if (special != 0) row[count / 2] = special;
      const auto products = row;
      float largest = -3.0F;
      for (int64_t i = 0; i < count; ++i) {
        if (products[i] * 0.5F > largest) largest = products[i] * 0.5F;
      }
      expect(opp::simd().scale_and_find_largest(row.data(), count, 0.5F, -3.0F) == largest, text("largest of ", count));
      const auto scaled = [&](int64_t i) { return i < count ? products[i] * 0.5F : -kInfinity; };
      compare(row, row.size(), scaled, "scale_and_find_largest");

      const auto scores = row, factors = random_floats(row.size());
      float sum = 1, squares = 2;
      opp::simd().exponentials(row.data(), count, largest, factors.data(), &sum, &squares);
      const auto weight = [&](size_t i) { return std::exp(static_cast<double>(scores[i] - largest)); };
      compare(row, row.size(), weight, [&](int64_t i) { return 4e-7 * weight(i) + 2e-38; }, "exponentials");
      double exact = 1, exact_squares = 2;
      for (size_t i = 0; i < row.size(); ++i) {
        exact += weight(i);
        exact_squares += weight(i) * weight(i) * factors[i];
      }
      expect_near(sum, exact, 1e-5 * exact, "the sum of the weights");
      expect_near(squares, exact_squares, 1e-4, "the sum of their squares");
    }
  }
}

void packing() {
  for (const int64_t columns : {16, 48, 64}) {
    const int64_t rows = 16, stride = columns + 5, to_stride = rows + 3;
    const auto words = random_vector<uint32_t>(rows * stride);
    std::vector<uint32_t> transposed(columns * to_stride);
    opp::simd().transpose_words(words.data(), stride, columns - 3, transposed.data(), to_stride);
    for (int64_t w = 0; w < columns - 3; ++w) {
      for (int64_t r = 0; r < rows; ++r) {
        expect(transposed[w * to_stride + r] == words[r * stride + w],
               [&] { return text("transpose_words: ", w, ", ", r); });
      }
    }
    std::vector<uint16_t> pairs_apart(2 * columns * to_stride);
    opp::simd().transpose_pairs(words.data(), stride, columns - 3, pairs_apart.data(), to_stride);
    const auto* halves = reinterpret_cast<const uint16_t*>(words.data());
    for (int64_t w = 0; w < 2 * (columns - 3); ++w) {
      for (int64_t r = 0; r < rows; ++r) {
        expect(pairs_apart[w * to_stride + r] == halves[2 * r * stride + w],
               [&] { return text("transpose_pairs: ", w, ", ", r); });
      }
    }
    const auto check = [&]<class T>(T, int64_t n) {
      const auto from = random_vector<T>(rows * stride);
      std::vector<T> to(rows / n * (n * columns + 8));
      opp::simd().pack(from.data(), stride, rows, columns, to.data(), n * columns + 8);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          expect(to[r / n * (n * columns + 8) + n * c + r % n] == from[r * stride + c],
                 [&] { return text("pack: ", r, ", ", c); });
        }
      }
      return from;
    };
    check(uint8_t{}, 4);
    const auto from = check(uint16_t{}, 2);
    std::vector<uint16_t> pairs(2 * columns);
    opp::simd().interleave(from.data(), from.data() + stride, columns, pairs.data());
    for (int64_t c = 0; c < columns; ++c) {
      expect(pairs[2 * c] == from[c] && pairs[2 * c + 1] == from[stride + c], [&] { return text("interleave: ", c); });
    }
  }
}

// ---- top_k.h

void top_k() {
  for (const int64_t k : {1, 7, 64, 2048}) {
    for (const int64_t keys : {0, 1, 63, 500, 9000}) {
      std::vector<float> scores = random_floats(keys);
      for (float& score : scores) score = std::nearbyint(score * 100) / 100;  // ties, and -0
      if (keys > 60) scores[17] = scores[keys - 2] = kNaN;
      if (keys > 60) scores[20] = -kInfinity;
      std::vector<int32_t> order(keys);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
        return std::isnan(scores[a]) ? !std::isnan(scores[b]) : scores[a] > scores[b];
      });
      opp::TopK halves[2];
      for (opp::TopK& half : halves) half.reset(k, keys);
      for (int64_t first = 0; first < keys;) {
        const int64_t count = std::min(random_integer(1, 200), keys - first);
        halves[first > keys / 2].push(scores.data() + first, count, first);
        first += count;
      }
      halves[0].merge(halves[1]);
      std::vector<int32_t> best(2 * k);
      halves[0].write(best.data(), 2);
      for (int64_t i = 0; i < k; ++i) {
        const int32_t expected = i < keys ? order[i] : -1;
        expect(best[2 * i] == expected,
               [&] { return text(k, " of ", keys, ": place ", i, " is ", best[2 * i], " instead of ", expected); });
      }
    }
  }
}

// ---- matmul.h, pairs.h, tiles.h, unpacked_products.h, linear.h

// The sum over k of a[k] b[k], and that of its terms' absolute values, from which rounding errors follow.
struct Sum {
  double value = 0;
  double absolute = 0;

  void add(double a, double b) {
    value += a * b;
    absolute += std::abs(a * b);
  }
};

template <class Operand, opp::Layout layout>
void products() {
  using Of = opp::Products<Operand, layout>;
  if (!Of::is_right()) throw NotHere();
  const Of of;
  for (const int64_t rows : {1, 5, 16, 33, 64}) {
    for (const int64_t columns : {16, 64, 80, 208}) {
      for (const int64_t size : {4, 36, 384}) {
        const int64_t depth = opp::round_up(size, Of::kDepthStep);
        const int64_t a_stride = depth + 8, c_stride = columns + 3;
        const auto a = random_vector<typename Of::Left>(rows * a_stride);
        const auto b = random_vector<Operand>(depth * columns);
        std::vector<typename Of::Sum> c(rows * c_stride, 7);
        std::vector<Operand> packed(depth * columns);
        for (int64_t k = 0; k < depth; ++k) {
          for (int64_t column = 0; column < columns; ++column) {
            packed[Of::place(k, column, depth, columns)] = b[k * columns + column];
          }
        }
        for (const bool add : {false, true}) {
          of.multiply(a.data(), a_stride, packed.data(), c.data(), c_stride, rows, columns, depth, add);
          for (int64_t row = 0; row < rows; ++row) {
            for (int64_t column = 0; column < columns; ++column) {
              Sum sum;
              for (int64_t k = 0; k < depth; ++k) {
                sum.add(value_of(a[row * a_stride + k]), value_of(b[k * columns + column]));
              }
              const double factor = add ? 2 : 1;
              const bool exact = std::is_same_v<typename Of::Sum, int32_t>;
              const double error = exact ? 0 : factor * static_cast<double>(depth) * kFloatUnit * sum.absolute;
              const auto found = static_cast<double>(c[row * c_stride + column]);
              expect(is_near(found, factor * sum.value, error), [&] {
                return text(rows, " x ", depth, " x ", columns, ", add ", add, ": element ", row, ", ", column, " is ",
                            found, " instead of ", factor * sum.value);
              });
            }
          }
        }
      }
    }
  }
}

// The scores of rows against a column for each head; score(a, a_stride, b, weights, scores, rows, heads, depth, next)
// is what computes them.
template <opp::Layout layout, class Score>
void index_scores(bool here, Score score) {
  using Of = opp::Products<BFloat16, layout>;
  if (!here) throw NotHere();
  const Of of;
  constexpr int64_t kRows = 32;
  for (const int64_t heads : {1, 5, 16, 17, 63, 64, 65, 128, 130}) {
    for (const int64_t size : {2, 36, 128}) {
      const int64_t depth = opp::round_up(size, Of::kDepthStep), stride = depth + 8;
      const int64_t columns = opp::round_up(heads, opp::kLanes);
      auto a = random_vector<BFloat16>(kRows * stride);
      a[stride] = kNaN;
      a[2 * stride + 1] = kInfinity;
      const auto b = random_vector<BFloat16>(depth * heads);
      std::vector<BFloat16> packed(depth * columns);
      for (int64_t i = 0; i < depth * heads; ++i) packed[Of::place(i / heads, i % heads, depth, columns)] = b[i];
      auto weights = random_floats(heads);
      weights.resize(columns);
      const auto sum = [&](int64_t row) {
        Sum total;
        for (int64_t h = 0; h < heads; ++h) {
          Sum product;
          for (int64_t k = 0; k < depth; ++k) product.add(value_of(a[row * stride + k]), value_of(b[k * heads + h]));
          total.value += weights[h] * (product.value < 0 ? 0 : product.value);
          total.absolute += std::abs(weights[h]) * product.absolute;
        }
        return total;
      };
      for (const BFloat16* next : {static_cast<BFloat16*>(nullptr), a.data()}) {
        auto scores = room<float>(kRows);
        score(a.data(), stride, packed.data(), weights.data(), scores.data(), kRows, heads, depth, next);
        compare(
            scores, kRows, [&](int64_t row) { return sum(row).value; },
            [&](int64_t row) { return static_cast<double>(heads + depth) * kFloatUnit * sum(row).absolute; },
            text(heads, " heads of depth ", depth));
        expect_untouched(scores, kRows, "index scores");
      }
    }
  }
}

void weighted_relu_pairs() { index_scores<opp::Layout::kVnni>(opp::has_pairs(), opp::weighted_relu_pairs); }

void weighted_relu_tiles() {
  index_scores<opp::Layout::kTiles>(
      opp::has_tiles(), [](const BFloat16* a, int64_t a_stride, const BFloat16* b, const float* weights, float* scores,
                           int64_t rows, int64_t heads, int64_t depth, const BFloat16* next) {
        const int64_t size = 2 * opp::kTileRows * opp::round_up(heads, opp::kTileRows);
        opp::Buffer<float> products(size);
        opp::weighted_relu_tiles(a, a_stride, b, weights, scores, rows, heads, depth, next, products.data());
      });
}

template <class Products>
void unpacked_products() {
  using T = typename Products::Element;
  using Out = typename Products::Sum;
  if (!Products::are_here()) throw NotHere();
  [[maybe_unused]] const std::conditional_t<std::is_same_v<Products, opp::BFloat16Tiles>, opp::TileProducts, int> of{};
  constexpr bool kBytes = std::is_same_v<T, int8_t>;
  for (int64_t rows = 1; rows <= 9; ++rows) {
    const int64_t depth = opp::round_up(4 * rows + 60, Products::kGroup), x_stride = depth + 4;
    const int64_t columns = 3 * opp::kUnpackedColumns, stride = columns + 32;
    const auto x = random_vector<T>(rows * x_stride);
    const auto weight = random_vector<T>(depth * stride);
    std::vector<Out> sums(rows * columns, 0);
    for (int64_t times = 1; times <= 2; ++times) {
      for (int64_t k = 0; k < depth; k += Products::kRows) {
        const int64_t count = std::min(Products::kRows, depth - k);
        Products::add_products(x.data() + k, x_stride, rows, {weight.data() + k * stride, stride, count, columns},
                               sums.data(), times == 1 ? weight.data() : nullptr);
      }
    }
    std::vector<Out> ordered(columns);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; column += opp::kUnpackedColumns) {
        Products::order(sums.data() + column * rows + row * opp::kUnpackedColumns, ordered.data() + column);
      }
      for (int64_t column = 0; column < columns; ++column) {
        Sum sum;
        for (int64_t k = 0; k < depth; ++k) {
          sum.add(2 * value_of(x[row * x_stride + k]), value_of(weight[k * stride + column]) + Products::kAdded);
        }
        const double error = kBytes ? 0 : 2 * static_cast<double>(depth) * kFloatUnit * sum.absolute;
        expect(is_near(static_cast<double>(ordered[column]), sum.value, error),
               [&] { return text(rows, " rows: element ", row, ", ", column); });
      }
    }
  }
}

enum class Lies { kInRows, kInColumns, kInBlocks };

// A matrix in the memory of another layout. Weights in blocks have 16 columns in each.
template <class T>
struct Matrix {
  std::vector<T> rows;  // [depth, columns]
  std::vector<T> memory;
  at::Tensor tensor;

  Matrix(int64_t depth, int64_t columns, Lies lies) : rows(random_vector<T>(depth * columns)) {
    constexpr int64_t kBlock = 16;
    const int64_t blocks = (columns + kBlock - 1) / kBlock, padded = opp::round_up(depth, kBlock);
    memory.resize(blocks * kBlock * padded);
    for (int64_t r = 0; r < depth; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t place = lies == Lies::kInRows      ? r * columns + c
                              : lies == Lies::kInColumns ? c * depth + r
                                                         : (c / kBlock * padded + r) * kBlock + c % kBlock;
        memory[place] = rows[r * columns + c];
      }
    }
    std::vector<int64_t> sizes{depth, columns}, strides{columns, 1};
    if (lies == Lies::kInColumns) strides = {1, depth};
    if (lies == Lies::kInBlocks) {
      sizes = {blocks, padded / kBlock, kBlock, kBlock};
      strides = {padded * kBlock, kBlock * kBlock, kBlock, 1};
    }
    tensor = at::from_blob(memory.data(), sizes, strides, at::CppTypeToScalarType<T>::value);
    weight = {tensor, lies == Lies::kInBlocks ? ACL_FORMAT_FRACTAL_NZ : ACL_FORMAT_ND, {depth, columns}};
  }

  cann_cpu::StoredTensor weight;
};

template <class T, class Out>
void linear_of(bool scaled) {
  for (const auto [rows, depth, columns] : {std::array<int64_t, 3>{1, 7, 5},
                                            {3, 64, 64},
                                            {8, 400, 640},
                                            {9, 129, 100},
                                            {17, 33, 16},
                                            {70, 512, 90},
                                            {300, 48, 40},
                                            {1, 65, 64},
                                            {15, 1, 128},
                                            {16, 65, 1152},
                                            {17, 129, 192},
                                            {33, 833, 64}}) {
    const int64_t x_stride = depth + 3;
    const auto x = random_vector<T>(rows * x_stride);
    const auto row_scales = random_floats(rows), column_scales = random_floats(columns);
    std::vector<Out> first;
    for (const Lies lies : {Lies::kInRows, Lies::kInColumns, Lies::kInBlocks}) {
      random_bits.seed(depth);
      const Matrix<T> matrix(depth, columns, lies);
      const opp::Weight weight(matrix.weight);
      std::vector<Out> out(rows * columns);
      const auto dtype = at::CppTypeToScalarType<Out>::value;
      const auto run = [&](int64_t row, int64_t count) {
        opp::linear(count, {{x.data() + row * x_stride, x_stride, weight, out.data() + row * columns, dtype, columns,
                             scaled ? row_scales.data() + row : nullptr, scaled ? column_scales.data() : nullptr}});
      };
      run(0, rows);
      const std::string what = text(rows, " x ", depth, " x ", columns, ", layout ", static_cast<int>(lies));
      if (first.empty()) first = out;
      expect(std::memcmp(first.data(), out.data(), out.size() * sizeof(Out)) == 0, what + ": other bits than in rows");

      std::vector<Sum> sums(rows * columns);
      for (int64_t i = 0; i < rows * columns; ++i) {
        for (int64_t k = 0; k < depth; ++k) {
          sums[i].add(value_of(x[i / columns * x_stride + k]), value_of(matrix.rows[k * columns + i % columns]));
        }
        const double scale = scaled ? static_cast<double>(row_scales[i / columns]) * column_scales[i % columns] : 1;
        sums[i].value *= scale;
        sums[i].absolute *= std::abs(scale);
      }
      const bool exact = std::is_integral_v<Out>;
      compare(
          out, rows * columns, [&](int64_t i) { return sums[i].value; },
          [&](int64_t i) {
            const double error = static_cast<double>(depth) * kFloatUnit * sums[i].absolute;
            return exact ? 0 : 1.01 * rounding_error<Out>(sums[i].value) + error;
          },
          what);

      for (int64_t row = 0, count = 1; row < rows; row += count, count += 2) run(row, std::min(count, rows - row));
      expect(std::memcmp(first.data(), out.data(), out.size() * sizeof(Out)) == 0, what + ": other bits by few rows");
    }
  }
}

// Blocks of whole steps, which need not begin or end where panels do, and may be wider than what is packed at once.
template <class T>
void blocks_of_linear() {
  for (const auto [rows, depth, steps, step] : {std::array<int64_t, 4>{1, 64, 1, 64},
                                                {3, 65, 13, 64},
                                                {5, 129, 61, 24},
                                                {16, 100, 7, 192},
                                                {17, 33, 31, 31},
                                                {257, 16, 5, 130},
                                                {2, 12, 3, 2112},
                                                {20, 12, 3, 2112}}) {
    const int64_t columns = steps * step;
    const auto x = random_vector<T>(rows * depth);
    const auto row_scales = random_floats(rows), column_scales = random_floats(columns);
    constexpr bool kScaled = std::is_same_v<T, int8_t>;
    const float* of_rows = kScaled ? row_scales.data() : nullptr;
    const float* of_columns = kScaled ? column_scales.data() : nullptr;
    for (const Lies lies : {Lies::kInRows, Lies::kInColumns, Lies::kInBlocks}) {
      const std::string what = text(rows, " x ", depth, " x ", steps, " * ", step, ", layout ", static_cast<int>(lies));
      const Matrix<T> matrix(depth, columns, lies);
      const opp::Weight weight(matrix.weight);
      std::vector<float> whole(rows * columns), taken(rows * columns, kNaN);
      opp::linear(rows, {{x.data(), depth, weight, whole.data(), at::kFloat, columns, of_rows, of_columns}});
      std::atomic<int64_t> count = 0, cut = 0;
      const auto take = [&](const opp::LinearBlock& block) {
        count += block.rows * block.columns;
        cut += block.first_column % step + block.columns % step;
        for (int64_t row = 0; row < block.rows; ++row) {
          std::copy_n(static_cast<const float*>(block.data) + row * block.columns, block.columns,
                      taken.data() + (block.first_row + row) * columns + block.first_column);
        }
      };
      opp::linear(rows, {{x.data(), depth, weight, nullptr, at::kFloat, 0, of_rows, of_columns, take, step}});
      expect(count == rows * columns, what + ": not every element once");
      expect(cut == 0, what + ": a step is cut");
      expect(std::memcmp(whole.data(), taken.data(), whole.size() * sizeof(float)) == 0, what + ": other bits");
    }
  }
}

// Sums that come near int32's limit, and would pass it with what is added to bytes without a sign.
void largest_sums_of_linear() {
  constexpr int64_t kDepth = 131068, kColumns = 64;
  for (const int64_t rows : {1, 3, 17}) {
    const std::vector<int8_t> x(rows * kDepth, -128);
    Matrix<int8_t> matrix(kDepth, kColumns, Lies::kInRows);
    for (const int8_t number : {-128, 127}) {
      std::fill(matrix.memory.begin(), matrix.memory.end(), number);
      std::vector<int32_t> out(rows * kColumns);
      opp::linear(rows, {{x.data(), kDepth, opp::Weight(matrix.weight), out.data(), at::kInt, kColumns}});
      compare(out, rows * kColumns, [&](int64_t) { return -128.0 * number * kDepth; }, text(rows, " rows"));
    }
  }
}

// When one of two threads is held up in its first block, the other does the rest: all steps of weights that are
// multiplied where they lie, as these are multiplied together, and otherwise all blocks.
template <class T>
void rest_of_linear() {
  constexpr int64_t kDepth = 832, kColumns = 640;
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  for (const int64_t rows : {1, 4, 8, 40}) {
    const auto x = random_vector<T>(rows * kDepth);
    const Matrix<T> matrix(kDepth, kColumns, Lies::kInRows);
    const int64_t all = 2 * rows * kColumns;
    std::atomic<bool> is_held = false, is_late = false;
    std::atomic<int64_t> taken = 0;
    const auto take = [&](const opp::LinearBlock& block) {
      const int64_t count = block.rows * block.columns;
      if (!is_held.exchange(true)) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (taken < all - count && !is_late) {
          std::this_thread::yield();
          is_late = std::chrono::steady_clock::now() > end;
        }
      }
      taken += count;
    };
    const std::vector<float> scales(std::max(rows, kColumns), 1);
    const bool scaled = std::is_same_v<T, int8_t>;
    const float* of_scales = scaled ? scales.data() : nullptr;
    const opp::Weight weight(matrix.weight);
    const opp::Linear product{x.data(), kDepth,    weight,    nullptr, at::kFloat,
                              0,        of_scales, of_scales, take,    opp::kUnpackedColumns};
    opp::linear(rows, {product, product});
    expect(taken == all, text(rows, " rows: not every element once"));
    expect(!is_late, text(rows, " rows: the other thread left something"));
  }
  at::set_num_threads(threads);
}

template <class T>
void linear() {
  rest_of_linear<T>();
  blocks_of_linear<T>();
  if constexpr (std::is_same_v<T, int8_t>) {
    largest_sums_of_linear();
    linear_of<int8_t, int32_t>(false);
    linear_of<int8_t, float>(true);
    linear_of<int8_t, BFloat16>(true);
  } else {
    linear_of<T, float>(false);
    linear_of<T, T>(false);
  }
}

// ---- prolog.h

template <class T>
at::Tensor tensor_of(std::vector<T>& numbers, at::IntArrayRef sizes) {
  return at::from_blob(numbers.data(), sizes, at::CppTypeToScalarType<T>::value);
}

template <class T>
void prolog() {
  for (const int64_t width : {2, 30, 34, 64, 130}) {
    auto x = random_vector<T>(width), gamma = random_vector<T>(width), beta = random_vector<T>(width);
    auto cos = random_vector<T>(2 * width), sin = random_vector<T>(2 * width);
    const auto floats = random_floats(width);
    const auto error = [&](const auto& expected) {
      return [&](int64_t i) { return 1.01 * rounding_error<T>(expected(i)) + 1e-5; };
    };
    const auto mean_of = [&](const auto& term) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) sum += term(i);
      return sum / static_cast<double>(width);
    };

    const double mean = mean_of([&](int64_t i) { return floats[i]; });
    const double variance = mean_of([&](int64_t i) { return std::pow(floats[i] - mean, 2); });
    const auto normalised = [&](int64_t i) {
      return (floats[i] - mean) / std::sqrt(variance + 0.01) * value_of(gamma[i]) + value_of(beta[i]);
    };
    std::vector<T> out = room<T>(width);
    opp::LayerNorm<T>(tensor_of(gamma, {width}), tensor_of(beta, {width}), 0.01F).apply(floats.data(), out.data());
    compare(out, width, normalised, error(normalised), text("LayerNorm of ", width));
    expect_untouched(out, width, "LayerNorm");

    const double square = mean_of([&](int64_t i) { return std::pow(value_of(x[i]), 2); });
    const auto scaled = [&](int64_t i) { return value_of(x[i]) / std::sqrt(square + 0.01) * value_of(gamma[i]); };
    opp::RmsNorm<T>(tensor_of(gamma, {width}), 0.01F).apply(x.data(), out.data());
    compare(out, width, scaled, error(scaled), text("RmsNorm of ", width));
    expect_untouched(out, width, "RmsNorm");

    for (const bool interleaved : {false, true}) {
      const int64_t half = width / 2;
      opp::Rope<T> rope(tensor_of(cos, {2, width}), tensor_of(sin, {2, width}), interleaved);
      rope.load(1);
      rope.apply(x.data(), out.data());
      const auto rotated = [&](int64_t j) {
        const int64_t i = j % half;
        const double first = value_of(x[interleaved ? 2 * i : i]);
        const double second = value_of(x[interleaved ? 2 * i + 1 : half + i]);
        const double c = value_of(cos[width + j]), s = value_of(sin[width + j]);
        return j < half ? first * c - second * s : second * c + first * s;
      };
      compare(out, width, rotated, error(rotated), text("Rope of ", width, ", interleaved ", interleaved));
      expect_untouched(out, width, "Rope");
    }

    double amax = 0;
    for (const T number : x) amax = std::max(amax, std::abs(value_of(number)));
    auto bytes = room<int8_t>(width);
    const float scale = opp::Quantiser<T>(width).apply(x.data(), bytes.data());
    expect_near(scale, amax / 127, amax * kFloatUnit, "the scale");
    compare(bytes, width, [&](int64_t i) { return std::nearbyint(value_of(x[i]) * 127 / amax); }, "Quantiser");
    expect_untouched(bytes, width, "Quantiser");
  }
}

struct Case {
  const char* name;
  void (*run)();
  bool same_everywhere = true;  // bitwise; matrix products are up to the libraries
};

constexpr Case kCases[] = {
    {"to_float, float16", every_number_to_float<Half>},
    {"to_float, bfloat16", every_number_to_float<BFloat16>},
    {"to_float, int8", every_byte_to_float},
    {"from_float, split, divide, float16", every_float_to<Half>},
    {"from_float, split, divide, bfloat16", every_float_to<BFloat16>},
    {"weighted_relu_sums", weighted_relu_sums},
    {"sum, sum_of_squares", sums},
    {"mean_square, float16", mean_square<Half>},
    {"mean_square, bfloat16", mean_square<BFloat16>},
    {"dequantise, scale_and_shift, multiply, add", products_of_elements},
    {"quantise", quantise},
    {"rotate", rotate},
    {"scale_and_find_largest, exponentials", softmax},
    {"transpose_words, pack, interleave", packing},
    {"TopK", top_k},
    {"Products, float", products<float, opp::Layout::kRows>, false},
    {"Products, float16 in rows", products<Half, opp::Layout::kRows>, false},
    {"Products, float16 in pairs", products<Half, opp::Layout::kVnni>, false},
    {"Products, bfloat16 in rows", products<BFloat16, opp::Layout::kRows>, false},
    {"Products, bfloat16 in pairs", products<BFloat16, opp::Layout::kVnni>, false},
    {"Products, bfloat16 in tiles", products<BFloat16, opp::Layout::kTiles>, false},
    {"Products, int8 in fours", products<int8_t, opp::Layout::kVnni>, false},
    {"Products, int8 in tiles", products<int8_t, opp::Layout::kTiles>, false},
    {"weighted_relu_pairs", weighted_relu_pairs, false},
    {"weighted_relu_tiles", weighted_relu_tiles, false},
    {"unpacked products, int8 by fours", unpacked_products<opp::ByteFours>},
    {"unpacked products, bfloat16 by pairs", unpacked_products<opp::BFloat16Pairs>, false},
    {"unpacked products, bfloat16 by tiles", unpacked_products<opp::BFloat16Tiles>, false},
    {"unpacked products, int8 by AVX2", unpacked_products<opp::ShortPairs>, false},
    {"unpacked products, bfloat16 by AVX2", unpacked_products<opp::Floats>, false},
    {"linear, float16", linear<Half>, false},
    {"linear, bfloat16", linear<BFloat16>, false},
    {"linear, int8", linear<int8_t>, false},
    {"Rope, LayerNorm, RmsNorm, Quantiser, float16", prolog<Half>},
    {"Rope, LayerNorm, RmsNorm, Quantiser, bfloat16", prolog<BFloat16>},
};

}  // namespace

int main() {
  int failed = 0;
  for (const auto& [name, run, same_everywhere] : kCases) {
    random_bits.seed(1);
    const uint64_t before = digest;
    try {
      run();
      std::printf("passed   %s\n", name);
    } catch (const NotHere&) {
      std::printf("not here %s: oneDNN or the CPU has no such products\n", name);
    } catch (const std::exception& error) {
      std::printf("FAILED   %s: %s\n", name, error.what());
      ++failed;
    }
    if (!same_everywhere) digest = before;
    std::fflush(stdout);
  }
  std::printf("digest   %016" PRIx64 ", the same on every CPU, at every vector level\n", digest);
  return failed == 0 ? 0 : 1;
}
