// SPDX-License-Identifier: Apache-2.0
// The layout FRACTAL_NZ: a matrix [K, N] in blocks of 16 rows and c0 columns, [N / c0, K / 16, 16, c0], padded by
// zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace cann_cpu {

// Consecutive matrices of one size, with conversions from and to rows.
class FractalNz {
 public:
  // A shape [..., K, N] in a storage [..., N / c0, K / 16, 16, c0]. Throws if one does not fit the other.
  FractalNz(const std::vector<int64_t>& shape, const std::vector<int64_t>& storage, size_t itemsize)
      : itemsize_(itemsize) {
    const size_t rank = shape.size();
    const auto fits = [](int64_t size, int64_t blocks, int64_t block) {
      return size >= 0 && (size + block - 1) / block == blocks;
    };
    if (rank < 2 || storage.size() != rank + 2 || !std::equal(shape.begin(), shape.end() - 2, storage.begin()) ||
        storage[rank] != kBlockRows || storage[rank + 1] < 1 || !fits(shape[rank - 2], storage[rank - 1], kBlockRows) ||
        !fits(shape[rank - 1], storage[rank - 2], storage[rank + 1])) {
      throw std::invalid_argument(
          "is in FRACTAL_NZ, but its storage does not consist of blocks of 16 rows for its shape");
    }
    for (size_t i = 0; i + 2 < rank; ++i) matrices_ *= shape[i];
    rows_ = shape[rank - 2];
    columns_ = shape[rank - 1];
    row_blocks_ = storage[rank - 1];
    column_blocks_ = storage[rank - 2];
    block_columns_ = storage[rank + 1];
  }

  // Elements of all matrices, without the padding.
  int64_t numel() const { return matrices_ * rows_ * columns_; }

  void to_rows(const void* blocks, void* rows) const {
    const auto* from = static_cast<const std::byte*>(blocks);
    auto* to = static_cast<std::byte*>(rows);
    for_each_block_row([&](int64_t block_row, int64_t row, int64_t count) {
      if (count > 0) std::memcpy(to + row * itemsize_, from + block_row * itemsize_, count * itemsize_);
    });
  }

  void to_blocks(const void* rows, void* blocks) const {
    const auto* from = static_cast<const std::byte*>(rows);
    auto* to = static_cast<std::byte*>(blocks);
    for_each_block_row([&](int64_t block_row, int64_t row, int64_t count) {
      if (count > 0) std::memcpy(to + block_row * itemsize_, from + row * itemsize_, count * itemsize_);
      std::memset(to + (block_row + count) * itemsize_, 0, (block_columns_ - count) * itemsize_);
    });
  }

 private:
  static constexpr int64_t kBlockRows = 16;

  // Calls function(first element in a block's row, first element in the matrix's row, elements that are no padding).
  template <class Function>
  void for_each_block_row(const Function& function) const {
    for (int64_t matrix = 0; matrix < matrices_; ++matrix) {
      for (int64_t row_block = 0; row_block < row_blocks_; ++row_block) {
        for (int64_t column_block = 0; column_block < column_blocks_; ++column_block) {
          const int64_t column = column_block * block_columns_;
          const int64_t block = ((matrix * column_blocks_ + column_block) * row_blocks_ + row_block) * kBlockRows;
          for (int64_t i = 0; i < kBlockRows; ++i) {
            const int64_t row = row_block * kBlockRows + i;
            function((block + i) * block_columns_, (matrix * rows_ + row) * columns_ + column,
                     row < rows_ ? std::min(block_columns_, columns_ - column) : 0);
          }
        }
      }
    }
  }

  int64_t matrices_ = 1;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t row_blocks_ = 0;
  int64_t column_blocks_ = 0;
  int64_t block_columns_ = 0;
  size_t itemsize_;
};

}  // namespace cann_cpu
