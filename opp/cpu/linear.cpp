// SPDX-License-Identifier: Apache-2.0
// Products of rows with weight matrices: blocks of a weight are packed for the matrix product of ATen (oneDNN) while
// they lie in a core's cache, so that few rows cost little more than reading the weight.
#include "cpu/linear.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <type_traits>
#include <vector>

#include "cpu/matmul.h"
#include "cpu/prefetch.h"
#include "cpu/simd.h"
#include "cpu/tokens.h"
#include "cpu/unpacked_products.h"

namespace opp {
namespace {

// Columns that are packed at once: the longer the pieces of memory, the faster they are read.
constexpr int64_t kColumns = 8 * kPanel;
// Rows of x that share a packed block, and those of them that oneDNN multiplies at once.
constexpr int64_t kRows = 256;
constexpr int64_t kStep = 64;
// The number of a weight's elements that are read for all columns at a time, in as many rows as that takes.
constexpr int64_t kPackedElements = 4 * kColumns;
// How many rows before they are packed they are fetched.
constexpr int64_t kAhead = 32;
// Rows of a weight whose products are added up before they are added to the rest.
constexpr int64_t kBlock = 384;
// Up to so many rows, weights are multiplied where they lie, all columns of a few of their rows before the next: they
// are read in the order of memory.
constexpr int64_t kFewRows = 8;
// Columns of a task that multiplies bytes by tiles, at most: the longer the pieces of rows, the faster they are read.
constexpr int64_t kMaxSpreadColumns = 4096;
static_assert(kUnpackedColumns == kSpreadColumns);
// More tasks than threads, so that a thread that is slowed down leaves work to the others.
constexpr int64_t kTasksOfThread = 4;

// How a weight is multiplied: in packed blocks, or where it lies, its bytes by tiles or a few rows at a time.
enum class Way { kPacked, kSpread, kUnpacked };

// A way; how many of the weight's rows a thread takes at a time from a task that others share, which are all but where
// it is unpacked; and how many columns a task has at most.
struct Choice {
  Way way;
  int64_t step;
  int64_t max_columns;
};

// Rows of a weight that a thread takes at a time from a task that others share: a block, whose sums are added in order,
// if they are not the same in every order.
template <class Unpacked>
int64_t rows_of_step() {
  static_assert(Unpacked::kBlock % Unpacked::kRows == 0);
  return Unpacked::kBlock > 0 ? Unpacked::kBlock : Unpacked::kRows;
}

// What threads that share a task know of it: each takes step after step of the weight's rows until none is left, so
// that all end together. The last to end gets the sums of all.
class Shared {
 public:
  // Sums over the steps from `first` on that one thread has added up.
  struct Part {
    int64_t first;
    Memory sums;
  };

  // Shares `rows` rows, in steps of `step`.
  Shared(int64_t rows, int64_t step) : steps_(std::max<int64_t>(round_up(rows, step) / step, 1)) {}

  int64_t steps() const { return steps_; }
  bool has_steps() const { return next_ < steps_; }
  // The next step, if there is one.
  std::optional<int64_t> take() {
    const int64_t step = next_++;
    return step < steps_ ? std::optional(step) : std::nullopt;
  }
  // Gives the parts of so many steps, and returns all of them in order if these were the last, else none.
  std::vector<Part> end(std::vector<Part> parts, int64_t steps) {
    const std::lock_guard lock(mutex_);
    std::ranges::move(parts, std::back_inserter(parts_));
    ended_ += steps;
    if (ended_ < steps_) return {};
    std::ranges::sort(parts_, {}, &Part::first);
    return std::move(parts_);
  }

 private:
  const int64_t steps_;
  std::atomic<int64_t> next_ = 0;
  std::mutex mutex_;
  int64_t ended_ = 0;
  std::vector<Part> parts_;
};

// Rows and columns of a product that one thread computes, or several together if it has more than one step.
struct Task {
  const Linear* product;
  int64_t first_row;
  int64_t rows;
  int64_t first_column;
  int64_t columns;
  Way way;
  std::shared_ptr<Shared> shared;
};

// The largest that the tasks have.
struct Sizes {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t packed_columns = 0;

  explicit Sizes(const std::vector<Task>& tasks) {
    for (const Task& task : tasks) {
      rows = std::max(rows, task.rows);
      columns = std::max(columns, round_up(task.columns, kRowStep));
      if (task.way == Way::kPacked) packed_columns = std::max(packed_columns, round_up(task.columns, kRowStep));
    }
  }
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

// What a thread computes its tasks of one dtype with.
struct Worker {
  virtual ~Worker() = default;
  virtual void run(const Task& task) = 0;
};

// x and weight are of type Element; Multiply's operands are that or float.
template <class Element, class Multiply>
class TypedWorker final : public Worker {
 public:
  explicit TypedWorker(const Sizes& sizes)
      : packed_(kDepth * sizes.packed_columns),
        x_((kStep + kShifted) * kDepth),
        sums_((sizes.rows + kShifted) * sizes.columns),
        whole_sums_(kParts ? sizes.rows * sizes.columns : 0),
        row_(sizes.columns) {}

  void run(const Task& task) override {
    task_ = task;
    columns_ = round_up(task.columns, kRowStep);
    if (task.way == Way::kUnpacked) {
      if (!run_unpacked(*task.shared)) return;
    } else if (!task.shared->take()) {
      return;
    } else if (task.way == Way::kSpread) {
      if constexpr (kBytes && kTiles) run_tiles();
    } else {
      run_packed();
    }
    const Linear& product = *task.product;
    if (product.take) {
      Buffer<std::byte> block(task.rows * task.columns * c10::elementSize(product.out_dtype));
      for (int64_t row = 0; row < task.rows; ++row) write_row(row, block.data(), row * task.columns);
      product.take({task.first_row, task.rows, task.first_column, task.columns, block.data()});
    } else {
      const int64_t first = task.first_row * product.out_stride + task.first_column;
      for (int64_t row = 0; row < task.rows; ++row) write_row(row, product.out, first + row * product.out_stride);
    }
  }

 private:
  using Operand = typename Multiply::Operand;
  using Left = typename Multiply::Left;
  using Sum = std::conditional_t<std::is_same_v<Element, int8_t>, int32_t, float>;
  using Unpacked = UnpackedProducts<Element, Multiply::kLayout>;
  static constexpr bool kBytes = std::is_same_v<Operand, int8_t>;
  static constexpr bool kTiles = Multiply::kLayout == Layout::kTiles;
  static constexpr int64_t kGroup = Multiply::kGroup;
  // Rows of a weight that are packed at once. In float they sum products of int8 exactly. More would leave no room for
  // x beside two tiles' columns in the cache closest to the core, fewer would load and store the tiles' sums more
  // often.
  static constexpr int64_t kDepth = sizeof(Element) == 1 ? (Multiply::kLayout == Layout::kTiles ? 2 * kBlock : kBlock)
                                    : std::is_same_v<Operand, float> ? kFloatBlock
                                                                     : kBlock;
  // Bytes of x get their sign bit flipped, which adds 128 to each; a row of zeros shows what that adds to the sums.
  static constexpr bool kShifted = !std::is_same_v<Left, Operand>;
  // Sums over so many of a weight's rows are added up before they are added to the rest, or 0: those of integers in
  // float are whole only over one block, those by tiles are what they are where a weight lies.
  static constexpr bool kIsOther = !std::is_same_v<Sum, typename Multiply::Sum>;
  static constexpr int64_t kPart = kIsOther ? kDepth : kTiles ? Unpacked::kBlock : 0;
  static constexpr bool kParts = kPart > 0;
  static_assert(!kParts || kPart % kDepth == 0);

  void run_packed() {
    const Multiply products;
    const int64_t depth = task_.product->weight.depth;
    for (int64_t first = 0; first < depth; first += kDepth) {
      const int64_t last = std::min(first + kDepth, depth);
      depth_ = round_up(last - first, Multiply::kDepthStep);
      pack(first, last);
      for (int64_t row = 0; row < task_.rows + kShifted;) {
        const int64_t rows = next_rows(task_.rows - row);
        if (!multiply_in_place(products, row, rows, first, last)) {
          load_x(row, rows, first, last);
          multiply(products, x_.data(), depth_, row, rows, first, last);
        }
        row += rows;
      }
    }
    if constexpr (kShifted) {
      const Sum* shift = sums_of_row(task_.rows);
      for (int64_t row = 0; row < task_.rows; ++row) {
        subtract(sums_of_row(row), [=](int64_t column) { return static_cast<uint32_t>(shift[column]); });
      }
    }
  }

  const Element* x_of_task() const {
    return static_cast<const Element*>(task_.product->x) + task_.first_row * task_.product->x_stride;
  }
  const Element* weight_of_task(int64_t row) const {
    const Weight& weight = task_.product->weight;
    return static_cast<const Element*>(weight.data) + weight.offset(row, task_.first_column);
  }

  void run_tiles() {
    const Multiply tiles;
    const Weight& weight = task_.product->weight;
    const int64_t depth = round_up(weight.depth, kSpreadDepth);
    const int64_t whole = weight.depth / kSpreadDepth * kSpreadDepth;
    const int64_t x_stride = task_.product->x_stride;
    Buffer<int8_t> spread_x(spread_size(task_.rows, depth));
    Buffer<int32_t> sums(round_up(task_.rows, kSpreadRows) * columns_);
    std::fill_n(sums.data(), round_up(task_.rows, kSpreadRows) * columns_, 0);
    spread(x_of_task(), x_stride, task_.rows, whole, spread_x.data());
    for (int64_t row = 0; row < whole; row += kSpreadDepth) {
      add_spread_products(spread_x.data() + spread_size(task_.rows, row), task_.rows, weight_of_task(row),
                          weight.row_stride, columns_, row + 2 * kSpreadDepth <= whole, sums.data());
    }
    if (whole < depth) {
      Buffer<int8_t> x(task_.rows * kSpreadDepth);
      Buffer<int8_t> rest(kSpreadDepth * columns_);
      std::fill_n(x.data(), task_.rows * kSpreadDepth, 0);
      std::fill_n(rest.data(), kSpreadDepth * columns_, 0);
      for (int64_t row = 0; row < task_.rows; ++row) {
        std::copy_n(x_of_task() + row * x_stride + whole, weight.depth - whole, x.data() + row * kSpreadDepth);
      }
      for (int64_t row = whole; row < weight.depth; ++row) {
        std::copy_n(weight_of_task(row), columns_, rest.data() + (row - whole) * columns_);
      }
      spread(x.data(), kSpreadDepth, task_.rows, kSpreadDepth, spread_x.data());
      add_spread_products(spread_x.data(), task_.rows, rest.data(), columns_, columns_, false, sums.data());
    }
    for (int64_t row = 0; row < task_.rows; ++row) {
      order_spread_sums(sums.data(), task_.rows, row, columns_, sums_of_row(row));
    }
  }

  // Multiplies the steps of the weight that other threads leave, and says whether all are done and their sums are here.
  bool run_unpacked(Shared& shared) {
    if constexpr (Unpacked::kExist) {
      [[maybe_unused]] const std::conditional_t<kTiles, Multiply, std::byte> tiles{};
      const int64_t count = task_.rows * columns_;
      std::vector<Shared::Part> parts;
      int64_t steps = 0;
      for (auto step = shared.take(); step; ++steps) {
        const auto next = shared.take();
        if (Unpacked::kBlock > 0 || parts.empty()) {
          parts.push_back({*step, take_memory(count * static_cast<int64_t>(sizeof(Sum)))});
          std::fill_n(sums_of(parts.back()), count, Sum(0));
        }
        add_step(*step, next, sums_of(parts.back()));
        step = next;
      }
      if (steps == 0) return false;
      parts = shared.end(std::move(parts), steps);
      if (parts.empty()) return false;
      finish_unpacked(parts);
    }
    return true;
  }

  static Sum* sums_of(Shared::Part& part) { return static_cast<Sum*>(part.sums.get()); }

  // Adds the products with the rows of a step; `next` is the one that comes then.
  void add_step(int64_t step, std::optional<int64_t> next, Sum* sums) {
    const Weight& weight = task_.product->weight;
    const int64_t rows = rows_of_step<Unpacked>();
    const int64_t last = std::min((step + 1) * rows, weight.depth);
    for (int64_t row = step * rows; row < last; row += Unpacked::kRows) {
      const int64_t count = std::min(Unpacked::kRows, last - row);
      const int64_t ahead = row + count < last ? row + count : next ? *next * rows : weight.depth;
      Unpacked::add_products(x_of_task() + row, task_.product->x_stride, task_.rows,
                             {weight_of_task(row), weight.row_stride, count, columns_}, sums,
                             ahead + count <= weight.depth ? weight_of_task(ahead) : nullptr);
    }
  }

  // Adds the parts up, and orders the sums.
  void finish_unpacked(std::vector<Shared::Part>& parts) {
    const Linear& product = *task_.product;
    const int64_t count = task_.rows * columns_;
    Sum* sums = sums_of(parts.front());
    for (auto part = parts.begin() + 1; part != parts.end(); ++part) {
      using Wrapping = std::conditional_t<std::is_same_v<Sum, int32_t>, uint32_t, Sum>;
      std::transform(sums, sums + count, sums_of(*part), sums,
                     [](Wrapping a, Wrapping b) { return static_cast<Sum>(a + b); });
    }
    for (int64_t row = 0; row < task_.rows; ++row) {
      Sum* ordered = sums_of_row(row);
      for (int64_t column = 0; column < columns_; column += kUnpackedColumns) {
        Unpacked::order(sums + column * task_.rows + row * kUnpackedColumns, ordered + column);
      }
      if constexpr (Unpacked::kAdded > 0) {
        const Element* x = x_of_task() + row * product.x_stride;
        const auto sum = static_cast<uint32_t>(std::accumulate(x, x + product.weight.depth, 0));
        subtract(ordered, [=](int64_t) { return Unpacked::kAdded * sum; });
      }
    }
  }

  // Sums of products that 128 was added to on one side may have wrapped around, what is left of them has not.
  template <class Shift>
  void subtract(int32_t* sums, Shift shift) const {
    for (int64_t column = 0; column < columns_; ++column) {
      sums[column] = static_cast<int32_t>(static_cast<uint32_t>(sums[column]) - shift(column));
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

  // The same with x where it lies, if that is as it should.
  bool multiply_in_place(const Multiply& products, int64_t row, int64_t rows, int64_t first, int64_t last) {
    if constexpr (std::is_same_v<Element, Left> && kTiles) {
      const Linear& product = *task_.product;
      if (last - first < depth_) return false;
      const auto* x = static_cast<const Element*>(product.x) + (task_.first_row + row) * product.x_stride + first;
      multiply(products, x, product.x_stride, row, rows, first, last);
      return true;
    } else {
      return false;
    }
  }

  // Rows of x by the weight's rows [first, last).
  void multiply(const Multiply& products, const Left* x, int64_t x_stride, int64_t row, int64_t rows, int64_t first,
                int64_t last) {
    auto* sums = sums_.data() + row * columns_;
    const auto multiply_to = [&](typename Multiply::Sum* to, bool add) {
      products.multiply(x, x_stride, packed_.data(), to, columns_, rows, columns_, depth_, add);
    };
    if constexpr (!kParts) {
      multiply_to(sums, first > 0);
    } else {
      Sum* whole = whole_sums_.data() + row * columns_;
      if constexpr (kIsOther) {
        multiply_to(sums, false);
        for (int64_t i = 0; i < rows * columns_; ++i) whole[i] = (first > 0 ? whole[i] : 0) + static_cast<Sum>(sums[i]);
      } else if (first < kPart) {
        multiply_to(whole, first > 0);
      } else {
        multiply_to(sums, first % kPart > 0);
        if (last % kPart == 0 || last == task_.product->weight.depth) simd().add(sums, rows * columns_, whole);
      }
    }
  }

  // The weight's rows [first, last) as B, in the columns of the task; what pads them is zero.
  void pack(int64_t first, int64_t last) {
    if (depth_ >= last - first + kGroup) std::fill_n(packed_.data(), depth_ * columns_, Operand(0));
    const int64_t step = round_up(std::max(kPackedElements / columns_, int64_t{1}), kGroup);
    for (int64_t row = first; row < last; row += step) {
      const int64_t rows = std::min(step, last - row);
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
        // The processor does not see pieces of rows coming that lie far apart.
        for (int64_t r = 0; r < rows; ++r) prefetch(from + (r + kAhead) * weight.row_stride, whole * sizeof(Element));
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

  // Row `row` of the task to out's elements from the offset on.
  void write_row(int64_t row, void* out, int64_t offset) {
    const Linear& product = *task_.product;
    Sum* sums = sums_of_row(row);
    if constexpr (std::is_same_v<Sum, float>) {
      write(sums, task_.columns, product.out_dtype, out, offset);
    } else if (product.row_scales == nullptr) {
      std::copy_n(sums, task_.columns, static_cast<Sum*>(out) + offset);
    } else {
      simd().dequantise(sums, task_.columns, product.row_scales[task_.first_row + row],
                        product.column_scales + task_.first_column, row_.data());
      write(row_.data(), task_.columns, product.out_dtype, out, offset);
    }
  }

  Sum* sums_of_row(int64_t row) {
    if constexpr (kParts) {
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

// Whether a weight gives the same bits where it lies as packed. That depends on the order in which oneDNN adds products
// of bfloat16, so it is tried.
template <class Element, class Multiply>
bool is_alike_unpacked() {
  if constexpr (std::is_same_v<Element, int8_t>) return true;  // whole numbers
  static const bool is_alike = [] {
    constexpr int64_t kTrialDepth = 928;  // blocks, and a part of one
    std::minstd_rand random;
    const auto fill = [&](std::vector<Element>& elements) {
      for (Element& element : elements) element = static_cast<float>(random() % 2001) * 0.001F - 1;
    };
    std::vector<Element> x(kFewRows * kTrialDepth);
    std::vector<Element> weight(kTrialDepth * kUnpackedColumns);
    fill(x);
    fill(weight);
    const at::Tensor matrix =
        at::from_blob(weight.data(), {kTrialDepth, kUnpackedColumns}, c10::CppTypeToScalarType<Element>::value);
    using Unpacked = UnpackedProducts<Element, Multiply::kLayout>;
    const auto multiply = [&](Way way) {
      std::vector<float> out(kFewRows * kUnpackedColumns);
      const Linear product{x.data(), kTrialDepth, Weight(matrix), out.data(), at::kFloat, kUnpackedColumns};
      const auto shared = std::make_shared<Shared>(kTrialDepth, rows_of_step<Unpacked>());
      const Task task{&product, 0, kFewRows, 0, kUnpackedColumns, way, shared};
      TypedWorker<Element, Multiply>(Sizes({task})).run(task);
      return out;
    };
    return multiply(Way::kPacked) == multiply(Way::kUnpacked);
  }();
  return is_alike;
}

// The fastest way for so many rows.
Choice choose_way(const Linear& product, int64_t rows) {
  const Weight& weight = product.weight;
  const int64_t step = product.take ? product.take_step : kUnpackedColumns;
  const Choice packed{Way::kPacked, std::max<int64_t>(weight.depth, 1), kColumns};
  if (weight.column_stride != 1 || weight.block_columns != weight.columns) return packed;
  if (weight.columns % kUnpackedColumns != 0 || step % kUnpackedColumns != 0) return packed;
  const auto choose = [&]<class Element>() {
    return with_products<Element>([&]<class Multiply>() -> Choice {
      using Unpacked = UnpackedProducts<Element, Multiply::kLayout>;
      if constexpr (Unpacked::kExist) {
        const bool fits = rows <= kFewRows && weight.depth % Unpacked::kGroup == 0;
        if (fits && Unpacked::are_here() && is_alike_unpacked<Element, Multiply>()) {
          return {Way::kUnpacked, rows_of_step<Unpacked>(), Unpacked::kMaxColumns};
        }
      }
      constexpr bool kByteTiles = std::is_same_v<Element, int8_t> && Multiply::kLayout == Layout::kTiles;
      return kByteTiles && rows <= kMaxSpreadRows ? Choice{Way::kSpread, packed.step, kMaxSpreadColumns} : packed;
    });
  };
  if (weight.dtype == at::kChar) return choose.template operator()<int8_t>();
  return weight.dtype == at::kBFloat16 ? choose.template operator()<at::BFloat16>() : packed;
}

template <class Element>
std::unique_ptr<Worker> make_worker(const Sizes& sizes) {
  return with_products<Element>([&]<class Multiply>() -> std::unique_ptr<Worker> {
    return std::make_unique<TypedWorker<Element, Multiply>>(sizes);
  });
}

// The workers of one thread, made when they are needed.
class Workers {
 public:
  explicit Workers(const Sizes& sizes) : sizes_(sizes) {}

  void run(const Task& task) {
    const auto dtype = task.product->weight.dtype;
    auto& worker = dtype == at::kHalf ? half_ : dtype == at::kBFloat16 ? bfloat16_ : int8_;
    if (!worker) {
      worker = dtype == at::kHalf       ? make_worker<at::Half>(sizes_)
               : dtype == at::kBFloat16 ? make_worker<at::BFloat16>(sizes_)
                                        : make_worker<int8_t>(sizes_);
    }
    worker->run(task);
  }

 private:
  const Sizes& sizes_;
  std::unique_ptr<Worker> half_;
  std::unique_ptr<Worker> bfloat16_;
  std::unique_ptr<Worker> int8_;
};

std::vector<Task> divide(int64_t rows, c10::ArrayRef<Linear> products, int64_t threads) {
  int64_t panels = 0;
  for (const Linear& product : products) panels += (product.weight.columns + kPanel - 1) / kPanel;
  panels *= (rows + kRows - 1) / kRows;
  const int64_t wanted = std::clamp(panels / (threads * kTasksOfThread) * kPanel, kPanel, kColumns);

  std::vector<Task> tasks;
  for (const Linear& product : products) {
    const int64_t all = product.weight.columns;
    const Choice choice = choose_way(product, rows);
    for (int64_t column = 0, columns; column < all; column += columns) {
      // Threads share equal parts, so that one computes the results of a part while others multiply the next. Otherwise
      // parts become smaller, so that all threads end together.
      const int64_t part = choice.way == Way::kUnpacked ? 2 * all / threads : (all - column) / (2 * threads);
      columns =
          choice.way == Way::kPacked ? wanted : std::clamp(round_up(part, kColumns), kColumns, choice.max_columns);
      columns = std::min(std::max(columns / product.take_step, int64_t{1}) * product.take_step, all - column);
      for (int64_t row = 0; row < rows; row += kRows) {
        tasks.push_back({&product, row, std::min(kRows, rows - row), column, columns, choice.way,
                         std::make_shared<Shared>(product.weight.depth, choice.step)});
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
  const Sizes sizes(tasks);
  int64_t parts = 0;
  for (const Task& task : tasks) parts += task.shared->steps();
  at::parallel_for(0, std::min(threads, parts), 1, [&](int64_t, int64_t) {
    Workers workers(sizes);
    for (const Task& task : tasks) {
      if (task.shared->has_steps()) workers.run(task);
    }
  });
}

}  // namespace opp
