// SPDX-License-Identifier: Apache-2.0
// Checks and reads where in a cache the tokens of a call are written.
#include "cpu/slots.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace opp {
namespace {

// A later token takes the slot of an earlier one.
void drop_overwritten(std::vector<int64_t>& slots) {
  std::vector<std::pair<int64_t, int64_t>> tokens_by_slot;
  for (size_t token = 0; token < slots.size(); ++token) {
    if (slots[token] >= 0) tokens_by_slot.emplace_back(slots[token], token);
  }
  std::ranges::sort(tokens_by_slot);
  for (size_t i = 1; i < tokens_by_slot.size(); ++i) {
    if (tokens_by_slot[i - 1].first == tokens_by_slot[i].first) slots[tokens_by_slot[i - 1].second] = -1;
  }
}

template <class Integer>
std::vector<int64_t> read(const char* name, const at::Tensor& slots, int64_t capacity) {
  const auto* data = slots.const_data_ptr<Integer>();
  const int64_t inner = slots.size(-1);
  std::vector<int64_t> read(slots.numel());
  for (int64_t token = 0; token < slots.numel(); ++token) {
    const int64_t row = slots.dim() == 2 ? token / inner : 0;
    const int64_t column = token % inner;
    const int64_t slot = data[(row > 0 ? row * slots.stride(0) : 0) + column * slots.stride(-1)];
    TORCH_CHECK(-1 <= slot && slot < capacity, name, slots.dim() == 2 ? c10::str('[', row, ']') : std::string(), "[",
                column, "] is ", slot, ", but must lie between 0 and ", capacity - 1,
                " (the slots of the cache), or be -1 for a token that is not cached");
    read[token] = slot;
  }
  drop_overwritten(read);
  return read;
}

}  // namespace

std::vector<int64_t> read_slots(const char* name, const at::Tensor& slots, int64_t capacity) {
  return slots.scalar_type() == at::kLong ? read<int64_t>(name, slots, capacity) : read<int>(name, slots, capacity);
}

}  // namespace opp
