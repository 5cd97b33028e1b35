// SPDX-License-Identifier: Apache-2.0
// The arguments that describe a call's sequences, padded (BSND), packed (TND) or in pages (PA_BSND). They are shared by
// the operators on queries and keys.
#pragma once

#include <c10/util/StringUtil.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "arguments/table.h"

namespace custom_pypto {

// Operators call the arguments of the key differently. Values of lengths and block tables are on the device; the kernel
// checks them.
struct Layouts {
  const std::string& query;
  const std::string& key;
  const char* key_name = "layout_key";
  const char* key_lengths_name = "actual_seq_lengths_key";

  bool is_packed() const { return query == "TND"; }
  bool is_paged() const { return key == "PA_BSND"; }

  // The sizes of a tensor that has these for each token of the query, or of the key.
  SizeNames of_query(std::initializer_list<std::string_view> names) const {
    return with(is_packed() ? SizeNames{"T"} : SizeNames{"B", "S1"}, names);
  }
  SizeNames of_key(std::initializer_list<std::string_view> names) const {
    return with(is_paged()    ? SizeNames{"blocks", "block_size"}
                : is_packed() ? SizeNames{"T2"}
                              : SizeNames{"B", "S2"},
                names);
  }
  // The sizes of a result that is empty unless it is requested.
  SizeNames of_query_if(bool asked, std::initializer_list<std::string_view> names) const {
    return asked ? of_query(names) : SizeNames{"0"};
  }

  // Checks the layouts and what they ask for.
  void check(const Checks& checks, int64_t sparse_mode, const OptionalTensor& query_lengths,
             const OptionalTensor& key_lengths, const OptionalTensor& block_table) const {
    checks.one_of("layout_query", query, {"BSND", "TND"});
    checks.one_of(key_name, key, {"PA_BSND", "BSND", "TND"});
    if (!is_paged() && key != query) {
      checks.reject(key_name, c10::str("be 'PA_BSND' or the same as layout_query ('", query, "')"),
                    c10::str("is '", key, "'"));
    }
    checks.one_of("sparse_mode", sparse_mode, {0, 3}, "0 is no mask, 3 is causal, aligned to the last key");
    if (is_packed() && !query_lengths.has_value()) {
      checks.reject("actual_seq_lengths_query", "be given with layout_query 'TND'", "is None");
    }
    const std::string with_key = c10::str(" with ", key_name, " '", key, "'");
    if ((is_paged() || is_packed()) && !key_lengths.has_value()) {
      checks.reject(key_lengths_name, "be given" + with_key, "is None");
    }
    if (is_paged() && !block_table.has_value()) {
      checks.reject("block_table", "be given" + with_key, "is None");
    }
    if (!is_paged() && block_table.has_value()) {
      checks.reject("block_table", "be None" + with_key + ", whose keys are not paged", "is a tensor");
    }
  }

 private:
  static SizeNames with(SizeNames sizes, std::initializer_list<std::string_view> names) {
    sizes.append(names.begin(), names.end());
    return sizes;
  }
};

inline void check_heads(const ArgumentTable& table) {
  table.check_positive({"N1", "D", "N2", "block_size"});
  table.check_divides("N2", "N1");
}

}  // namespace custom_pypto
