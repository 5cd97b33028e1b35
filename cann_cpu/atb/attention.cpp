// SPDX-License-Identifier: Apache-2.0
// Attention of libatb: SelfAttentionOperation, PagedAttentionOperation, and the functions of multi-head latent
// attention. All of them lay out the sequences of a call for the core in opapi/attention.h.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>

#include "opapi/attention.h"
#include "operation.h"

using namespace cann_cpu;

namespace {

using atb::HostInts;

// Tokens of all sequences, one after the other, as (tokens, heads, size); a token's heads may lie in one dimension.
at::Tensor token_heads(const char* name, In tensor, int64_t heads) {
  TORCH_CHECK(heads > 0, "the number of heads is ", heads, "; expected at least 1");
  if (tensor.dim() == 2 && tensor.size(1) % heads == 0) return tensor.unflatten(1, {heads, -1});
  TORCH_CHECK(tensor.dim() == 3 && tensor.size(1) == heads, name, " has shape ", tensor.sizes(), "; expected ", heads,
              " heads in (tokens, heads, size) or (tokens, heads * size)");
  return tensor;
}

// A paged cache as (blocks, block size, heads, size).
at::Tensor block_heads(const char* name, In cache, int64_t heads) {
  TORCH_CHECK(heads > 0, "the number of key heads is ", heads, "; expected at least 1");
  if (cache.dim() == 3 && cache.size(2) % heads == 0) return cache.unflatten(2, {heads, -1});
  TORCH_CHECK(cache.dim() == 4 && cache.size(2) == heads, name, " has shape ", cache.sizes(), "; expected ", heads,
              " heads in (blocks, block size, heads, size) or (blocks, block size, heads * size)");
  return cache;
}

int64_t sum_of(at::IntArrayRef list) {
  int64_t sum = 0;
  for (const int64_t each : list) sum += each;
  return sum;
}

// The first rows of a sequence in pages, in the order of its row of the block table.
class PagedRows {
 public:
  PagedRows(In block_table, int64_t sequence, int64_t length, int64_t blocks, int64_t block_size)
      : length_(length), block_size_(block_size) {
    const int64_t count = (length + block_size - 1) / block_size;
    pages_ = block_table[sequence].narrow(0, 0, count).to(at::kLong);
    check_values(c10::str("block_table[", sequence, "]").c_str(), pages_, 0, blocks - 1);
  }

  Rows rows_of(In cache, OptionalIn scale = std::nullopt) const {
    const auto read = [=, pages = pages_, block_size = block_size_](int64_t head, int64_t begin,
                                                                    const at::Tensor& rows) {
      const auto heads = [&](In all, int64_t dim) { return all.narrow(dim, head, rows.size(0)); };
      const int64_t count = rows.size(1);
      const int64_t first = begin / block_size, last = (begin + count + block_size - 1) / block_size;
      const auto blocks = heads(cache, 2).index_select(0, pages.narrow(0, first, last - first)).flatten(0, 1);
      rows.copy_(blocks.narrow(0, begin - first * block_size, count).transpose(0, 1));
      if (scale.has_value()) rows.mul_(heads(scale->to(at::kFloat).reshape({cache.size(2), 1, -1}), 0));
    };
    return {cache.size(2), length_, cache.size(3), read};
  }

 private:
  at::Tensor pages_;
  int64_t length_, block_size_;
};

void check_block_table(In block_table, at::IntArrayRef lengths, int64_t block_size) {
  check_rank("block_table", block_table, 2);
  TORCH_CHECK(block_table.size(0) >= static_cast<int64_t>(lengths.size()), "block_table has ", block_table.size(0),
              " rows, context_lens ", lengths.size(), " sequences");
  check_values("context_lens", lengths, 0, block_table.size(1) * block_size);
}

// The masks that are added to scores: of shape (queries, keys) or (batch, queries, keys), or with a dimension of heads
// before the queries; that one query stands for all.
enum Mask : int64_t { kNone, kAdded, kAddedByHead, kBottomRight };

std::function<at::Tensor(const Block&)> added_mask(In mask, int64_t type, int64_t sequence, int64_t first_query) {
  const bool is_batch = mask.dim() == (type == kAddedByHead ? 4 : 3);
  at::Tensor part = is_batch ? mask[mask.size(0) == 1 ? 0 : sequence] : mask;
  if (part.dim() == 2) part = part.unsqueeze(0);
  return [=](const Block& block) {
    const auto heads = part.size(0) == 1 ? part : part.narrow(0, block.head, block.heads());
    const auto rows = heads.size(1) == 1 ? heads : heads.narrow(1, first_query + block.row, block.rows());
    return rows.narrow(2, block.column, block.columns()).to(at::kFloat);
  };
}

void check_mask(OptionalIn mask, int64_t type, int64_t queries, int64_t keys) {
  if (type == kNone || type == kBottomRight) return;
  TORCH_CHECK(mask.has_value(), "mask is missing");
  TORCH_CHECK(
      mask->dim() >= (type == kAddedByHead ? 3 : 2) && mask->dim() <= (type == kAddedByHead ? 4 : 3), "mask has shape ",
      mask->sizes(),
      type == kAddedByHead ? "; expected [batch, ] heads, queries, keys" : "; expected [batch, ] queries, keys");
  const bool is_for_all = type == kAddedByHead && mask->size(-2) == 1;
  TORCH_CHECK((is_for_all || mask->size(-2) >= queries) && mask->size(-1) >= keys, "mask has shape ", mask->sizes(),
              "; there are ", queries, " queries and ", keys, " keys");
}

int64_t longest(at::IntArrayRef lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

at::Tensor sequence_of(const at::Tensor& tokens, int64_t begin, int64_t count) {  // (heads, queries, size)
  return tokens.narrow(0, begin, count).transpose(0, 1);
}

}  // namespace

// ---- SelfAttentionOperation: sequences of several lengths, each with itself
ATB_ROW(SelfAttention, "query: float16 bfloat16; key, value, out: as query; mask: float16 bfloat16 float32",
        [](Phase phase, In query, In key, In value, OptionalIn mask, HostInts lengths, int64_t heads, int64_t key_heads,
           double scale, int64_t mask_type, Out out) {
          const auto q = token_heads("query", query, heads), k = token_heads("key", key, key_heads);
          const auto v = token_heads("value", value, key_heads), y = token_heads("out", out, heads);
          check_values("seq_len", lengths, 0, q.size(0));
          for (const auto& [name, tokens] : {std::pair("query", q), std::pair("key", k), std::pair("value", v)}) {
            TORCH_CHECK(tokens.size(0) >= sum_of(lengths), name, " has ", tokens.size(0),
                        " tokens, seq_len adds up to ", sum_of(lengths));
          }
          TORCH_CHECK(heads % key_heads == 0, heads, " heads do not divide among ", key_heads, " of the keys");
          check_shape("out", y, {q.size(0), heads, v.size(2)});
          check_mask(mask, mask_type, longest(lengths), longest(lengths));
          if (phase == Phase::Check) return;
          int64_t begin = 0;
          for (size_t i = 0; i < lengths.size(); begin += lengths[i++]) {
            Attention attention{.query = sequence_of(q, begin, lengths[i]),
                                .key = rows_of(sequence_of(k, begin, lengths[i])),
                                .value = rows_of(sequence_of(v, begin, lengths[i])),
                                .scale = scale,
                                .visible = {}};
            if (mask_type == kBottomRight) attention.visible.high = 0;
            if (mask_type == kAdded || mask_type == kAddedByHead) {
              attention.shift = added_mask(*mask, mask_type, static_cast<int64_t>(i), 0);
            }
            attend(attention, written_to(sequence_of(y, begin, lengths[i])));
          }
        });

// ---- attention to paged caches, of sequences whose queries follow each other
namespace {

struct PagedArguments {
  In query, key_cache;
  OptionalIn value_cache, key_scale, value_scale, mask;
  In block_table;
  at::IntArrayRef lengths, query_lengths;
  int64_t heads, key_heads, value_size;  // without a value_cache, the first numbers of a key are its value
  double scale;
  int64_t mask_type;
  Out out;

  int64_t queries(size_t i) const { return query_lengths.empty() ? 1 : query_lengths[i]; }
  at::Tensor values() const {
    if (value_cache.has_value()) return block_heads("value_cache", *value_cache, key_heads);
    return block_heads("key_cache", key_cache, key_heads).narrow(3, 0, value_size);
  }

  void check() const {
    const auto q = token_heads("query", query, heads);
    const auto k = block_heads("key_cache", key_cache, key_heads);
    TORCH_CHECK(value_cache.has_value() || (value_size > 0 && value_size <= k.size(3)), "the value size is ",
                value_size, "; expected 1 to the size of a key, ", k.size(3));
    const auto v = values();
    TORCH_CHECK(k.sizes().slice(0, 2) == v.sizes().slice(0, 2), "key_cache has shape ", k.sizes(), ", value_cache ",
                v.sizes(), "; expected the same blocks");
    TORCH_CHECK(heads % key_heads == 0, heads, " heads do not divide among ", key_heads, " of the keys");
    TORCH_CHECK(q.size(2) == k.size(3), "query has heads of ", q.size(2), ", key_cache of ", k.size(3));
    check_shape("out", token_heads("out", out, heads), {q.size(0), heads, v.size(3)});
    check_block_table(block_table, lengths, k.size(1));
    TORCH_CHECK(query_lengths.empty() || query_lengths.size() == lengths.size(), "there are ", query_lengths.size(),
                " lengths of queries and ", lengths.size(), " of keys");
    const int64_t total = query_lengths.empty() ? static_cast<int64_t>(lengths.size()) : sum_of(query_lengths);
    TORCH_CHECK(total <= q.size(0), "query has ", q.size(0), " tokens, the sequences ", total);
    for (size_t i = 0; i < query_lengths.size(); ++i) {
      TORCH_CHECK(query_lengths[i] >= 0 && query_lengths[i] <= lengths[i], "sequence ", i, " has ", query_lengths[i],
                  " queries and ", lengths[i], " keys");
    }
    check_mask(mask, mask_type, mask_type == kAdded ? total : longest(query_lengths), longest(lengths));
  }

  void run() const {
    const auto q = token_heads("query", query, heads), y = token_heads("out", out, heads);
    const auto k = block_heads("key_cache", key_cache, key_heads), v = values();
    std::vector<PagedRows> pages;
    for (size_t i = 0; i < lengths.size(); ++i) {
      pages.emplace_back(block_table, static_cast<int64_t>(i), lengths[i], k.size(0), k.size(1));
    }
    int64_t begin = 0;
    for (size_t i = 0; i < lengths.size(); begin += queries(i++)) {
      Attention attention{.query = sequence_of(q, begin, queries(i)),
                          .key = pages[i].rows_of(k, key_scale),
                          .value = pages[i].rows_of(v, value_scale),
                          .scale = scale,
                          .visible = {}};
      if (mask_type == kBottomRight) attention.visible.high = lengths[i] - queries(i);
      if (mask_type == kAdded) attention.shift = added_mask(*mask, kAdded, 0, begin);
      if (mask_type == kAddedByHead) {
        attention.shift = added_mask(*mask, kAddedByHead, static_cast<int64_t>(i), 0);
      }
      attend(attention, written_to(sequence_of(y, begin, queries(i))));
    }
  }
};

}  // namespace

ATB_ROW(
    PagedAttention,
    "query, out: float16 bfloat16; key_cache, value_cache: float16 bfloat16 int8; block_table: int32; mask: float16 "
    "bfloat16 float32; key_descale, value_descale: float32",
    [](Phase phase, In query, In key_cache, OptionalIn value_cache, OptionalIn key_descale, OptionalIn value_descale,
       OptionalIn mask, In block_table, HostInts context_lens, HostInts seq_len, int64_t heads, int64_t key_heads,
       int64_t value_size, double scale, int64_t mask_type, Out out) {
      const PagedArguments paged_arguments{query,     key_cache,   value_cache,  key_descale, value_descale,
                                           mask,      block_table, context_lens, seq_len,     heads,
                                           key_heads, value_size,  scale,        mask_type,   out};
      TORCH_CHECK((key_cache.scalar_type() == at::kChar) == key_descale.has_value(), "key_cache has dtype ",
                  key_cache.scalar_type(),
                  key_descale.has_value() ? " and a scale; expected int8" : "; int8 takes a scale");
      paged_arguments.check();
      if (phase == Phase::Check) return;
      paged_arguments.run();
    });

atb::Operation* atb::make(const infer::PagedAttentionParam& p) {
  using Param = infer::PagedAttentionParam;
  constexpr int kDequantized = 1;
  const bool is_mla = p.mla_value_size > 0, is_quantized = p.quantization == kDequantized;
  require(p.quantization == 0 || is_quantized, "quantType", p.quantization, "0 (none) or 1 (int8 caches)");
  require(!is_quantized || !p.has_quantization_offset, "hasQuantOffset", p.has_quantization_offset, "false");
  require(p.compression == 0, "compressType", p.compression, "0 (none)");
  require(p.calc_type == Param::kDecode || p.calc_type == Param::kSeveralQueries, "calcType", p.calc_type, "0 or 1");
  require(p.scale_type == 0, "scaleType", p.scale_type, "0 (one scale)");
  require(p.layout == infer::kBsnd, "inputLayout", p.layout, "0 (BSND)");
  require(!p.has_batch_status, "batchRunStatusEnable", p.has_batch_status, "false");
  int64_t mask = kNone;
  if (p.calc_type == Param::kSeveralQueries) {
    require(p.mask_type == Param::kSpeculative || p.mask_type == Param::kCausal, "maskType", p.mask_type,
            "3 (a row of the mask for each query) or 5 (causal) with calcType 1");
    mask = p.mask_type == Param::kCausal ? kBottomRight : kAdded;
  } else {
    require(p.mask_type == Param::kNoMask || p.mask_type == Param::kAlibi, "maskType", p.mask_type,
            "0 (none) or 2 (ALiBi) with calcType 0");
    mask = p.mask_type == Param::kAlibi ? kAddedByHead : kNone;
  }
  const uint32_t inputs = 4 + (is_mla ? 0 : 1) + (is_quantized ? 2 : 0) + (mask != kNone ? 1 : 0) +
                          (p.calc_type == Param::kSeveralQueries ? 1 : 0);
  return new_operation("PagedAttentionOperation", inputs, 1, PagedAttentionPhaseOne::call_with,
                       [=](const VariantPack& t, Arguments& a) {
                         size_t next = 0;
                         const auto take = [&](bool is_there) -> const Tensor& {
                           static const Tensor absent{};
                           return is_there ? t.inputs[next++] : absent;
                         };
                         const Tensor &query = take(true), &key = take(true), &value = take(!is_mla);
                         const Tensor &table = take(true), &lengths = take(true);
                         const Tensor &key_scale = take(is_quantized), &value_scale = take(is_quantized);
                         const Tensor& given_mask = take(mask != kNone);
                         const Tensor& queries = take(p.calc_type == Param::kSeveralQueries);
                         a(query, key, value, key_scale, value_scale, given_mask, table);
                         a.add_host(lengths);
                         a.add_host(queries);
                         a(p.heads, p.key_heads, static_cast<int64_t>(p.mla_value_size), p.scale, mask, t.outputs[0]);
                       });
}

atb::Operation* atb::make(const infer::SelfAttentionParam& p) {
  using Param = infer::SelfAttentionParam;
  const bool is_prefix = p.calc_type == Param::kPrefixEncoder;
  require(p.quantization == 0, "quantType", p.quantization, "0 (none)");
  require(p.calc_type == Param::kPagedEncoder || is_prefix, "calcType", p.calc_type,
          "3 (PA_ENCODER) or 4 (PREFIX_ENCODER)");
  require(p.clamp_type == 0, "clampType", p.clamp_type, "0 (none)");
  require(p.scale_type == 0, "scaleType", p.scale_type, "0 (one scale)");
  require(p.query_scale == 1, "qScale", p.query_scale, "1");
  require(p.layout == infer::kBsnd, "inputLayout", p.layout, "0 (BSND)");
  require(p.mla_value_size == 0, "mlaVHeadSize", p.mla_value_size, "0");
  require(p.window_size == 0, "windowSize", p.window_size, "0");
  require(!p.has_batch_status, "batchRunStatusEnable", p.has_batch_status, "false");
  if (is_prefix) {
    require(p.mask_type == Param::kCausal, "maskType", p.mask_type, "3 (causal) with calcType 4");
    return new_operation("SelfAttentionOperation", 7, 1, PagedAttentionPhaseOne::call_with,
                         [=](const VariantPack& t, Arguments& a) {
                           a(t.inputs[0], t.inputs[1], t.inputs[2], nullptr, nullptr, t.inputs[4], t.inputs[3]);
                           a.add_host(t.inputs[6]);
                           a.add_host(t.inputs[5]);
                           a(p.heads, p.key_heads, int64_t{0}, p.scale, int64_t{kBottomRight}, t.outputs[0]);
                         });
  }
  require(p.mask_type <= Param::kCausal, "maskType", p.mask_type,
          "0 (none), 1 (a mask), 2 (ALiBi) or 3 (causal); compressed ALiBi and windows are not implemented");
  const auto mask = p.mask_type == Param::kCausal ? int64_t{kBottomRight} : int64_t{p.mask_type};
  const bool has_mask = mask != kNone;
  return new_operation("SelfAttentionOperation", has_mask ? 5 : 4, 1, SelfAttentionPhaseOne::call_with,
                       [=](const VariantPack& t, Arguments& a) {
                         a(t.inputs[0], t.inputs[1], t.inputs[2], has_mask ? t.inputs[3] : Tensor());
                         a.add_host(t.inputs[has_mask ? 4 : 3]);
                         a(p.heads, p.key_heads, p.scale, mask, t.outputs[0]);
                       });
}

ATB_FUNCTION(AtbSelfAttentionPrefixEncoder,
             "query: float16 bfloat16; key, value, out: as query; block_tables: int32; mask: float16 bfloat16 float32",
             [](Phase phase, In query, In key, In value, In block_tables, OptionalIn mask, HostInts seqlen,
                HostInts kv_seqlen, Absent<"slopes", OptionalIn>, int mask_type, int64_t heads, int64_t key_heads,
                float scale, Out out) {
               const PagedArguments paged_arguments{
                   query, key,       value, std::nullopt, std::nullopt, mask, block_tables, kv_seqlen, seqlen,
                   heads, key_heads, 0,     scale,        kBottomRight, out};
               TORCH_CHECK(mask_type == 3 || mask_type == 9, "mask_type is ", mask_type,
                           "; expected mask_type_norm_compress or mask_type_causal_mask");
               paged_arguments.check();
               if (phase == Phase::Check) return;
               paged_arguments.run();
             });

// ---- multi-head latent attention: keys in a part without and a part with rotary embedding

namespace {

constexpr int kKropeCtkv = 1;  // cache_mode
enum MlaCalc : int { kDecode, kSeveralQueries, kRing };

using Triangle = Ignored<OptionalIn>;  // what the mask types say as well

// The shares of two parts of the keys: log(exp(a) + exp(b)), where infinity stands for no keys.
at::Tensor finite(const at::Tensor& log_sum) { return log_sum.masked_fill(log_sum.isposinf(), kMinusInfinity); }

}  // namespace

ATB_FUNCTION(
    AtbMLA,
    "q_nope: float16 bfloat16; q_rope, ctkv, k_rope, out: as q_nope; block_tables: int32; mask: float16 bfloat16; "
    "lse: float16 bfloat16 float32",
    [](Phase phase, In q_nope, In q_rope, In ctkv, In k_rope, In block_tables, HostInts context_lens, OptionalIn mask,
       HostInts qseqlen, Absent<"qk_descale", OptionalIn>, Absent<"pv_descale", OptionalIn>, int64_t heads, float scale,
       int64_t key_heads, int mask_type, int calc_type, int cache_mode, Out out, OptionalOut lse) {
      check_range("cache_mode", cache_mode, kKropeCtkv, kKropeCtkv);
      check_range("calc_type", calc_type, kDecode, kRing);
      check_range("mask_type", mask_type, kNone, calc_type == kSeveralQueries ? kAdded : kNone);
      check_shape("k_rope", k_rope, {ctkv.size(0), ctkv.size(1), key_heads, q_rope.size(-1)});
      check_shape("q_rope", q_rope, {q_nope.size(0), heads, q_rope.size(-1)});
      TORCH_CHECK((calc_type == kSeveralQueries) == !qseqlen.empty(),
                  "qseqlen must be given with calc_type_spec, and only then");
      if (calc_type == kRing) {
        TORCH_CHECK(lse.has_value(), "lse is missing with calc_type_ring");
        check_shape("lse", *lse, {q_nope.size(0), heads, 1});
      }
      PagedArguments{q_nope, ctkv,      ctkv, std::nullopt, std::nullopt, mask, block_tables, context_lens, qseqlen,
                     heads,  key_heads, 0,    scale,        mask_type,    out}
          .check();
      if (phase == Phase::Check) return;
      const auto query = at::cat({q_nope, q_rope}, 2);
      std::vector<PagedRows> pages;
      for (size_t i = 0; i < context_lens.size(); ++i) {
        pages.emplace_back(block_tables, static_cast<int64_t>(i), context_lens[i], ctkv.size(0), ctkv.size(1));
      }
      int64_t begin = 0;
      for (size_t i = 0; i < context_lens.size(); ++i) {
        const int64_t count = qseqlen.empty() ? 1 : qseqlen[i];
        const auto value = pages[i].rows_of(ctkv);
        Attention attention{.query = sequence_of(query, begin, count),
                            .key = side_by_side(value, pages[i].rows_of(k_rope)),
                            .value = value,
                            .scale = scale,
                            .visible = {},
                            .values_are_keys = true};
        if (mask_type == kAdded) attention.shift = added_mask(*mask, kAdded, 0, begin);
        auto results = written_to(sequence_of(out, begin, count));
        if (lse.has_value()) results.log_sum = sequence_of(*lse, begin, count);
        attend(attention, results);
        begin += count;
      }
    });

// Attention to a further part of the keys, added to that of the parts before (calc_type_default), or to the first.
ATB_FUNCTION(AtbRingMLA,
             "q_nope: float16 bfloat16; q_rope, k_nope, k_rope, value, pre_out, out: as q_nope; "
             "prev_lse, lse: float32",
             [](Phase phase, In q_nope, In q_rope, In k_nope, In k_rope, In value, Triangle, HostInts seqlen,
                OptionalIn pre_out, OptionalIn prev_lse, int64_t heads, int64_t key_heads, float scale, int kernel_type,
                int mask_type, int input_layout, int calc_type, Out out, Out lse) {
               if (phase == Phase::Check) {
                 check_range("kernel_type", kernel_type, 0, 1);
                 check_range("mask_type", mask_type, 0, 1);
                 check_range("input_layout", input_layout, 0, 0);
                 check_range("calc_type", calc_type, 0, 1);
                 const int64_t queries = q_nope.size(0), keys = k_nope.size(0);
                 check_shape("q_nope", q_nope, {queries, heads, q_nope.size(-1)});
                 check_shape("q_rope", q_rope, {queries, heads, q_rope.size(-1)});
                 check_shape("k_nope", k_nope, {keys, key_heads, q_nope.size(-1)});
                 check_shape("k_rope", k_rope, {keys, key_heads, q_rope.size(-1)});
                 check_shape("value", value, {keys, key_heads, value.size(-1)});
                 check_shape("out", out, {queries, heads, value.size(-1)});
                 check_shape("lse", lse, {heads, queries});
                 TORCH_CHECK(key_heads > 0 && heads % key_heads == 0, heads, " heads do not divide among ", key_heads,
                             " of the keys");
                 if (calc_type == 1) return;
                 TORCH_CHECK(pre_out.has_value() && prev_lse.has_value(),
                             "pre_out and prev_lse are missing with calc_type_default");
                 check_shape("pre_out", *pre_out, out.sizes());
                 check_shape("prev_lse", *prev_lse, lse.sizes());
                 return;
               }
               // One list of lengths, or those of the queries and then those of the keys.
               const bool has_both = sum_of(seqlen) != q_nope.size(0);
               const size_t count = has_both ? seqlen.size() / 2 : seqlen.size();
               const auto query_lengths = seqlen.slice(0, count),
                          key_lengths = has_both ? seqlen.slice(count) : query_lengths;
               TORCH_CHECK(sum_of(query_lengths) == q_nope.size(0) && sum_of(key_lengths) == k_nope.size(0),
                           "seqlen adds up to ", sum_of(query_lengths), " queries and ", sum_of(key_lengths),
                           " keys; there are ", q_nope.size(0), " and ", k_nope.size(0));
               const auto query = at::cat({q_nope, q_rope}, 2);
               int64_t begin = 0, first_key = 0;
               for (size_t i = 0; i < count; ++i) {
                 const int64_t queries = query_lengths[i], keys = key_lengths[i];
                 const auto part = [&](In tensor) { return rows_of(sequence_of(tensor, first_key, keys)); };
                 Attention attention{.query = sequence_of(query, begin, queries),
                                     .key = side_by_side(part(k_nope), part(k_rope)),
                                     .value = part(value),
                                     .scale = scale,
                                     .visible = {}};
                 if (mask_type == 1) attention.visible.high = keys - queries;
                 const auto values = at::empty({heads, queries, value.size(2)}, at::kFloat);
                 const auto log_sum = at::empty({heads, queries, 1}, at::kFloat);
                 auto results = written_to(values);
                 results.log_sum = log_sum;
                 attend(attention, results);
                 auto total = finite(log_sum);
                 auto sum = values;
                 if (calc_type == 0) {
                   const auto before = finite(prev_lse->narrow(1, begin, queries).unsqueeze(2));
                   const auto all = at::logaddexp(before, total);
                   sum = sequence_of(*pre_out, begin, queries).to(at::kFloat) * (before - all).exp() +
                         values * (total - all).exp();
                   total = all;
                 }
                 sequence_of(out, begin, queries).copy_(sum);
                 lse.narrow(1, begin, queries).copy_(total.squeeze(2));
                 begin += queries;
                 first_key += keys;
               }
             });
