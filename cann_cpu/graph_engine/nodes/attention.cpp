// SPDX-License-Identifier: Apache-2.0
// Attention, rotary embeddings, and their gradients.
#include "aclnn.h"

namespace cann_cpu::graph {
namespace {

constexpr int64_t kUnlimited = 2147483647;
constexpr int64_t kHalf = 0;  // the mode of a rotary embedding

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

at::Tensor nothing(NodeCall& n) { return new_tensor({0}, n.in(0).scalar_type()); }

}  // namespace

const NodeTable kAttentionNodes = {
    {"FlashAttentionScore", aclnn("FlashAttentionScore", in(0), in(1), in(2), optional(3), optional(4), optional(5),
                                  optional(6), optional_integers(7), attributes(kUnlimited), out(statistics),
                                  out(statistics), out(nothing), out(like(0)), zero(10), zero(11))},
    {"FlashAttentionScoreGrad",
     aclnn("FlashAttentionScoreGrad", in(0), in(1), in(2), in(3), optional(4), optional(5), optional(6), optional(7),
           optional(8), optional(9), optional(10), optional(11), optional_integers(12), attributes(65536), out(like(0)),
           out(like(1)), out(like(2)), out(nothing), zero(15), zero(16))},
    {"RotaryPositionEmbedding",
     aclnn("RotaryPositionEmbedding", in(0), in(1), in(2), integer("mode", kHalf), out(like(0)))},
    {"RotaryPositionEmbeddingGrad", aclnn("RotaryPositionEmbeddingGrad", in(0), in(1), in(2), optional(3),
                                          integer("mode", kHalf), out(like(0)), out(like(1)), out(like(2)))},
    {"RotaryMul", aclnn("RotaryPositionEmbedding", in(0), in(1), in(2), plain(kHalf), out(like(0)))},
    {"RotaryMulGrad", aclnn("RotaryPositionEmbeddingGrad", in(3), in(1), in(2), in(0), plain(kHalf), out(like(0)),
                            out(like(1)), out(like(2)), ignore("need_backward"))},
};

}  // namespace cann_cpu::graph
