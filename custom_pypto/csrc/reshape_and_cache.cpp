// SPDX-License-Identifier: Apache-2.0
// reshape_and_cache: writes the keys and values of new tokens to their slots in paged caches.
#include <c10/util/StringUtil.h>

#include <optional>
#include <string>
#include <string_view>

#include "aclnn_reshape_and_cache.h"
#include "cann_routes.h"
#include "operator.h"

namespace custom_pypto {
namespace {

using at::Tensor;

constexpr const char* kName = "custom_pypto::reshape_and_cache";
constexpr int64_t kFractalBytes = 32;  // of a row, that lie side by side in a cache in NZ

// Keys or values and their cache, with the names of their sizes.
struct Part {
  const char* name;
  const Tensor& rows;
  const char* cache_name;
  const Tensor& cache;
  std::string_view heads, depth, hidden, fractals, fractal;

  int64_t c0() const { return kFractalBytes / static_cast<int64_t>(rows.element_size()); }
};

Part key_part(const Tensor& key, const Tensor& key_cache) {
  return {"key", key, "key_cache", key_cache, "N", "D", "hidden", "hidden / c0", "c0"};
}

Part value_part(const Tensor& value, const Tensor& value_cache) {
  return {"value", value, "value_cache", value_cache, "Nv", "Dv", "hidden_v", "hidden_v / c0v", "c0v"};
}

// The dimensions of tokens, as 'key' has them: rows with three are [T, N, D], or else [B, S, hidden]. Where N or S is 1
// they may be both; the slots then decide.
SizeNames tokens_of(const Part& key, const Tensor& slot_mapping, bool nz) {
  const Tensor &rows = key.rows, &cache = key.cache;
  bool sequences = rows.dim() == 4;
  if (rows.dim() == 3 && (cache.dim() == 3 || cache.dim() == 4)) {
    const c10::SymInt hidden = cache.dim() == 3 ? cache.sym_size(2) : cache.sym_size(nz ? 1 : 2) * cache.sym_size(3);
    const bool is_hidden = rows.sym_size(2).sym_eq(hidden).guard_or_false(__FILE__, __LINE__);
    const bool is_one_head = is_hidden && rows.sym_size(1).sym_eq(1).guard_or_false(__FILE__, __LINE__);
    sequences = is_hidden && (!is_one_head || slot_mapping.dim() == 2);
  }
  return sequences ? SizeNames{"B", "S"} : SizeNames{"T"};
}

// Whether a token's row has one dimension, hidden, and not N and D.
bool is_flat(const Part& part, const SizeNames& tokens) {
  return part.rows.dim() <= static_cast<int64_t>(tokens.size()) + 1;
}

SizeNames sizes_of_rows(const Part& part, const SizeNames& tokens) {
  SizeNames sizes = tokens;
  if (is_flat(part, tokens)) {
    sizes.push_back(part.hidden);
  } else {
    sizes.append({part.heads, part.depth});
  }
  return sizes;
}

SizeNames sizes_of_cache(const Part& part, bool nz) {
  if (nz) {
    return {"blocks", part.fractals, "block_size", part.fractal};
  }
  return part.cache.dim() == 3 ? SizeNames{"blocks", "block_size", part.hidden}
                               : SizeNames{"blocks", "block_size", part.heads, part.depth};
}

// Checks that rows of keys or values fit into their cache, where the names of the sizes do not ensure it.
void check_row(const Checks& checks, const ArgumentTable& sizes, const Part& part, bool flat, bool nz) {
  if (flat) {
    sizes.check_positive({part.hidden});
  } else {
    sizes.check_positive({part.heads, part.depth});
  }
  if (nz) {
    const c10::SymInt width = flat ? sizes[part.hidden] : sizes[part.heads] * sizes[part.depth];
    sizes.check_equal(part.fractal, part.c0(), "c0, the elements of 32 bytes");
    if (!(width % part.c0()).sym_eq(0).expect_true(__FILE__, __LINE__)) {
      checks.reject(part.name,
                    c10::str("have a multiple of c0 (", part.c0(), ") elements a token with cache_layout 'NZ'"),
                    c10::str("its shape is ", part.rows.sym_sizes()));
    }
    sizes.check_equal(part.fractals, width / part.c0(), c10::str("the elements of a token in '", part.name, "' / c0"));
  } else if (flat != (part.cache.dim() == 3)) {
    sizes.check_equal(part.hidden, sizes[part.heads] * sizes[part.depth],
                      c10::str("N times D of '", flat ? part.cache_name : part.name, "'"));
  }
}

// The slots are on the device; the kernel checks them.
void check_parts(const Checks& checks, const std::optional<Part>& value, const Part& key, const Tensor& slot_mapping,
                 const std::string& cache_layout) {
  checks.one_of("cache_layout", cache_layout, {"ND", "NZ"});
  const bool nz = cache_layout == "NZ";
  const SizeNames tokens = tokens_of(key, slot_mapping, nz);
  const bool sequences = tokens.size() == 2;
  const bool slots_of_sequences = sequences && slot_mapping.dim() == 2;
  c10::SmallVector<ArgumentRow, 5> rows;
  const auto add = [&](const Part& part) {
    rows.push_back(
        {part.name, part.rows, {at::kHalf, at::kBFloat16, at::kChar, at::kFloat}, sizes_of_rows(part, tokens)});
    rows.push_back({part.cache_name, part.cache, {part.rows.scalar_type()}, sizes_of_cache(part, nz), Use::kWritten});
  };
  add(key);
  if (value.has_value()) {
    add(*value);
  }
  const SizeNames slots = slots_of_sequences ? tokens : SizeNames{sequences ? "B * S or less" : "T or less"};
  rows.push_back({"slot_mapping", slot_mapping, {at::kLong, at::kInt}, slots});
  const ArgumentTable table(checks, rows);
  table.check_positive({"block_size"});
  check_row(checks, table, key, is_flat(key, tokens), nz);
  if (value.has_value()) {
    check_row(checks, table, *value, is_flat(*value, tokens), nz);
  }
  // Tokens after those that have slots are padding.
  const c10::SymInt count = sequences ? table["B"] * table["S"] : table["T"];
  if (!slots_of_sequences && !slot_mapping.sym_size(0).sym_le(count).expect_true(__FILE__, __LINE__)) {
    checks.reject("slot_mapping", c10::str("have at most ", count, " slots, one for each token of 'key'"),
                  c10::str("its shape is ", slot_mapping.sym_sizes()));
  }
}

void check_key_value(const Checks& checks, const Tensor& key, const Tensor& value, const Tensor& key_cache,
                     const Tensor& value_cache, const Tensor& slot_mapping, const std::string& cache_layout) {
  check_parts(checks, value_part(value, value_cache), key_part(key, key_cache), slot_mapping, cache_layout);
}

void check_key(const Checks& checks, const Tensor& key, const Tensor& key_cache, const Tensor& slot_mapping,
               const std::string& cache_layout) {
  check_parts(checks, std::nullopt, key_part(key, key_cache), slot_mapping, cache_layout);
}

void launch(const Tensor& key, const OptionalTensor& value, const Tensor& key_cache, const OptionalTensor& value_cache,
            const Tensor& slot_mapping, const std::string& cache_layout) {
  if (!by_cann::reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, cache_layout)) {
    EXEC_NPU_CMD(aclnnReshapeAndCache, key, value, key_cache, value_cache, slot_mapping, cache_layout);
  }
}

// With values or without: an overload each, because torchair cannot functionalise an operator with an argument that it
// writes to and that is not given.
void reshape_and_cache(const Tensor& key, const OptionalTensor& value, const Tensor& key_cache,
                       const OptionalTensor& value_cache, const Tensor& slot_mapping, const std::string& cache_layout) {
  Checks(kName).together("value", value.has_value(), "value_cache", value_cache.has_value());
  if (value.has_value()) {
    static const auto key_value = find_operator<Signature<check_key_value>>(kName, "key_value");
    key_value.call(key, *value, key_cache, *value_cache, slot_mapping, cache_layout);
  } else {
    static const auto key_only = find_operator<Signature<check_key>>(kName, "key");
    key_only.call(key, key_cache, slot_mapping, cache_layout);
  }
}

TORCH_LIBRARY_IMPL(custom_pypto, CompositeImplicitAutograd, m) { m.impl("reshape_and_cache", &reshape_and_cache); }

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement<check_key_value>(m, kName, [](const auto&... arguments) { launch(arguments...); }, "key_value");
  implement<check_key>(
      m, kName,
      [](const Tensor& key, const Tensor& key_cache, const Tensor& slots, const std::string& layout) {
        launch(key, std::nullopt, key_cache, std::nullopt, slots, layout);
      },
      "key");
}

}  // namespace
}  // namespace custom_pypto
