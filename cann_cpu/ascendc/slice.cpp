// SPDX-License-Identifier: Apache-2.0
// Parts of tensors that DataCopy takes by SliceInfo.
#include "ascendc/data_copy.h"

namespace AscendC::cpu {
namespace {

constexpr uint32_t kDimensions = 8;

// How many pieces of a length there are from startIndex to endIndex.
uint32_t pieces_of(Where where, const char* of, uint32_t dimension, const SliceInfo& info, int64_t length) {
  const int64_t whole = int64_t{info.endIndex} - info.startIndex + 1, step = length + info.stride;
  if (info.endIndex < info.startIndex || (whole + info.stride) % step != 0) {
    fail(where,
         "DataCopy: the %s's dimension %u goes from %u to %u, which is not a whole number of pieces of %lld elements, "
         "%u "
         "apart; endIndex - startIndex + 1 is N pieces and N - 1 strides",
         of, dimension, info.startIndex, info.endIndex, static_cast<long long>(length), info.stride);
  }
  return static_cast<uint32_t>((whole + info.stride) / step);
}

}  // namespace

Slice slice(Where where, const char* of, const SliceInfo* info, uint32_t dimensions, uint32_t itemsize) {
  if (dimensions == 0 || dimensions > kDimensions) {
    fail(where, "DataCopy: slices of %u dimensions; there may be 1 to %u", dimensions, kDimensions);
  }
  const int64_t length = int64_t{info[0].burstLen} * kBlockBytes / itemsize;
  const uint32_t count = pieces_of(where, of, 1, info[0], length);
  Slice result{{info[0].startIndex}, {count, length * itemsize, (length + info[0].stride) * itemsize}};
  int64_t size = info[0].shapeValue;  // of what one index of this dimension stands for, in elements
  for (uint32_t i = 1; i < dimensions; ++i) {
    if (info[i].burstLen != 1) {
      fail(where, "DataCopy: the %s's dimension %u has burstLen %u; it is 1 in all dimensions but the first", of, i + 1,
           info[i].burstLen);
    }
    const uint32_t rows = pieces_of(where, of, i + 1, info[i], 1);
    std::vector<int64_t> all;
    for (uint32_t row = 0; row < rows; ++row) {
      const int64_t at = (info[i].startIndex + int64_t{row} * (1 + info[i].stride)) * size;
      for (const int64_t inner : result.rows) all.push_back(at + inner);
    }
    result.rows = std::move(all);
    size *= info[i].shapeValue;
  }
  return result;
}

void check_slices(Where where, const Slice& dst, const Slice& src) {
  if (dst.rows.size() == src.rows.size() && dst.pieces.count == src.pieces.count &&
      dst.pieces.bytes == src.pieces.bytes)
    return;
  fail(where, "DataCopy: the destination is %zu rows of %u pieces of %lld bytes, the source %zu of %u of %lld",
       dst.rows.size(), dst.pieces.count, static_cast<long long>(dst.pieces.bytes), src.rows.size(), src.pieces.count,
       static_cast<long long>(src.pieces.bytes));
}

}  // namespace AscendC::cpu
