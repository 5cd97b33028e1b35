// SPDX-License-Identifier: Apache-2.0
#include "ascendc/load_data.h"

#include "ascendc/gemm.h"
#include "instruction_trace.h"
#include "prefetch.h"

namespace AscendC::cpu {
namespace {

void check_range(const char* name, Where where, const char* what, uint64_t value, uint64_t min, uint64_t max) {
  if (value >= min && value <= max) return;
  fail(where, "%s: %s is %llu; the device takes %llu to %llu", name, what, static_cast<unsigned long long>(value),
       static_cast<unsigned long long>(min), static_cast<unsigned long long>(max));
}

// The way into a memory of the matrix unit, from L1 or from device memory.
Path path_to(const LocalMemory& dst, bool from_device = false) {
  if (hardware_of(dst) == Hardware::L1) return from_device ? Path::GmToL1 : Path::FillL1;
  if (from_device) return Path::GmToL0;
  return hardware_of(dst) == Hardware::L0A ? Path::L1ToL0A : Path::L1ToL0B;
}

pipe_t pipe_to(const LocalMemory& dst) { return hardware_of(dst) == Hardware::L1 ? PIPE_MTE2 : PIPE_MTE1; }

uint32_t alignment_of(const LocalMemory& memory) {
  switch (hardware_of(memory)) {
    case Hardware::L0A:
    case Hardware::L0B:
      return kFractalBytes;
    case Hardware::BIAS:
      return 64;
    case Hardware::FIXBUF:
      return 128;
    default:
      return kBlockBytes;
  }
}

// 16 bytes of elements of one size.
template <class Element>
struct Run {
  static constexpr int kElements = 16 / sizeof(Element);
  using Vector [[gnu::vector_size(16), gnu::aligned(1), gnu::may_alias]] = Element;

  template <int first, class Indices = std::make_integer_sequence<int, kElements>>
  struct Zip;
  template <int first, int... i>
  struct Zip<first, std::integer_sequence<int, i...>> {
    static constexpr Vector kMask = {static_cast<Element>(first + i / 2 + i % 2 * kElements)...};
  };
};

// Transposes squares of as many rows as elements fill 16 bytes, `across` of them beside each other.
template <class Element, int across, int down>
void transpose_squares(std::byte* to, int64_t to_row, const std::byte* from, int64_t from_row) {
  using Vector = typename Run<Element>::Vector;
  using Low = typename Run<Element>::template Zip<0>;
  using High = typename Run<Element>::template Zip<Run<Element>::kElements / 2>;
  constexpr int kSide = Run<Element>::kElements;
  for (int i = 0; i < down; ++i) {
    for (int j = 0; j < across; ++j) {
      const std::byte* square = from + i * kSide * from_row + j * 16;
      Vector rows[kSide], zipped[kSide];
#pragma GCC unroll 16
      for (int r = 0; r < kSide; ++r) rows[r] = *reinterpret_cast<const Vector*>(square + r * from_row);
#pragma GCC unroll 4
      for (int round = 1; round < kSide; round *= 2) {
#pragma GCC unroll 8
        for (int r = 0; r < kSide / 2; ++r) {
          zipped[2 * r] = __builtin_shuffle(rows[r], rows[r + kSide / 2], Low::kMask);
          zipped[2 * r + 1] = __builtin_shuffle(rows[r], rows[r + kSide / 2], High::kMask);
        }
#pragma GCC unroll 16
        for (int r = 0; r < kSide; ++r) rows[r] = zipped[r];
      }
      std::byte* turned = to + j * kSide * to_row + i * 16;
#pragma GCC unroll 16
      for (int r = 0; r < kSide; ++r) *reinterpret_cast<Vector*>(turned + r * to_row) = rows[r];
    }
  }
}

// Transposes a square of one fractal of 16 bits, or two of 8 or 32 bits, the second `to_second` bytes behind the first.
void transpose_square(std::byte* to, int64_t to_second, const std::byte* from, uint32_t itemsize, bool right) {
  const std::byte* const second = from + kFractalBytes;
  if (itemsize == 2) {
    right ? turn_across(2, to, from, kBlockBytes)
          : transpose_squares<uint16_t, 2, 2>(to, kBlockBytes, from, kBlockBytes);
    return;
  }
  for (int64_t half = 0; half < 2; ++half, to += to_second) {
    const int64_t eight_rows = half * 8 * kBlockBytes;
    if (itemsize == 1) {
      right ? turn_across(1, to, from + half * 16, kBlockBytes)
            : transpose_squares<uint8_t, 1, 2>(to, kBlockBytes, from + half * 16, kBlockBytes);
    } else if (right) {  // a row of both is turned as it is
      for (int64_t row = eight_rows; row < eight_rows + 8 * int64_t{kBlockBytes}; row += kBlockBytes) {
        std::byte* const words = to + 2 * (row - eight_rows);
        std::memcpy(words, from + row, kBlockBytes);
        std::memcpy(words + kBlockBytes, second + row, kBlockBytes);
      }
    } else {  // 8 rows of both become 8 columns of one
      transpose_squares<uint32_t, 2, 2>(to, kBlockBytes, from + eight_rows, kBlockBytes);
      transpose_squares<uint32_t, 2, 2>(to + 8 * kBlockBytes, kBlockBytes, second + eight_rows, kBlockBytes);
    }
  }
}

// The whole pieces of one row or more, which lie beside each other.
template <int rows>
void copy_pieces(std::byte* to, int64_t to_column, const std::byte* from, int64_t from_row, int64_t pieces) {
  for (int64_t j = 0; j < pieces; ++j, to += to_column, from += kBlockBytes) {
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) std::memcpy(to + r * kBlockBytes, from + r * from_row, kBlockBytes);
  }
}

// Rows to pieces of 32 bytes, the last one filled up with 0.
void copy_rows(std::byte* to, int64_t to_row, int64_t to_column, const std::byte* from, int64_t from_row, int64_t rows,
               int64_t bytes) {
  constexpr int64_t kAhead = 4096, kLine = 64;  // bytes that are asked for before they are copied
  const int64_t whole = bytes / kBlockBytes, rest = bytes % kBlockBytes;
  const int64_t ahead = kAhead / std::max(bytes, kLine);
  int64_t last = ahead;  // that was asked for
  for (int64_t i = 0; i < rows;) {
    const bool pair = to_row == kBlockBytes && i + 1 < rows;  // a whole line of the cache
    for (const int64_t end = std::min(rows, last + (pair ? 2 : 1)); ahead != 0 && last < end; ++last) {
      for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(from + last * from_row + at);
    }
    const std::byte* row = from + i * from_row;
    std::byte* piece = to + i * to_row;
    (pair ? copy_pieces<2> : copy_pieces<1>)(piece, to_column, row, from_row, whole);
    for (const int64_t end = i + (pair ? 2 : 1); i < end; ++i, row += from_row, piece += to_row) {
      if (rest == 0) continue;
      std::byte* const tail = piece + whole * to_column;
      std::memcpy(tail, row + whole * kBlockBytes, static_cast<size_t>(rest));
      std::memset(tail + rest, 0, static_cast<size_t>(kBlockBytes - rest));
    }
  }
}

}  // namespace

void copy_nd_to_nz(Where where, const LocalMemory& dst, const GlobalMemory& src, uint32_t itemsize,
                   const Nd2NzParams& p) {
  constexpr const char* kName = "DataCopy(Nd2NzParams)";
  if (!has_matrix_unit(kName, where)) return;
  need_memory(kName, where, dst, {Hardware::L1}, "dst");
  check_range(kName, where, "ndNum", p.ndNum, 0, 4095);
  check_range(kName, where, "nValue", p.nValue, 0, 16384);
  check_range(kName, where, "dValue", p.dValue, 0, 65535);
  if (p.ndNum == 0 || p.nValue == 0 || p.dValue == 0) return;
  check_range(kName, where, "srcNdMatrixStride", p.srcNdMatrixStride, 0, 65535);
  check_range(kName, where, "srcDValue", p.srcDValue, 1, 65535);
  check_range(kName, where, "dstNzC0Stride", p.dstNzC0Stride, 1, 16384);
  check_range(kName, where, "dstNzNStride", p.dstNzNStride, 1, 16384);
  check_range(kName, where, "dstNzMatrixStride", p.dstNzMatrixStride, 0, 65535);
  const InstructionTrace trace{.by = {kName, where, PIPE_MTE2}};
  const int64_t row = int64_t{p.dValue} * itemsize, pieces = (row + kBlockBytes - 1) / kBlockBytes;
  trace.align(dst, kBlockBytes);
  for (int64_t matrix = 0; matrix < p.ndNum; ++matrix) {
    const int64_t from = matrix * p.srcNdMatrixStride * itemsize;
    const int64_t to = matrix * p.dstNzMatrixStride * itemsize;
    const int64_t from_row = int64_t{p.srcDValue} * itemsize;
    trace.copy(Path::GmToL1, src.data + from, {p.nValue, row, from_row});
    const int64_t to_column = int64_t{p.dstNzC0Stride} * kBlockBytes, to_row = int64_t{p.dstNzNStride} * kBlockBytes;
    for (int64_t i = 0; trace.checker != nullptr && i < p.nValue; ++i)
      trace.touch(Use::Read, src, from + i * from_row, row);
    for (int64_t j = 0; trace.checker != nullptr && j < pieces; ++j) {
      if (to_row == kBlockBytes) {
        trace.touch(Use::Write, dst, to + j * to_column, p.nValue * to_row);
      } else {
        for (int64_t i = 0; i < p.nValue; ++i)
          trace.touch(Use::Write, dst, to + j * to_column + i * to_row, kBlockBytes);
      }
    }
    copy_rows(dst.data + to, to_row, to_column, src.data + from, from_row, p.nValue, row);
  }
  if (p.ndNum == 1) tile_prefetch.copied(src.data, p.nValue, row, int64_t{p.srcDValue} * itemsize);
}

void load_fractals(Where where, const LocalMemory& dst, const LocalMemory* local, const GlobalMemory* global,
                   uint32_t itemsize, const LoadData2DParams& p) {
  constexpr const char* kName = "LoadData";
  if (!has_matrix_unit(kName, where)) return;
  if (local != nullptr) {
    need_memory(kName, where, *local, {Hardware::L1}, "src");
    need_memory(kName, where, dst, {Hardware::L0A, Hardware::L0B}, "dst");
  } else {
    need_memory(kName, where, dst, {Hardware::L1, Hardware::L0A, Hardware::L0B}, "dst");
  }
  if (p.ifTranspose && (itemsize != 2 || local == nullptr)) {
    fail(where,
         "LoadData: ifTranspose with elements of %u bytes %s; the device transposes 16 bits from L1; use "
         "LoadDataWithTranspose",
         itemsize, local == nullptr ? "from device memory" : "from L1");
  }
  const InstructionTrace trace{
      .by = {.name = kName, .where = where, .pipe = local != nullptr ? PIPE_MTE1 : PIPE_MTE2, .fractals = true}};
  const Path path = path_to(dst, local == nullptr);
  const int64_t first = p.startIndex * kFractalBytes, stride = p.srcStride * kFractalBytes;
  if (local != nullptr) {
    trace.copy(path, p.repeatTimes * kFractalBytes);
  } else {
    trace.copy(path, global->data + first, {p.repeatTimes, kFractalBytes, p.addrMode != 0 ? -stride : stride});
  }
  trace.align(dst, alignment_of(dst));
  if (local != nullptr) trace.align(*local, kBlockBytes);
  const std::byte* source = local != nullptr ? local->data : global->data;
  const int64_t from_step = (p.addrMode != 0 ? -1 : 1) * stride, to_step = (1 + int64_t{p.dstGap}) * kFractalBytes;
  for (int64_t i = 0; trace.checker != nullptr && i < p.repeatTimes; ++i) {
    if (local != nullptr) {
      trace.touch(Use::Read, *local, first + i * from_step, kFractalBytes);
    } else {
      trace.touch(Use::Read, *global, first + i * from_step, kFractalBytes);
    }
    trace.touch(Use::Write, dst, i * to_step, kFractalBytes);
  }
  const bool right = hardware_of(dst) == Hardware::L0B;
  if (!right && !p.ifTranspose && from_step == kFractalBytes && to_step == kFractalBytes) {
    std::memcpy(dst.data, source + first, p.repeatTimes * size_t{kFractalBytes});
    return;
  }
  for (int64_t i = 0; i < p.repeatTimes; ++i) {
    std::byte* const to = dst.data + i * to_step;
    const std::byte* const from = source + first + i * from_step;
    if (right) {
      p.ifTranspose ? turn_across(itemsize, to, from, kBlockBytes) : turn_lines(to, from);
    } else if (p.ifTranspose) {
      transpose_squares<uint16_t, 2, 2>(to, kBlockBytes, from, kBlockBytes);
    } else {
      std::memcpy(to, from, kFractalBytes);
    }
  }
}

void load_transposed(Where where, const LocalMemory& dst, const LocalMemory& src, uint32_t itemsize,
                     const LoadData2dTransposeParams& p) {
  constexpr const char* kName = "LoadDataWithTranspose";
  if (!has_matrix_unit(kName, where)) return;
  need_memory(kName, where, src, {Hardware::L1}, "src");
  need_memory(kName, where, dst, {Hardware::L0A, Hardware::L0B}, "dst");
  const int64_t fractals = itemsize == 2 ? 1 : 2;
  const int64_t square = fractals * kFractalBytes;
  const InstructionTrace trace{.by = {.name = kName, .where = where, .pipe = PIPE_MTE1, .fractals = true}};
  trace.copy(path_to(dst), p.repeatTimes * square);
  trace.align(dst, kFractalBytes);
  trace.align(src, kBlockBytes);
  // Two fractals of 8 bits lie one below the other, two of 32 bits beside each other.
  for (int64_t i = 0; i < p.repeatTimes; ++i) {
    const int64_t from = (p.startIndex + (p.addrMode != 0 ? -i : i) * p.srcStride) * square;
    const int64_t to = i * (1 + int64_t{p.dstGap}) * kFractalBytes;
    const int64_t to_second = (1 + int64_t{p.dstFracGap}) * kFractalBytes;
    trace.touch(Use::Read, src, from, square);
    for (int64_t fractal = 0; fractal < fractals; ++fractal) {
      trace.touch(Use::Write, dst, to + fractal * to_second, kFractalBytes);
    }
    transpose_square(dst.data + to, to_second, src.data + from, itemsize, hardware_of(dst) == Hardware::L0B);
  }
}

namespace {

// The image with the rows and columns of all its repeats.
Image all_repeats(const char* name, Where where, const Image& part, int64_t piece, bool right) {
  const ImageRepeats& repeats = part.repeats;
  if (repeats.times == 1) return part;
  int64_t Image::* const repeated = repeats.along_columns ? &Image::columns : &Image::rows;
  const int64_t step = repeats.along_columns && !right ? piece : kFractalRows;
  if (part.*repeated % step != 0) {
    fail(where, "%s: %sExtension is %lld and is repeated; it must be a multiple of %lld", name,
         repeats.along_columns ? "k" : "m", static_cast<long long>(part.*repeated), static_cast<long long>(step));
  }
  if (repeats.along_columns && !right && !part.transpose && part.rows > kFractalRows) {
    fail(where,
         "%s: mExtension is %lld, repeated along columns to L0A without enTranspose; where the device puts more than "
         "16 rows is not served",
         name, static_cast<long long>(part.rows));
  }
  Image all = part;
  all.*repeated *= repeats.times;
  return all;
}

}  // namespace

void load_image(Where where, const LocalMemory& dst, const LocalMemory& src, uint32_t itemsize, const Image& part) {
  constexpr const char* kName = "LoadData(LoadData3DParamsV2)";
  if (!has_matrix_unit(kName, where)) return;
  need_memory(kName, where, src, {Hardware::L1}, "src");
  need_memory(kName, where, dst, {Hardware::L0A, Hardware::L0B}, "dst");
  const bool right = hardware_of(dst) == Hardware::L0B;
  const int64_t piece = kBlockBytes / itemsize;  // channels that lie together
  const Image image = all_repeats(kName, where, part, piece, right);
  if ((right || image.transpose) && itemsize == 1) {
    fail(where, "%s: elements of 8 bits to %s; the device transposes 16 and 32 bits", kName,
         right ? "L0B" : "L0A with enTranspose");
  }
  const ImageRepeats& repeats = image.repeats;
  // Which row or column of the image's matrix becomes the one at `index`.
  const auto along = [&](int64_t index, int64_t size, int64_t step, bool repeated) {
    return repeated ? index / size * repeats.stride * step + index % size : index;
  };
  const int64_t height = image.size.height, width = image.size.width;
  if (height == 0 || width == 0 || image.channels == 0 || image.rows == 0 || image.columns == 0 ||
      image.filter_w == 0 || image.filter_h == 0) {
    return;
  }
  if (image.stride_w == 0 || image.stride_h == 0) fail(where, "%s: a stride of 0", kName);
  const auto [left, after, top, below] = image.size.padding;
  const int64_t span_w = (image.filter_w - 1) * image.dilation_w + 1,
                span_h = (image.filter_h - 1) * image.dilation_h + 1;
  const int64_t out_w = (width + left + after - span_w) / image.stride_w + 1;
  const int64_t out_h = (height + top + below - span_h) / image.stride_h + 1;
  const int64_t pieces = (image.channels + piece - 1) / piece;
  const InstructionTrace trace{.by = {.name = kName, .where = where, .pipe = PIPE_MTE1, .fractals = true}};
  trace.align(dst, kFractalBytes);
  trace.align(src, kBlockBytes);

  // Where the element (row, column) of the matrix goes, in bytes.
  const bool turned = image.transpose && !right;
  const int64_t columns16 = (image.columns + kFractalRows - 1) / kFractalRows;
  const int64_t depth = turned ? image.rows : image.columns;
  const int64_t depth_fractals =
      itemsize == 4 && turned ? (depth + kFractalRows - 1) / kFractalRows * 2 : (depth + piece - 1) / piece;
  const auto place = [&](int64_t i, int64_t j) {
    if (right) {
      const int64_t in_line = i % piece * itemsize;
      return (i / piece * columns16 + j / kFractalRows) * kFractalBytes + in_line / 4 * 64 + j % kFractalRows * 4 +
             in_line % 4;
    }
    if (turned) std::swap(i, j);
    return ((i / kFractalRows * depth_fractals + j / piece) * kFractalRows * piece + i % kFractalRows * piece +
            j % piece) *
           itemsize;
  };
  const int64_t rows = (image.rows + kFractalRows - 1) / kFractalRows * kFractalRows;
  const int64_t columns = (image.columns + piece - 1) / piece * piece;
  const int64_t fractals = right    ? (image.rows + piece - 1) / piece * columns16
                           : turned ? (image.columns + kFractalRows - 1) / kFractalRows * depth_fractals
                                    : rows / kFractalRows * depth_fractals;
  trace.copy(path_to(dst), fractals * kFractalBytes);
  for (int64_t j = 0; j < columns; j += piece) {
    const int64_t of_window = (image.first_column + along(j, part.columns, piece, repeats.along_columns)) / piece;
    const int64_t channel = of_window / (image.filter_w * image.filter_h);
    const int64_t inside = of_window % (image.filter_w * image.filter_h);
    const int64_t in_h = inside / image.filter_w * image.dilation_h, in_w = inside % image.filter_w * image.dilation_w;
    int64_t run = 0, run_bytes = 0;  // pieces of L1 that lie side by side are read together
    const auto end_run = [&] {
      if (run_bytes != 0) trace.touch(Use::Read, src, run, run_bytes);
      run_bytes = 0;
    };
    for (int64_t i = 0; i < image.rows; ++i) {
      const int64_t window = image.first_row + along(i, part.rows, kFractalRows, !repeats.along_columns);
      const int64_t h = window / out_w * image.stride_h - top + in_h, w = window % out_w * image.stride_w - left + in_w;
      const bool there = window < out_w * out_h && channel < pieces && h >= 0 && h < height && w >= 0 && w < width;
      const int64_t from = ((channel * height + h) * width + w) * kBlockBytes;
      std::byte values[kBlockBytes];
      if (there) {
        if (trace.checker != nullptr && (run_bytes == 0 || from != run + run_bytes)) {
          end_run();
          run = from;
        }
        run_bytes += kBlockBytes;
        std::memcpy(values, src.data + from, kBlockBytes);
      } else {
        for (int64_t e = 0; e < piece; ++e) std::memcpy(values + e * itemsize, &image.padding, itemsize);
      }
      if (!right && !turned) {
        std::memcpy(dst.data + place(i, j), values, kBlockBytes);
      } else {
        for (int64_t e = 0; e < piece; ++e) std::memcpy(dst.data + place(i, j + e), values + e * itemsize, itemsize);
      }
    }
    end_run();
  }
  trace.touch(Use::Write, dst, 0, fractals * kFractalBytes);
}

void fill_pieces(Where where, const LocalMemory& dst, uint32_t itemsize, uint64_t value,
                 const InitConstValueParams<uint64_t>& p) {
  constexpr const char* kName = "Fill";
  if (!has_matrix_unit(kName, where)) return;
  need_memory(kName, where, dst, {Hardware::L1, Hardware::L0A, Hardware::L0B}, "dst");
  const int64_t piece = hardware_of(dst) == Hardware::L1 ? kBlockBytes : kFractalBytes;
  const int64_t bytes = p.blockNum * piece, step = bytes + p.dstGap * piece;
  const InstructionTrace trace{.by = {kName, where, pipe_to(dst)}};
  trace.copy(path_to(dst), p.repeatTimes * bytes);
  trace.align(dst, alignment_of(dst));
  for (int64_t i = 0; i < p.repeatTimes; ++i) {
    trace.touch(Use::Write, dst, i * step, bytes);
    for (int64_t at = 0; at < bytes; at += itemsize) std::memcpy(dst.data + i * step + at, &value, itemsize);
  }
}

void copy_to_table(Where where, const LocalMemory& dst, const Runs& dst_runs, const LocalMemory& src,
                   const Runs& src_runs, bool widen_halves) {
  constexpr const char* kName = "DataCopy";
  if (!has_matrix_unit(kName, where)) return;
  need_memory(kName, where, src, {Hardware::L1}, "src");
  need_memory(kName, where, dst, {Hardware::BIAS, Hardware::FIXBUF}, "dst");
  const InstructionTrace trace{.by = {kName, where, hardware_of(dst) == Hardware::BIAS ? PIPE_MTE1 : PIPE_FIX}};
  trace.copy(Path::L1ToTable, dst_runs.count * dst_runs.bytes);
  trace.align(dst, alignment_of(dst));
  trace.align(src, kBlockBytes);
  for (int64_t i = 0; i < dst_runs.count; ++i) {
    trace.touch(Use::Read, src, i * src_runs.step, src_runs.bytes);
    trace.touch(Use::Write, dst, i * dst_runs.step, dst_runs.bytes);
    std::byte* to = dst.data + i * dst_runs.step;
    const std::byte* from = src.data + i * src_runs.step;
    if (widen_halves) {
      widen(reinterpret_cast<const half*>(from), reinterpret_cast<float*>(to),
            static_cast<uint32_t>(src_runs.bytes / 2));
    } else {
      std::memcpy(to, from, static_cast<size_t>(dst_runs.bytes));
    }
  }
}

}  // namespace AscendC::cpu
