// SPDX-License-Identifier: Apache-2.0
// reshape_and_cache: writes the keys and values of new tokens to their slots in paged caches.
#include <c10/util/StringUtil.h>

#include <optional>
#include <string>
#include <string_view>

#include "aclnn_reshape_and_cache.h"
#include "operator.h"

namespace custom_pypto {
namespace {

using at::Tensor;

constexpr const char* kName = "custom_pypto::reshape_and_cache";
constexpr int64_t kFractalBytes = 32;  // of a row, that lie side by side in a cache in NZ

// Keys or values and their cache, with the names of their sizes.
struct CacheOperand {
  const char* name;
  const Tensor& rows;
  const char* cache_name;
  const Tensor& cache;
  std::string_view heads, depth, hidden, fractals, fractal;

  int64_t c0() const { return kFractalBytes / static_cast<int64_t>(rows.element_size()); }
};

CacheOperand key_operand(const Tensor& key, const Tensor& key_cache) {
  return {"key", key, "key_cache", key_cache, "N", "D", "hidden", "hidden / c0", "c0"};
}

CacheOperand value_operand(const Tensor& value, const Tensor& value_cache) {
  return {"value", value, "value_cache", value_cache, "Nv", "Dv", "hidden_v", "hidden_v / c0v", "c0v"};
}

// The dimensions of tokens, as 'key' has them: rows with three are [T, N, D], or else [B, S, hidden]. Where N or S is 1
// they may be both; the slots then decide.
SizeNames tokens_of(const CacheOperand& key, const Tensor& slot_mapping, bool nz) {
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
bool is_flat(const CacheOperand& operand, const SizeNames& tokens) {
  return operand.rows.dim() <= static_cast<int64_t>(tokens.size()) + 1;
}

SizeNames sizes_of_rows(const CacheOperand& operand, const SizeNames& tokens) {
  SizeNames sizes = tokens;
  if (is_flat(operand, tokens)) {
    sizes.push_back(operand.hidden);
  } else {
    sizes.append({operand.heads, operand.depth});
  }
  return sizes;
}

SizeNames sizes_of_cache(const CacheOperand& operand, bool nz) {
  if (nz) {
    return {"blocks", operand.fractals, "block_size", operand.fractal};
  }
  return operand.cache.dim() == 3 ? SizeNames{"blocks", "block_size", operand.hidden}
                                  : SizeNames{"blocks", "block_size", operand.heads, operand.depth};
}

// Checks that rows of keys or values fit into their cache, where the names of the sizes do not ensure it.
void check_row(const Checks& checks, const ArgumentTable& sizes, const CacheOperand& operand, bool flat, bool nz) {
  if (flat) {
    sizes.check_positive({operand.hidden});
  } else {
    sizes.check_positive({operand.heads, operand.depth});
  }
  if (nz) {
    const c10::SymInt width = flat ? sizes[operand.hidden] : sizes[operand.heads] * sizes[operand.depth];
    sizes.check_equal(operand.fractal, operand.c0(), "c0, the elements of 32 bytes");
    if (!(width % operand.c0()).sym_eq(0).expect_true(__FILE__, __LINE__)) {
      checks.reject(operand.name,
                    c10::str("have a multiple of c0 (", operand.c0(), ") elements a token with cache_layout 'NZ'"),
                    c10::str("its shape is ", operand.rows.sym_sizes()));
    }
    sizes.check_equal(operand.fractals, width / operand.c0(),
                      c10::str("the elements of a token in '", operand.name, "' / c0"));
  } else if (flat != (operand.cache.dim() == 3)) {
    sizes.check_equal(operand.hidden, sizes[operand.heads] * sizes[operand.depth],
                      c10::str("N times D of '", flat ? operand.cache_name : operand.name, "'"));
  }
}

// The slots are on the device; the kernel checks them.
void check_operands(const Checks& checks, const std::optional<CacheOperand>& value, const CacheOperand& key,
                    const Tensor& slot_mapping, const std::string& cache_layout) {
  checks.one_of("cache_layout", cache_layout, {"ND", "NZ"});
  const bool nz = cache_layout == "NZ";
  const SizeNames tokens = tokens_of(key, slot_mapping, nz);
  const bool sequences = tokens.size() == 2;
  const bool slots_of_sequences = sequences && slot_mapping.dim() == 2;
  c10::SmallVector<ArgumentRow, 5> rows;
  const auto add = [&](const CacheOperand& operand) {
    rows.push_back({operand.name,
                    operand.rows,
                    {at::kHalf, at::kBFloat16, at::kChar, at::kFloat},
                    sizes_of_rows(operand, tokens)});
    rows.push_back(
        {operand.cache_name, operand.cache, {operand.rows.scalar_type()}, sizes_of_cache(operand, nz), Use::kWritten});
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
  check_operands(checks, value_operand(value, value_cache), key_operand(key, key_cache), slot_mapping, cache_layout);
}

void check_key(const Checks& checks, const Tensor& key, const Tensor& key_cache, const Tensor& slot_mapping,
               const std::string& cache_layout) {
  check_operands(checks, std::nullopt, key_operand(key, key_cache), slot_mapping, cache_layout);
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
  implement<check_key_value>(
      m, kName, [](const auto&... arguments) { EXEC_NPU_CMD(aclnnReshapeAndCache, arguments...); }, "key_value");
  implement<check_key>(
      m, kName,
      [](const Tensor& key, const Tensor& key_cache, const Tensor& slots, const std::string& layout) {
        const OptionalTensor none;
        EXEC_NPU_CMD(aclnnReshapeAndCache, key, none, key_cache, none, slots, layout);
      },
      "key");
}

}  // namespace
}  // namespace custom_pypto
