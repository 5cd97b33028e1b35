// SPDX-License-Identifier: Apache-2.0
// Matrix products with a collective of a group before or after them. The results equal those of the two separate calls:
// a product is rounded to the output's dtype before it is reduced. The exception is a product of int8: its scaled sums
// stay in float32 until those of all ranks are added.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>

#include <algorithm>

#include "acl/acl_rt.h"
#include "cann_cpu/collectives.h"
#include "cann_cpu/waiting.h"
#include "hccl/hccl.h"
#include "hccl/hcom.h"
#include "nnopbase/executor.h"
#include "product.h"

using namespace cann_cpu;

namespace {

using CommTurn = Ignored<int64_t>;  // into how many pieces an NPU divides the exchange
using CommMode = Ignored<Text>;     // which of an NPU's engines exchanges

void require(HcclResult code) { TORCH_CHECK(code == HCCL_SUCCESS, reason_of(code)); }

// The communicator of a name. Its collectives run in place, inside the call's task.
class Group {
 public:
  explicit Group(Text name) {
    require(HcomGetCommHandleByGroup(name.c_str(), &comm_));
    uint32_t size = 0;
    require(HcclGetRankSize(comm_, &size));
    size_ = size;
  }

  HcclComm comm() const { return comm_; }
  int64_t size() const { return size_; }

  at::Tensor gathered(In mine) const {
    auto sizes = mine.sizes().vec();
    sizes[0] *= size_;
    const at::Tensor rows = mine.contiguous(), all = at::empty(sizes, mine.options());
    require(HcclAllGather(rows.data_ptr(), all.data_ptr(), count(rows), type(rows), comm_, stream_of_task()));
    return all;
  }
  void reduce(In whole, In result, HcclReduceOp op) const {
    require(HcclAllReduce(whole.data_ptr(), result.data_ptr(), count(whole), type(whole), op, comm_, stream_of_task()));
  }
  void reduce_parts(In whole, In part, HcclReduceOp op) const {
    require(
        HcclReduceScatter(whole.data_ptr(), part.data_ptr(), count(part), type(whole), op, comm_, stream_of_task()));
  }

 private:
  static uint64_t count(In tensor) { return static_cast<uint64_t>(tensor.numel()); }
  static HcclDataType type(In tensor) {
    const auto found = hccl_type(tensor.scalar_type());
    TORCH_CHECK(found.has_value(), "there are no collectives of ", tensor.scalar_type());
    return *found;
  }

  HcclComm comm_ = nullptr;
  int64_t size_ = 0;
};

HcclReduceOp reduction(Text name) {
  static constexpr const char* kNames[] = {"sum", "prod", "max", "min"};  // in the order of HcclReduceOp
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  TORCH_CHECK(found != std::end(kNames), "reduceOp must be sum, prod, max or min, got '", name, "'");
  return static_cast<HcclReduceOp>(found - std::begin(kNames));
}

// What is multiplied: (x1 x x2 + bias), of int8 times the scales of its rows and of its columns.
struct Factors {
  In x1, x2;
  OptionalIn bias, rows, columns;

  bool is_quantized() const { return x1.scalar_type() == at::kChar; }

  void check(In out) const {
    TORCH_CHECK(x1.dim() >= 2 && x2.dim() == 2, "expected matrices x1 and x2, got shapes ", x1.sizes(), " and ",
                x2.sizes());
    TORCH_CHECK(x1.size(-1) == x2.size(0), "the columns of x1 ", x1.sizes(), " do not match the rows of x2 ",
                x2.sizes());
    TORCH_CHECK(x1.scalar_type() == x2.scalar_type(), "x1 is ", x1.scalar_type(), ", x2 is ", x2.scalar_type(),
                "; they must be the same");
    TORCH_CHECK(is_quantized() || (!rows.has_value() && !columns.has_value()), "x1 is ", x1.scalar_type(),
                "; only int8 is scaled (x1Scale, x2Scale)");
    TORCH_CHECK(!is_quantized() || columns.has_value(), "x1 is int8, so x2Scale must be given");
    TORCH_CHECK(is_quantized() || out.scalar_type() == x1.scalar_type(), "output must be ", x1.scalar_type(),
                ", as x1 is, got ", out.scalar_type());
    check_scale("x1Scale", rows, x1.size(0));
    check_scale("x2Scale", columns, x2.size(1));
  }

  // The product of these rows of x1, with their scales.
  at::Tensor product(In x, OptionalIn x_scale, at::ScalarType dtype) const {
    if (!is_quantized()) {
      auto sizes = x.sizes().vec();
      sizes.back() = x2.size(1);
      at::Tensor result = at::empty(sizes, x.options().dtype(dtype));
      write_product(result, x, x2, bias);
      return result;
    }
    at::Tensor sums = at::matmul(x.to(at::kInt), x2.to(at::kInt)).to(at::kFloat);
    if (bias.has_value()) sums = sums + bias->to(at::kFloat);
    const at::Tensor by_column = columns->view({1, -1});
    return sums * (x_scale.has_value() ? x_scale->view({-1, 1}) * by_column : by_column);
  }

 private:
  static void check_scale(const char* name, OptionalIn scale, int64_t count) {
    if (!scale.has_value()) return;
    TORCH_CHECK(scale->scalar_type() == at::kFloat && scale->numel() == count && scale->is_contiguous(), name,
                " must be ", count, " contiguous float32, got ", scale->scalar_type(), " of shape ", scale->sizes());
  }
};

// The functions' arguments besides tensors, and the values that are implemented.
void check_modes(int64_t stream_mode, int64_t block_size = 0, int64_t group_size = 0) {
  TORCH_CHECK(stream_mode == 1, "streamMode must be 1 (stop on failure), got ", stream_mode);
  TORCH_CHECK(block_size == 0, "blockSize ", block_size, " is not implemented; expected 0");
  TORCH_CHECK(group_size == 0, "groupSize ", group_size, " is not implemented; expected 0");
}

void check_shape(const char* name, In tensor, at::IntArrayRef expected) {
  TORCH_CHECK(tensor.sizes() == expected && tensor.is_contiguous(), name, " must be contiguous and have shape ",
              expected, ", got ", tensor.sizes());
}

void check_gather(const Factors& factors, Text group, int64_t gather_index, In out, In gather_out) {
  factors.check(out);
  TORCH_CHECK(factors.x1.dim() == 2, "x1 must be a matrix, got shape ", factors.x1.sizes());
  TORCH_CHECK(gather_index == 0, "gatherIndex ", gather_index, " is not implemented; expected 0 (x1)");
  const int64_t rows = factors.x1.size(0) * Group(group).size();
  check_shape("output", out, {rows, factors.x2.size(1)});
  if (gather_out.numel() > 0) check_shape("gatherOut", gather_out, {rows, factors.x1.size(1)});
}

void gather(const Factors& factors, Text name, Out out, Out gather_out) {
  const Group group(name);
  const at::Tensor all = group.gathered(factors.x1);
  std::optional<at::Tensor> scales;
  if (factors.rows.has_value()) scales = group.gathered(*factors.rows);
  out.copy_(factors.product(all, scales, out.scalar_type()));
  if (gather_out.numel() > 0) gather_out.copy_(all);
}

void check_scatter(const Factors& factors, Text name, Text reduce_op, In out) {
  factors.check(out);
  reduction(reduce_op);
  const Group group(name);
  TORCH_CHECK(factors.x1.dim() == 2 && factors.x1.size(0) % group.size() == 0, "the rows of x1 ", factors.x1.sizes(),
              " cannot be divided by the ", group.size(), " ranks");
  check_shape("output", out, {factors.x1.size(0) / group.size(), factors.x2.size(1)});
}

void scatter(const Factors& factors, Text name, Text reduce_op, Out out) {
  const at::Tensor product = factors.product(factors.x1, factors.rows, out.scalar_type());
  const at::Tensor part = at::empty(out.sizes(), product.options());
  Group(name).reduce_parts(product, part, reduction(reduce_op));
  out.copy_(part);
}

void check_reduce(const Factors& factors, Text group, Text reduce_op, OptionalIn x3, In out) {
  factors.check(out);
  reduction(reduce_op);
  (void)Group(group);
  TORCH_CHECK(!factors.is_quantized(), "x1 must be a floating type, got int8");
  auto sizes = factors.x1.sizes().vec();
  sizes.back() = factors.x2.size(1);
  check_shape("output", out, sizes);
  if (x3.has_value()) TORCH_CHECK(x3->sizes() == out.sizes(), "x3 must have shape ", sizes, ", got ", x3->sizes());
}

void reduce(const Factors& factors, Text name, Text reduce_op, OptionalIn x3, Out out) {
  at::Tensor product = factors.product(factors.x1, std::nullopt, out.scalar_type());
  if (x3.has_value()) product.add_(*x3);
  Group(name).reduce(product, out, reduction(reduce_op));
}

// The first text among a call's arguments.
Text group_of(const detail::KernelCall& call) {
  static const std::string none;
  for (const StoredArgument& argument : call.arguments) {
    const auto* text = std::get_if<std::string>(&argument);
    if (text != nullptr && !text->empty()) return *text;
  }
  return none;
}

// In the order of the group's calls.
aclnnStatus phase_two_ordered(aclOpExecutor* executor, aclrtStream stream) {
  if (executor == nullptr) return run_phase_two(executor, stream);
  aclnnStatus status = ACLNN_SUCCESS;
  const aclnnStatus found = detail::guarded(executor->call->name, ACLNN_ERR_PARAM_INVALID, [&] {
    const Group group(group_of(static_cast<const detail::KernelCall&>(*executor->call)));
    status = enqueue_ordered(group.comm(), stream, [&] { return run_phase_two(executor, stream); });
  });
  return found == ACLNN_SUCCESS ? status : found;
}

}  // namespace

#define ACLNN_OF_GROUP(op, check_expression, ...) \
  CANN_CPU_DEFINE_ACLNN(op, phase_two_ordered, nullptr, +check_expression, __VA_ARGS__)

ACLNN_OF_GROUP(
    AllGatherMatmul,
    [](In x1, In x2, OptionalIn bias, Text group, int64_t gather_index, CommTurn, int64_t stream_mode, Out out,
       Out gather_out) {
      check_modes(stream_mode);
      check_gather({x1, x2, bias, {}, {}}, group, gather_index, out, gather_out);
    },
    [](In x1, In x2, OptionalIn bias, Text group, int64_t, CommTurn, int64_t, Out out, Out gather_out) {
      gather({x1, x2, bias, {}, {}}, group, out, gather_out);
    });
ACLNN_OF_GROUP(
    AllGatherMatmulV2,
    [](In x1, In x2, OptionalIn bias, OptionalIn x1_scale, OptionalIn x2_scale, Absent<"quantScale", OptionalIn>,
       int64_t block_size, Text group, int64_t gather_index, CommTurn, int64_t stream_mode, int64_t group_size,
       CommMode, Out out, Out gather_out, Absent<"amaxOut", OptionalOut>) {
      check_modes(stream_mode, block_size, group_size);
      check_gather({x1, x2, bias, x1_scale, x2_scale}, group, gather_index, out, gather_out);
    },
    [](In x1, In x2, OptionalIn bias, OptionalIn x1_scale, OptionalIn x2_scale, Absent<"quantScale", OptionalIn>,
       int64_t, Text group, int64_t, CommTurn, int64_t, int64_t, CommMode, Out out, Out gather_out,
       Absent<"amaxOut", OptionalOut>) { gather({x1, x2, bias, x1_scale, x2_scale}, group, out, gather_out); });
ACLNN_OF_GROUP(
    MatmulReduceScatter,
    [](In x1, In x2, OptionalIn bias, Text group, Text reduce_op, CommTurn, int64_t stream_mode, Out out) {
      check_modes(stream_mode);
      check_scatter({x1, x2, bias, {}, {}}, group, reduce_op, out);
    },
    [](In x1, In x2, OptionalIn bias, Text group, Text reduce_op, CommTurn, int64_t, Out out) {
      scatter({x1, x2, bias, {}, {}}, group, reduce_op, out);
    });
ACLNN_OF_GROUP(
    MatmulReduceScatterV2,
    [](In x1, In x2, OptionalIn bias, OptionalIn x1_scale, OptionalIn x2_scale, Absent<"quantScale", OptionalIn>,
       int64_t block_size, Text group, Text reduce_op, CommTurn, int64_t stream_mode, int64_t group_size, CommMode,
       Out out, Absent<"amaxOut", OptionalOut>) {
      check_modes(stream_mode, block_size, group_size);
      check_scatter({x1, x2, bias, x1_scale, x2_scale}, group, reduce_op, out);
    },
    [](In x1, In x2, OptionalIn bias, OptionalIn x1_scale, OptionalIn x2_scale, Absent<"quantScale", OptionalIn>,
       int64_t, Text group, Text reduce_op, CommTurn, int64_t, int64_t, CommMode, Out out,
       Absent<"amaxOut", OptionalOut>) { scatter({x1, x2, bias, x1_scale, x2_scale}, group, reduce_op, out); });
ACLNN_OF_GROUP(
    MatmulAllReduce,
    [](In x1, In x2, OptionalIn bias, Text group, Text reduce_op, CommTurn, int64_t stream_mode, Out out) {
      check_modes(stream_mode);
      check_reduce({x1, x2, bias, {}, {}}, group, reduce_op, {}, out);
    },
    [](In x1, In x2, OptionalIn bias, Text group, Text reduce_op, CommTurn, int64_t, Out out) {
      reduce({x1, x2, bias, {}, {}}, group, reduce_op, {}, out);
    });
ACLNN_OF_GROUP(
    MatmulAllReduceV2,
    [](In x1, In x2, OptionalIn bias, OptionalIn x3, Text group, Text reduce_op, CommTurn, int64_t stream_mode,
       Out out) {
      check_modes(stream_mode);
      check_reduce({x1, x2, bias, {}, {}}, group, reduce_op, x3, out);
    },
    [](In x1, In x2, OptionalIn bias, OptionalIn x3, Text group, Text reduce_op, CommTurn, int64_t, Out out) {
      reduce({x1, x2, bias, {}, {}}, group, reduce_op, x3, out);
    });
