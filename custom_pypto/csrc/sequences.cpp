// SPDX-License-Identifier: Apache-2.0
// The checks of the arguments that say where the tokens of a call's sequences lie.
#include "sequences.h"

#include <c10/util/StringUtil.h>

namespace custom_pypto {
namespace {

void check_sizes(const Checks& checks, const SequenceArguments& a) {
  const c10::SymInt heads = a.query.sym_size(-2);
  const c10::SymInt key_heads = a.key.sym_size(-2);
  checks.at_least("query", heads, 1, "a number of heads (N1)");
  checks.at_least("query", a.query.sym_size(-1), 1, "a last dimension (D)");
  checks.at_least("key", key_heads, 1, "a number of heads (N2)");
  checks.size("key", a.key, a.key.dim() - 1, a.query.sym_size(-1), "D, the last of 'query'");
  if (!(heads % key_heads).sym_eq(0).expect_true(__FILE__, __LINE__)) {
    checks.reject("key", c10::str("have a number of heads (N2) that divides the ", heads, " heads of 'query' (N1)"),
                  c10::str("has ", key_heads));
  }
  if (a.is_paged()) {
    checks.at_least("key", a.key.sym_size(1), 1, "a block size");
  } else if (a.layout_key == "BSND") {
    checks.size("key", a.key, 0, a.query.sym_size(0), "B, the first of 'query'");
  }
}

// An int32 for each sequence.
void check_lengths(const Checks& checks, const char* name, const OptionalTensor& lengths, const c10::SymInt& batch,
                   const char* batch_of) {
  if (lengths.has_value()) {
    checks.dtype(name, *lengths, {at::kInt}, "convert it with .int()");
    checks.rank(name, *lengths, 1, "[B]");
    checks.size(name, *lengths, 0, batch, batch_of);
  }
}

}  // namespace

void check_layouts(const Checks& checks, const SequenceArguments& a) {
  checks.one_of("layout_query", a.layout_query, {"BSND", "TND"});
  checks.one_of(a.layout_key_name, a.layout_key, {"PA_BSND", "BSND", "TND"});
  if (!a.is_paged() && a.layout_key != a.layout_query) {
    checks.reject(a.layout_key_name, c10::str("be 'PA_BSND' or the same as layout_query ('", a.layout_query, "')"),
                  c10::str("is '", a.layout_key, "'"));
  }
  if (a.sparse_mode != 0 && a.sparse_mode != 3) {
    checks.reject("sparse_mode", "be 0 (no mask) or 3 (causal, aligned to the last key)",
                  c10::str("is ", a.sparse_mode));
  }
}

void check_query_and_key(const Checks& checks, const SequenceArguments& a) {
  checks.dtype("query", a.query, {at::kHalf, at::kBFloat16});
  checks.dtype("key", a.key, {a.query.scalar_type()}, "'query' and 'key' have the same dtype");
  checks.rank("query", a.query, a.is_packed() ? 3 : 4, a.is_packed() ? "[T, N1, D]" : "[B, S1, N1, D]");
  if (a.layout_key == "TND") {
    checks.rank("key", a.key, 3, "[T2, N2, D]");
  } else {
    checks.rank("key", a.key, 4, a.is_paged() ? "[blocks, block_size, N2, D]" : "[B, S2, N2, D]");
  }
  check_sizes(checks, a);
}

void check_sequences(const Checks& checks, const SequenceArguments& a) {
  const bool packed = a.is_packed();
  if (packed) {
    if (!a.actual_seq_lengths_query.has_value()) {
      checks.reject("actual_seq_lengths_query", "be given with layout_query 'TND'", "is None");
    }
    checks.rank("actual_seq_lengths_query", *a.actual_seq_lengths_query, 1, "[B]");
  }
  const c10::SymInt batch = packed ? a.actual_seq_lengths_query->sym_size(0) : a.query.sym_size(0);
  const char* batch_of = packed ? "B, as 'actual_seq_lengths_query' has" : "B, the first of 'query'";
  check_lengths(checks, "actual_seq_lengths_query", a.actual_seq_lengths_query, batch, batch_of);
  if ((a.is_paged() || packed) && !a.actual_seq_lengths_key.has_value()) {
    checks.reject(a.key_lengths_name, c10::str("be given with ", a.layout_key_name, " '", a.layout_key, "'"),
                  "is None");
  }
  check_lengths(checks, a.key_lengths_name, a.actual_seq_lengths_key, batch, batch_of);

  if (a.is_paged() != a.block_table.has_value()) {
    checks.reject("block_table",
                  c10::str(a.is_paged() ? "be given" : "be None", " with ", a.layout_key_name, " '", a.layout_key, "'",
                           a.is_paged() ? "" : ", whose keys are not paged"),
                  a.is_paged() ? "is None" : "is a tensor");
  }
  if (a.is_paged()) {
    checks.dtype("block_table", *a.block_table, {at::kInt}, "convert it with .int()");
    checks.rank("block_table", *a.block_table, 2, "[B, blocks a sequence]");
    checks.size("block_table", *a.block_table, 0, batch, batch_of);
  }
}

}  // namespace custom_pypto
