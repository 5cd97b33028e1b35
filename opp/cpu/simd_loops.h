// SPDX-License-Identifier: Apache-2.0
// The loops of simd.h, which simd.cpp includes once for each level of vector instructions.
// No include guard, and no includes: the levels are compiled with options that must not reach what others share.
namespace opp {
namespace OPP_SIMD_LEVEL {
namespace {

using Floats = Lanes<float>;
using Ints = Lanes<int32_t>;
using Words = Lanes<uint32_t>;
using Shorts = Lanes<uint16_t>;
typedef uint8_t Bytes __attribute__((vector_size(kLanes), aligned(1), may_alias));

template <class T>
[[gnu::always_inline]] inline void copy_as_float(const T* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

// Not a template: its argument loses the alignment.
[[gnu::always_inline]] inline Bytes load_bytes(const uint8_t* from) { return *reinterpret_cast<const Bytes*>(from); }

// 0, 1, and so on.
[[gnu::always_inline]] inline Ints counted() {
  Ints x;
  for (int64_t i = 0; i < kLanes; ++i) x.parts[i / kPartLanes][i % kPartLanes] = static_cast<int32_t>(i);
  return x;
}

// -1 in the first `count` lanes, and 0 in the others.
[[gnu::always_inline]] inline Ints first_lanes(int64_t count) {
  return counted() < static_cast<int32_t>(std::min(count, kLanes));
}

// NaN stays NaN.
[[gnu::always_inline]] inline Floats relu(Floats x) { return choose(x < 0.0F, Floats{}, x); }

// exp(x) for x <= 0 to float's precision: 2^n * exp(r) with |r| <= ln(2) / 2. NaN stays NaN.
// r is made as Cody and Waite do (Software Manual for the Elementary Functions, 1980): of ln(2) = 355/512
// - 2.1219444e-4 the first part has nine bits, so that n times it is exact. exp(r) is the Taylor series up to r^7 / 7!,
// whose rest is below (ln(2) / 2)^8 / 8! = 5.2e-9, a tenth of float's rounding.
[[gnu::always_inline]] inline Floats exp_of_negative(Floats x) {
  const float shift = 12582912.0F;  // 1.5 * 2^23: rounds to an integer, which its lowest bits then are
  const Floats shifted = x * 1.44269504F + shift;
  const Floats n = shifted - shift;
  const Floats r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  Floats sum = r * (1.0F / 5040) + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  const Floats power = as<float>(as<int32_t>(sum) + (as<int32_t>(shifted) << 23));
  return choose(x != x, x, choose(x < -87.0F, Floats{}, power));
}

// The bits of the nearest bfloat16, ties to even, in the upper half of each word.
[[gnu::always_inline]] inline Words to_bfloat16(Floats x) {
  const Words bits = as<uint32_t>(x);
  const Words rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000U;
  return choose(x != x, Words{} + 0x7FC00000U, rounded);
}

[[gnu::always_inline]] inline Floats from_bfloat16(Shorts x) { return as<float>(convert<uint32_t>(x) << 16); }

[[gnu::always_inline]] inline void store_upper_halves(Words words, void* to) {
  store(convert<uint16_t>(words >> 16), to);
}

// Transposes 16 x 16 words in four rounds. Each round zips row r with row r + 8.
[[gnu::always_inline]] inline void transpose_square(const uint32_t* from, int64_t from_stride, uint32_t* to,
                                                    int64_t to_stride) {
  Words a[kLanes];
  Words b[kLanes];
  for (int64_t r = 0; r < kLanes; ++r) a[r] = load<uint32_t>(from + r * from_stride);
  const auto zip_rows = [](const Words* x, Words* y) __attribute__((always_inline)) {
    for (int64_t r = 0; r < kLanes / 2; ++r) {
      y[2 * r] = zip<false>(x[r], x[r + kLanes / 2]);
      y[2 * r + 1] = zip<true>(x[r], x[r + kLanes / 2]);
    }
  };
  zip_rows(a, b);
  zip_rows(b, a);
  zip_rows(a, b);
  zip_rows(b, a);
  for (int64_t r = 0; r < kLanes; ++r) store(a[r], to + r * to_stride);
}

class Loops final : public Simd {
 public:
  void weighted_relu_sums(const float* products, int64_t stride, int64_t rows, const float* weights, int64_t heads,
                          float* scores) const override {
    weighted_relu_sums_of([=](int64_t i, int64_t) __attribute__((always_inline)) { return load<float>(products + i); },
                          stride, rows, weights, heads, scores);
  }

  void weighted_relu_sums(const int32_t* products, const int32_t* shifts, int64_t stride, int64_t rows,
                          const float* weights, int64_t heads, float* scores) const override {
    weighted_relu_sums_of(
        [=](int64_t i, int64_t head) __attribute__((always_inline)) {
          return convert<float>(as<int32_t>(load<uint32_t>(products + i) - load<uint32_t>(shifts + head)));
        },
        stride, rows, weights, heads, scores);
  }

  // Processes kLanes products at a time: product(i, head) returns those from the i-th on, for the heads from `head` on.
  template <class Product>
  [[gnu::always_inline]] static void weighted_relu_sums_of(Product product, int64_t stride, int64_t rows,
                                                           const float* weights, int64_t heads, float* scores) {
    const int64_t whole = heads / kLanes * kLanes;
    int32_t in_tail[kLanes] = {};
    std::fill_n(in_tail, heads - whole, -1);

    for (int64_t r = 0; r < rows; ++r) {
      Floats sum{};
      for (int64_t h = 0; h < whole; h += kLanes) {
        const Floats x = product(r * stride + h, h);
        sum += load<float>(weights + h) * relu(x);
      }
      if (whole < heads) {
        const Floats x = product(r * stride + whole, whole);
        sum += load<float>(weights + whole) * choose(load<int32_t>(in_tail), relu(x), Floats{});
      }
      scores[r] = sum_of(sum);
    }
  }

  void to_float(const at::Half* from, int64_t count, float* to) const override { copy_as_float(from, count, to); }

  void to_float(const at::BFloat16* from, int64_t count, float* to) const override { copy_as_float(from, count, to); }

  void to_float(const int8_t* from, int64_t count, float* to) const override { copy_as_float(from, count, to); }

  void from_float(const float* from, int64_t count, at::Half* to) const override {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  }

  void from_float(const float* from, int64_t count, at::BFloat16* to) const override {
    const int64_t whole = count / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) store_upper_halves(to_bfloat16(load<float>(from + i)), to + i);
    for (int64_t i = whole; i < count; ++i) to[i] = from[i];
  }

  void dequantise(const int32_t* from, int64_t count, float row_scale, const float* column_scales,
                  float* to) const override {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) * row_scale * column_scales[i];
  }

  float quantise(const float* from, int64_t count, int8_t* to) const override {
    return quantise_of([](const float* x) __attribute__((always_inline)) { return load<float>(x); }, from, count, to);
  }

  float quantise(const at::BFloat16* from, int64_t count, int8_t* to) const override {
    return quantise_of([](const uint16_t* x)
                           __attribute__((always_inline)) { return from_bfloat16(load<uint16_t>(x)); },
                       reinterpret_cast<const uint16_t*>(from), count, to);
  }

  // Processes kLanes elements at a time, which read(address) returns.
  template <class Read, class Element>
  [[gnu::always_inline]] static float quantise_of(Read read, const Element* from, int64_t count, int8_t* to) {
    const int64_t whole = count / kLanes * kLanes;
    Element tail[kLanes] = {};
    std::copy(from + whole, from + count, tail);
    const auto at = [=](int64_t i) __attribute__((always_inline)) { return read(i < whole ? from + i : tail); };

    // The bits of numbers without sign are in the order of the values, and NaN is last.
    Ints top{};
    for (int64_t i = 0; i < count; i += kLanes) {
      const Ints bits = as<int32_t>(at(i)) & 0x7FFFFFFF;
      top = choose(bits > top, bits, top);
    }
    const int32_t largest = largest_of(top);
    const float amax = std::bit_cast<float>(largest);
    // So that no number below is too large or too small for its exponent.
    const float unit = amax > 0x1p100F ? 0x1p-50F : amax < 0x1p-60F ? 0x1p60F : 1.0F;
    const float divisor = largest == 0 ? 1.0F : amax * unit;
    const float factor = 1 / divisor;

    for (int64_t i = 0; i < count; i += kLanes) {
      // 127 times a number of up to 17 bits is exact, and so is what an integer near the quotient leaves of it: that
      // shows whether the product with the factor was rounded to the wrong neighbour.
      const Floats dividend = at(i) * unit * 127.0F;
      const Floats shifted = dividend * factor + 12582912.0F;  // 1.5 * 2^23: rounds to an integer
      const Floats integer = shifted - 12582912.0F;
      const Floats rest = dividend - integer * divisor;
      const Floats twice = as<float>(as<int32_t>(rest + rest) & 0x7FFFFFFF);
      const Ints bits = as<int32_t>(shifted);
      const Ints is_odd = 0 - (bits & 1);
      const Ints is_off = (twice > divisor) | ((twice == divisor) & is_odd);
      const Ints step = (as<int32_t>(rest) >> 31) | 1;
      const Ints number = (bits - 0x4B400000 + (is_off & step)) & (shifted == shifted);
      const auto bytes = convert<int8_t>(number);
      if (i < whole) {
        store(bytes, to + i);
      } else {
        for (int64_t lane = 0; i + lane < count; ++lane) to[i + lane] = bytes[lane];
      }
    }
    return amax;
  }

  void rotate(const float* from, int64_t half, bool interleaved, const float* cos, const float* sin,
              float* to) const override {
    const auto turn = [=](int64_t i, float x, float y) __attribute__((always_inline)) {
      to[i] = x * cos[i] - y * sin[i];
      to[half + i] = y * cos[half + i] + x * sin[half + i];
    };
    if (interleaved) {
      for (int64_t i = 0; i < half; ++i) turn(i, from[2 * i], from[2 * i + 1]);
    } else {
      for (int64_t i = 0; i < half; ++i) turn(i, from[i], from[half + i]);
    }
  }

  void rotate(const at::BFloat16* from, int64_t half, bool interleaved, const float* cos, const float* sin,
              at::BFloat16* to) const override {
    const auto* bits = reinterpret_cast<const uint16_t*>(from);
    const int64_t whole = half / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      Floats x;
      Floats y;
      if (interleaved) {
        const Words pairs = load<uint32_t>(bits + 2 * i);
        x = as<float>(pairs << 16);
        y = as<float>(pairs & 0xFFFF0000U);
      } else {
        x = from_bfloat16(load<uint16_t>(bits + i));
        y = from_bfloat16(load<uint16_t>(bits + half + i));
      }
      store_upper_halves(to_bfloat16(x * load<float>(cos + i) - y * load<float>(sin + i)), to + i);
      store_upper_halves(to_bfloat16(y * load<float>(cos + half + i) + x * load<float>(sin + half + i)), to + half + i);
    }
    for (int64_t i = whole; i < half; ++i) {
      const float x = from[interleaved ? 2 * i : i];
      const float y = from[interleaved ? 2 * i + 1 : half + i];
      to[i] = x * cos[i] - y * sin[i];
      to[half + i] = y * cos[half + i] + x * sin[half + i];
    }
  }

  float sum(const float* from, int64_t count) const override {
    Floats total{};
    const int64_t whole = count / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) total += load<float>(from + i);
    float rest[kLanes] = {};
    std::copy(from + whole, from + count, rest);
    return sum_of(total + load<float>(rest));
  }

  float sum_of_squares(const float* from, int64_t count, float mean) const override {
    Floats total{};
    const int64_t whole = count / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Floats difference = load<float>(from + i) - mean;
      total += difference * difference;
    }
    float rest[kLanes] = {};
    for (int64_t i = whole; i < count; ++i) rest[i - whole] = (from[i] - mean) * (from[i] - mean);
    return sum_of(total + load<float>(rest));
  }

  float mean_square(const at::Half* from, int64_t count) const override {
    float total = 0;
    for (int64_t i = 0; i < count; ++i) total += static_cast<float>(from[i]) * static_cast<float>(from[i]);
    return total / static_cast<float>(count);
  }

  float mean_square(const at::BFloat16* from, int64_t count) const override {
    const auto* bits = reinterpret_cast<const uint16_t*>(from);
    const auto square = [](Words words) __attribute__((always_inline)) {
      const auto x = as<float>(words);
      return x * x;
    };
    Floats even{};
    Floats odd{};
    const int64_t whole = count / (2 * kLanes) * (2 * kLanes);
    for (int64_t i = 0; i < whole; i += 2 * kLanes) {
      const Words pairs = load<uint32_t>(bits + i);
      even += square(pairs << 16);
      odd += square(pairs & 0xFFFF0000U);
    }
    float total = sum_of(even + odd);
    for (int64_t i = whole; i < count; ++i) total += static_cast<float>(from[i]) * static_cast<float>(from[i]);
    return total / static_cast<float>(count);
  }

  void scale_and_shift(const float* from, int64_t count, float mean, float factor, const float* gamma,
                       const float* beta, float* to) const override {
    for (int64_t i = 0; i < count; ++i) to[i] = (from[i] - mean) * factor * gamma[i] + (beta ? beta[i] : 0.0F);
  }

  void find_extremes(const uint32_t* from, int64_t count, uint32_t* smallest, uint32_t* largest) const override {
    uint32_t low = from[0];
    uint32_t high = from[0];
    for (int64_t i = 1; i < count; ++i) {
      low = std::min(low, from[i]);
      high = std::max(high, from[i]);
    }
    *smallest = low;
    *largest = high;
  }

  int64_t rank(const float* scores, int64_t count, int32_t first, uint32_t floor, uint32_t* ranks,
               int32_t* places) const override {
    int64_t written = 0;
    for (int64_t i = 0; i < count; i += kLanes) {
      const Floats score = load<float>(scores + i);
      const Ints bits = as<int32_t>(score + 0.0F);  // -0 + 0 is 0
      const Words of_numbers = as<uint32_t>((bits >> 31 | INT32_MIN) ^ bits);
      const Words all = choose(score != score, Words{} + UINT32_MAX, of_numbers);
      const Ints mask = (all > floor) & first_lanes(count - i);
      store_masked(mask, counted() + (first + static_cast<int32_t>(i)), places + written);
      written += store_masked(mask, all, ranks + written);
    }
    return written;
  }

  int64_t select(const uint32_t* ranks, const int32_t* places, int64_t count, uint32_t lowest, uint32_t highest,
                 uint32_t* to_ranks, int32_t* to_places) const override {
    int64_t written = 0;
    for (int64_t i = 0; i < count; i += kLanes) {
      const Words rank = load<uint32_t>(ranks + i);
      const Ints outside = (rank < lowest) | (rank > highest);
      const Ints mask = (outside == 0) & first_lanes(count - i);
      if (places != nullptr) store_masked(mask, load<int32_t>(places + i), to_places + written);
      written += store_masked(mask, rank, to_ranks + written);
    }
    return written;
  }

  void transpose_words(const void* from, int64_t row_stride, int64_t words, void* to,
                       int64_t to_stride) const override {
    const auto* rows = static_cast<const uint32_t*>(from);
    auto* columns = static_cast<uint32_t*>(to);
    int64_t word = 0;
    for (; word + kLanes <= words; word += kLanes) {
      transpose_square(rows + word, row_stride, columns + word * to_stride, to_stride);
    }
    for (; word < words; ++word) {
      for (int64_t r = 0; r < kLanes; ++r) columns[word * to_stride + r] = rows[r * row_stride + word];
    }
  }

  void transpose_pairs(const void* from, int64_t row_stride, int64_t words, void* to,
                       int64_t to_stride) const override {
    const auto* rows = static_cast<const uint32_t*>(from);
    auto* columns = static_cast<uint16_t*>(to);
    uint32_t square[kLanes * kLanes];
    for (int64_t word = 0; word < words; word += kLanes) {
      const int64_t count = std::min(kLanes, words - word);
      Loops::transpose_words(rows + word, row_stride, count, square, kLanes);
      for (int64_t w = 0; w < count; ++w) {
        const Words pairs = load<uint32_t>(square + w * kLanes);
        uint16_t* even = columns + 2 * (word + w) * to_stride;
        store(convert<uint16_t>(pairs & 0xFFFF), even);
        store(convert<uint16_t>(pairs >> 16), even + to_stride);
      }
    }
  }

  void interleave(const void* even, const void* odd, int64_t count, void* to) const override {
    const auto* low = static_cast<const uint16_t*>(even);
    const auto* high = static_cast<const uint16_t*>(odd);
    auto* words = static_cast<uint32_t*>(to);
    for (int64_t i = 0; i < count; i += kLanes) {
      const Words first = convert<uint32_t>(load<uint16_t>(low + i));
      const Words second = convert<uint32_t>(load<uint16_t>(high + i));
      store(first | second << 16, words + i);
    }
  }

  void pack(const uint16_t* from, int64_t row_stride, int64_t rows, int64_t columns, uint16_t* to,
            int64_t to_stride) const override {
    for (int64_t row = 0; row < rows; row += 2) {
      interleave(from + row * row_stride, from + (row + 1) * row_stride, columns, to + row / 2 * to_stride);
    }
  }

  void pack(const uint8_t* from, int64_t row_stride, int64_t rows, int64_t columns, uint8_t* to,
            int64_t to_stride) const override {
    for (int64_t row = 0; row < rows; row += 4) {
      const uint8_t* of = from + row * row_stride;
      Bytes* rows_of_four = reinterpret_cast<Bytes*>(to + row / 4 * to_stride);
      for (int64_t c = 0; c < columns; c += kLanes) {
        const Bytes x[] = {load_bytes(of + c), load_bytes(of + row_stride + c), load_bytes(of + 2 * row_stride + c),
                           load_bytes(of + 3 * row_stride + c)};
        const Bytes even_first = zip<false>(x[0], x[2]);
        const Bytes even_second = zip<true>(x[0], x[2]);
        const Bytes odd_first = zip<false>(x[1], x[3]);
        const Bytes odd_second = zip<true>(x[1], x[3]);
        *rows_of_four++ = zip<false>(even_first, odd_first);
        *rows_of_four++ = zip<true>(even_first, odd_first);
        *rows_of_four++ = zip<false>(even_second, odd_second);
        *rows_of_four++ = zip<true>(even_second, odd_second);
      }
    }
  }

  float scale_and_find_largest(float* row, int64_t count, float scale, float largest) const override {
    const int64_t size = (count + kLanes - 1) / kLanes * kLanes;
    for (int64_t i = 0; i < size; i += kLanes) store(load<float>(row + i) * scale, row + i);
    std::fill(row + count, row + size, -std::numeric_limits<float>::infinity());
    Floats top = Floats{} + largest;
    for (int64_t i = 0; i < size; i += kLanes) {
      const Floats x = load<float>(row + i);
      top = choose(x > top, x, top);
    }
    return largest_of(top);
  }

  void exponentials(float* row, int64_t count, float maximum, const float* factors, float* sum,
                    float* weighted_squares) const override {
    Floats total{};
    Floats squares{};
    for (int64_t i = 0; i < count; i += kLanes) {
      const Floats weight = exp_of_negative(load<float>(row + i) - maximum);
      store(weight, row + i);
      total += weight;
      squares += weight * weight * load<float>(factors + i);
    }
    *sum += sum_of(total);
    *weighted_squares += sum_of(squares);
  }

  void multiply(float* row, int64_t count, float factor) const override {
    for (int64_t i = 0; i < count; i += kLanes) store(load<float>(row + i) * factor, row + i);
  }

  void split(const float* row, int64_t count, at::Half* high, at::Half* low) const override {
    for (int64_t i = 0; i < count; ++i) {
      high[i] = row[i];
      low[i] = row[i] - static_cast<float>(high[i]);
    }
  }

  void add(const float* row, int64_t count, float* to) const override {
    for (int64_t i = 0; i < count; i += kLanes) store(load<float>(to + i) + load<float>(row + i), to + i);
  }

  void split(const float* row, int64_t count, at::BFloat16* high, at::BFloat16* low) const override {
    for (int64_t i = 0; i < count; i += kLanes) {
      const Floats x = load<float>(row + i);
      const Words nearest = to_bfloat16(x);
      store_upper_halves(nearest, high + i);
      store_upper_halves(to_bfloat16(x - as<float>(nearest)), low + i);
    }
  }

  void divide(const float* row, int64_t count, float divisor, at::Half* to) const override {
    for (int64_t i = 0; i < count; ++i) to[i] = row[i] / divisor;
  }

  void divide(const float* row, int64_t count, float divisor, at::BFloat16* to) const override {
    for (int64_t i = 0; i < count; i += kLanes) store_upper_halves(to_bfloat16(load<float>(row + i) / divisor), to + i);
  }
};

}  // namespace
}  // namespace OPP_SIMD_LEVEL
}  // namespace opp
