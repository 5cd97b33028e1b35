// SPDX-License-Identifier: Apache-2.0
// Attention of inference: FusedInferAttentionScore, PromptFlashAttention and IncreFlashAttention, to keys and values
// that are given whole, or that lie in pages of a cache, quantised or not.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <map>

#include "attention.h"
#include "checks.h"
#include "parallel.h"
#include "quantization.h"

using namespace cann_cpu;

namespace {

using MaybeTensor = std::optional<at::Tensor>;
using InnerPrecision = Ignored<int64_t>;  // how precisely to compute; all is float here
using KeyRopeScale = Absent<"key_rope_antiquant_scale", OptionalIn>;
using QueryStart = Absent<"q_start_idx", OptionalInts>;
using KeyStart = Absent<"kv_start_idx", OptionalInts>;

// The arguments of all versions.
struct Inference {
  at::Tensor query;
  std::vector<at::Tensor> key, value;
  MaybeTensor pse_shift, atten_mask;
  OptionalInts actual_seq_lengths = {}, actual_seq_lengths_kv = {};
  MaybeTensor deq_scale1 = {}, quant_scale1 = {}, deq_scale2 = {}, quant_scale2 = {}, quant_offset2 = {};
  MaybeTensor antiquant_scale = {}, antiquant_offset = {}, block_table = {}, query_padding_size = {};
  MaybeTensor kv_padding_size = {}, key_antiquant_scale = {}, key_antiquant_offset = {}, value_antiquant_scale = {};
  MaybeTensor value_antiquant_offset = {}, key_shared_prefix = {}, value_shared_prefix = {};
  OptionalInts actual_shared_prefix_len = {};
  MaybeTensor query_rope = {}, key_rope = {}, dequant_scale_query = {}, learnable_sink = {};
  int64_t num_heads, num_key_value_heads;
  double scale_value;
  std::string input_layout;
  int64_t pre_tokens = Visibility::kAll, next_tokens = Visibility::kAll, sparse_mode = 0, block_size = 0;
  int64_t antiquant_mode = 0;
  bool softmax_lse_flag = false;
  int64_t key_antiquant_mode = 0, value_antiquant_mode = 0, query_quant_mode = 0, pse_type = 0;
  at::Tensor attention_out;
  MaybeTensor softmax_lse = {};
};

const std::map<std::string_view, std::pair<std::string_view, std::string_view>> kInferenceLayouts = {
    {"BSH", {"BSH", "BSH"}},         {"BSND", {"BSND", "BSND"}},      {"BNSD", {"BNSD", "BNSD"}},
    {"NSD", {"NSD", "NSD"}},         {"TND", {"TND", "TND"}},         {"NTD", {"NTD", "NTD"}},
    {"BNSD_BSND", {"BNSD", "BSND"}}, {"BSH_BNSD", {"BSH", "BNSD"}},   {"BSND_BNSD", {"BSND", "BNSD"}},
    {"BSH_NBSD", {"BSH", "NBSD"}},   {"BSND_NBSD", {"BSND", "NBSD"}}, {"BNSD_NBSD", {"BNSD", "NBSD"}},
    {"TND_NTD", {"TND", "NTD"}},     {"NTD_TND", {"NTD", "TND"}},
};

constexpr int64_t kCompressedMask = 2048;  // rows and columns of a mask that stands for a triangle of any size
constexpr int64_t kInt4InInt32 = 8;

// What quantised keys or values are multiplied by, after the offset is added: where each element's lies.
enum class ScaleOf : int64_t { Channel = 0, Token = 1, Head = 2, TokenAndHead = 3, TokenInPages = 4, HeadInPages = 5 };

struct Scaling {
  const char* name;
  MaybeTensor scale, offset;
  ScaleOf of;
};

// Keys or values of all sequences: (batch or pages, heads, tokens, parts of a head, elements of a part).
struct Stored {
  std::vector<at::Tensor> tensors;  // one, or one of each sequence
  int64_t tokens() const { return tensors[0].size(2); }
  int64_t size() const {
    const auto& first = tensors[0];
    return first.size(3) * first.size(4) * (first.scalar_type() == at::kInt ? kInt4InInt32 : 1);
  }
};

class InferencePlan {
 public:
  explicit InferencePlan(const Inference& given) : given_(given) {
    const auto layouts = kInferenceLayouts.find(given.input_layout);
    TORCH_CHECK(layouts != kInferenceLayouts.end(), "input_layout is \"", given.input_layout, "\"; expected ",
                "BSH, BSND, BNSD, NSD, TND, NTD, BNSD_BSND, BSH_BNSD, BSND_BNSD, BSH_NBSD, BSND_NBSD, BNSD_NBSD, "
                "TND_NTD or NTD_TND");
    std::tie(layout_, out_layout_) = layouts->second;
    follow_each_other_ = layout_.find('T') != layout_.npos;
    TORCH_CHECK(given.num_heads > 0, "num_heads is ", given.num_heads, "; expected at least 1");
    check_range("num_key_value_heads", given.num_key_value_heads, 0, given.num_heads);
    key_heads_ = given.num_key_value_heads > 0 ? given.num_key_value_heads : given.num_heads;
    TORCH_CHECK(given.num_heads % key_heads_ == 0, "num_heads is ", given.num_heads, ", which num_key_value_heads, ",
                key_heads_, ", does not divide");
    check_range("sparse_mode", given.sparse_mode, 0, 4);
    query_ = of_query("query", given.query);
    set_keys();
    set_lengths();
    set_quantization();
    set_prefix();
    set_mask();
    set_others();
  }

  void run() {
    read_padding();
    check_pages();
    const at::Tensor& out = given_.attention_out;
    if (!covers_all_queries()) {
      out.zero_();
      if (log_sum_.defined()) log_sum_.fill_(-kMinusInfinity);
    }
    std::optional<Attention::Quantized> quantized;
    if (given_.deq_scale1.has_value()) {
      const auto number = [](const MaybeTensor& scale) { return float_scales(*scale).item<double>(); };
      quantized = {number(given_.deq_scale1), number(given_.quant_scale1), number(given_.deq_scale2)};
    }
    for_each_in_parallel(batch_, [&](int64_t b) {
      if (query_length_[b] > 0) attend_to(b, quantized);
    });
  }

 private:
  at::Tensor of_query(const char* name, const at::Tensor& tensor) const {
    check_rank(name, tensor, static_cast<int64_t>(layout_.size()));
    const auto view = by_head(tensor, layout_, given_.num_heads);
    TORCH_CHECK(view.size(1) == given_.num_heads, name, " has shape ", tensor.sizes(), " in layout ", layout_,
                "; expected num_heads, ", given_.num_heads, ", heads");
    return view;
  }

  // (batch or 1, heads, tokens, parts, elements)
  at::Tensor of_keys(const char* name, const at::Tensor& tensor) const {
    if (given_.block_table.has_value()) {
      switch (tensor.dim()) {
        case 3:  // (pages, tokens, heads x size)
          return by_head(tensor, "BSH", key_heads_).unsqueeze(3);
        case 4:  // (pages, heads, tokens, size)
          return with_heads(name, tensor, tensor.unsqueeze(3));
        case 5:  // (pages, heads, parts, tokens, elements of a part)
          return with_heads(name, tensor, tensor.permute({0, 1, 3, 2, 4}));
        default:
          TORCH_CHECK(false, name, " has shape ", tensor.sizes(), "; expected 3 to 5 dimensions with block_table");
      }
    }
    check_rank(name, tensor, static_cast<int64_t>(layout_.size()));
    return with_heads(name, tensor, by_head(tensor, layout_, key_heads_).unsqueeze(3));
  }

  at::Tensor with_heads(const char* name, const at::Tensor& tensor, at::Tensor view) const {
    TORCH_CHECK(view.size(1) == key_heads_, name, " has shape ", tensor.sizes(), "; expected num_key_value_heads, ",
                key_heads_, ", heads");
    return view;
  }

  Stored all_of(const char* name, Tensors tensors) const {
    Stored stored;
    TORCH_CHECK(!tensors.empty(), name, " is an empty list");
    for (const auto& tensor : tensors) stored.tensors.push_back(of_keys(name, tensor));
    return stored;
  }

  void set_keys() {
    const auto& value = given_.value;
    TORCH_CHECK(given_.key.size() == value.size(), "value has ", value.size(), " tensors; expected ", given_.key.size(),
                ", as key");
    key_ = all_of("key", given_.key);
    value_ = all_of("value", value);
    if (given_.block_table.has_value()) {
      check_rank("block_table", *given_.block_table, 2);
      TORCH_CHECK(given_.key.size() == 1, "key has ", given_.key.size(), " tensors; expected 1 with block_table");
      TORCH_CHECK(given_.block_size == key_.tokens(), "block_size is ", given_.block_size, "; key has shape ",
                  given_.key[0].sizes(), ", which is of blocks of ", key_.tokens());
    }
    for (size_t i = 0; i < key_.tensors.size(); ++i) {
      const auto &k = key_.tensors[i], &v = value_.tensors[i];
      TORCH_CHECK(k.size(0) == v.size(0) && k.size(2) == v.size(2), "value has shape ", value[i].sizes(),
                  ", key has shape ", given_.key[i].sizes(), "; expected as many tokens");
    }
    if (given_.query_rope.has_value() || given_.key_rope.has_value()) {
      TORCH_CHECK(given_.query_rope.has_value(), "query_rope is null; expected a tensor, as key_rope is given");
      TORCH_CHECK(given_.key_rope.has_value(), "key_rope is null; expected a tensor, as query_rope is given");
      TORCH_CHECK(given_.key.size() == 1, "key has ", given_.key.size(), " tensors; expected 1 with key_rope");
      query_rope_ = of_query("query_rope", *given_.query_rope);
      TORCH_CHECK(query_rope_.sizes().slice(0, 3) == query_.sizes().slice(0, 3), "query_rope has shape ",
                  given_.query_rope->sizes(), ", query has shape ", given_.query.sizes());
      key_rope_.tensors = {of_keys("key_rope", *given_.key_rope)};
      const auto& rope = key_rope_.tensors[0];
      TORCH_CHECK(rope.size(0) == key_.tensors[0].size(0) && rope.size(2) == key_.tokens() &&
                      key_rope_.size() == query_rope_.size(3),
                  "key_rope has shape ", given_.key_rope->sizes(), "; expected the tokens of key, ",
                  given_.key[0].sizes(), ", and the size of query_rope, ", given_.query_rope->sizes());
    }
    TORCH_CHECK(key_.size() == query_.size(3), "key has heads of size ", key_.size(), "; expected ", query_.size(3),
                ", as query");
  }

  // A list for all sequences, or one number for each.
  static std::vector<int64_t> of_each(const char* name, Ints list, int64_t batch) {
    if (list.size() == 1) return std::vector<int64_t>(batch, list[0]);
    TORCH_CHECK(static_cast<int64_t>(list.size()) >= batch, name, " has ", list.size(), " elements; expected 1 or ",
                batch);
    return list.slice(0, batch).vec();
  }

  // Lengths from the ends of sequences that follow each other, and where they begin.
  static void from_ends(const char* name, Ints ends, int64_t tokens, std::vector<int64_t>& begins,
                        std::vector<int64_t>& lengths) {
    int64_t begin = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      TORCH_CHECK(ends[i] >= begin && ends[i] <= tokens, name, "[", i, "] is ", ends[i], "; expected ", begin, " to ",
                  tokens, ", since it is the end of a sequence");
      begins.push_back(begin);
      lengths.push_back(ends[i] - begin);
      begin = ends[i];
    }
  }

  void set_lengths() {
    const auto &queries = given_.actual_seq_lengths, &keys = given_.actual_seq_lengths_kv;
    const int64_t most_queries = query_.size(2);
    if (follow_each_other_) {
      TORCH_CHECK(queries.has_value() && !queries->empty(),
                  "actual_seq_lengths is null; expected the ends of sequences with layout ", given_.input_layout);
      from_ends("actual_seq_lengths", *queries, most_queries, query_begin_, query_length_);
      batch_ = static_cast<int64_t>(query_length_.size());
    } else {
      batch_ = query_.size(0);
      query_begin_.assign(batch_, 0);
      query_length_.assign(batch_, most_queries);
      if (queries.has_value() && !queries->empty() && most_queries > 1) {
        query_length_ = of_each("actual_seq_lengths", *queries, batch_);
        check_values("actual_seq_lengths", query_length_, 0, most_queries);
      }
    }
    const bool paged = given_.block_table.has_value();
    const bool keys_follow = follow_each_other_ && !paged;
    TORCH_CHECK((!paged && !keys_follow) || (keys.has_value() && !keys->empty()),
                "actual_seq_lengths_kv is null; expected a list with ", paged ? "block_table" : given_.input_layout);
    key_begin_.assign(batch_, 0);
    if (keys_follow) {
      TORCH_CHECK(key_.tensors.size() == 1, "key has ", key_.tensors.size(), " tensors; expected 1 in this layout");
      TORCH_CHECK(static_cast<int64_t>(keys->size()) == batch_, "actual_seq_lengths_kv has ", keys->size(),
                  " sequences; expected ", batch_, ", as actual_seq_lengths");
      key_begin_.clear();
      from_ends("actual_seq_lengths_kv", *keys, key_.tokens(), key_begin_, key_length_);
      return;
    }
    const bool listed = key_.tensors.size() > 1;
    if (paged) {
      TORCH_CHECK(given_.block_table->size(0) >= batch_, "block_table has shape ", given_.block_table->sizes(),
                  "; expected ", batch_, " rows");
    } else {
      const int64_t found = listed ? static_cast<int64_t>(key_.tensors.size()) : key_.tensors[0].size(0);
      TORCH_CHECK(found == batch_, "key has ", found, " sequences; expected ", batch_, ", as query");
    }
    for (int64_t b = 0; b < batch_; ++b) {
      key_length_.push_back(paged ? given_.block_table->size(1) * given_.block_size
                                  : key_.tensors[listed ? b : 0].size(2));
    }
    if (!keys.has_value() || keys->empty()) return;
    const auto most = std::exchange(key_length_, of_each("actual_seq_lengths_kv", *keys, batch_));
    for (int64_t b = 0; b < batch_; ++b) {
      TORCH_CHECK(key_length_[b] >= 0 && key_length_[b] <= most[b], "actual_seq_lengths_kv[", b, "] is ",
                  key_length_[b], "; expected 0 to ", most[b]);
    }
  }

  static ScaleOf scale_of(const char* name, int64_t mode) {
    check_range(name, mode, 0, 5);
    return static_cast<ScaleOf>(mode);
  }

  void set_quantization() {
    const auto& g = given_;
    const bool separate = g.key_antiquant_scale.has_value();
    TORCH_CHECK(separate == g.value_antiquant_scale.has_value(),
                "value_antiquant_scale and key_antiquant_scale must be given together");
    if (separate) {
      key_scaling_ = {"key_antiquant_scale", g.key_antiquant_scale, g.key_antiquant_offset,
                      scale_of("key_antiquant_mode", g.key_antiquant_mode)};
      value_scaling_ = {"value_antiquant_scale", g.value_antiquant_scale, g.value_antiquant_offset,
                        scale_of("value_antiquant_mode", g.value_antiquant_mode)};
    } else if (g.antiquant_scale.has_value()) {
      TORCH_CHECK(g.antiquant_scale->dim() > 0 && g.antiquant_scale->size(0) == 2, "antiquant_scale has shape ",
                  g.antiquant_scale->sizes(), "; expected 2 in the first dimension, of keys and of values");
      check_range("antiquant_mode", g.antiquant_mode, 0, 1);
      const auto part = [](const MaybeTensor& tensor, int64_t i) {
        return tensor.has_value() ? MaybeTensor(tensor->narrow(0, i, 1)) : std::nullopt;
      };
      const auto of = scale_of("antiquant_mode", g.antiquant_mode);
      key_scaling_ = {"antiquant_scale", part(g.antiquant_scale, 0), part(g.antiquant_offset, 0), of};
      value_scaling_ = {"antiquant_scale", part(g.antiquant_scale, 1), part(g.antiquant_offset, 1), of};
    }
    const at::ScalarType type = g.query.scalar_type();
    const auto key_type = g.key[0].scalar_type();
    TORCH_CHECK(g.value[0].scalar_type() == key_type, "value has dtype ", g.value[0].scalar_type(),
                "; expected that of key, ", key_type);
    const bool scaled = key_scaling_.scale.has_value();
    const bool fully = g.deq_scale1.has_value() || g.quant_scale1.has_value() || g.deq_scale2.has_value();
    if (type == at::kChar) {
      TORCH_CHECK(key_type == at::kChar, "key has dtype ", key_type, "; expected int8, as query");
      TORCH_CHECK(fully != g.dequant_scale_query.has_value(),
                  "query has dtype int8; expected either deq_scale1, quant_scale1 and deq_scale2, or "
                  "dequant_scale_query");
      if (fully) {
        TORCH_CHECK(g.deq_scale1.has_value() && g.quant_scale1.has_value() && g.deq_scale2.has_value(),
                    "deq_scale1, quant_scale1 and deq_scale2 must be given together");
        for (const auto& [name, scale] :
             {std::pair("deq_scale1", g.deq_scale1), {"quant_scale1", g.quant_scale1}, {"deq_scale2", g.deq_scale2}}) {
          TORCH_CHECK(scale->numel() == 1, name, " has shape ", scale->sizes(), "; expected one element");
        }
        TORCH_CHECK(!scaled && !g.query_rope.has_value(), separate ? "key_antiquant_scale" : "query_rope",
                    " is not served with deq_scale1");
      } else {
        TORCH_CHECK(scaled, "key_antiquant_scale is null; expected a tensor with dequant_scale_query");
      }
    } else {
      TORCH_CHECK(!fully, "deq_scale1, quant_scale1 and deq_scale2 are for an int8 query; query has dtype ", type);
      TORCH_CHECK(!g.dequant_scale_query.has_value(), "dequant_scale_query is for an int8 query; query has dtype ",
                  type);
      const bool quantized = key_type == at::kChar || key_type == at::kInt;
      TORCH_CHECK(quantized || key_type == type, "key has dtype ", key_type, "; expected ", type, ", as query");
      TORCH_CHECK(
          quantized == scaled,
          quantized ? "key_antiquant_scale is null; expected a tensor" : "key_antiquant_scale is for quantised keys",
          "; key has dtype ", key_type);
    }
    if (g.dequant_scale_query.has_value()) {
      TORCH_CHECK(g.query_quant_mode == 3, "query_quant_mode is ", g.query_quant_mode, "; expected 3");
      auto letters = layout_ == "BSH" ? std::string("BSND") : std::string(layout_);
      check_rank("dequant_scale_query", *g.dequant_scale_query, static_cast<int64_t>(letters.size()) - 1);
      query_scale_ = by_head(g.dequant_scale_query->unsqueeze(-1), letters, g.num_heads);
      TORCH_CHECK(query_scale_.sizes().slice(0, 3) == query_.sizes().slice(0, 3), "dequant_scale_query has shape ",
                  g.dequant_scale_query->sizes(), "; expected one for each head and token of query, ", g.query.sizes());
    }
    for (int64_t b = 0; b < std::min<int64_t>(batch_, 1); ++b) {
      (void)scale_reader(key_scaling_, key_, b);
      (void)scale_reader(value_scaling_, value_, b);
    }
    const auto channels = g.num_heads * value_.size();
    for (const auto& [name, tensor] : {std::pair("quant_scale2", g.quant_scale2), {"quant_offset2", g.quant_offset2}}) {
      TORCH_CHECK(!tensor.has_value() || tensor->numel() == 1 || tensor->numel() == channels, name, " has shape ",
                  tensor.has_value() ? tensor->sizes() : Ints(), "; expected 1 or ", channels, " elements");
    }
    TORCH_CHECK(g.quant_scale2.has_value() || !g.quant_offset2.has_value(),
                "quant_offset2 is given without quant_scale2");
    const auto out_type = g.attention_out.scalar_type();
    TORCH_CHECK(
        (out_type == at::kChar) == g.quant_scale2.has_value(), "attention_out has dtype ", out_type, "; ",
        g.quant_scale2.has_value() ? "expected int8 with quant_scale2" : "int8 takes quant_scale2, which is null");
  }

  // The mask (batch or 1, heads or 1, queries or 1, keys) of modes 0 and 1.
  void set_mask() {
    const auto& g = given_;
    mode_ = g.sparse_mode;
    // The documents of one query without a rotary part say that the mode has no effect.
    one_query_ = !follow_each_other_ && query_.size(2) == 1 && !g.query_rope.has_value();
    const auto& mask = g.atten_mask;
    const bool compressed = mask.has_value() && mask->dim() >= 2 && mask->size(-1) == kCompressedMask &&
                            mask->size(-2) == kCompressedMask && mask->numel() == kCompressedMask * kCompressedMask;
    if (mode_ >= 2) {
      TORCH_CHECK(compressed || one_query_, "atten_mask ",
                  mask.has_value() ? c10::str("has shape ", mask->sizes()) : "is null",
                  "; expected [2048, 2048] with sparse_mode ", mode_);
      if (compressed) return;
      mode_ = 0;
    }
    TORCH_CHECK(mode_ == 0 || mask.has_value(), "atten_mask is null; expected a tensor with sparse_mode 1");
    if (!mask.has_value()) return;
    TORCH_CHECK(!follow_each_other_, "atten_mask with layout ", g.input_layout, " takes sparse_mode 3 or 4");
    switch (mask->dim()) {
      case 2:
        mask_ = query_.size(2) == 1 ? mask->unsqueeze(1).unsqueeze(1) : mask->unsqueeze(0).unsqueeze(0);
        break;
      case 3:
        mask_ = mask->unsqueeze(1);
        break;
      default:
        check_rank("atten_mask", *mask, 4);
        mask_ = *mask;
    }
    const int64_t most = most_keys();
    TORCH_CHECK((mask_.size(0) == 1 || mask_.size(0) == batch_) &&
                    (mask_.size(1) == 1 || mask_.size(1) == g.num_heads) && mask_.size(2) >= query_.size(2) &&
                    mask_.size(3) >= most,
                "atten_mask has shape ", mask->sizes(), "; expected ", query_.size(2), " queries and ", most,
                " keys of ", batch_, " sequences, or of all");
  }

  int64_t prefix_length() const {
    if (!given_.key_shared_prefix.has_value()) return 0;
    return given_.actual_shared_prefix_len.has_value() && !given_.actual_shared_prefix_len->empty()
               ? given_.actual_shared_prefix_len->front()
               : key_prefix_.size(1);
  }

  // Of all sequences, with the prefix.
  int64_t most_keys() const {
    int64_t most = 0;
    for (const int64_t length : key_length_) most = std::max(most, length);
    return most + prefix_length();
  }

  void set_others() {
    const auto& g = given_;
    const bool paged = g.block_table.has_value();
    if (g.pse_shift.has_value()) {
      check_rank("pse_shift", *g.pse_shift, 4);
      TORCH_CHECK(!follow_each_other_, "pse_shift is not served with layout ", g.input_layout);
      const auto& shift = *g.pse_shift;
      const int64_t most = most_keys();
      TORCH_CHECK((shift.size(0) == 1 || shift.size(0) == batch_) && shift.size(1) == g.num_heads &&
                      shift.size(2) >= query_.size(2) && shift.size(3) >= most,
                  "pse_shift has shape ", shift.sizes(), "; expected [", batch_, " or 1, ", g.num_heads, ", ",
                  query_.size(2), ", ", most, "]");
    }
    TORCH_CHECK(g.pse_type == 0, "pse_type is ", g.pse_type, "; expected 0");
    TORCH_CHECK(!g.query_padding_size.has_value() || !paged, "query_padding_size is not served with block_table");
    TORCH_CHECK(!g.kv_padding_size.has_value() || !paged, "kv_padding_size is not served with block_table");
    if (g.learnable_sink.has_value()) check_shape("learnable_sink", *g.learnable_sink, {g.num_heads});
    auto shape = query_.sizes().vec();
    shape[3] = value_.size();
    const auto& out = g.attention_out;
    TORCH_CHECK(out.dim() == static_cast<int64_t>(out_layout_.size()), "attention_out has shape ", out.sizes(),
                "; expected ", out_layout_.size(), " dimensions in layout ", out_layout_);
    out_ = by_head(out, out_layout_, g.num_heads);
    TORCH_CHECK(out_.sizes() == Ints(shape), "attention_out has shape ", out.sizes(), " in layout ", out_layout_,
                ", which as [batch, heads, tokens, size] is ", out_.sizes(), "; expected ", Ints(shape));
    if (!g.softmax_lse_flag) return;
    TORCH_CHECK(g.softmax_lse.has_value(), "softmax_lse is null; expected a tensor with softmax_lse_flag");
    TORCH_CHECK(g.softmax_lse->scalar_type() == at::kFloat, "softmax_lse has dtype ", g.softmax_lse->scalar_type(),
                "; expected float32 with softmax_lse_flag");
    if (follow_each_other_) {
      check_shape("softmax_lse", *g.softmax_lse, {shape[2], shape[1], 1});
      log_sum_ = g.softmax_lse->transpose(0, 1).unsqueeze(0);
    } else {
      check_shape("softmax_lse", *g.softmax_lse, {shape[0], shape[1], shape[2], 1});
      log_sum_ = *g.softmax_lse;
    }
  }

  void set_prefix() {
    const auto& g = given_;
    TORCH_CHECK(g.key_shared_prefix.has_value() == g.value_shared_prefix.has_value(),
                "key_shared_prefix and value_shared_prefix must be given together");
    if (!g.key_shared_prefix.has_value()) return;
    TORCH_CHECK(!g.block_table.has_value() && g.key.size() == 1 && !follow_each_other_,
                "key_shared_prefix is not served with block_table, lists of keys or layout ", g.input_layout);
    key_prefix_ = prefix("key_shared_prefix", *g.key_shared_prefix, key_);
    value_prefix_ = prefix("value_shared_prefix", *g.value_shared_prefix, value_);
    TORCH_CHECK(prefix_length() >= 0 && prefix_length() <= std::min(key_prefix_.size(1), value_prefix_.size(1)),
                "actual_shared_prefix_len is ", prefix_length(), "; expected 0 to ", key_prefix_.size(1));
  }

  at::Tensor prefix(const char* name, const at::Tensor& tensor, const Stored& like) const {
    check_rank(name, tensor, static_cast<int64_t>(layout_.size()));
    const auto view = by_head(tensor, layout_, key_heads_);
    TORCH_CHECK(view.size(0) == 1 && view.size(1) == key_heads_ && view.size(3) == like.size(), name, " has shape ",
                tensor.sizes(), "; expected 1 sequence of ", key_heads_, " heads of size ", like.size());
    return view[0];
  }

  // Left padding: the sequence ends so many tokens before the end.
  void read_padding() {
    const auto read = [&](const char* name, const MaybeTensor& sizes, bool given, int64_t tokens,
                          const std::vector<int64_t>& lengths, std::vector<int64_t>& begins) {
      if (!sizes.has_value() || !given || follow_each_other_) return;
      const auto all = sizes->reshape({-1}).to(at::kLong);
      for (int64_t b = 0; b < batch_; ++b) {
        const auto padding = std::max<int64_t>(all[all.numel() == 1 ? 0 : b].item<int64_t>(), 0);
        begins[b] = tokens - padding - lengths[b];
        TORCH_CHECK(begins[b] >= 0, name, "[", b, "] is ", padding, "; expected at most ", tokens - lengths[b]);
      }
    };
    if (query_.size(2) > 1) {
      read("query_padding_size", given_.query_padding_size, given_.actual_seq_lengths.has_value(), query_.size(2),
           query_length_, query_begin_);
    }
    if (key_.tensors.size() == 1) {
      read("kv_padding_size", given_.kv_padding_size, given_.actual_seq_lengths_kv.has_value(), key_.tokens(),
           key_length_, key_begin_);
    }
  }

  void check_pages() {
    if (!given_.block_table.has_value()) return;
    pages_ = given_.block_table->to(at::kLong).contiguous();
    const int64_t* pages = pages_.const_data_ptr<int64_t>();
    const int64_t count = key_.tensors[0].size(0);
    for (int64_t b = 0; b < batch_; ++b) {
      const int64_t used = (key_length_[b] + given_.block_size - 1) / given_.block_size;
      for (int64_t i = 0; i < used; ++i) {
        const int64_t page = pages[b * pages_.size(1) + i];
        TORCH_CHECK(page >= 0 && page < count, "block_table[", b, ", ", i, "] is ", page, "; expected 0 to ",
                    count - 1);
      }
    }
  }

  bool covers_all_queries() const {
    int64_t total = 0;
    for (const int64_t length : query_length_) total += length;
    return total == query_.size(0) * query_.size(2);
  }

  // The tokens of sequence b from begin on, (heads, tokens, size), of what is stored without pages.
  at::Tensor tokens_in(const Stored& stored, int64_t b, int64_t begin, int64_t count) const {
    const bool is_alone = stored.tensors.size() > 1;
    const auto sequence = stored.tensors[is_alone ? b : 0][is_alone || follow_each_other_ ? 0 : b];
    return sequence.narrow(1, key_begin_[b] + begin, count).squeeze(2);
  }

  // Writes the heads from head on and the tokens of sequence b from begin on, of a tensor like Stored's, to rows,
  // (heads, tokens, size).
  void read_tokens(const Stored& stored, int64_t b, int64_t head, int64_t begin, const at::Tensor& rows) const {
    if (!given_.block_table.has_value()) {
      rows.copy_(tokens_in(stored, b, begin, rows.size(1)).narrow(0, head, rows.size(0)));
      return;
    }
    const auto all = stored.tensors[0].narrow(1, head, rows.size(0));
    const at::Tensor parts = rows.unflatten(2, {all.size(3), all.size(4)});
    const int64_t* pages = pages_.const_data_ptr<int64_t>() + b * pages_.size(1);
    for (int64_t done = 0; done < rows.size(1);) {
      const int64_t token = begin + done, first = token % given_.block_size;
      const int64_t n = std::min(given_.block_size - first, rows.size(1) - done);
      parts.narrow(1, done, n).copy_(all[pages[token / given_.block_size]].narrow(1, first, n));
      done += n;
    }
  }

  // The same in another tensor, which is like `rows` but for its dtype and the size of a token.
  at::Tensor tokens(const Stored& stored, int64_t b, int64_t head, int64_t begin, const at::Tensor& rows,
                    at::ScalarType type) const {
    const auto& all = stored.tensors[0];
    const at::Tensor result =
        at::empty({std::min(rows.size(0), all.size(1)), rows.size(1), all.size(3) * all.size(4)}, type);
    read_tokens(stored, b, all.size(1) == 1 ? 0 : head, begin, result);
    return result;
  }

  using Reader = std::function<at::Tensor(int64_t head, int64_t begin, const at::Tensor& rows)>;

  // Scales or offsets of the tokens of a sequence, which broadcast to rows, (heads, tokens, size).
  Reader reader(const char* name, const at::Tensor& scales, ScaleOf of, const Stored& stored, int64_t b) const {
    const auto rejected = [&](const char* expected) {
      TORCH_CHECK(false, name, " has shape ", scales.sizes(), "; expected ", expected);
    };
    const auto flat = scales.dim() > 0 && scales.size(0) == 1 && scales.dim() > 2 ? scales.squeeze(0) : scales;
    const int64_t most =
        given_.block_table.has_value() ? given_.block_table->size(1) * given_.block_size : key_.tensors[0].size(2);
    switch (of) {
      case ScaleOf::Channel: {
        if (scales.numel() == 1) {
          return [one = scales.reshape({1, 1, 1})](int64_t, int64_t, const at::Tensor&) { return one.to(at::kFloat); };
        }
        if (scales.numel() != key_heads_ * stored.size()) rejected("one element, or one for each channel");
        const auto all = scales.reshape({key_heads_, 1, stored.size()});
        return [all](int64_t head, int64_t, const at::Tensor& rows) {
          return all.narrow(0, head, rows.size(0)).to(at::kFloat);
        };
      }
      case ScaleOf::Head: {
        if (scales.numel() != key_heads_) rejected("one for each head");
        const auto all = scales.reshape({key_heads_, 1, 1});
        return [all](int64_t head, int64_t, const at::Tensor& rows) {
          return all.narrow(0, head, rows.size(0)).to(at::kFloat);
        };
      }
      case ScaleOf::Token: {
        if (flat.dim() != 2 || flat.size(0) < batch_ || flat.size(1) < std::min(most, key_length_[b])) {
          rejected("[1, batch, tokens]");
        }
        const auto all = flat[b].reshape({1, -1, 1});
        return [this, all, b](int64_t, int64_t begin, const at::Tensor& rows) {
          return all.narrow(1, key_begin_[b] + begin, rows.size(1)).to(at::kFloat);
        };
      }
      case ScaleOf::TokenAndHead: {
        if (flat.dim() != 3 || flat.size(0) < batch_ || flat.size(1) != key_heads_ || flat.size(2) < key_length_[b]) {
          rejected("[1, batch, heads, tokens]");
        }
        const auto all = flat[b].unsqueeze(-1);
        return [this, all, b](int64_t head, int64_t begin, const at::Tensor& rows) {
          const auto heads = all.narrow(0, head, rows.size(0));
          return heads.narrow(1, key_begin_[b] + begin, rows.size(1)).to(at::kFloat);
        };
      }
      case ScaleOf::TokenInPages:
      case ScaleOf::HeadInPages: {
        const bool by_head = of == ScaleOf::HeadInPages;
        const int64_t heads = by_head ? key_heads_ : 1;
        const auto pages = stored.tensors[0].size(0);
        if (!given_.block_table.has_value() || scales.numel() != pages * heads * given_.block_size) {
          rejected(by_head ? "[blocks, heads, block_size], with block_table"
                           : "[blocks, block_size], with block_table");
        }
        const Stored as_cache{{scales.reshape({pages, heads, given_.block_size, 1, 1})}};
        return [this, as_cache, b](int64_t head, int64_t begin, const at::Tensor& rows) {
          return tokens(as_cache, b, head, begin, rows, at::kFloat);
        };
      }
    }
    return nullptr;
  }

  std::pair<Reader, Reader> scale_reader(const Scaling& scaling, const Stored& stored, int64_t b) const {
    std::pair<Reader, Reader> readers;
    if (scaling.scale.has_value()) readers.first = reader(scaling.name, *scaling.scale, scaling.of, stored, b);
    if (scaling.offset.has_value()) {
      TORCH_CHECK(scaling.scale.has_value() && scaling.offset->sizes() == scaling.scale->sizes(), scaling.name,
                  " has shape ", scaling.scale->sizes(), ", its offset has shape ", scaling.offset->sizes());
      readers.second = reader(scaling.name, *scaling.offset, scaling.of, stored, b);
    }
    return readers;
  }

  Rows sequence(const Stored& stored, const Scaling& scaling, int64_t b) const {
    const auto [scale, offset] = scale_reader(scaling, stored, b);
    const bool packed = stored.tensors[0].scalar_type() == at::kInt;
    if (!packed && !scale && !offset && !given_.block_table.has_value()) {
      return rows_of(tokens_in(stored, b, 0, key_length_[b]));
    }
    return {key_heads_, key_length_[b], stored.size(),
            [=, this, &stored](int64_t head, int64_t begin, const at::Tensor& rows) {
              if (packed) {
                rows.copy_(unpacked_int4(tokens(stored, b, head, begin, rows, at::kInt)));
              } else {
                read_tokens(stored, b, head, begin, rows);
              }
              if (offset) rows.add_(offset(head, begin, rows));
              if (scale) rows.mul_(scale(head, begin, rows));
            },
            packed || offset || scale ? std::nullopt : std::optional(stored.tensors[0].scalar_type())};
  }

  Rows with_prefix(const at::Tensor& prefix, Rows rows, const Scaling& scaling) const {
    if (!prefix.defined()) return rows;
    Rows first = rows_of(prefix.narrow(1, 0, prefix_length()));
    if (scaling.scale.has_value()) {
      TORCH_CHECK(scaling.of == ScaleOf::Channel, scaling.name, " must be one for each channel with a shared prefix");
      const auto scale = scaling.scale->to(at::kFloat).reshape({scaling.scale->numel() == 1 ? 1 : key_heads_, 1, -1});
      const auto offset = scaling.offset.has_value()
                              ? MaybeTensor(scaling.offset->to(at::kFloat).reshape(scale.sizes()))
                              : std::nullopt;
      first.read = [read = first.read, scale, offset](int64_t head, int64_t begin, const at::Tensor& rows) {
        const auto of_heads = [&](const at::Tensor& all) {
          return all.size(0) == 1 ? all : all.narrow(0, head, rows.size(0));
        };
        read(head, begin, rows);
        rows.copy_(dequantized(rows, of_heads(scale), offset.has_value() ? MaybeTensor(of_heads(*offset)) : offset));
      };
    }
    return one_after_other(std::move(first), std::move(rows));
  }

  Visibility visible(int64_t b, int64_t keys) const {
    const int64_t queries = query_length_[b];
    if (mode_ >= 2) {
      // For one query mode 2 has no effect either.
      return visibility(one_query_ && mode_ == 2 ? 3 : mode_, given_.pre_tokens, given_.next_tokens, queries, keys, {});
    }
    if (!mask_.defined()) return {};
    const auto of_sequence = mask_[mask_.size(0) == 1 ? 0 : b];
    const auto part =
        of_sequence.narrow(1, mask_.size(2) == 1 ? 0 : query_begin_[b], queries).narrow(2, key_begin_[b], keys);
    const bool padded = given_.query_padding_size.has_value() || given_.kv_padding_size.has_value();
    return visibility(one_query_ || padded ? 1 : mode_, given_.pre_tokens, given_.next_tokens, queries, keys, part);
  }

  bool values_are_keys() const {
    const auto& key = given_.key[0];
    const auto& value = given_.value[0];
    return given_.key.size() == 1 && !key_prefix_.defined() && !key_scaling_.scale.has_value() &&
           !value_scaling_.scale.has_value() && key.const_data_ptr() == value.const_data_ptr() &&
           key.sizes() == value.sizes() && key.strides() == value.strides();
  }

  void attend_to(int64_t b, const std::optional<Attention::Quantized>& quantized) {
    const int64_t place = follow_each_other_ ? 0 : b, begin = query_begin_[b], length = query_length_[b];
    const auto of_sequence = [&](const at::Tensor& tensor) { return tensor[place].narrow(1, begin, length); };
    auto query = of_sequence(query_);
    if (query_scale_.defined()) query = query.to(at::kFloat) * of_sequence(query_scale_);
    Rows key = with_prefix(key_prefix_, sequence(key_, key_scaling_, b), key_scaling_);
    if (query_rope_.defined()) {
      const auto rope = of_sequence(query_rope_);
      query = query.scalar_type() == rope.scalar_type() ? at::cat({query, rope}, 2)
                                                        : at::cat({query.to(at::kFloat), rope.to(at::kFloat)}, 2);
      key = side_by_side(key, sequence(key_rope_, {}, b));
    }
    const int64_t keys = key.length;
    Attention attention{.query = query,
                        .key = std::move(key),
                        .value = with_prefix(value_prefix_, sequence(value_, value_scaling_, b), value_scaling_),
                        .scale = given_.scale_value,
                        .visible = visible(b, keys),
                        .values_are_keys = values_are_keys(),
                        .sinks = given_.learnable_sink,
                        .quantized = quantized};
    if (given_.pse_shift.has_value()) {
      const auto all = (*given_.pse_shift)[given_.pse_shift->size(0) == 1 ? 0 : b]
                           .narrow(1, begin, length)
                           .narrow(2, key_begin_[b], keys);
      attention.shift = [all](const Block& block) { return part_of(all, block); };
    }
    const auto out = of_sequence(out_);
    AttentionResults results = written_to(out);
    if (given_.quant_scale2.has_value()) {
      results = {.write = [&](const Block& queries, const at::Tensor& values) {
        const auto by_channel = [&](const at::Tensor& tensor) {
          const auto all = tensor.to(at::kFloat).reshape({tensor.numel() == 1 ? 1 : given_.num_heads, 1, -1});
          return queries_of(all, queries);
        };
        const auto offset =
            given_.quant_offset2.has_value() ? MaybeTensor(by_channel(*given_.quant_offset2)) : std::nullopt;
        queries_of(out, queries).copy_(quantized_to_int8(values, by_channel(*given_.quant_scale2), offset));
      }};
    }
    if (log_sum_.defined()) results.log_sum = of_sequence(log_sum_);
    attend(attention, results);
  }

  static at::Tensor quantized_to_int8(const at::Tensor& values, const at::Tensor& scale, const MaybeTensor& offset) {
    return cann_cpu::quantized(values, scale, offset, at::kChar);
  }

  const Inference& given_;
  std::string_view layout_, out_layout_;
  bool follow_each_other_ = false, one_query_ = false;
  int64_t key_heads_ = 0, batch_ = 0, mode_ = 0;
  at::Tensor query_, query_rope_, query_scale_, out_, log_sum_, mask_, key_prefix_, value_prefix_, pages_;
  Stored key_, value_, key_rope_;
  Scaling key_scaling_{}, value_scaling_{};
  std::vector<int64_t> query_begin_, query_length_, key_begin_, key_length_;
};

void infer(Phase phase, const Inference& given) {
  if (phase == Phase::Run && given.query.numel() == 0) return;
  InferencePlan plan(given);
  if (phase == Phase::Run) plan.run();
}

// The parameters that the versions have in common, and how they are passed on.
#define FUSED_TENSORS                                                                                                 \
  In query, Tensors key, Tensors value, OptionalIn pse_shift, OptionalIn atten_mask, OptionalInts actual_seq_lengths, \
      OptionalInts actual_seq_lengths_kv, OptionalIn deq_scale1, OptionalIn quant_scale1, OptionalIn deq_scale2,      \
      OptionalIn quant_scale2, OptionalIn quant_offset2, OptionalIn antiquant_scale, OptionalIn antiquant_offset,     \
      OptionalIn block_table, OptionalIn query_padding_size, OptionalIn kv_padding_size
#define FUSED_SEPARATE                                                                                 \
  OptionalIn key_antiquant_scale, OptionalIn key_antiquant_offset, OptionalIn value_antiquant_scale,   \
      OptionalIn value_antiquant_offset, OptionalIn key_shared_prefix, OptionalIn value_shared_prefix, \
      OptionalInts actual_shared_prefix_len
#define FUSED_ROPE OptionalIn query_rope, OptionalIn key_rope, KeyRopeScale
#define FUSED_ATTRIBUTES                                                                                            \
  int64_t num_heads, double scale_value, int64_t pre_tokens, int64_t next_tokens, Text input_layout,                \
      int64_t num_key_value_heads, int64_t sparse_mode, InnerPrecision, int64_t block_size, int64_t antiquant_mode, \
      bool softmax_lse_flag
#define FUSED_MODES int64_t key_antiquant_mode, int64_t value_antiquant_mode
#define FUSED_RESULTS Out attention_out, OptionalOut softmax_lse

#define FUSED_GIVEN                                                                                                   \
  .query = query, .key = key, .value = value, .pse_shift = pse_shift, .atten_mask = atten_mask,                       \
  .actual_seq_lengths = actual_seq_lengths, .actual_seq_lengths_kv = actual_seq_lengths_kv, .deq_scale1 = deq_scale1, \
  .quant_scale1 = quant_scale1, .deq_scale2 = deq_scale2, .quant_scale2 = quant_scale2,                               \
  .quant_offset2 = quant_offset2, .antiquant_scale = antiquant_scale, .antiquant_offset = antiquant_offset,           \
  .block_table = block_table, .query_padding_size = query_padding_size, .kv_padding_size = kv_padding_size
#define FUSED_SEPARATE_GIVEN                                                                        \
  .key_antiquant_scale = key_antiquant_scale, .key_antiquant_offset = key_antiquant_offset,         \
  .value_antiquant_scale = value_antiquant_scale, .value_antiquant_offset = value_antiquant_offset, \
  .key_shared_prefix = key_shared_prefix, .value_shared_prefix = value_shared_prefix,               \
  .actual_shared_prefix_len = actual_shared_prefix_len
#define FUSED_ATTRIBUTES_GIVEN                                                                                    \
  .num_heads = num_heads, .num_key_value_heads = num_key_value_heads, .scale_value = scale_value,                 \
  .input_layout = input_layout, .pre_tokens = pre_tokens, .next_tokens = next_tokens, .sparse_mode = sparse_mode, \
  .block_size = block_size, .antiquant_mode = antiquant_mode, .softmax_lse_flag = softmax_lse_flag
#define FUSED_MODES_GIVEN .key_antiquant_mode = key_antiquant_mode, .value_antiquant_mode = value_antiquant_mode
#define FUSED_RESULTS_GIVEN .attention_out = attention_out, .softmax_lse = softmax_lse

#define FUSED_DTYPES                                                                                      \
  "query: float16 bfloat16 int8; key, value: float16 bfloat16 int8 int32; pse_shift: float16 bfloat16;"   \
  "atten_mask: bool int8 uint8; deq_scale1, deq_scale2: uint64 float32; quant_scale1: float32;"           \
  "quant_scale2, quant_offset2: float32 bfloat16; antiquant_scale: float16 bfloat16 float32;"             \
  "antiquant_offset: as antiquant_scale; block_table: int32; query_padding_size, kv_padding_size: int64;" \
  "attention_out: float16 bfloat16 int8; softmax_lse: float32 float16 bfloat16;"
#define FUSED_SEPARATE_DTYPES                                                                       \
  "key_antiquant_scale, value_antiquant_scale: float16 bfloat16 float32;"                           \
  "key_antiquant_offset: as key_antiquant_scale; value_antiquant_offset: as value_antiquant_scale;" \
  "key_shared_prefix, value_shared_prefix: float16 bfloat16 int8;"
#define FUSED_ROPE_DTYPES "query_rope, key_rope: float16 bfloat16;"
#define FUSED_SINK_DTYPES "dequant_scale_query: float32; learnable_sink: float32 float16 bfloat16;"

// The most workspace of any call with these shapes is none, as for this call.
#define MAX_WORKSPACE(Op)                                                            \
  extern "C" CANN_EXPORT decltype(Op##PhaseOne::call) aclnn##Op##GetMaxWorkspaceSize \
      [[gnu::ifunc("aclnn" #Op "Resolve")]]

}  // namespace

ACLNN_TYPED_CHECKED(FusedInferAttentionScore, FUSED_DTYPES,
                    [](Phase phase, FUSED_TENSORS, FUSED_ATTRIBUTES, FUSED_RESULTS) {
                      infer(phase, {FUSED_GIVEN, FUSED_ATTRIBUTES_GIVEN, FUSED_RESULTS_GIVEN});
                    });
ACLNN_TYPED_CHECKED(FusedInferAttentionScoreV2, FUSED_DTYPES FUSED_SEPARATE_DTYPES,
                    [](Phase phase, FUSED_TENSORS, FUSED_SEPARATE, FUSED_ATTRIBUTES, FUSED_MODES, FUSED_RESULTS) {
                      infer(phase, {FUSED_GIVEN, FUSED_SEPARATE_GIVEN, FUSED_ATTRIBUTES_GIVEN, FUSED_MODES_GIVEN,
                                    FUSED_RESULTS_GIVEN});
                    });
ACLNN_TYPED_CHECKED(FusedInferAttentionScoreV3, FUSED_DTYPES FUSED_SEPARATE_DTYPES FUSED_ROPE_DTYPES,
                    [](Phase phase, FUSED_TENSORS, FUSED_SEPARATE, FUSED_ROPE, FUSED_ATTRIBUTES, FUSED_MODES,
                       FUSED_RESULTS) {
                      infer(phase, {FUSED_GIVEN, FUSED_SEPARATE_GIVEN, .query_rope = query_rope, .key_rope = key_rope,
                                    FUSED_ATTRIBUTES_GIVEN, FUSED_MODES_GIVEN, FUSED_RESULTS_GIVEN});
                    });
MAX_WORKSPACE(FusedInferAttentionScoreV3);
ACLNN_TYPED_CHECKED(FusedInferAttentionScoreV4, FUSED_DTYPES FUSED_SEPARATE_DTYPES FUSED_ROPE_DTYPES FUSED_SINK_DTYPES,
                    [](Phase phase, FUSED_TENSORS, FUSED_SEPARATE, FUSED_ROPE, OptionalIn dequant_scale_query,
                       OptionalIn learnable_sink, FUSED_ATTRIBUTES, FUSED_MODES, int64_t query_quant_mode,
                       FUSED_RESULTS) {
                      infer(phase, {FUSED_GIVEN, FUSED_SEPARATE_GIVEN, .query_rope = query_rope, .key_rope = key_rope,
                                    .dequant_scale_query = dequant_scale_query, .learnable_sink = learnable_sink,
                                    FUSED_ATTRIBUTES_GIVEN, FUSED_MODES_GIVEN, .query_quant_mode = query_quant_mode,
                                    FUSED_RESULTS_GIVEN});
                    });
MAX_WORKSPACE(FusedInferAttentionScoreV4);
ACLNN_TYPED_CHECKED(FusedInferAttentionScoreV5, FUSED_DTYPES FUSED_SEPARATE_DTYPES FUSED_ROPE_DTYPES FUSED_SINK_DTYPES,
                    [](Phase phase, FUSED_TENSORS, FUSED_SEPARATE, FUSED_ROPE, OptionalIn dequant_scale_query,
                       OptionalIn learnable_sink, QueryStart, KeyStart, FUSED_ATTRIBUTES, FUSED_MODES,
                       int64_t query_quant_mode, int64_t pse_type, FUSED_RESULTS) {
                      infer(phase, {FUSED_GIVEN, FUSED_SEPARATE_GIVEN, .query_rope = query_rope, .key_rope = key_rope,
                                    .dequant_scale_query = dequant_scale_query, .learnable_sink = learnable_sink,
                                    FUSED_ATTRIBUTES_GIVEN, FUSED_MODES_GIVEN, .query_quant_mode = query_quant_mode,
                                    .pse_type = pse_type, FUSED_RESULTS_GIVEN});
                    });
MAX_WORKSPACE(FusedInferAttentionScoreV5);

#define SINGLE_DTYPES                                                                                   \
  "query: float16 bfloat16 int8; key, value: float16 bfloat16 int8; pse_shift: float16 bfloat16;"       \
  "atten_mask: bool int8 uint8 float16; deq_scale1, deq_scale2: uint64 float32; quant_scale1: float32;" \
  "quant_scale2, quant_offset2: float32 bfloat16; attention_out: float16 bfloat16 int8"

ACLNN_TYPED_CHECKED(PromptFlashAttentionV3, SINGLE_DTYPES,
                    [](Phase phase, In query, In key, In value, OptionalIn pse_shift, OptionalIn atten_mask,
                       OptionalInts actual_seq_lengths, OptionalInts actual_seq_lengths_kv, OptionalIn deq_scale1,
                       OptionalIn quant_scale1, OptionalIn deq_scale2, OptionalIn quant_scale2,
                       OptionalIn quant_offset2, int64_t num_heads, double scale_value, int64_t pre_tokens,
                       int64_t next_tokens, Text input_layout, int64_t num_key_value_heads, int64_t sparse_mode,
                       InnerPrecision, Out attention_out) {
                      infer(phase, {.query = query,
                                    .key = {key},
                                    .value = {value},
                                    .pse_shift = pse_shift,
                                    .atten_mask = atten_mask,
                                    .actual_seq_lengths = actual_seq_lengths,
                                    .actual_seq_lengths_kv = actual_seq_lengths_kv,
                                    .deq_scale1 = deq_scale1,
                                    .quant_scale1 = quant_scale1,
                                    .deq_scale2 = deq_scale2,
                                    .quant_scale2 = quant_scale2,
                                    .quant_offset2 = quant_offset2,
                                    .num_heads = num_heads,
                                    .num_key_value_heads = num_key_value_heads,
                                    .scale_value = scale_value,
                                    .input_layout = input_layout,
                                    .pre_tokens = pre_tokens,
                                    .next_tokens = next_tokens,
                                    .sparse_mode = sparse_mode,
                                    .attention_out = attention_out});
                    });

// The lengths are those of the keys.
ACLNN_TYPED_CHECKED(IncreFlashAttentionV4,
                    SINGLE_DTYPES
                    "; antiquant_scale: float16 bfloat16 float32; antiquant_offset: as antiquant_scale;"
                    "block_table: int32; kv_padding_size: int64",
                    [](Phase phase, In query, Tensors key, Tensors value, OptionalIn pse_shift, OptionalIn atten_mask,
                       OptionalInts actual_seq_lengths, OptionalIn deq_scale1, OptionalIn quant_scale1,
                       OptionalIn deq_scale2, OptionalIn quant_scale2, OptionalIn quant_offset2,
                       OptionalIn antiquant_scale, OptionalIn antiquant_offset, OptionalIn block_table,
                       OptionalIn kv_padding_size, int64_t num_heads, double scale_value, Text input_layout,
                       int64_t num_key_value_heads, int64_t block_size, InnerPrecision, Out attention_out) {
                      infer(phase, {.query = query,
                                    .key = key,
                                    .value = value,
                                    .pse_shift = pse_shift,
                                    .atten_mask = atten_mask,
                                    .actual_seq_lengths_kv = actual_seq_lengths,
                                    .deq_scale1 = deq_scale1,
                                    .quant_scale1 = quant_scale1,
                                    .deq_scale2 = deq_scale2,
                                    .quant_scale2 = quant_scale2,
                                    .quant_offset2 = quant_offset2,
                                    .antiquant_scale = antiquant_scale,
                                    .antiquant_offset = antiquant_offset,
                                    .block_table = block_table,
                                    .kv_padding_size = kv_padding_size,
                                    .num_heads = num_heads,
                                    .num_key_value_heads = num_key_value_heads,
                                    .scale_value = scale_value,
                                    .input_layout = input_layout,
                                    .block_size = block_size,
                                    .attention_out = attention_out});
                    });

namespace {

constexpr int64_t kMostParts = 16;

// Attentions of the same queries to parts of the keys: each counts by its share of the sum. An infinite logarithm of
// either sign says that the query sees nothing of the part.
void join_parts(Tensors lse, Tensors local_out, Out out, OptionalOut lse_out) {
  in_blocks(out.size(0), out.size(1) * 2, [&](int64_t begin, int64_t count) {
    const auto part = [&](In tensor) { return tensor.narrow(0, begin, count).to(at::kFloat); };
    const auto log_sum = [&](In tensor) {
      const auto all = part(tensor);
      return all.masked_fill(all.isinf(), kMinusInfinity);
    };
    auto maximum = log_sum(lse[0]);
    for (size_t i = 1; i < lse.size(); ++i) maximum = at::maximum(maximum, log_sum(lse[i]));
    const auto finite = maximum.masked_fill(maximum.isinf(), 0);
    auto sum = at::zeros_like(finite);
    auto values = at::zeros({count, out.size(1)}, at::kFloat);
    for (size_t i = 0; i < lse.size(); ++i) {
      const auto weight = (log_sum(lse[i]) - finite).exp_();
      sum.add_(weight);
      // A part that counts nothing may be not a number.
      values.add_((part(local_out[i]) * weight.unsqueeze(1)).masked_fill_(weight.eq(0).unsqueeze(1), 0));
    }
    const auto sees_nothing = sum.eq(0);
    out.narrow(0, begin, count).copy_(values.div_(sum.unsqueeze(1)).masked_fill_(sees_nothing.unsqueeze(1), 0));
    if (lse_out.has_value()) lse_out->narrow(0, begin, count).copy_(finite + sum.log());
  });
}

void check_parts(Tensors lse, Tensors local_out, int64_t update_type, Out out, OptionalOut lse_out) {
  check_range("update_type", update_type, 0, 1);
  TORCH_CHECK((update_type == 1) == lse_out.has_value(), "lse_out is ", lse_out.has_value() ? "given" : "null",
              "; update_type is ", update_type);
  check_range("the length of lse", static_cast<int64_t>(lse.size()), 1, kMostParts);
  TORCH_CHECK(lse.size() == local_out.size(), "local_out has ", local_out.size(), " tensors; expected ", lse.size(),
              ", as lse");
  check_rank("out", out, 2);
  for (size_t i = 0; i < lse.size(); ++i) {
    check_shape("lse", lse[i], {out.size(0)});
    check_shape("local_out", local_out[i], out.sizes());
  }
  if (lse_out.has_value()) check_shape("lse_out", *lse_out, {out.size(0)});
}

}  // namespace

ACLNN_TYPED_CHECKED(AttentionUpdate, "lse, lse_out: float32; local_out: float32 float16 bfloat16; out: as local_out",
                    [](Phase phase, Tensors lse, Tensors local_out, int64_t update_type, Out out, OptionalOut lse_out) {
                      check_parts(lse, local_out, update_type, out, lse_out);
                      if (phase == Phase::Check) return;
                      join_parts(lse, local_out, out, lse_out);
                    });
