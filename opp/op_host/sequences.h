// SPDX-License-Identifier: Apache-2.0
// Checks and reads the arguments that describe a call's sequences, padded (BSND), packed (TND) or in pages (PA_BSND).
#pragma once

#include "op_kernel/sequences_tiling.h"

#include <string>

#include "arguments.h"

namespace opp {

// The indices of the inputs and of the attributes in an operator's definition, and what it calls those of the key.
struct SequenceArguments {
  std::size_t query_lengths;
  std::size_t key_lengths;
  std::size_t block_table;
  std::size_t layout_query;
  std::size_t layout_key;
  std::size_t sparse_mode;
  const char* key_name = "layout_key";
  const char* key_lengths_name = "actual_seq_lengths_key";
};

class Sequences {
 public:
  Sequences(const gert::TilingContext& context, Arguments& arguments, const SequenceArguments& at)
      : arguments_(arguments),
        query_(context.GetAttrs()->GetStr(at.layout_query)),
        key_(context.GetAttrs()->GetStr(at.layout_key)) {
    const auto is_given = [&](std::size_t input) { return context.GetOptionalInputShape(input) != nullptr; };
    const int64_t sparse_mode = *context.GetAttrs()->GetInt(at.sparse_mode);
    tiling_.packed = query_ == "TND";
    tiling_.paged = key_ == "PA_BSND";
    tiling_.causal = sparse_mode == 3;
    tiling_.query_lengths = is_given(at.query_lengths);
    tiling_.key_lengths = is_given(at.key_lengths);
    arguments.one_of("layout_query", query_, {"BSND", "TND"});
    arguments.one_of(at.key_name, key_, {"PA_BSND", "BSND", "TND"});
    arguments.check(tiling_.paged || key_ == query_, at.key_name, "PA_BSND or layout_query (" + query_ + ")", key_);
    arguments.check(sparse_mode == 0 || sparse_mode == 3, "sparse_mode", "0 or 3", std::to_string(sparse_mode));
    arguments.check(tiling_.query_lengths || !tiling_.packed, "actual_seq_lengths_query", "given with TND", "null");
    const std::string with_key = " with " + key_ + " keys";
    arguments.check(tiling_.key_lengths || !(tiling_.paged || tiling_.packed), at.key_lengths_name, "given" + with_key,
                    "null");
    const bool has_table = is_given(at.block_table);
    arguments.check(has_table == bool(tiling_.paged), "block_table", (has_table ? "null" : "given") + with_key,
                    has_table ? "given" : "null");
  }

  // The sizes of a tensor that has these for each token of the query, or of the key.
  SizeNames of_query(const SizeNames& names) const {
    return joined(tiling_.packed ? SizeNames{"T"} : SizeNames{"B", "S1"}, names);
  }
  SizeNames of_key(const SizeNames& names) const {
    return joined(tiling_.paged    ? SizeNames{"blocks", "block_size"}
                  : tiling_.packed ? SizeNames{"T2"}
                                   : SizeNames{"B", "S2"},
                  names);
  }
  // The sizes of a result that is empty unless it is requested.
  SizeNames of_query_if(bool asked, const SizeNames& names) const { return asked ? of_query(names) : SizeNames{"0"}; }

  int64_t tokens() const { return tiling_.packed ? arguments_["T"] : arguments_["B"] * arguments_["S1"]; }

  // Of arguments that are right.
  SequencesTiling tiling() const {
    SequencesTiling tiling = tiling_;
    tiling.batch = arguments_["B"];
    tiling.queries = arguments_[tiling.packed ? "T" : "S1"];
    tiling.pages = arguments_["blocks"];
    tiling.page_size = arguments_["block_size"];
    tiling.pages_of_row = arguments_["blocks per sequence"];
    tiling.keys = tiling.paged    ? tiling.pages_of_row * tiling.page_size
                  : tiling.packed ? arguments_["T2"]
                                  : arguments_["S2"];
    return tiling;
  }

 private:
  const Arguments& arguments_;
  const std::string query_;
  const std::string key_;
  SequencesTiling tiling_{};
};

inline void check_heads(Arguments& arguments) {
  arguments.positive({"N1", "D", "N2", "block_size"});
  arguments.divides("N2", "N1");
}

}  // namespace opp
