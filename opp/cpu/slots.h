// SPDX-License-Identifier: Apache-2.0
// The slots of a call's tokens: where in a cache each token is written.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace opp {

// The slot of each token, in the order of the flattened tensor, for a cache of `capacity` tokens; -1 for a token that
// is not to be written, which includes those whose slot a later token has too. Throws c10::Error for a slot out of
// range.
std::vector<int64_t> read_slots(const char* name, const at::Tensor& slots, int64_t capacity);

}  // namespace opp
