// SPDX-License-Identifier: Apache-2.0
// Products of rows with weight matrices: blocks of a weight are packed for the matrix product of ATen (oneDNN) while
// they lie in a core's cache, so that few rows cost little more than reading the weight.
#include "cpu/linear.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "cpu/byte_products.h"
#include "cpu/matmul.h"
#include "cpu/simd.h"
#include "cpu/tokens.h"

namespace opp {
namespace {

// Rows of a weight that are packed at once. In float they sum products of int8 exactly.
constexpr int64_t kDepth = 384;
// Columns that are packed at once: the longer the pieces of memory, the faster they are read.
constexpr int64_t kColumns = 8 * kPanel;
// Rows of x that share a packed block, and those of them that oneDNN multiplies at once.
constexpr int64_t kRows = 256;
constexpr int64_t kStep = 64;
// Rows of a weight that are read for all columns before the next.
constexpr int64_t kPackedRows = 4;
// How many rows before they are packed they are fetched.
constexpr int64_t kAhead = 32;
// Up to so many rows, bytes are multiplied where they lie, and so many rows of the weight before the next columns.
constexpr int64_t kFewRows = 8;
constexpr int64_t kUnpackedRows = 64;
// More tasks than threads, so that a thread that is slowed down leaves work to the others.
constexpr int64_t kTasksOfThread = 4;

// Rows and columns of a product that one thread computes.
struct Task {
  const Linear* product;
  int64_t first_row;
  int64_t rows;
  int64_t first_column;
  int64_t columns;
};

void write(const float* sums, int64_t count, at::ScalarType dtype, void* out, int64_t offset) {
  if (dtype == at::kFloat) {
    std::copy_n(sums, count, static_cast<float*>(out) + offset);
  } else if (dtype == at::kHalf) {
    simd().from_float(sums, count, static_cast<at::Half*>(out) + offset);
  } else {
    simd().from_float(sums, count, static_cast<at::BFloat16*>(out) + offset);
  }
}

// Memory that the processor would not see coming: pieces of rows that lie far apart.
template <class Element>
void prefetch(const Element* from, int64_t count) {
  constexpr int64_t line = 64 / sizeof(Element);
  for (int64_t i = 0; i < count; i += line) __builtin_prefetch(from + i, 0, 2);
}

// What a thread computes its tasks of one dtype with.
struct Worker {
  virtual ~Worker() = default;
  virtual void run(const Task& task) = 0;
};

// x and weight are of type Element; Multiply's operands are that or float.
template <class Element, class Multiply>
class TypedWorker final : public Worker {
 public:
  TypedWorker()
      : packed_(kDepth * kColumns),
        x_((kStep + kShifted) * kDepth),
        sums_((kRows + kShifted) * kColumns),
        whole_sums_(kWhole ? kRows * kColumns : 0),
        row_(kColumns) {}

  void run(const Task& task) override {
    task_ = task;
    columns_ = round_up(task.columns, kRowStep);
    if (is_unpacked()) {
      run_unpacked();
    } else {
      run_packed();
    }
    for (int64_t row = 0; row < task.rows; ++row) write_row(row);
  }

 private:
  using Operand = typename Multiply::Operand;
  using Left = typename Multiply::Left;
  using Sum = std::conditional_t<std::is_same_v<Element, int8_t>, int32_t, float>;
  static constexpr int64_t kGroup = Multiply::kGroup;
  // Bytes of x get their sign bit flipped, which adds 128 to each; a row of zeros shows what that adds to the sums.
  static constexpr bool kShifted = !std::is_same_v<Left, Operand>;
  // Sums of integers in float are whole only over one block.
  static constexpr bool kWhole = !std::is_same_v<Sum, typename Multiply::Sum>;

  void run_packed() {
    const Multiply products;
    const int64_t depth = task_.product->weight.depth;
    for (int64_t first = 0; first < depth; first += kDepth) {
      const int64_t last = std::min(first + kDepth, depth);
      depth_ = round_up(last - first, Multiply::kDepthStep);
      pack(first, last);
      for (int64_t row = 0; row < task_.rows + kShifted;) {
        const int64_t rows = next_rows(task_.rows - row);
        load_x(row, rows, first, last);
        multiply(products, row, rows, first > 0);
        row += rows;
      }
    }
  }

  // Whether packing the weight would take longer than multiplying it where it lies.
  bool is_unpacked() const {
    const Weight& weight = task_.product->weight;
    return kShifted && has_byte_products() && task_.rows <= kFewRows && task_.columns % kByteColumns == 0 &&
           weight.depth % kGroup == 0 && weight.column_stride == 1 && weight.block_columns == weight.columns;
  }

  void run_unpacked() {
    if constexpr (kShifted) {
      const Weight& weight = task_.product->weight;
      const int64_t rows = task_.rows + 1;
      std::fill_n(sums_.data(), rows * columns_, 0);
      for (int64_t first = 0; first < weight.depth; first += kDepth) {
        depth_ = std::min(kDepth, weight.depth - first);
        load_x(0, rows, first, first + depth_);
        for (int64_t row = 0; row < depth_; row += kUnpackedRows) {
          const auto* data = static_cast<const Element*>(weight.data) + weight.offset(first + row, task_.first_column);
          for (int64_t column = 0; column < columns_; column += kByteColumns) {
            add_byte_products(x_.data() + row, depth_, rows, data + column, weight.row_stride,
                              std::min(kUnpackedRows, depth_ - row), sums_.data() + column, columns_);
          }
        }
      }
      for (int64_t i = 0; i < rows * columns_; i += kByteColumns) order_sums(sums_.data() + i);
    }
  }

  // How many rows to multiply at once, of few different numbers. The row of zeros goes with the last.
  static int64_t next_rows(int64_t left) {
    if (left > kStep) return kStep;
    return left < kRowStep || left % kRowStep == 0 ? left + kShifted : left / kRowStep * kRowStep;
  }

  // Columns [first, last) of rows of x; what pads them is zero.
  void load_x(int64_t row, int64_t rows, int64_t first, int64_t last) {
    const Linear& product = *task_.product;
    const auto* x = static_cast<const Element*>(product.x) + first;
    for (int64_t i = 0; i < rows; ++i) {
      Left* to = x_.data() + i * depth_;
      if (row + i == task_.rows) {
        std::fill_n(to, depth_, Left(128));
      } else {
        copy_left(x + (task_.first_row + row + i) * product.x_stride, 1, last - first, to);
        std::fill(to + (last - first), to + depth_, Left(0));
      }
    }
  }

  void multiply(const Multiply& products, int64_t row, int64_t rows, bool add) {
    auto* sums = sums_.data() + row * columns_;
    products.multiply(x_.data(), depth_, packed_.data(), sums, columns_, rows, columns_, depth_, add && !kWhole);
    if constexpr (kWhole) {
      Sum* whole = whole_sums_.data() + row * columns_;
      for (int64_t i = 0; i < rows * columns_; ++i) whole[i] = (add ? whole[i] : 0) + static_cast<Sum>(sums[i]);
    }
  }

  // The weight's rows [first, last) as B, in the columns of the task; what pads them is zero.
  void pack(int64_t first, int64_t last) {
    if (depth_ >= last - first + kGroup) std::fill_n(packed_.data(), depth_ * columns_, Operand(0));
    for (int64_t row = first; row < last; row += kPackedRows) {
      const int64_t rows = std::min(kPackedRows, last - row);
      for (int64_t column = 0; column < columns_;) {
        const int64_t width = std::min(kPanel, columns_ - column / kPanel * kPanel);
        column += pack_piece(row, rows, column, width - column % kPanel,
                             packed_.data() + Multiply::place(row - first, column, depth_, columns_), width * kGroup);
      }
    }
  }

  // Packs as many of these rows' and columns' elements as lie alike, and returns of how many columns. The column's
  // address in B is `to`, the next pair of rows lies `to_stride` from it.
  int64_t pack_piece(int64_t row, int64_t rows, int64_t column, int64_t columns, Operand* to, int64_t to_stride) {
    const Weight& weight = task_.product->weight;
    column += task_.first_column;
    const auto* data = static_cast<const Element*>(weight.data);
    const Element* from = data + weight.offset(row, column);
    columns = std::min(columns, weight.block_columns - column % weight.block_columns);
    const int64_t whole = std::min(columns, weight.columns - column) / kRowStep * kRowStep;
    if (weight.column_stride == 1 && whole > 0 && rows % kGroup == 0) {
      if constexpr (kGroup == 1) {
        for (int64_t r = 0; r < rows; ++r) copy_row(from + r * weight.row_stride, 1, whole, to + r * to_stride);
      } else {
        for (int64_t r = 0; r < rows; ++r) prefetch(from + (r + kAhead) * weight.row_stride, whole);
        using Bits = std::conditional_t<sizeof(Operand) == 2, uint16_t, uint8_t>;
        simd().pack(reinterpret_cast<const Bits*>(from), weight.row_stride, rows, whole, reinterpret_cast<Bits*>(to),
                    to_stride);
      }
      return whole;
    }
    columns = std::min(columns, kRowStep);
    for (int64_t r = 0; r < round_up(rows, kGroup); ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const bool inside = r < rows && column + c < weight.columns;
        to[r / kGroup * to_stride + c * kGroup + r % kGroup] =
            inside ? static_cast<Operand>(data[weight.offset(row + r, column + c)]) : Operand(0);
      }
    }
    return columns;
  }

  void write_row(int64_t row) {
    const Linear& product = *task_.product;
    Sum* sums = sums_of_row(row);
    if constexpr (kShifted) {
      // Both may have wrapped around, their difference has not.
      const Sum* shift = sums_of_row(task_.rows);
      for (int64_t column = 0; column < columns_; ++column) {
        sums[column] = static_cast<Sum>(static_cast<uint32_t>(sums[column]) - static_cast<uint32_t>(shift[column]));
      }
    }
    const int64_t offset = (task_.first_row + row) * product.out_stride + task_.first_column;
    if constexpr (std::is_same_v<Sum, float>) {
      write(sums, task_.columns, product.out_dtype, product.out, offset);
    } else if (product.row_scales == nullptr) {
      std::copy_n(sums, task_.columns, static_cast<Sum*>(product.out) + offset);
    } else {
      simd().dequantise(sums, task_.columns, product.row_scales[task_.first_row + row],
                        product.column_scales + task_.first_column, row_.data());
      write(row_.data(), task_.columns, product.out_dtype, product.out, offset);
    }
  }

  Sum* sums_of_row(int64_t row) {
    if constexpr (kWhole) {
      return whole_sums_.data() + row * columns_;
    } else {
      return sums_.data() + row * columns_;
    }
  }

  Task task_{};
  int64_t columns_ = 0;  // of the task, padded
  int64_t depth_ = 0;    // of the block, padded
  Buffer<Operand> packed_;
  Buffer<Left> x_;
  Buffer<typename Multiply::Sum> sums_;
  Buffer<Sum> whole_sums_;
  Buffer<float> row_;
};

template <class Element>
std::unique_ptr<Worker> make_worker() {
  return with_products<Element>(
      []<class Multiply>() -> std::unique_ptr<Worker> { return std::make_unique<TypedWorker<Element, Multiply>>(); });
}

// The workers of one thread, made when they are needed.
class Workers {
 public:
  void run(const Task& task) {
    const auto dtype = task.product->weight.dtype;
    auto& worker = dtype == at::kHalf ? half_ : dtype == at::kBFloat16 ? bfloat16_ : int8_;
    if (!worker) {
      worker = dtype == at::kHalf       ? make_worker<at::Half>()
               : dtype == at::kBFloat16 ? make_worker<at::BFloat16>()
                                        : make_worker<int8_t>();
    }
    worker->run(task);
  }

 private:
  std::unique_ptr<Worker> half_;
  std::unique_ptr<Worker> bfloat16_;
  std::unique_ptr<Worker> int8_;
};

std::vector<Task> divide(int64_t rows, c10::ArrayRef<Linear> products, int64_t threads) {
  int64_t panels = 0;
  for (const Linear& product : products) panels += (product.weight.columns + kPanel - 1) / kPanel;
  panels *= (rows + kRows - 1) / kRows;
  const int64_t columns = std::clamp(panels / (threads * kTasksOfThread) * kPanel, kPanel, kColumns);

  std::vector<Task> tasks;
  for (const Linear& product : products) {
    for (int64_t row = 0; row < rows; row += kRows) {
      for (int64_t column = 0; column < product.weight.columns; column += columns) {
        tasks.push_back(
            {&product, row, std::min(kRows, rows - row), column, std::min(columns, product.weight.columns - column)});
      }
    }
  }
  // The largest first, so that none of them is left when all else is done.
  std::ranges::stable_sort(tasks, std::greater{}, [](const Task& task) {
    return task.columns * task.product->weight.depth * c10::elementSize(task.product->weight.dtype);
  });
  return tasks;
}

}  // namespace

Weight::Weight(const at::Tensor& matrix)
    : data(matrix.const_data_ptr()),
      dtype(matrix.scalar_type()),
      depth(matrix.size(0)),
      columns(matrix.size(1)),
      row_stride(matrix.stride(0)),
      column_stride(matrix.stride(1)),
      block_columns(columns),
      block_stride(0),
      sizes(matrix.sizes()) {}

Weight::Weight(const cann_cpu::StoredTensor& stored)
    : data(stored.tensor.const_data_ptr()), dtype(stored.tensor.scalar_type()), sizes(stored.shape) {
  if (sizes.size() != 2) return;
  depth = sizes[0];
  columns = sizes[1];
  const bool blocks = stored.format == ACL_FORMAT_FRACTAL_NZ;
  row_stride = stored.tensor.stride(blocks ? 2 : 0);
  column_stride = stored.tensor.stride(-1);
  block_columns = blocks ? stored.tensor.size(-1) : columns;
  block_stride = blocks ? stored.tensor.stride(0) : 0;
}

void linear(int64_t rows, c10::ArrayRef<Linear> products) {
  const int64_t threads = at::get_num_threads();
  const std::vector<Task> tasks = divide(rows, products, threads);
  std::atomic<size_t> next = 0;
  at::parallel_for(0, std::min<int64_t>(threads, tasks.size()), 1, [&](int64_t, int64_t) {
    Workers workers;
    for (size_t i = next++; i < tasks.size(); i = next++) workers.run(tasks[i]);
  });
}

}  // namespace opp
