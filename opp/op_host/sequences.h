// SPDX-License-Identifier: Apache-2.0
// Reads of a call where the tokens of its sequences lie.
#pragma once

#include "op_kernel/sequences_tiling.h"

#include <string>

#include "definition.h"

namespace opp {

// The indices of the inputs in an operator's definition.
struct SequenceInputs {
  std::size_t query;
  std::size_t key;
  std::size_t query_lengths;
  std::size_t key_lengths;
  std::size_t block_table;
};

inline SequencesTiling sequences_of(const gert::TilingContext& context, const SequenceInputs& inputs,
                                    const std::string& layout_query, const std::string& layout_key,
                                    int64_t sparse_mode) {
  const StridedShape query = required(context, inputs.query), key = required(context, inputs.key);
  const auto is_given = [&](std::size_t input) { return context.GetOptionalInputShape(input) != nullptr; };
  SequencesTiling tiling{};
  tiling.packed = layout_query == "TND";
  tiling.paged = layout_key == "PA_BSND";
  tiling.causal = sparse_mode == 3;
  tiling.query_lengths = is_given(inputs.query_lengths);
  tiling.key_lengths = is_given(inputs.key_lengths);
  tiling.queries = query.sizes[tiling.packed ? 0 : 1];
  tiling.batch = query.sizes[0];
  if (tiling.packed) tiling.batch = context.GetOptionalInputShape(inputs.query_lengths)->GetStorageShape().GetDim(0);
  tiling.keys = key.sizes[layout_key == "TND" ? 0 : 1];
  if (tiling.paged) {
    tiling.pages = key.sizes[0];
    tiling.page_size = key.sizes[1];
    tiling.pages_of_row = context.GetOptionalInputShape(inputs.block_table)->GetStorageShape().GetDim(1);
    tiling.keys = tiling.pages_of_row * tiling.page_size;
  }
  return tiling;
}

}  // namespace opp
