// SPDX-License-Identifier: Apache-2.0
// The arguments that say where the tokens of a call's sequences lie, padded, packed or in pages, and their checks.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "checks.h"

namespace custom_pypto {

using OptionalTensor = std::optional<at::Tensor>;

// What operators on queries and paged keys have in common. They call the arguments of the key differently.
struct SequenceArguments {
  const at::Tensor& query;
  const at::Tensor& key;
  const OptionalTensor& actual_seq_lengths_query;
  const OptionalTensor& actual_seq_lengths_key;
  const OptionalTensor& block_table;
  const std::string& layout_query;
  const std::string& layout_key;
  int64_t sparse_mode;
  const char* key_lengths_name = "actual_seq_lengths_key";
  const char* layout_key_name = "layout_key";

  bool is_packed() const { return layout_query == "TND"; }
  bool is_paged() const { return layout_key == "PA_BSND"; }
};

// Check, under eager and on Meta alike: layouts and sparse_mode; dtypes, ranks and sizes of query and key; lengths and
// block table. Values of lengths and block tables are on the device; the kernel checks them.
void check_layouts(const Checks& checks, const SequenceArguments& a);
void check_query_and_key(const Checks& checks, const SequenceArguments& a);
void check_sequences(const Checks& checks, const SequenceArguments& a);

}  // namespace custom_pypto
