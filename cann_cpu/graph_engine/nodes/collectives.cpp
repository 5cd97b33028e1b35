// SPDX-License-Identifier: Apache-2.0
// Collectives of the communicator that the attribute "group" names: libhccl's functions, eager's own.
#include <numeric>

#include "acl/acl_rt.h"
#include "aclnn.h"
#include "cann_cpu/collectives.h"
#include "graph_engine/model/dtypes.h"
#include "hccl/hccl.h"
#include "hccl/hcom.h"

namespace cann_cpu::graph {
namespace {

void require(HcclResult code) {
  if (code != HCCL_SUCCESS) throw GraphError(reason_of(code));
}

struct Group {
  HcclComm comm = nullptr;
  uint32_t size = 0;
};

Group group_of(NodeCall& n) {
  Group group;
  require(HcomGetCommHandleByGroup(n.text("group", "").c_str(), &group.comm));
  require(HcclGetRankSize(group.comm, &group.size));
  n.ignore("fusion");  // with other collectives into one, which changes no result
  n.ignore("fusion_id");
  if (const int64_t size = n.integer("rank_size", group.size); size != group.size) {
    throw GraphError("attribute 'rank_size' is " + std::to_string(size) + "; the group has " +
                     std::to_string(group.size) + " ranks");
  }
  return group;
}

HcclDataType type_of(at::ScalarType type) {
  if (const auto found = hccl_type(type)) return *found;
  throw GraphError("a collective of " + dtype_name(ge_dtype(type)) + " is not implemented");
}

// In the order of HcclReduceOp.
HcclReduceOp reduction_of(NodeCall& n) {
  return static_cast<HcclReduceOp>(n.choice("reduction", {"sum", "prod", "max", "min"}));
}

at::Tensor input(NodeCall& n) { return n.in(0).contiguous(); }
uint64_t count_of(const at::Tensor& tensor) { return static_cast<uint64_t>(tensor.numel()); }
uint32_t rank_in(NodeCall& n, const char* name) { return static_cast<uint32_t>(n.integer(name)); }

// The elements of what one entry of the first dimension holds.
int64_t entry_elements(const at::Tensor& tensor) {
  reject_unless(tensor.dim() > 0, "a collective of parts of a tensor without dimensions");
  return c10::multiply_integers(tensor.sizes().slice(1));
}

at::Tensor with_entries(const at::Tensor& like, int64_t entries) {
  auto shape = like.sizes().vec();
  if (shape.empty()) shape.push_back(0);
  shape[0] = entries;
  return new_tensor(shape, like.scalar_type());
}

// Counts and displacements per rank, in elements.
struct Parts {
  std::vector<uint64_t> counts, displacements;
  int64_t end = 0;  // in entries
};

// The inputs count entries of this many elements. Without displacements the parts lie consecutively.
Parts parts_of(NodeCall& n, const Group& group, size_t counts, size_t displacements, int64_t elements) {
  Parts parts;
  std::vector<int64_t> starts;
  if (n.has(displacements)) starts = n.integers(displacements);
  const auto given = n.integers(counts);
  if (given.size() != group.size || (!starts.empty() && starts.size() != group.size)) {
    throw GraphError("input " + std::to_string(counts) + " has " + std::to_string(given.size()) + " counts and input " +
                     std::to_string(displacements) + " " + std::to_string(starts.size()) +
                     " displacements; the group has " + std::to_string(group.size) + " ranks");
  }
  int64_t next = 0;
  for (size_t rank = 0; rank < given.size(); ++rank) {
    const int64_t start = starts.empty() ? next : starts[rank];
    if (given[rank] < 0 || start < 0)
      throw GraphError("a count or a displacement of rank " + std::to_string(rank) + " is negative");
    parts.counts.push_back(static_cast<uint64_t>(given[rank] * elements));
    parts.displacements.push_back(static_cast<uint64_t>(start * elements));
    next = start + given[rank];
    parts.end = std::max(parts.end, next);
  }
  return parts;
}

void require_inside(const Parts& parts, int64_t entries) {
  if (parts.end > entries) {
    throw GraphError("the counts and displacements end at entry " + std::to_string(parts.end) + " of " +
                     std::to_string(entries));
  }
}

Outputs all_reduce(NodeCall& n) {
  const Group group = group_of(n);
  const at::Tensor x = input(n), y = new_tensor(x.sizes(), x.scalar_type());
  require(HcclAllReduce(x.data_ptr(), y.data_ptr(), count_of(x), type_of(x.scalar_type()), reduction_of(n), group.comm,
                        n.stream()));
  return y;
}

Outputs all_gather(NodeCall& n) {
  const Group group = group_of(n);
  const at::Tensor x = input(n), y = with_entries(x, (x.dim() == 0 ? 1 : x.size(0)) * group.size);
  require(HcclAllGather(x.data_ptr(), y.data_ptr(), count_of(x), type_of(x.scalar_type()), group.comm, n.stream()));
  return y;
}

// Counts are of entries of the first dimension, as torchair passes them.
Outputs all_gather_uneven(NodeCall& n) {
  const Group group = group_of(n);
  const at::Tensor x = input(n);
  const int64_t elements = entry_elements(x), sent = n.integer(1);
  const Parts parts = parts_of(n, group, 2, 3, elements);
  if (sent < 0 || sent > x.size(0)) {
    throw GraphError("send_count is " + std::to_string(sent) + "; x has " + std::to_string(x.size(0)) + " entries");
  }
  const at::Tensor y = with_entries(x, parts.end);
  require(HcclAllGatherV(x.data_ptr(), static_cast<uint64_t>(sent * elements), y.data_ptr(), parts.counts.data(),
                         parts.displacements.data(), type_of(x.scalar_type()), group.comm, n.stream()));
  return y;
}

Outputs reduce_scatter(NodeCall& n) {
  const Group group = group_of(n);
  const at::Tensor x = input(n);
  if (x.dim() == 0 || x.size(0) % group.size != 0) {
    throw GraphError("the first dimension of x cannot be divided by the " + std::to_string(group.size) + " ranks");
  }
  const at::Tensor y = with_entries(x, x.size(0) / group.size);
  require(HcclReduceScatter(x.data_ptr(), y.data_ptr(), count_of(y), type_of(x.scalar_type()), reduction_of(n),
                            group.comm, n.stream()));
  return y;
}

Outputs reduce_scatter_uneven(NodeCall& n) {
  const Group group = group_of(n);
  const at::Tensor x = input(n);
  const Parts parts = parts_of(n, group, 2, 3, entry_elements(x));
  require_inside(parts, x.size(0));
  const at::Tensor y = with_entries(x, n.integer(1));
  require(HcclReduceScatterV(x.data_ptr(), parts.counts.data(), parts.displacements.data(), y.data_ptr(), count_of(y),
                             type_of(x.scalar_type()), reduction_of(n), group.comm, n.stream()));
  return y;
}

Outputs from_root(NodeCall& n) {
  const Group group = group_of(n);
  const uint32_t root = rank_in(n, "root_rank");
  std::vector<at::Tensor> results;
  for (const at::Tensor& x : n.in_from(0)) {
    const at::Tensor& y = results.emplace_back(x.clone(at::MemoryFormat::Contiguous));
    require(HcclBroadcast(y.data_ptr(), count_of(y), type_of(y.scalar_type()), root, group.comm, n.stream()));
  }
  return results;
}

Outputs all_to_all(NodeCall& n) {
  const Group group = group_of(n);
  const at::Tensor x = input(n), y = new_tensor(x.sizes(), x.scalar_type());
  if (x.numel() % group.size != 0) {
    throw GraphError("the " + std::to_string(x.numel()) + " elements of x cannot be divided by the " +
                     std::to_string(group.size) + " ranks");
  }
  const uint64_t count = count_of(x) / group.size;
  const HcclDataType type = type_of(x.scalar_type());
  require(HcclAlltoAll(x.data_ptr(), count, type, y.data_ptr(), count, type, group.comm, n.stream()));
  return y;
}

// Counts are of elements.
Outputs all_to_all_uneven(NodeCall& n) {
  const Group group = group_of(n);
  const at::Tensor x = input(n);
  const Parts sends = parts_of(n, group, 1, 2, 1), receives = parts_of(n, group, 3, 4, 1);
  require_inside(sends, x.numel());
  const int64_t elements = std::max<int64_t>(entry_elements(x), 1);
  const at::Tensor y = with_entries(x, receives.end / elements);
  require_inside(receives, y.numel());
  const HcclDataType type = type_of(x.scalar_type());
  require(HcclAlltoAllV(x.data_ptr(), sends.counts.data(), sends.displacements.data(), type, y.data_ptr(),
                        receives.counts.data(), receives.displacements.data(), type, group.comm, n.stream()));
  return y;
}

// Messages between two ranks are matched in their order, as eager's are, not by a tag.
void reject_tag(NodeCall& n) { n.only("sr_tag", 0); }

Outputs send(NodeCall& n) {
  const Group group = group_of(n);
  reject_tag(n);
  const at::Tensor x = input(n);
  require(
      HcclSend(x.data_ptr(), count_of(x), type_of(x.scalar_type()), rank_in(n, "dest_rank"), group.comm, n.stream()));
  return std::vector<at::Tensor>();
}

Outputs receive(NodeCall& n) {
  const Group group = group_of(n);
  reject_tag(n);
  const at::Tensor y = new_tensor(n.integers("shape", {}), n.dtype("dtype"));
  require(
      HcclRecv(y.data_ptr(), count_of(y), type_of(y.scalar_type()), rank_in(n, "src_rank"), group.comm, n.stream()));
  return y;
}

// Products with a collective before or after them.
constexpr int64_t kStopOnFailure = 1;  // streamMode

at::ScalarType product_type(NodeCall& n) { return n.dtype("y_dtype", n.dtype(0)); }
at::Tensor gathered_product(NodeCall& n) {
  return new_tensor({n.in(0).size(0) * group_of(n).size, n.in(1).size(1)}, product_type(n));
}
at::Tensor gathered_input(NodeCall& n) {
  if (!n.flag("is_gather_out", true)) return new_tensor({0}, n.dtype(0));
  return with_entries(n.in(0), n.in(0).size(0) * group_of(n).size);
}
at::Tensor scattered_product(NodeCall& n) {
  return new_tensor({n.in(0).size(0) / group_of(n).size, n.in(1).size(1)}, product_type(n));
}
at::Tensor reduced_product(NodeCall& n) {
  auto shape = n.in(0).sizes().vec();
  if (!shape.empty()) shape.back() = n.in(1).size(-1);
  return new_tensor(shape, product_type(n));
}
at::Tensor no_maximum(NodeCall&) { return new_tensor({0}, at::kFloat); }

// Products with an exchange of blocks before or after them.
at::Tensor product_of_blocks(NodeCall& n) {
  return new_tensor({n.in(0).size(0) / n.integer("world_size"), n.in(1).size(n.flag("transpose_x2", false) ? 0 : 1)},
                    product_type(n));
}
at::Tensor exchanged_blocks(NodeCall& n) {
  const int64_t ranks = n.integer("world_size");
  return new_tensor({n.in(0).size(0) / ranks, n.in(0).size(1) * ranks}, n.dtype(0));
}
at::Tensor exchanged_product(NodeCall& n) {
  const int64_t ranks = n.integer("world_size"), columns = n.in(1).size(n.flag("transpose_x2", false) ? 0 : 1);
  return new_tensor({n.in(0).size(0) * ranks, columns / ranks}, product_type(n));
}

// An output that the function is not asked for is a null pointer to it, and empty.
Parameter out_if(const char* flag, bool fallback, Rule rule) {
  return [=](AclnnCall& c) {
    if (c.node.flag(flag, fallback)) return out(rule)(c);
    absent()(c);
    c.set_output(c.outputs.size(), new_tensor({0}, c.node.dtype(0)));
  };
}

// Products with experts, and of a shared expert where its inputs are given.
at::Tensor products_of_experts(NodeCall& n) {
  const auto counts = n.integers("recv_counts", {});
  return new_tensor({std::accumulate(counts.begin(), counts.end(), int64_t{0}),
                     n.in(1).size(n.flag("trans_gmm_weight", false) ? 1 : 2)},
                    product_type(n));
}
Rule product_of_shared(size_t x, size_t weight) {
  return [=](NodeCall& n) {
    const auto dtype = n.dtype("mm_dtype", n.has(x) ? n.dtype(x) : n.dtype(0));
    if (!n.has(x) || !n.has(weight)) return new_tensor({0}, c10::isFloat8Type(dtype) ? at::kHalf : dtype);
    return new_tensor({n.in(x).size(0), n.in(weight).size(n.flag("trans_mm_weight", false) ? 0 : 1)}, dtype);
  };
}
at::Tensor rows_of_experts(NodeCall& n) {
  const auto counts = n.integers("recv_counts", {});
  return new_tensor({std::accumulate(counts.begin(), counts.end(), int64_t{0}), n.in(0).size(1)}, n.dtype(0));
}

}  // namespace

const NodeTable kCollectiveNodes = {
    {"HcomAllReduce", all_reduce},
    {"HcomAllGather", all_gather},
    {"HcomAllGatherV", all_gather_uneven, "recv_displacements"},
    {"HcomReduceScatter", reduce_scatter},
    {"HcomReduceScatterV", reduce_scatter_uneven, "send_displacements"},
    {"HcomBroadcast", from_root},
    {"HcomAllToAll", all_to_all},
    {"HcomAllToAllV", all_to_all_uneven},
    {"HcomSend", send},
    {"HcomReceive", receive},
    {"AllGatherMatmul",
     aclnn("AllGatherMatmul", in(0), in(1), optional(2), text("group", ""), integer("gather_index", 0),
           integer("comm_turn", 0), plain(kStopOnFailure), out(gathered_product), out(gathered_input),
           only("is_trans_a", false), only("is_trans_b", false))},
    {"AllGatherMatmulV2", aclnn("AllGatherMatmulV2", in(0), in(1), optional(2), optional(3), optional(4), optional(5),
                                integer("block_size", 0), text("group", ""), integer("gather_index", 0),
                                integer("comm_turn", 0), plain(kStopOnFailure), integer("group_size", 0),
                                text("comm_mode", ""), out(gathered_product), out(gathered_input), out(no_maximum),
                                only("is_trans_a", false), only("is_trans_b", false), only("is_amax_out", false))},
    {"MatmulReduceScatter", aclnn("MatmulReduceScatter", in(0), in(1), optional(2), text("group", ""),
                                  text("reduce_op", "sum"), integer("comm_turn", 0), plain(kStopOnFailure),
                                  out(scattered_product), only("is_trans_a", false), only("is_trans_b", false))},
    {"MatmulReduceScatterV2",
     aclnn("MatmulReduceScatterV2", in(0), in(1), optional(2), optional(3), optional(4), optional(5),
           integer("block_size", 0), text("group", ""), text("reduce_op", "sum"), integer("comm_turn", 0),
           plain(kStopOnFailure), integer("group_size", 0), text("comm_mode", ""), out(scattered_product),
           out(no_maximum), only("is_trans_a", false), only("is_trans_b", false), only("is_amax_out", false))},
    {"MatmulAllReduce",
     aclnn("MatmulAllReduceV2", in(0), in(1), optional(2), optional(3), text("group", ""), text("reduce_op", "sum"),
           integer("comm_turn", 0), plain(kStopOnFailure), out(reduced_product), only("is_trans_a", false),
           only("is_trans_b", false), only("antiquant_group_size", int64_t{0}), only("group_size", int64_t{0}),
           only("comm_quant_mode", int64_t{0}), ignore("comm_mode"))},
    {"AlltoAllMatmul",
     aclnn("AlltoAllMatmulV2", in(0), in(1), optional(2), integers("all2all_axes", {-2, -1}), text("group", ""),
           text("comm_mode", ""), flag("transpose_x1", false), flag("transpose_x2", false), out(product_of_blocks),
           out_if("alltoall_out_flag", true, exchanged_blocks), only("x1_quant_mode", int64_t{0}),
           only("x2_quant_mode", int64_t{0}), only("comm_quant_mode", int64_t{0}), only("group_size", int64_t{0}),
           ignore("x1_quant_dtype"), ignore("comm_quant_dtype")),
     "bias", "y_dtype all2all_axes transpose_x1 transpose_x2 alltoall_out_flag comm_mode"},
    {"MatmulAlltoAll",
     aclnn("MatmulAlltoAllV2", in(0), in(1), optional(2), integers("all2all_axes", {-1, -2}), text("group", ""),
           text("comm_mode", ""), flag("transpose_x1", false), flag("transpose_x2", false), out(exchanged_product),
           only("x1_quant_mode", int64_t{0}), only("x2_quant_mode", int64_t{0}), only("comm_quant_mode", int64_t{0}),
           only("group_size", int64_t{0}), ignore("comm_quant_dtype")),
     "bias", "y_dtype all2all_axes transpose_x1 transpose_x2 comm_mode"},
    {"AlltoAllvGroupedMatMul",
     aclnn("AlltoAllvGroupedMatMulV2", in(0), in(1), optional(2), optional(3), optional(4), optional(5),
           text("group", ""), text("comm_mode", ""), integer("ep_world_size"), integers("send_counts", {}),
           integers("recv_counts", {}), flag("trans_gmm_weight", false), flag("trans_mm_weight", false),
           flag("permute_out_flag", false), out(products_of_experts), out(product_of_shared(4, 5)),
           out_if("permute_out_flag", false, rows_of_experts))},
    {"GroupedMatMulAlltoAllv",
     aclnn("GroupedMatMulAlltoAllvV2", in(0), in(1), optional(2), optional(3), optional(4), optional(5),
           text("group", ""), text("comm_mode", ""), integer("ep_world_size"), integers("send_counts", {}),
           integers("recv_counts", {}), flag("trans_gmm_weight", false), flag("trans_mm_weight", false),
           out(products_of_experts), out(product_of_shared(4, 5)))},
    {"AlltoAllvQuantGroupedMatMul",
     aclnn("AlltoAllvQuantGroupedMatMulV2", in(0), in(1), in(2), in(3), optional(4), optional(5), optional(6),
           optional(7), optional(8), optional(9), integer("gmm_x_quant_mode"), integer("gmm_weight_quant_mode"),
           integer("mm_x_quant_mode", 0), integer("mm_weight_quant_mode", 0), text("group", ""), text("comm_mode", ""),
           integer("ep_world_size"), integers("send_counts", {}), integers("recv_counts", {}),
           flag("trans_gmm_weight", false), flag("trans_mm_weight", false), integer("group_size", 0),
           flag("permute_out_flag", false), out(products_of_experts), out(product_of_shared(6, 7)),
           out_if("permute_out_flag", false, rows_of_experts))},
    {"QuantGroupedMatMulAlltoAllv",
     aclnn("QuantGroupedMatMulAlltoAllvV2", in(0), in(1), in(2), in(3), optional(4), optional(5), optional(6),
           optional(7), optional(8), optional(9), optional(10), integer("gmm_x_quant_mode"),
           integer("gmm_weight_quant_mode"), integer("mm_x_quant_mode", 0), integer("mm_weight_quant_mode", 0),
           integer("comm_quant_mode", 0), integer("comm_quant_dtype", 0), integer("group_size", 0), text("group", ""),
           text("comm_mode", ""), integer("ep_world_size"), integers("send_counts", {}), integers("recv_counts", {}),
           flag("trans_gmm_weight", false), flag("trans_mm_weight", false), out(products_of_experts),
           out(product_of_shared(6, 7)))},
    {"DistributeBarrier",
     aclnn("DistributeBarrierV2", out(written(0)), optional(1), optional(2), text("group", ""), integer("world_size")),
     "time_out elastic_info"},
};

}  // namespace cann_cpu::graph
