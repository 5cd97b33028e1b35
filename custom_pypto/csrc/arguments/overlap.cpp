// SPDX-License-Identifier: Apache-2.0
// Searches two strided tensors of one storage for a byte that belongs to both.
#include "arguments/overlap.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <numeric>

namespace custom_pypto {
namespace {

using at::MemOverlapStatus;

// The difference between an index of the left tensor and one of the right, in the dimensions with this stride.
struct Difference {
  int64_t stride;  // bytes
  int64_t min;
  int64_t max;
};

// The bytes that lie side by side, as wide as possible, and the dimensions in which there are more such pieces.
struct Pieces {
  int64_t begin;
  int64_t width;
  c10::SmallVector<Difference, 8> dims;
};

Pieces pieces_of(const at::Tensor& tensor) {
  const auto itemsize = static_cast<int64_t>(tensor.element_size());
  Pieces pieces{tensor.storage_offset() * itemsize, itemsize, {}};
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) != 0) {
      pieces.dims.push_back({tensor.stride(dim) * itemsize, 0, tensor.size(dim) - 1});
    }
  }
  std::ranges::sort(pieces.dims, {}, &Difference::stride);
  auto* dim = pieces.dims.begin();
  for (; dim != pieces.dims.end() && dim->stride <= pieces.width; ++dim) {
    pieces.width += dim->stride * dim->max;
  }
  pieces.dims.erase(pieces.dims.begin(), dim);
  return pieces;
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// Finds whether some indices give a sum of index * stride that is in a range. It tries the dimensions from the largest
// stride down, and leaves a branch once the remaining dimensions cannot reach the range, or the range has no multiple
// of their strides' greatest common divisor.
class Search {
 public:
  explicit Search(c10::SmallVector<Difference, 8> dims) : dims_(std::move(dims)) {
    std::ranges::sort(dims_, std::ranges::greater(), &Difference::stride);
    rests_.resize(dims_.size() + 1);
    for (size_t i = dims_.size(); i-- > 0;) {
      const auto& [stride, min, max] = dims_[i];
      const Rest& next = rests_[i + 1];
      rests_[i] = {next.min + min * stride, next.max + max * stride, std::gcd(next.divisor, stride)};
    }
  }

  MemOverlapStatus find(int64_t low, int64_t high, size_t i = 0) {
    low = std::max(low, rests_[i].min);
    high = std::min(high, rests_[i].max);
    if (low > high || (i < dims_.size() && floor_div(high, rests_[i].divisor) * rests_[i].divisor < low)) {
      return MemOverlapStatus::No;
    }
    if (i == dims_.size()) {
      return MemOverlapStatus::Partial;
    }
    if (steps_++ == kMaxSteps) {
      return MemOverlapStatus::TooHard;
    }
    const auto& [stride, min, max] = dims_[i];
    const int64_t last = std::min(max, floor_div(high - rests_[i + 1].min, stride));
    for (int64_t index = std::max(min, ceil_div(low - rests_[i + 1].max, stride)); index <= last; ++index) {
      const MemOverlapStatus found = find(low - index * stride, high - index * stride, i + 1);
      if (found != MemOverlapStatus::No) {
        return found;
      }
    }
    return MemOverlapStatus::No;
  }

 private:
  static constexpr int kMaxSteps = 10000;

  // What the dimensions from one on add up to.
  struct Rest {
    int64_t min = 0;
    int64_t max = 0;
    int64_t divisor = 0;
  };

  c10::SmallVector<Difference, 8> dims_;
  c10::SmallVector<Rest, 9> rests_;
  int steps_ = 0;
};

MemOverlapStatus search(const at::Tensor& left, const at::Tensor& right) {
  Pieces pieces = pieces_of(left);
  const Pieces others = pieces_of(right);
  for (const Difference& other : others.dims) {
    auto* same = std::ranges::find(pieces.dims, other.stride, &Difference::stride);
    if (same == pieces.dims.end()) {
      pieces.dims.push_back({other.stride, -other.max, 0});
    } else {
      same->min -= other.max;
    }
  }
  const int64_t apart = others.begin - pieces.begin;
  return Search(std::move(pieces.dims)).find(apart - pieces.width + 1, apart + others.width - 1);
}

bool is_symbolic(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides(); }

bool are_equal(c10::SymIntArrayRef left, c10::SymIntArrayRef right) {
  return std::ranges::equal(left, right, [](const c10::SymInt& a, const c10::SymInt& b) {
    return a.sym_eq(b).guard_or_false(__FILE__, __LINE__);
  });
}

// The bytes of its storage that a tensor's elements lie in.
struct Extent {
  c10::SymInt begin;
  c10::SymInt end;
};

Extent extent(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  return {tensor.sym_storage_offset() * bytes, (tensor.sym_storage_offset() + tensor.sym_numel()) * bytes};
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.sym_numel().sym_gt(0).guard_or_false(__FILE__, __LINE__) &&
         tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense_or_false();
}

// What is certain of sizes that a tracer knows by name.
MemOverlapStatus known(const at::Tensor& left, const at::Tensor& right) {
  if (!is_dense(left) || !is_dense(right)) {
    return MemOverlapStatus::No;
  }
  const Extent a = extent(left), b = extent(right);
  return a.begin.sym_lt(b.end).guard_or_false(__FILE__, __LINE__) &&
                 b.begin.sym_lt(a.end).guard_or_false(__FILE__, __LINE__)
             ? MemOverlapStatus::Partial
             : MemOverlapStatus::No;
}

}  // namespace

MemOverlapStatus overlap(const at::Tensor& left, const at::Tensor& right) {
  if (left.is_same(right)) {
    return MemOverlapStatus::Full;
  }
  if (!left.has_storage() || !right.has_storage() || !left.is_alias_of(right)) {
    return MemOverlapStatus::No;
  }
  const bool symbolic = is_symbolic(left) || is_symbolic(right);
  if (!symbolic && (left.numel() == 0 || right.numel() == 0)) {
    return MemOverlapStatus::No;
  }
  if (left.scalar_type() == right.scalar_type() && are_equal(left.sym_sizes(), right.sym_sizes()) &&
      are_equal(left.sym_strides(), right.sym_strides()) &&
      left.sym_storage_offset().sym_eq(right.sym_storage_offset()).guard_or_false(__FILE__, __LINE__)) {
    return MemOverlapStatus::Full;
  }
  return symbolic ? known(left, right) : search(left, right);
}

}  // namespace custom_pypto
