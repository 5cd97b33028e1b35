// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: gates, the routes of tokens to experts and back, on a rank and across ranks.
#include <algorithm>

#include "aclnn.h"

namespace cann_cpu::graph {
namespace {

// Like input 0, with the attribute as its last dimension.
Rule chosen_experts(at::ScalarType dtype) {
  return [=](NodeCall& n) {
    auto sizes = n.in(0).sizes().vec();
    sizes.back() = n.integer("k");
    return new_tensor(sizes, dtype);
  };
}
at::Tensor gate_weights(NodeCall& n) { return chosen_experts(n.in(0).scalar_type())(n); }

int64_t rows(NodeCall& n, size_t experts) { return n.in(experts).numel(); }

at::Tensor experts_of_rows(NodeCall& n) { return new_tensor({rows(n, 2)}, at::kInt); }
at::Tensor active_rows(NodeCall& n) {
  const int64_t tokens = std::min(n.in(0).size(0), n.integer("active_num"));
  return new_tensor({tokens * n.in(2).size(1), n.in(0).size(1)}, n.in(0).scalar_type());
}

bool is_padded(NodeCall& n) { return n.integer("drop_pad_mode", 0) == 1; }
int64_t slots(NodeCall& n) {
  if (is_padded(n)) return n.integer("expert_num") * n.integer("expert_capacity");
  const int64_t active = n.integer("active_num", -1);
  return active > 0 ? std::min(active, rows(n, 1)) : rows(n, 1);
}
at::Tensor routed_rows(NodeCall& n) {
  const auto dtype = n.integer("quant_mode", -1) == -1 ? n.in(0).scalar_type() : at::kChar;
  const int64_t size = n.in(0).size(1);
  return is_padded(n) ? new_tensor({n.integer("expert_num"), n.integer("expert_capacity"), size}, dtype)
                      : new_tensor({slots(n), size}, dtype);
}
at::Tensor routed_places(NodeCall& n) { return new_tensor({rows(n, 1)}, at::kInt); }
at::Tensor routed_counts(NodeCall& n) {
  const int64_t experts = n.integer("expert_num");
  if (n.integer("expert_tokens_num_type", 0) == 2) return new_tensor({experts, 2}, at::kLong);
  const auto range = n.integers("active_expert_range", {});
  return new_tensor({range.empty() ? experts : range[1] - range[0]}, at::kLong);
}
at::Tensor routed_scales(NodeCall& n) { return new_tensor({slots(n)}, at::kFloat); }

// Tokens of the rows that come back, by the experts that each has.
Rule returned(size_t scales, size_t places) {
  return [=](NodeCall& n) {
    const int64_t choices = std::max<int64_t>(1, n.integer("k", 1));
    const int64_t tokens = n.has(scales) ? n.in(scales).size(0) : n.in(places).numel() / choices;
    return new_tensor({tokens, n.in(0).size(-1)}, n.in(0).scalar_type());
  };
}

at::Tensor expert_ends(NodeCall& n) { return new_tensor({n.integer("num_experts")}, at::kInt); }

at::Tensor moved_scales(NodeCall& n) {
  return n.has(2) ? new_tensor(n.in(2).sizes(), n.in(2).scalar_type()) : new_tensor({n.in(0).size(0)}, at::kFloat);
}
at::Tensor row_numbers(NodeCall& n) { return new_tensor({n.in(0).size(0)}, at::kInt); }
at::Tensor expert_counts(NodeCall& n) { return new_tensor({n.in(1).size(1)}, n.in(1).scalar_type()); }

// The shapes of what a rank gets, as torch_npu's Meta functions have them.
struct Received {
  int64_t tokens, choices, world, local, global, rows, tensor_parallel;

  explicit Received(NodeCall& n)
      : tokens(n.in(0).size(0)),
        choices(n.in(1).size(1)),
        world(n.integer("ep_world_size")),
        tensor_parallel(n.integer("tp_world_size", 0)) {
    const int64_t given = n.integer("global_bs", 0), shared = n.integer("shared_expert_num", 1);
    const int64_t shared_ranks = n.integer("shared_expert_rank_num", 0), experts = n.integer("moe_expert_num");
    reject_unless(tensor_parallel <= 1, "a tp_world_size above 1");
    global = given == 0 ? tokens * world : given;
    if (n.integer("ep_rank_id") < shared_ranks) {
      const int64_t replicas = std::max<int64_t>(1, shared_ranks / std::max<int64_t>(1, shared));
      local = 1;
      rows = global / world * ((world + replicas - 1) / replicas);
    } else {
      local = experts / (world - shared_ranks);
      rows = global * std::min(local, choices);
    }
  }
};

at::Tensor received_rows(NodeCall& n) {
  const auto dtype = n.integer("quant_mode", 0) == 0 ? n.in(0).scalar_type() : at::kChar;
  return new_tensor({Received(n).rows, n.in(0).size(1)}, dtype);
}
at::Tensor received_scales(NodeCall& n) { return new_tensor({Received(n).rows}, at::kFloat); }
at::Tensor places_of_choices(NodeCall& n) { return new_tensor({rows(n, 1)}, at::kInt); }
at::Tensor assist_info(NodeCall& n) { return new_tensor({std::max(rows(n, 1), Received(n).rows * 128)}, at::kInt); }
at::Tensor token_counts(NodeCall& n) { return new_tensor({Received(n).local}, at::kLong); }
at::Tensor rank_counts(NodeCall& n) {
  const Received r(n);
  const int64_t buffers = n.has(4) ? 2 * r.global * r.choices * (r.world / 8) : 0;
  return new_tensor({r.world * r.local + buffers}, at::kInt);
}
at::Tensor tensor_parallel_counts(NodeCall& n) { return new_tensor({Received(n).tensor_parallel}, at::kInt); }
at::Tensor row_weights(NodeCall& n) { return new_tensor({n.has(4) ? Received(n).rows : 0}, at::kFloat); }

at::Tensor combined(NodeCall& n) { return new_tensor({n.in(1).size(0), n.in(0).size(1)}, n.in(0).scalar_type()); }

at::Tensor added(NodeCall& n) { return new_tensor({n.in(1).size(0), 1, n.in(0).size(1)}, n.dtype(0)); }
at::Tensor inverse_norms(NodeCall& n) { return new_tensor({n.in(1).size(0), 1, 1}, at::kFloat); }

// Tokens of the attribute token_dtype: float16, bfloat16 or int8.
at::ScalarType token_type(NodeCall& n) {
  static constexpr at::ScalarType kTypes[] = {at::kHalf, at::kBFloat16, at::kChar};
  return kTypes[std::clamp<int64_t>(n.integer("token_dtype", 0), 0, 2)];
}
at::Tensor combined_tokens(NodeCall& n) {
  return new_tensor({n.in(1).size(0), n.integer("hidden_size")}, token_type(n));
}
std::vector<int64_t> most_tokens(NodeCall& n) {
  const auto sizes = n.integers("max_out_shape", {});
  reject_unless(sizes.size() == 4, "a max_out_shape without four sizes");
  return {sizes[0] * sizes[1] * sizes[2], sizes[3]};
}
at::Tensor batched_tokens(NodeCall& n) { return new_tensor(most_tokens(n), token_type(n)); }
Rule of_batched_tokens(at::ScalarType dtype) {
  return [=](NodeCall& n) { return new_tensor({most_tokens(n)[0]}, dtype); };
}
at::Tensor counts_of_experts(NodeCall& n) { return new_tensor({n.integer("expert_num"), 2}, at::kLong); }
at::Tensor count_of_tokens(NodeCall&) { return new_tensor({1}, at::kLong); }

Parameter all(std::vector<Parameter> parameters) {
  return [=](AclnnCall& c) {
    for (const Parameter& parameter : parameters) parameter(c);
  };
}

Parameter deployment() {
  return all({text("group_ep", ""), integer("ep_world_size"), integer("ep_rank_id"), integer("moe_expert_num"),
              text("group_tp", ""), integer("tp_world_size", 0), integer("tp_rank_id", 0),
              integer("expert_shard_type", 0), integer("shared_expert_num", 1), integer("shared_expert_rank_num", 0)});
}
Parameter special_experts() {
  return all({integer("zero_expert_num", 0), integer("copy_expert_num", 0), integer("const_expert_num", 0)});
}

}  // namespace

const NodeTable kExpertNodes = {
    {"MoeGatingTopK",
     aclnn("MoeGatingTopK", in(0), optional(1), integer("k"), integer("k_group", 1), integer("group_count", 1),
           integer("group_select_mode", 0), integer("renorm", 0), integer("norm_type", 0), flag("out_flag", false),
           real("routed_scaling_factor", 1), real("eps", 1e-20), out(gate_weights), out(chosen_experts(at::kInt)),
           out(like(0, at::kFloat)))},
    {"MoeGatingTopKSoftmax", aclnn("MoeGatingTopKSoftmax", in(0), optional(1), integer("k"), out(gate_weights),
                                   out(chosen_experts(at::kInt)), out(chosen_experts(at::kInt)))},
    {"MoeInitRouting", aclnn("MoeInitRouting", in(0), in(1), in(2), integer("active_num"), out(active_rows),
                             out(experts_of_rows), out(experts_of_rows))},
    {"MoeInitRoutingV3",
     aclnn("MoeInitRoutingV3", in(0), in(1), optional(2), optional(3), integer("active_num", -1),
           integer("expert_capacity", -1), integer("expert_num", -1), integer("drop_pad_mode", 0),
           integer("expert_tokens_num_type", 0), flag("expert_tokens_num_flag", false), integer("quant_mode", -1),
           integers("active_expert_range", {}), integer("row_idx_type", 0), out(routed_rows), out(routed_places),
           out(routed_counts), out(routed_scales))},
    {"MoeFinalizeRouting",
     aclnn("MoeFinalizeRouting", in(0), in(1), optional(2), in(3), in(4), in(5), in(6), out(returned(4, 5)))},
    {"MoeFinalizeRoutingV2",
     aclnn("MoeFinalizeRoutingV4", in(0), in(1), optional(2), optional(3), optional(4), optional(5), optional(6),
           absent(), absent(), absent(), absent(), integer("drop_pad_mode", 0), absent(), absent(), absent(),
           integer("k", 1), out(returned(5, 1)))},
    {"MoeComputeExpertTokens", aclnn("MoeComputeExpertTokens", in(0), integer("num_experts", 1), out(expert_ends))},
    {"MoeReRouting",
     aclnn("MoeReRouting", in(0), in(1), optional(2), integer("expert_token_num_type", 1), integer("idx_type", 0),
           out(like(0)), out(moved_scales), out(row_numbers), out(expert_counts))},
    {"MoeUpdateExpert",
     aclnn("MoeUpdateExpert", in(0), in(1), optional(2), optional(3), optional(4), integer("local_rank_id", -1),
           integer("world_size", -1), integer("balance_mode", 0), out(like(0)), out(like(0, at::kBool))),
     "expert_scales pruning_threshold active_mask", "local_rank_id world_size balance_mode"},
    {"MoeDistributeDispatch",
     aclnn("MoeDistributeDispatch", in(0), in(1), optional(2), optional(3), optional(4), deployment(),
           integer("quant_mode", 0), integer("global_bs", 0), integer("expert_token_nums_type", 1), out(received_rows),
           out(received_scales), out(places_of_choices), out(token_counts), out(rank_counts),
           out(tensor_parallel_counts), out(row_weights))},
    {"MoeDistributeDispatchV2",
     aclnn("MoeDistributeDispatchV4", in(0), in(1), optional(2), optional(3), optional(4), optional(5), optional(6),
           deployment(), integer("quant_mode", 0), integer("global_bs", 0), integer("expert_token_nums_type", 1),
           text("comm_alg", ""), special_experts(), out(received_rows), out(received_scales), out(assist_info),
           out(token_counts), out(rank_counts), out(tensor_parallel_counts), out(row_weights), ignore("y_dtype"))},
    {"MoeDistributeCombine",
     aclnn("MoeDistributeCombine", in(0), in(1), in(2), in(3), in(4), optional(5), optional(6), optional(7),
           optional(8), optional(9), optional(10), deployment(), integer("global_bs", 0), integer("out_dtype", 0),
           integer("comm_quant_mode", 0), integer("group_list_type", 0), out(combined))},
    {"MoeDistributeCombineV2",
     aclnn("MoeDistributeCombineV4", in(0), in(1), in(2), in(3), in(4), optional(5), optional(6), absent(), absent(),
           absent(), optional(7), optional(8), optional(9), optional(10), optional(11), optional(12), optional(13),
           optional(14), deployment(), integer("global_bs", 0), integer("out_dtype", 0), integer("comm_quant_mode", 0),
           integer("group_list_type", 0), text("comm_alg", ""), special_experts(), out(combined))},
    {"MoeDistributeCombineAddRmsNorm",
     aclnn("MoeDistributeCombineAddRmsNormV2", in(0), in(1), in(2), in(3), in(4), in(5), in(6), optional(7),
           optional(8), optional(9), optional(10), optional(11), optional(12), optional(13), optional(14), optional(15),
           optional(16), optional(17), optional(18), deployment(), integer("global_bs", 0), integer("out_dtype", 0),
           integer("comm_quant_mode", 0), integer("group_list_type", 0), text("comm_alg", ""), real32("norm_eps", 1e-6),
           special_experts(), out(added), out(inverse_norms), out(added))},
    {"AttentionToFFN",
     aclnn("AttentionToFFN", in(0), in(1), in(2), in(3), in(4), in(5), optional(6), optional(7), text("group", ""),
           integer("world_size"), integers("ffn_token_info_table_shape", {}), integers("ffn_token_data_shape", {}),
           integers("attn_token_info_table_shape", {}), integer("moe_expert_num"), integer("quant_mode", 0),
           integer("sync_flag", 0), integer("ffn_start_rank_id", 0)),
     "scales active_mask",
     "group world_size ffn_token_info_table_shape ffn_token_data_shape attn_token_info_table_shape "
     "moe_expert_num quant_mode sync_flag ffn_start_rank_id"},
    {"FFNToAttention",
     aclnn("FFNToAttention", in(0), in(1), in(2), in(3), in(4), in(5), optional(6), text("group", ""),
           integer("world_size"), integers("token_info_table_shape", {}), integers("token_data_shape", {})),
     "attn_rank_table", "group world_size token_info_table_shape token_data_shape"},
    {"AttentionWorkerScheduler", aclnn("InplaceAttentionWorkerScheduler", out(referenced(0)))},
    {"FfnWorkerScheduler",
     aclnn("InplaceFfnWorkerScheduler", out(referenced(0)), integer("sync_group_size", 1), integer("execute_mode", 0)),
     "", "sync_group_size execute_mode"},
    {"AttentionWorkerCombine",
     aclnn("AttentionWorkerCombine", computed(referenced(0)), in(1), in(2), integer("hidden_size"),
           integer("token_dtype", 0), integer("need_schedule", 0), out(combined_tokens), out(like(2)))},
    {"FfnWorkerBatching",
     aclnn("FfnWorkerBatching", computed(referenced(0)), integer("expert_num"), integers("max_out_shape", {}),
           integer("token_dtype", 0), integer("need_schedule", 0), integer("layer_num", 0), out(batched_tokens),
           out(counts_of_experts), out(of_batched_tokens(at::kInt)), out(of_batched_tokens(at::kInt)),
           out(of_batched_tokens(at::kInt)), out(of_batched_tokens(at::kInt)), out(of_batched_tokens(at::kFloat)),
           out(count_of_tokens))},
};

}  // namespace cann_cpu::graph
