// SPDX-License-Identifier: Apache-2.0
// Attention, rotary embeddings, and their gradients.
#include <limits>
#include <map>

#include "aclnn.h"

namespace cann_cpu::graph {
namespace {

constexpr int64_t kUnlimited = 2147483647;
constexpr size_t kNowhere = 999;   // the place of an input that the node does not have
constexpr size_t kQueryRope = 24;  // an input of attention in inference
constexpr int64_t kHalf = 0;       // the mode of a rotary embedding

// Lists of lengths, which aclnn takes on the host.
Parameter optional_integers(size_t i) {
  return [=](AclnnCall& c) {
    if (c.node.has(i)) {
      integers(i)(c);
    } else {
      plain(int64_t{0})(c);
    }
  };
}

// Where the sequences begin, for a position shift that is computed; torchair always gives 0.
Parameter zero(size_t i) {
  return [=](AclnnCall& c) { reject_unless(!c.node.has(i) || c.node.integer(i) == 0, "a start index"); };
}

// inner_precise says how precisely to compute on the NPU.
Parameter attributes(int64_t tokens) {
  return [=](AclnnCall& c) {
    for (const Parameter& parameter :
         {real("scale_value", 1), real("keep_prob", 1), integer("pre_tockens", tokens), integer("next_tockens", tokens),
          integer("head_num"), text("input_layout", ""), integer("inner_precise", 1), integer("sparse_mode", 0)}) {
      parameter(c);
    }
  };
}

// A float for every head and query, eight times.
at::Tensor statistics(NodeCall& n) {
  const std::string layout = n.text("input_layout", "");
  const auto sizes = n.in(0).sizes();
  const size_t batch = layout.find('B'), tokens = layout.find('S');
  reject_unless(batch < sizes.size() && tokens < sizes.size() && layout.size() == sizes.size(), "this input_layout");
  return new_tensor({sizes[batch], n.integer("head_num"), sizes[tokens], 8}, at::kFloat);
}

// The keys and values of a head in kv, with the shape of its tokens.
at::Tensor of_tokens(NodeCall& n, int64_t size) {
  auto sizes = n.in(0).sizes().vec();
  sizes.back() = size;
  return new_tensor(sizes, n.in(0).scalar_type());
}
at::Tensor turned_keys(NodeCall& n) { return of_tokens(n, n.has(11) ? n.in(0).size(3) : n.in(2).size(3)); }
at::Tensor normal_values(NodeCall& n) { return of_tokens(n, n.has(11) ? n.in(11).size(3) : n.in(1).size(0)); }

// The rows of queries, keys or values before they are quantised, or nothing.
Parameter before_quantization(size_t part) {
  return [=](AclnnCall& c) {
    if (!c.node.flag("is_output_qkv", false)) return absent()(c);
    out([=](NodeCall& n) {
      return new_tensor({n.in(0).size(0), n.integers("head_nums", {})[part] * n.integers("qkv_size", {})[3]},
                        n.in(0).scalar_type());
    })(c);
  };
}

at::Tensor nothing(NodeCall& n) { return new_tensor({0}, n.in(0).scalar_type()); }

// A list of one tensor: the keys of all sequences.
Parameter list_of(size_t i) {
  return [=](AclnnCall& c) { c.arguments.list({in_rows(c.node.in(i))}); };
}

// One of `lists` lists of inputs, all of one length.
Parameter list_at(size_t i, size_t lists) {
  return [=](AclnnCall& c) {
    const size_t count = c.node.input_count() / lists;
    std::vector<StoredTensor> stored;
    for (const at::Tensor& tensor : c.node.in_range(i * count, count)) stored.push_back(in_rows(tensor));
    c.arguments.list(stored);
  };
}

std::pair<std::string, std::string> layouts(NodeCall& n) {
  const std::string both = n.text("input_layout", "BSH");
  const size_t end = both.find('_');
  return {both.substr(0, end), end == both.npos ? both : both.substr(end + 1)};
}

// The sizes of the query by the letters of its layout; of a layout with H, heads (N) and their size (D) as well.
std::map<char, int64_t> query_sizes(NodeCall& n) {
  const std::string layout = layouts(n).first;
  const auto sizes = n.in(0).sizes();
  reject_unless(layout.size() == sizes.size(), "this input_layout");
  std::map<char, int64_t> of;
  for (size_t i = 0; i < layout.size(); ++i) of[layout[i]] = sizes[i];
  of['N'] = n.integer("num_heads");
  return of;
}

// The result of attention in inference has the size of the values' heads, and that layout which the second half names.
Rule attention_out(size_t block_table, size_t quant_scale) {
  return [=](NodeCall& n) {
    auto sizes = query_sizes(n);
    const auto& value = n.in(2);
    const int64_t given = n.integer("num_key_value_heads", 0), key_heads = given > 0 ? given : sizes['N'];
    const bool paged = n.has(block_table);
    reject_unless(value.dim() >= 3, "a value of less than 3 dimensions");
    const bool joined = paged ? value.dim() == 3 : layouts(n).first.back() == 'H';
    sizes['D'] = value.dim() == 5 ? value.size(2) * value.size(4) : value.size(-1) / (joined ? key_heads : 1);
    sizes['H'] = sizes['N'] * sizes['D'];
    std::vector<int64_t> shape;
    for (const char letter : layouts(n).second) shape.push_back(sizes[letter]);
    const auto type = n.in(0).scalar_type();
    if (n.has(quant_scale)) return new_tensor(shape, at::kChar);
    if (type != at::kChar) return new_tensor(shape, type);
    return new_tensor(shape, n.has(kQueryRope) ? n.in(kQueryRope).scalar_type() : at::kHalf);
  };
}

at::Tensor log_sums(NodeCall& n) {
  if (!n.flag("softmax_lse_flag", false)) return new_tensor({0}, at::kFloat);
  auto sizes = query_sizes(n);
  if (sizes.contains('T')) return new_tensor({sizes['T'], sizes['N'], 1}, at::kFloat);
  return new_tensor({sizes.contains('B') ? sizes['B'] : 1, sizes['N'], sizes['S'], 1}, at::kFloat);
}

// Whole quantisation, of queries too: tokens are int8, and so is the cache, with a scale.
bool is_quantized_query(NodeCall& n) {
  const auto* mode = n.attribute("kv_cache_quant_mode");
  const bool is_one = mode == nullptr ? n.has(16) : n.integer("kv_cache_quant_mode") == 1;
  return n.dtype(0) == at::kChar && is_one;
}

// The first step of multi-head latent attention: queries for each head, and keys written to caches.
Rule for_heads(size_t size_from, int64_t dimension, bool quantizes) {
  return [=](NodeCall& n) {
    auto shape = n.in(0).sizes().vec();
    shape.back() = n.in(3).size(0);
    shape.push_back(n.in(size_from).size(dimension));
    return new_tensor(shape, quantizes && is_quantized_query(n) ? at::kChar : at::kBFloat16);
  };
}
int64_t token_count(NodeCall& n) { return n.in(0).numel() / std::max<int64_t>(n.in(0).size(-1), 1); }
Parameter query_scales(int64_t otherwise) {
  return [=](AclnnCall& c) {
    out(4, [=](NodeCall& n) {
      return is_quantized_query(n) ? new_tensor({token_count(n), n.in(3).size(0), 1}, at::kFloat)
                                   : new_tensor({otherwise}, at::kFloat);
    })(c);
  };
}
// Queries before the heads, or nothing.
Parameter normal_query(size_t place, bool is_scale) {
  return [=](AclnnCall& c) {
    const auto dtype = c.node.dtype(2);
    const bool is_scaled = dtype == at::kChar;
    const auto result = [=](NodeCall& n) {
      if (is_scale) return new_tensor({token_count(n), 1}, at::kFloat);
      auto shape = n.in(0).sizes().vec();
      shape.back() = n.in(5).size(0);
      return new_tensor(shape, dtype);
    };
    if (c.node.flag("query_norm_flag", false) && (!is_scale || is_scaled)) return out(place, result)(c);
    c.set_output(place, new_tensor({0}, is_scale ? at::kFloat : dtype));
    absent()(c);
  };
}
NodeFunction prolog(std::optional<int64_t> scales) {
  return aclnn("MlaPrologV2WeightNz", in(0), stored(1), stored(2), in(3), stored(4), in(5), in(6), in(7), in(8), in(9),
               out(2, referenced(10)), out(3, referenced(11)), optional(12), optional(13), optional(14), optional(15),
               optional(16), optional(17), optional(18), real("rmsnorm_epsilon_cq", 1e-5),
               real("rmsnorm_epsilon_ckv", 1e-5), text("cache_mode", "PA_BSND"),
               out(0, for_heads(3, 2, scales.has_value())), out(1, for_heads(7, -1, false)),
               scales ? query_scales(*scales) : absent());
}

// The tensors of a list of caches, before indices, updates and a mask.
std::vector<at::Tensor> written_list(NodeCall& n) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i + 3 < n.input_count(); ++i) tensors.push_back(n.referenced(i));
  return tensors;
}
Parameter after_list(size_t i) {
  return [=](AclnnCall& c) { optional(c.node.input_count() - 3 + i)(c); };
}

// The places of a query's most important keys, and how important these are.
Rule selected_keys(bool is_value) {
  return [=](NodeCall& n) {
    const bool in_rows = n.text("layout_query", "BSND") == "BSND", packed_keys = n.text("layout_key", "BSND") == "TND";
    const at::ScalarType dtype = is_value ? n.in(0).scalar_type() : at::kInt;
    if (is_value && !n.flag("return_values", false)) return new_tensor({0}, dtype);
    const auto& query = n.in(0);
    auto shape = query.sizes().slice(0, in_rows ? 2 : 1).vec();
    shape.push_back(n.in(1).size(!in_rows && packed_keys ? 1 : 2));
    shape.push_back(n.integer("sparse_count", 2048));
    return new_tensor(shape, dtype);
  };
}
constexpr int64_t kAllTokens = std::numeric_limits<int64_t>::max();
Parameter selection() {
  return [](AclnnCall& c) {
    for (const Parameter& parameter :
         {text("layout_query", "BSND"), text("layout_key", "BSND"), integer("sparse_count", 2048),
          integer("sparse_mode", 3), integer("pre_tokens", kAllTokens), integer("next_tokens", kAllTokens)}) {
      parameter(c);
    }
  };
}
Parameter sparse_attributes() {
  return [](AclnnCall& c) {
    for (const Parameter& parameter :
         {integer("sparse_block_size", 1), text("layout_query", "BSND"), text("layout_kv", "BSND"),
          integer("sparse_mode", 3), integer("pre_tokens", kAllTokens), integer("next_tokens", kAllTokens),
          integer("attention_mode", 0)}) {
      parameter(c);
    }
  };
}
// The greatest score of each query, or the sum of the exponentials.
at::Tensor sparse_statistics(NodeCall& n) {
  if (!n.flag("return_softmax_lse", false)) return new_tensor({0}, at::kFloat);
  const auto query = n.in(0).sizes(), key = n.in(1).sizes();
  if (query.size() == 3) return new_tensor({key[1], query[0], query[1] / key[1]}, at::kFloat);
  return new_tensor({query[0], key[2], query[1], query[2] / key[2]}, at::kFloat);
}

// Convolutions of sequences, whose last tokens stay in a cache.
Parameter convolution_inputs() {
  return [](AclnnCall& c) {
    for (size_t i = 3; i < 12; ++i) optional(i)(c);
    for (const Parameter& parameter :
         {integer("activation_mode", 0), integer("pad_slot_id", -1), integer("run_mode", 0),
          integer("max_query_len", -1), integer("residual_connection", 1), integer("block_size", 128),
          integer("conv_mode", 0)}) {
      parameter(c);
    }
  };
}
constexpr const char* kConvolutionInputs =
    "query_start_loc cache_indices initial_state_mode bias num_accepted_tokens num_computed_tokens "
    "block_idx_first_scheduled_token block_idx_last_scheduled_token initial_state_idx";
constexpr const char* kConvolutionAttributes =
    "activation_mode pad_slot_id run_mode max_query_len residual_connection block_size conv_mode";

// Queries, keys or values after their rotation, from their columns of x.
Rule rotated_part(size_t part) {
  return [=](NodeCall& n) {
    const auto& x = n.in(0);
    const int64_t size = n.in(3).size(3), columns = n.integers("size_splits", {}).at(part);
    if (part > 0 && !n.flag("kv_output", false)) return new_tensor({0}, n.in(1).scalar_type());
    auto shape = x.sizes().vec();
    shape.back() = columns / size;
    shape.push_back(size);
    return new_tensor(shape, n.in(1).scalar_type());
  };
}

}  // namespace

const NodeTable kAttentionNodes = {
    {"FlashAttentionScore", aclnn("FlashAttentionScore", in(0), in(1), in(2), optional(3), optional(4), optional(5),
                                  optional(6), optional_integers(7), attributes(kUnlimited), out(statistics),
                                  out(statistics), out(nothing), out(like(0)), zero(10), zero(11))},
    {"FlashAttentionScoreGrad",
     aclnn("FlashAttentionScoreGrad", in(0), in(1), in(2), in(3), optional(4), optional(5), optional(6), optional(7),
           optional(8), optional(9), optional(10), optional(11), optional_integers(12), attributes(65536), out(like(0)),
           out(like(1)), out(like(2)), out(nothing), zero(15), zero(16))},
    {"FusedInferAttentionScore",
     aclnn("FusedInferAttentionScoreV5", in(0), list_of(1), list_of(2), optional(3), optional(4), optional_integers(5),
           optional_integers(6), optional(7), optional(8), optional(9), optional(10), optional(11), optional(12),
           optional(13), optional(14), optional(15), optional(16), optional(17), optional(18), optional(19),
           optional(20), optional(21), optional(22), optional_integers(23), optional(kQueryRope), optional(25),
           optional(26), optional(27), optional(28), optional_integers(29), optional_integers(30), integer("num_heads"),
           real("scale", 1), integer("pre_tokens", kUnlimited), integer("next_tokens", kUnlimited),
           text("input_layout", "BSH"), integer("num_key_value_heads", 0), integer("sparse_mode", 0),
           integer("inner_precise", 0), integer("block_size", 0), integer("antiquant_mode", 0),
           flag("softmax_lse_flag", false), integer("key_antiquant_mode", 0), integer("value_antiquant_mode", 0),
           integer("query_quant_mode", 0), integer("pse_type", 0), out(attention_out(14, 10)), out(log_sums),
           ignore("out_dtype")),
     "pse_shift atten_mask actual_seq_lengths actual_seq_lengths_kv dequant_scale1 quant_scale1 dequant_scale2 "
     "quant_scale2 quant_offset2 antiquant_scale antiquant_offset block_table query_padding_size kv_padding_size "
     "key_antiquant_scale key_antiquant_offset value_antiquant_scale value_antiquant_offset key_shared_prefix "
     "value_shared_prefix actual_shared_prefix_len query_rope key_rope key_rope_antiquant_scale dequant_scale_query "
     "learnable_sink q_start_idx kv_start_idx"},
    {"PromptFlashAttention",
     aclnn("PromptFlashAttentionV3", in(0), in(1), in(2), optional(3), optional(4), optional_integers(5),
           optional_integers(6), optional(7), optional(8), optional(9), optional(10), optional(11),
           integer("num_heads"), real("scale_value", 1), integer("pre_tokens", 214748647), integer("next_tokens", 0),
           text("input_layout", "BSH"), integer("num_key_value_heads", 1), integer("sparse_mode", 0),
           integer("inner_precise", 1), out(attention_out(kNowhere, 10)))},
    {"IncreFlashAttention",
     aclnn("IncreFlashAttentionV4", in(0), list_of(1), list_of(2), optional(3), optional(4), optional_integers(5),
           optional(6), optional(7), optional(8), optional(9), optional(10), optional(11), optional(12), optional(13),
           optional(14), integer("num_heads"), real("scale_value", 1), text("input_layout", "BSH"),
           integer("num_key_value_heads", 1), integer("block_size", 0), integer("inner_precise", 1),
           out(attention_out(13, 9)))},
    {"AttentionUpdate", aclnn(
                            "AttentionUpdate", list_at(0, 2), list_at(1, 2), integer("update_type"),
                            out([](NodeCall& n) { return like(n.input_count() / 2)(n); }),
                            [](AclnnCall& c) {
                              if (c.node.integer("update_type") == 1) {
                                out(like(0))(c);
                              } else {
                                absent()(c);
                              }
                            },
                            ignore("sp"))},
    {"ScatterPaKvCache",
     aclnn("ScatterPaKvCache", in(0), out(0, referenced(1)), in(2), in(3), out(1, referenced(4)), optional(5),
           optional(6), optional(7), text("cache_mode", "Norm"), text("scatter_mode", "None"),
           integers("strides", {1, 1}), integers("offsets", {0, 0})),
     "compress_lens compress_seq_offset seq_lens", "cache_mode scatter_mode strides offsets"},
    {"LightningIndexer",
     aclnn("LightningIndexer", in(0), in(1), in(2), optional(3), optional(4), optional(5), selection(),
           flag("return_values", false), out(selected_keys(false)), out(selected_keys(true))),
     "query key weights actual_seq_lengths_query actual_seq_lengths_key block_table",
     "layout_query layout_key sparse_count sparse_mode pre_tokens next_tokens return_values",
     "sparse_indices sparse_values"},
    {"QuantLightningIndexer",
     aclnn("QuantLightningIndexer", in(0), in(1), in(2), in(3), in(4), optional(5), optional(6), optional(7),
           integer("query_quant_mode"), integer("key_quant_mode"), selection(), out(selected_keys(false))),
     "query key weights query_dequant_scale key_dequant_scale actual_seq_lengths_query actual_seq_lengths_key "
     "block_table",
     "query_quant_mode key_quant_mode layout_query layout_key sparse_count sparse_mode pre_tokens next_tokens",
     "sparse_indices"},
    {"SparseFlashAttention",
     aclnn("SparseFlashAttentionV2", in(0), in(1), optional(2), in(3), optional(4), optional(5), optional(6),
           optional(7), optional(8), optional(9), real("scale_value"), sparse_attributes(),
           flag("return_softmax_lse", false), out(like(0)), out(sparse_statistics), out(sparse_statistics)),
     "query key value sparse_indices block_table actual_seq_lengths_query actual_seq_lengths_kv query_rope key_rope "
     "sinks",
     "scale_value sparse_block_size layout_query layout_kv sparse_mode pre_tokens next_tokens attention_mode "
     "return_softmax_lse",
     "attention_out softmax_max softmax_sum"},
    {"KvQuantSparseFlashAttention",
     aclnn("KvQuantSparseFlashAttention", in(0), in(1), in(2), in(3), optional(4), optional(5), optional(6),
           optional(7), optional(8), real("scale_value"), integer("key_quant_mode"), integer("value_quant_mode"),
           sparse_attributes(), integer("quant_scale_repo_mode", 1), integer("tile_size", 128),
           integer("rope_head_dim", 64), out([](NodeCall& n) {
             auto shape = n.in(0).sizes().vec();
             shape.back() -= n.integer("rope_head_dim", 64);
             return new_tensor(shape, n.in(0).scalar_type());
           })),
     "query key value sparse_indices key_dequant_scale value_dequant_scale block_table actual_seq_lengths_query "
     "actual_seq_lengths_kv sinks",
     "scale_value key_quant_mode value_quant_mode sparse_block_size layout_query layout_kv sparse_mode pre_tokens "
     "next_tokens attention_mode quant_scale_repo_mode tile_size rope_head_dim",
     "attention_out"},
    {"ScatterList",
     aclnn("ScatterList", outs(written_list), after_list(0), after_list(1), after_list(2), text("reduce", "update"),
           integer("axis", -2)),
     "mask"},
    {"FusedCausalConv1d",
     aclnn("FusedCausalConv1d", in(0), in(1), out(0, referenced(2)), convolution_inputs(), out(1, like(0))),
     kConvolutionInputs, kConvolutionAttributes},
    {"InplaceFusedCausalConv1d",
     aclnn("InplaceFusedCausalConv1d", out(1, referenced(0)), in(1), out(0, referenced(2)), convolution_inputs()),
     kConvolutionInputs, kConvolutionAttributes},
    {"MaskedCausalConv1d", aclnn("MaskedCausalConv1d", in(0), in(1), optional(2), out(like(0))), "mask"},
    {"RecurrentGatedDeltaRule",
     aclnn("RecurrentGatedDeltaRule", in(0), in(1), in(2), in(3), out(1, referenced(4)), in(5), in(6), optional(7),
           optional(8), optional(9), real32("scale_value", 1), out(0, like(2)))},
    {"MlaProlog", prolog({})},
    {"MlaPrologV2", prolog(1)},
    {"MlaPrologV3",
     aclnn("MlaPrologV3WeightNz", in(0), stored(1), stored(2), in(3), stored(4), in(5), in(6), in(7), in(8),
           out(2, referenced(9)), out(3, referenced(10)), optional(11), optional(12), optional(13), optional(14),
           optional(15), optional(16), optional(17), optional(18), optional(19), optional(20),
           real("rmsnorm_epsilon_cq", 1e-5), real("rmsnorm_epsilon_ckv", 1e-5), text("cache_mode", "PA_BSND"),
           integer("weight_quant_mode", 0), integer("kv_cache_quant_mode", 0), integer("query_quant_mode", 0),
           integer("ckvkr_repo_mode", 0), integer("quant_scale_repo_mode", 0), integer("tile_size", 128),
           real("qc_qr_scale", 1), real("kc_scale", 1), out(0, for_heads(3, 2, true)), out(1, for_heads(7, -1, false)),
           query_scales(0), normal_query(5, false), normal_query(6, true))},
    {"QuantUpdateScatter", aclnn("InplaceQuantScatterV2", out(referenced(0)), in(1), in(2), in(3), optional(4),
                                 integer("axis", -2), integer("quant_axis", -1), plain(int64_t{1}),
                                 text("round_mode", "rint"), only("reduce", std::string("update")))},
    {"DequantRopeQuantKvcache",
     aclnn("DequantRopeQuantKvcache", in(0), in(1), in(2), out(3, referenced(3)), out(4, referenced(4)), in(5), in(6),
           in(7), optional(8), optional(9), optional(10), optional(11), optional(12), integers("size_splits", {}),
           text("quant_mode", "static"), text("layout", "BSND"), flag("kv_output", false),
           text("cache_mode", "contiguous"), out(0, rotated_part(0)), out(1, rotated_part(1)),
           out(2, rotated_part(2)))},
    {"RotaryPositionEmbedding",
     aclnn("RotaryPositionEmbeddingV2", in(0), in(1), in(2), integer("mode", kHalf), optional(3), out(like(0))),
     "rotate", "mode"},
    {"RotaryPositionEmbeddingGrad",
     aclnn("RotaryPositionEmbeddingGrad", in(0), in(1), in(2), optional(3), integer("mode", kHalf), out(like(0)),
           out(like(1)), out(like(2))),
     "x", "mode"},
    {"ApplyRotaryPosEmb",
     aclnn("ApplyRotaryPosEmbV2", out(0, written(0)), out(1, written(1)), in(2), in(3), integer("layout", 1),
           text("rotary_mode", "half")),
     "", "layout rotary_mode"},
    {"InterleaveRope", aclnn("InterleaveRope", in(0), in(1), in(2), out(like(0)))},
    {"KvRmsNormRopeCache",
     aclnn("KvRmsNormRopeCacheV2", in(0), in(1), in(2), in(3), in(4), out(referenced(5)), out(referenced(6)),
           optional(7), optional(8), optional(9), optional(10), optional(11), real("epsilon", 1e-5),
           text("cache_mode", "Norm"), flag("is_output_kv", false), out(turned_keys), out(normal_values))},
    {"QkvRmsNormRopeCache",
     aclnn("QkvRmsNormRopeCache", in(0), in(1), in(2), in(3), in(4), in(5), out(referenced(6)), out(referenced(7)),
           out(referenced(8)), optional(9), optional(10), optional(11), optional(12), integers("qkv_size", {}),
           integers("head_nums", {}), real("epsilon", 1e-6), text("cache_mode", "PA_NZ"), before_quantization(0),
           before_quantization(1), before_quantization(2), ignore("is_output_qkv")),
     "k_scale v_scale k_offset v_offset", "epsilon cache_mode is_output_qkv"},
    {"RotaryMul", aclnn("RotaryPositionEmbedding", in(0), in(1), in(2), plain(kHalf), out(like(0)))},
    {"RotaryMulGrad", aclnn("RotaryPositionEmbeddingGrad", in(3), in(1), in(2), in(0), plain(kHalf), out(like(0)),
                            out(like(1)), out(like(2)), ignore("need_backward"))},
};

}  // namespace cann_cpu::graph
