// SPDX-License-Identifier: Apache-2.0
// Matrix products with a collective of a group before or after them. The results equal those of the two separate calls:
// a product is rounded to the output's dtype before it is reduced. The exception is a product of int8: its scaled sums
// stay in float32 until those of all ranks are added.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <numeric>

#include "checks.h"
#include "group.h"
#include "product.h"
#include "quantization.h"
#include "scaled_product.h"

using namespace cann_cpu;

namespace {

using CommTurn = Ignored<int64_t>;  // into how many pieces an NPU divides the exchange
using CommMode = Ignored<Text>;     // which of an NPU's engines exchanges

HcclReduceOp reduction(Text name) {
  static constexpr const char* kNames[] = {"sum", "prod", "max", "min"};  // in the order of HcclReduceOp
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  TORCH_CHECK(found != std::end(kNames), "reduceOp must be sum, prod, max or min, got '", name, "'");
  return static_cast<HcclReduceOp>(found - std::begin(kNames));
}

// What is multiplied: x1 x x2 + bias, of int8 times the scales of its rows and of its columns. The all-gather also
// scales the bias; the reduce-scatter adds it to the scaled sums.
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
  at::Tensor product(In x, OptionalIn x_scale, at::ScalarType dtype, bool is_bias_scaled = false) const {
    if (!is_quantized()) {
      auto sizes = x.sizes().vec();
      sizes.back() = x2.size(1);
      at::Tensor result = at::empty(sizes, x.options().dtype(dtype));
      write_product(result, x, x2, bias);
      return result;
    }
    at::Tensor result = at::empty({x.size(0), x2.size(1)}, x.options().dtype(at::kFloat));
    ScaledProduct scaled{x, IntegerMatrix("x2", x2, x2.size(0))};
    scaled.scale = columns->view({1, -1});
    if (bias.has_value()) {
      const auto wide = bias->to(at::kFloat);
      (is_bias_scaled ? scaled.sum_bias : scaled.bias) = is_bias_scaled ? wide * columns->view({-1}) : wide;
    }
    if (x_scale.has_value()) scaled.row_scale = x_scale->view({-1});
    scaled.write(result);
    return result;
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

void check_local_shape(const char* name, In tensor, at::IntArrayRef expected) {
  TORCH_CHECK(tensor.sizes() == expected && tensor.is_contiguous(), name, " must be contiguous and have shape ",
              expected, ", got ", tensor.sizes());
}

void gather(Phase phase, const Factors& factors, Text name, int64_t gather_index, Out out, Out gather_out) {
  factors.check(out);
  TORCH_CHECK(factors.x1.dim() == 2, "x1 must be a matrix, got shape ", factors.x1.sizes());
  TORCH_CHECK(gather_index == 0, "gatherIndex ", gather_index, " is not implemented; expected 0 (x1)");
  const Group group(name);
  const int64_t rows = factors.x1.size(0) * group.size();
  check_local_shape("output", out, {rows, factors.x2.size(1)});
  if (gather_out.numel() > 0) check_local_shape("gatherOut", gather_out, {rows, factors.x1.size(1)});
  if (phase == Phase::Check) return;
  const at::Tensor all = group.gathered(factors.x1);
  std::optional<at::Tensor> scales;
  if (factors.rows.has_value()) scales = group.gathered(*factors.rows);
  out.copy_(factors.product(all, scales, out.scalar_type(), /*is_bias_scaled=*/true));
  if (gather_out.numel() > 0) gather_out.copy_(all);
}

void scatter(Phase phase, const Factors& factors, Text name, Text reduce_op, Out out) {
  factors.check(out);
  const auto op = reduction(reduce_op);
  const Group group(name);
  TORCH_CHECK(factors.x1.dim() == 2 && factors.x1.size(0) % group.size() == 0, "the rows of x1 ", factors.x1.sizes(),
              " cannot be divided by the ", group.size(), " ranks");
  check_local_shape("output", out, {factors.x1.size(0) / group.size(), factors.x2.size(1)});
  if (phase == Phase::Check) return;
  const at::Tensor product = factors.product(factors.x1, factors.rows, out.scalar_type());
  const at::Tensor part = at::empty(out.sizes(), product.options());
  group.reduce_parts(product, part, op);
  out.copy_(part);
}

void reduce(Phase phase, const Factors& factors, Text name, Text reduce_op, OptionalIn x3, Out out) {
  factors.check(out);
  const auto op = reduction(reduce_op);
  const Group group(name);
  TORCH_CHECK(!factors.is_quantized(), "x1 must be a floating type, got int8");
  auto sizes = factors.x1.sizes().vec();
  sizes.back() = factors.x2.size(1);
  check_local_shape("output", out, sizes);
  if (x3.has_value()) TORCH_CHECK(x3->sizes() == out.sizes(), "x3 must have shape ", sizes, ", got ", x3->sizes());
  if (phase == Phase::Check) return;
  at::Tensor product = factors.product(factors.x1, std::nullopt, out.scalar_type());
  if (x3.has_value()) product.add_(*x3);
  group.reduce(product, out, op);
}

}  // namespace

ACLNN_OF_GROUP(AllGatherMatmul, [](Phase phase, In x1, In x2, OptionalIn bias, Text group, int64_t gather_index,
                                   CommTurn, int64_t stream_mode, Out out, Out gather_out) {
  check_modes(stream_mode);
  gather(phase, {x1, x2, bias, {}, {}}, group, gather_index, out, gather_out);
});
ACLNN_OF_GROUP(AllGatherMatmulV2,
               [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x1_scale, OptionalIn x2_scale,
                  Absent<"quantScale", OptionalIn>, int64_t block_size, Text group, int64_t gather_index, CommTurn,
                  int64_t stream_mode, int64_t group_size, CommMode, Out out, Out gather_out,
                  Absent<"amaxOut", OptionalOut>) {
                 check_modes(stream_mode, block_size, group_size);
                 gather(phase, {x1, x2, bias, x1_scale, x2_scale}, group, gather_index, out, gather_out);
               });
ACLNN_OF_GROUP(MatmulReduceScatter, [](Phase phase, In x1, In x2, OptionalIn bias, Text group, Text reduce_op, CommTurn,
                                       int64_t stream_mode, Out out) {
  check_modes(stream_mode);
  scatter(phase, {x1, x2, bias, {}, {}}, group, reduce_op, out);
});
ACLNN_OF_GROUP(MatmulReduceScatterV2,
               [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x1_scale, OptionalIn x2_scale,
                  Absent<"quantScale", OptionalIn>, int64_t block_size, Text group, Text reduce_op, CommTurn,
                  int64_t stream_mode, int64_t group_size, CommMode, Out out, Absent<"amaxOut", OptionalOut>) {
                 check_modes(stream_mode, block_size, group_size);
                 scatter(phase, {x1, x2, bias, x1_scale, x2_scale}, group, reduce_op, out);
               });
ACLNN_OF_GROUP(MatmulAllReduce, [](Phase phase, In x1, In x2, OptionalIn bias, Text group, Text reduce_op, CommTurn,
                                   int64_t stream_mode, Out out) {
  check_modes(stream_mode);
  reduce(phase, {x1, x2, bias, {}, {}}, group, reduce_op, {}, out);
});
ACLNN_OF_GROUP(MatmulAllReduceV2, [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x3, Text group,
                                     Text reduce_op, CommTurn, int64_t stream_mode, Out out) {
  check_modes(stream_mode);
  reduce(phase, {x1, x2, bias, {}, {}}, group, reduce_op, x3, out);
});

// The all-reduce takes what the earlier versions take, and a way to communicate.
ACLNN_TYPED_OF_GROUP(MatmulAllReduceV3, "x1: float16 bfloat16; x2, bias, x3, output: as x1",
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x3, Text group, Text reduce_op, CommMode,
                        CommTurn, int64_t stream_mode, Out output) {
                       check_modes(stream_mode);
                       reduce(phase, {x1, x2, bias, {}, {}}, group, reduce_op, x3, output);
                     });

namespace {

// The sums over the ranks of (x1 x x2 + bias), scaled by column and by row, + x3. With scales for the transport, each
// rank's part, and the sum of all parts, are rounded to int8.
struct QuantizedReduction {
  In x1, x2;
  OptionalIn bias, x3, row_scale;
  In column_scale;
  OptionalIn part_scale, sum_scale;
  Text group, op;
  int64_t stream_mode, group_size, transport_mode;
  Out output;

  at::Tensor rows() const { return x1.flatten(0, -2); }

  void check() const {
    check_modes(stream_mode, 0, group_size);
    TORCH_CHECK(op == "sum", "reduce_op is \"", op, "\"; expected sum");
    check_range("comm_quant_mode", transport_mode, 0, 0);
    (void)Group(group);
    TORCH_CHECK((x1.dim() == 2 || x1.dim() == 3) && x2.dim() == 2, "x1 and x2 have shapes ", x1.sizes(), " and ",
                x2.sizes(), "; expected [m, k] or [b, s, k], and [k, n]");
    const int64_t n = x2.size(1), m = x1.numel() / std::max<int64_t>(1, x1.size(-1));
    cann_cpu::check_shape("x2", x2, {x1.size(-1), n});
    auto sizes = x1.sizes().vec();
    sizes.back() = n;
    cann_cpu::check_shape("output", output, sizes);
    check_contiguous("output", output);
    const auto check_count = [](const char* name, OptionalIn tensor, std::initializer_list<int64_t> counts) {
      if (!tensor.has_value()) return;
      TORCH_CHECK(std::find(counts.begin(), counts.end(), tensor->numel()) != counts.end(), name, " has shape ",
                  tensor->sizes(), "; expected ", *counts.begin(), " numbers");
    };
    check_count("bias", bias, {n});
    check_count("pertoken_scale", row_scale, {m});
    check_count("dequant_scale", column_scale, {n, 1});
    check_count("comm_quant_scale_1", part_scale, {n});
    check_count("comm_quant_scale_2", sum_scale, {n});
    if (x3.has_value()) cann_cpu::check_shape("x3", *x3, sizes);
    TORCH_CHECK(part_scale.has_value() == sum_scale.has_value(),
                "comm_quant_scale_1 and comm_quant_scale_2 must be given together");
  }

  void run() const {
    at::Tensor part = at::empty({rows().size(0), x2.size(1)}, x1.options().dtype(at::kFloat));
    ScaledProduct product{rows(), IntegerMatrix("x2", x2, x2.size(0))};
    product.integer_bias = bias;
    product.scale = float_scales(column_scale).reshape({1, -1}).expand({1, x2.size(1)}).contiguous();
    if (row_scale.has_value()) product.row_scale = row_scale->reshape({-1});
    product.write(part);
    if (x3.has_value()) part.add_(x3->flatten(0, -2));
    const Group ranks(group);
    at::Tensor sum = at::empty_like(part);
    if (part_scale.has_value()) {
      const auto of_part = part_scale->reshape({-1}).to(at::kFloat), of_sum = sum_scale->reshape({-1}).to(at::kFloat);
      const auto sent = saturated(part / of_part, at::kChar).to(at::kInt);
      const at::Tensor sums = at::empty_like(sent);
      ranks.reduce(sent, sums, HCCL_REDUCE_SUM);
      sum = saturated(sums * (of_part / of_sum), at::kChar) * of_sum;
    } else {
      ranks.reduce(part, sum, HCCL_REDUCE_SUM);
    }
    output.copy_(sum.view(output.sizes()));
  }
};

constexpr const char* kQuantizedReductionDtypes =
    "x1, x2: int8; bias: int32; x3: as output; dequant_scale: float32 bfloat16 int64 uint64; output: float16 bfloat16";
constexpr const char* kQuantizedReductionV2Dtypes =
    "x1, x2: int8; bias: int32; x3: as output; dequant_scale: float32 bfloat16 int64 uint64; pertoken_scale: float32; "
    "output: float16 bfloat16";
constexpr const char* kQuantizedReductionV3Dtypes =
    "x1, x2: int8; bias: int32; x3: as output; dequant_scale: float32 bfloat16 int64 uint64; pertoken_scale: float32; "
    "comm_quant_scale_1, comm_quant_scale_2: as output; output: float16 bfloat16";

}  // namespace

ACLNN_TYPED_OF_GROUP(
    QuantMatmulAllReduce, kQuantizedReductionDtypes,
    [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x3, In dequant_scale, Text group, Text reduce_op,
       CommTurn, int64_t stream_mode, Out output) {
      check_or_run(
          phase,
          QuantizedReduction{x1, x2, bias, x3, {}, dequant_scale, {}, {}, group, reduce_op, stream_mode, 0, 0, output});
    });
ACLNN_TYPED_OF_GROUP(
    QuantMatmulAllReduceV2, kQuantizedReductionV2Dtypes,
    [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x3, In dequant_scale, OptionalIn pertoken_scale,
       Text group, Text reduce_op, CommTurn, int64_t stream_mode, Out output) {
      check_or_run(
          phase,
          QuantizedReduction{
              x1, x2, bias, x3, pertoken_scale, dequant_scale, {}, {}, group, reduce_op, stream_mode, 0, 0, output});
    });
ACLNN_TYPED_OF_GROUP(QuantMatmulAllReduceV3, kQuantizedReductionV3Dtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x3, In dequant_scale,
                        OptionalIn pertoken_scale, OptionalIn comm_quant_scale_1, OptionalIn comm_quant_scale_2,
                        Text group, Text reduce_op, CommTurn, int64_t stream_mode, Out output) {
                       check_or_run(phase, QuantizedReduction({x1, x2, bias, x3, pertoken_scale, dequant_scale,
                                                               comm_quant_scale_1, comm_quant_scale_2, group, reduce_op,
                                                               stream_mode, 0, 0, output}));
                     });
ACLNN_TYPED_OF_GROUP(QuantMatmulAllReduceV4, kQuantizedReductionV3Dtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x3, OptionalIn pertoken_scale,
                        In dequant_scale, OptionalIn comm_quant_scale_1, OptionalIn comm_quant_scale_2, Text group,
                        Text reduce_op, CommTurn, int64_t stream_mode, int64_t group_size, int64_t comm_quant_mode,
                        Out output) {
                       check_or_run(phase, QuantizedReduction({x1, x2, bias, x3, pertoken_scale, dequant_scale,
                                                               comm_quant_scale_1, comm_quant_scale_2, group, reduce_op,
                                                               stream_mode, group_size, comm_quant_mode, output}));
                     });
ACLNN_TYPED_OF_GROUP(QuantMatmulAllReduceV5, kQuantizedReductionV3Dtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x3, OptionalIn pertoken_scale,
                        In dequant_scale, OptionalIn comm_quant_scale_1, OptionalIn comm_quant_scale_2, Text group,
                        Text reduce_op, CommMode, CommTurn, int64_t stream_mode, int64_t group_size,
                        int64_t comm_quant_mode, Out output) {
                       check_or_run(phase, QuantizedReduction({x1, x2, bias, x3, pertoken_scale, dequant_scale,
                                                               comm_quant_scale_1, comm_quant_scale_2, group, reduce_op,
                                                               stream_mode, group_size, comm_quant_mode, output}));
                     });

namespace {

// The sums over the ranks of x1 x ((x2 + offset) * scale) + bias + x3, each rounded to the dtype of x1.
struct DequantizedReduction {
  In x1, x2;
  OptionalIn bias;
  In scale;
  OptionalIn offset, x3;
  Text group, op;
  int64_t stream_mode, group_size;
  Out output;

  IntegerMatrix weight() const { return IntegerMatrix("x2", x2, x1.size(-1)); }
  int64_t groups() const { return group_size > 0 ? (x1.size(-1) + group_size - 1) / group_size : 1; }

  void check() const {
    check_modes(stream_mode);
    reduction(op);
    (void)Group(group);
    TORCH_CHECK((x1.dim() == 2 || x1.dim() == 3) && x2.dim() == 2, "x1 and x2 have shapes ", x1.sizes(), " and ",
                x2.sizes(), "; expected [m, k] or [b, s, k], and [k, n]");
    auto sizes = x1.sizes().vec();
    sizes.back() = weight().columns();
    cann_cpu::check_shape("output", output, sizes);
    check_contiguous("output", output);
    const int64_t n = sizes.back();
    if (bias.has_value()) TORCH_CHECK(bias->numel() == n, "bias has shape ", bias->sizes(), "; expected [", n, "]");
    const bool for_all = groups() == 1 && scale.numel() == 1;
    TORCH_CHECK(for_all || scale.numel() == groups() * n, "antiquant_scale has shape ", scale.sizes(), "; expected [",
                groups(), ", ", n, "]");
    if (offset.has_value()) cann_cpu::check_shape("antiquant_offset", *offset, scale.sizes());
    if (x3.has_value()) cann_cpu::check_shape("x3", *x3, sizes);
  }

  void run() const {
    const auto by_group = [&](In tensor) { return tensor.reshape({groups(), -1}).to(at::kFloat); };
    at::Tensor part = at::empty({x1.numel() / x1.size(-1), weight().columns()}, x1.options());
    DequantizedProduct product{x1.flatten(0, -2), weight(), group_size, by_group(scale)};
    if (offset.has_value()) product.offset = by_group(*offset);
    if (bias.has_value()) product.bias = bias->reshape({-1});
    product.write(part);
    if (x3.has_value()) part.add_(x3->flatten(0, -2));
    Group(group).reduce(part, output, reduction(op));
  }
};

constexpr const char* kDequantizedReductionDtypes =
    "x1: float16 bfloat16; x2: int8 int32; bias: float16 bfloat16 float32; antiquant_scale, antiquant_offset, x3, "
    "output: as x1";

}  // namespace

ACLNN_TYPED_OF_GROUP(WeightQuantMatmulAllReduce, kDequantizedReductionDtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, In antiquant_scale, OptionalIn antiquant_offset,
                        OptionalIn x3, Text group, Text reduce_op, CommTurn, int64_t stream_mode,
                        int64_t antiquant_group_size, Out output) {
                       check_or_run(phase,
                                    DequantizedReduction({x1, x2, bias, antiquant_scale, antiquant_offset, x3, group,
                                                          reduce_op, stream_mode, antiquant_group_size, output}));
                     });
ACLNN_TYPED_OF_GROUP(WeightQuantMatmulAllReduceV2, kDequantizedReductionDtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, In antiquant_scale, OptionalIn antiquant_offset,
                        OptionalIn x3, Text group, Text reduce_op, CommMode, CommTurn, int64_t stream_mode,
                        int64_t antiquant_group_size, Out output) {
                       check_or_run(phase,
                                    DequantizedReduction({x1, x2, bias, antiquant_scale, antiquant_offset, x3, group,
                                                          reduce_op, stream_mode, antiquant_group_size, output}));
                     });

namespace {

// Ranks exchange blocks: of the rows of x1 before the product, which come to lie beside each other, or of the columns
// of the product, which come to lie below each other.
struct ExchangedProduct {
  In x1, x2;
  OptionalIn bias;
  OptionalInts axes;
  Text group;
  bool transpose_x1, transpose_x2;

  at::Tensor weight() const { return transpose_x2 ? x2.t() : x2; }

  // The ranks that x1 and x2 are right for.
  int64_t check(Ints expected_axes) const {
    const int64_t size = Group(group).size();
    check_rank("x1", x1, 2);
    check_rank("x2", x2, 2);
    TORCH_CHECK(!axes.has_value() || axes->empty() || *axes == expected_axes, "alltoall_axes is ", *axes, "; expected ",
                expected_axes);
    TORCH_CHECK(!transpose_x1, "transpose_x1 is true; expected false");
    if (bias.has_value()) cann_cpu::check_shape("bias", *bias, {weight().size(1)});
    return size;
  }

  // The exchange, then the product.
  void run_before(Phase phase, Out output, OptionalOut exchanged) const {
    const int64_t size = check({-2, -1});
    TORCH_CHECK(x1.size(0) % size == 0, "x1 has ", x1.size(0), " rows; expected a multiple of the ", size, " ranks");
    cann_cpu::check_shape("x2", weight(), {x1.size(1) * size, weight().size(1)});
    cann_cpu::check_shape("output", output, {x1.size(0) / size, weight().size(1)});
    if (exchanged.has_value())
      cann_cpu::check_shape("alltoall_out", *exchanged, {x1.size(0) / size, x1.size(1) * size});
    if (phase == Phase::Check) return;
    const auto factor = beside();
    write_product(output, factor, weight(), bias);
    if (exchanged.has_value()) exchanged->copy_(factor);
  }
  // This rank's blocks of all ranks.
  at::Tensor beside() const {
    const Group ranks(group);
    const std::vector<int64_t> each(static_cast<size_t>(ranks.size()), x1.size(0) / ranks.size());
    const auto received = ranks.exchanged(x1, each, each).view({ranks.size(), each[0], x1.size(1)});
    return received.transpose(0, 1).reshape({each[0], -1});
  }

  // The product, then the exchange.
  void run_after(Phase phase, Out output) const {
    const int64_t size = check({-1, -2}), n = weight().size(1);
    cann_cpu::check_shape("x2", weight(), {x1.size(1), n});
    TORCH_CHECK(n % size == 0, "x2 has ", n, " columns; expected a multiple of the ", size, " ranks");
    cann_cpu::check_shape("output", output, {x1.size(0) * size, n / size});
    if (phase == Phase::Check) return;
    at::Tensor product = at::empty({x1.size(0), weight().size(1)}, output.options());
    write_product(product, x1, weight(), bias);
    exchange_columns(product, output);
  }
  void exchange_columns(In product, Out output) const {
    const Group ranks(group);
    const std::vector<int64_t> each(static_cast<size_t>(ranks.size()), x1.size(0));
    const auto blocks = product.view({x1.size(0), ranks.size(), -1}).transpose(0, 1).reshape({-1, output.size(1)});
    output.copy_(ranks.exchanged(blocks, each, each));
  }
};

constexpr const char* kExchangedDtypes =
    "x1: float16 bfloat16; x2, output, alltoall_out: as x1; bias: float32 float16 bfloat16";
constexpr const char* kExchangedAfterDtypes = "x1: float16 bfloat16; x2, output: as x1; bias: float32 float16 bfloat16";

}  // namespace

ACLNN_TYPED_OF_GROUP(AlltoAllMatmul, kExchangedDtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalInts alltoall_axes, Text group,
                        bool transpose_x1, bool transpose_x2, Out output, OptionalOut alltoall_out) {
                       ExchangedProduct{x1, x2, bias, alltoall_axes, group, transpose_x1, transpose_x2}.run_before(
                           phase, output, alltoall_out);
                     });
ACLNN_TYPED_OF_GROUP(AlltoAllMatmulV2, kExchangedDtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalInts alltoall_axes, Text group, CommMode,
                        bool transpose_x1, bool transpose_x2, Out output, OptionalOut alltoall_out) {
                       ExchangedProduct{x1, x2, bias, alltoall_axes, group, transpose_x1, transpose_x2}.run_before(
                           phase, output, alltoall_out);
                     });
ACLNN_TYPED_OF_GROUP(MatmulAlltoAll, kExchangedAfterDtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalInts alltoall_axes, Text group,
                        bool transpose_x1, bool transpose_x2, Out output) {
                       ExchangedProduct{x1, x2, bias, alltoall_axes, group, transpose_x1, transpose_x2}.run_after(
                           phase, output);
                     });
ACLNN_TYPED_OF_GROUP(MatmulAlltoAllV2, kExchangedAfterDtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalInts alltoall_axes, Text group, CommMode,
                        bool transpose_x1, bool transpose_x2, Out output) {
                       ExchangedProduct{x1, x2, bias, alltoall_axes, group, transpose_x1, transpose_x2}.run_after(
                           phase, output);
                     });

namespace {

// Products with the experts of a rank, of rows that the ranks have sent, or that they get. The counts are those of each
// rank, and of each expert there: of this rank's, or of those of the others.
struct ExpertProducts {
  In x, weights;
  OptionalIn shared_x, shared_weight;
  Text group;
  int64_t world;
  Ints send_counts, recv_counts;
  bool transpose_weights, transpose_shared;

  int64_t experts() const { return weights.size(0); }
  int64_t columns() const { return weights.size(transpose_weights ? 1 : 2); }
  int64_t rows_of(Ints counts) const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  at::Tensor weight(int64_t expert) const { return transpose_weights ? weights[expert].t() : weights[expert]; }

  void check(In y, OptionalOut shared_y) const {
    const int64_t size = Group(group).size();
    TORCH_CHECK(world == size, "ep_world_size is ", world, "; expected ", size, ", as in the group ", group);
    check_rank("gmm_x", x, 2);
    check_rank("gmm_weight", weights, 3);
    TORCH_CHECK(weights.size(transpose_weights ? 2 : 1) == x.size(1), "gmm_weight has shape ", weights.sizes(),
                "; expected the ", x.size(1), " columns of gmm_x as rows");
    for (const auto& [name, counts] : {std::pair("send_counts", send_counts), std::pair("recv_counts", recv_counts)}) {
      TORCH_CHECK(static_cast<int64_t>(counts.size()) == world * experts(), name, " has ", counts.size(),
                  " counts; expected ", world * experts(), ", for each rank and expert");
      check_values(name, counts, 0, 52428800);
    }
    TORCH_CHECK(rows_of(send_counts) == x.size(0), "send_counts has the sum ", rows_of(send_counts), "; expected ",
                x.size(0), ", the rows of gmm_x");
    cann_cpu::check_shape("y", y, {rows_of(recv_counts), columns()});
    TORCH_CHECK(shared_x.has_value() == shared_weight.has_value(), "mm_x and mm_weight must be given together");
    if (!shared_x.has_value()) return;
    check_rank("mm_x", *shared_x, 2);
    check_rank("mm_weight", *shared_weight, 2);
    const int64_t k = shared_weight->size(transpose_shared ? 1 : 0), n = shared_weight->size(transpose_shared ? 0 : 1);
    cann_cpu::check_shape("mm_x", *shared_x, {shared_x->size(0), k});
    TORCH_CHECK(shared_y.has_value(), "mm_y must be given with mm_x");
    cann_cpu::check_shape("mm_y", *shared_y, {shared_x->size(0), n});
  }

  // By rank and expert.
  at::Tensor table(Ints counts) const {
    const auto result = at::empty({world, experts()}, at::kLong);
    std::copy(counts.begin(), counts.end(), result.mutable_data_ptr<int64_t>());
    return result;
  }
  std::vector<int64_t> by_rank(Ints counts) const {
    std::vector<int64_t> result(static_cast<size_t>(world), 0);
    for (size_t i = 0; i < counts.size(); ++i) result[i / static_cast<size_t>(experts())] += counts[i];
    return result;
  }
  at::Tensor exchanged(In rows) const {
    return Group(group).exchanged(rows, by_rank(send_counts), by_rank(recv_counts));
  }

  // Calls write(part of y, its first row, expert) for the rows of each expert; counts are by rank and expert.
  template <class Write>
  void for_experts(In counts, const at::Tensor& y, Write write) const {
    const auto of_expert = counts.sum(0);
    for (int64_t i = 0, begin = 0; i < experts(); ++i) {
      const int64_t count = of_expert[i].item<int64_t>();
      at::Tensor part = y.narrow(0, begin, count);
      if (count > 0) write(part, begin, i);
      begin += count;
    }
  }
  // Rows in the order of experts.
  void multiply(In rows, In counts, const at::Tensor& y) const {
    for_experts(counts, y, [&](at::Tensor& part, int64_t begin, int64_t expert) {
      write_product(part, rows.narrow(0, begin, part.size(0)), weight(expert), std::nullopt);
    });
  }
  void multiply_shared(OptionalOut shared_y) const {
    if (!shared_x.has_value()) return;
    write_product(*shared_y, *shared_x, transpose_shared ? shared_weight->t() : *shared_weight, std::nullopt);
  }

  void check_permuted(In y, bool is_wanted, OptionalOut permuted) const {
    if (!is_wanted) return;
    TORCH_CHECK(permuted.has_value(), "permute_out must be given for permute_out_flag");
    cann_cpu::check_shape("permute_out", *permuted, {y.size(0), x.size(1)});
  }

  void exchange_first(Phase phase, Out y, OptionalOut shared_y, bool is_permuted_wanted, OptionalOut permuted) const {
    check(y, shared_y);
    check_permuted(y, is_permuted_wanted, permuted);
    if (phase == Phase::Check) return;
    const auto counts = table(recv_counts);
    const auto rows = exchanged(x).index_select(0, order_by_expert(counts));
    multiply(rows, counts, y);
    multiply_shared(shared_y);
    if (is_permuted_wanted) permuted->copy_(rows);
  }
  void multiply_first(Phase phase, Out y, OptionalOut shared_y) const {
    check(y, shared_y);
    if (phase == Phase::Check) return;
    const auto counts = table(send_counts);
    const auto products = at::empty({x.size(0), columns()}, y.options());
    multiply(x, counts, products);
    multiply_shared(shared_y);
    return_products(products, y);
  }
  void return_products(In products, Out y) const {
    const auto order = order_by_expert(table(send_counts));
    y.copy_(exchanged(at::empty_like(products).index_copy_(0, order, products)));
  }
};

// Counts on the device, which CANN does not read yet.
using SendCounts = Absent<"sendCountsTensor", OptionalIn>;
using RecvCounts = Absent<"recvCountsTensor", OptionalIn>;

constexpr const char* kExpertProductDtypes =
    "gmm_x: float16 bfloat16; gmm_weight, gmm_y, permute_out: as gmm_x; mm_x: float16 bfloat16; mm_weight, mm_y: as "
    "mm_x";
constexpr const char* kExpertProductAfterDtypes =
    "gmm_x: float16 bfloat16; gmm_weight, y: as gmm_x; mm_x: float16 bfloat16; mm_weight, mm_y: as mm_x";

}  // namespace

ACLNN_TYPED_OF_GROUP(AlltoAllvGroupedMatMul, kExpertProductDtypes,
                     [](Phase phase, In gmm_x, In gmm_weight, SendCounts, RecvCounts, OptionalIn mm_x,
                        OptionalIn mm_weight, Text group, int64_t ep_world_size, Ints send_counts, Ints recv_counts,
                        bool trans_gmm_weight, bool trans_mm_weight, bool permute_out_flag, Out gmm_y, OptionalOut mm_y,
                        OptionalOut permute_out) {
                       ExpertProducts({gmm_x, gmm_weight, mm_x, mm_weight, group, ep_world_size, send_counts,
                                       recv_counts, trans_gmm_weight, trans_mm_weight})
                           .exchange_first(phase, gmm_y, mm_y, permute_out_flag, permute_out);
                     });
ACLNN_TYPED_OF_GROUP(AlltoAllvGroupedMatMulV2, kExpertProductDtypes,
                     [](Phase phase, In gmm_x, In gmm_weight, SendCounts, RecvCounts, OptionalIn mm_x,
                        OptionalIn mm_weight, Text group, CommMode, int64_t ep_world_size, Ints send_counts,
                        Ints recv_counts, bool trans_gmm_weight, bool trans_mm_weight, bool permute_out_flag, Out gmm_y,
                        OptionalOut mm_y, OptionalOut permute_out) {
                       ExpertProducts({gmm_x, gmm_weight, mm_x, mm_weight, group, ep_world_size, send_counts,
                                       recv_counts, trans_gmm_weight, trans_mm_weight})
                           .exchange_first(phase, gmm_y, mm_y, permute_out_flag, permute_out);
                     });
ACLNN_TYPED_OF_GROUP(GroupedMatMulAlltoAllv, kExpertProductAfterDtypes,
                     [](Phase phase, In gmm_x, In gmm_weight, SendCounts, RecvCounts, OptionalIn mm_x,
                        OptionalIn mm_weight, Text group, int64_t ep_world_size, Ints send_counts, Ints recv_counts,
                        bool trans_gmm_weight, bool trans_mm_weight, Out y, OptionalOut mm_y) {
                       ExpertProducts({gmm_x, gmm_weight, mm_x, mm_weight, group, ep_world_size, send_counts,
                                       recv_counts, trans_gmm_weight, trans_mm_weight})
                           .multiply_first(phase, y, mm_y);
                     });
ACLNN_TYPED_OF_GROUP(GroupedMatMulAlltoAllvV2, kExpertProductAfterDtypes,
                     [](Phase phase, In gmm_x, In gmm_weight, SendCounts, RecvCounts, OptionalIn mm_x,
                        OptionalIn mm_weight, Text group, CommMode, int64_t ep_world_size, Ints send_counts,
                        Ints recv_counts, bool trans_gmm_weight, bool trans_mm_weight, Out y, OptionalOut mm_y) {
                       ExpertProducts({gmm_x, gmm_weight, mm_x, mm_weight, group, ep_world_size, send_counts,
                                       recv_counts, trans_gmm_weight, trans_mm_weight})
                           .multiply_first(phase, y, mm_y);
                     });

namespace {

// An ExchangedProduct of integers: x1 is int8 with a scale for each row, or is quantised row by row once it has been
// exchanged, times the smoothing scales in the place of the row's. The bias is added to the scaled sums.
struct QuantizedExchange {
  ExchangedProduct product;
  OptionalIn x1_scale;
  In x2_scale;
  int64_t x1_mode, x2_mode, transport_mode, group_size;

  static constexpr int64_t kByColumn = 2, kByRow = 3, kDynamicByRow = 7;

  int64_t rank_count(int64_t expected_mode, Ints axes) const {
    TORCH_CHECK(x1_mode == expected_mode, "x1_quant_mode is ", x1_mode, "; expected ", expected_mode);
    TORCH_CHECK(x2_mode == kByColumn, "x2_quant_mode is ", x2_mode, "; expected ", kByColumn, " (by column)");
    check_range("comm_quant_mode", transport_mode, 0, 0);
    check_range("group_size", group_size, 0, 0);
    TORCH_CHECK(!product.axes.has_value() || product.axes->empty() || *product.axes == axes, "alltoall_axes is ",
                *product.axes, "; expected ", axes);
    TORCH_CHECK(!product.transpose_x1, "transpose_x1 is true; expected false");
    check_rank("x1", product.x1, 2);
    check_rank("x2", product.x2, 2);
    return Group(product.group).size();
  }
  IntegerMatrix weight(int64_t depth) const { return IntegerMatrix("x2", product.weight(), depth); }

  void check_factors(int64_t columns) const {
    TORCH_CHECK(x2_scale.numel() == columns, "x2_scale has shape ", x2_scale.sizes(), "; expected [", columns, "]");
    if (product.bias.has_value()) cann_cpu::check_shape("bias", *product.bias, {columns});
  }

  at::Tensor scaled_product(In x, In rows, at::ScalarType dtype) const {
    ScaledProduct scaled{x, weight(x.size(1))};
    scaled.scale = x2_scale.reshape({1, -1}).to(at::kFloat);
    scaled.row_scale = rows.reshape({-1});
    if (product.bias.has_value()) scaled.bias = *product.bias;
    at::Tensor result = at::empty({x.size(0), weight(x.size(1)).columns()}, x.options().dtype(dtype));
    scaled.write(result);
    return result;
  }

  void run_before(Phase phase, Out output, OptionalOut exchanged) const {
    const int64_t size = rank_count(kDynamicByRow, {-2, -1});
    const int64_t depth = product.x1.size(1) * size, columns = weight(depth).columns();
    TORCH_CHECK(product.x1.size(0) % size == 0, "x1 has ", product.x1.size(0), " rows; expected a multiple of the ",
                size, " ranks");
    check_factors(columns);
    if (x1_scale.has_value()) {
      cann_cpu::check_shape("x1_scale", *x1_scale, {depth});
      TORCH_CHECK(x1_scale->scalar_type() == product.x1.scalar_type(), "x1_scale has dtype ", x1_scale->scalar_type(),
                  "; expected ", product.x1.scalar_type(), ", as x1");
    }
    cann_cpu::check_shape("output", output, {product.x1.size(0) / size, columns});
    if (exchanged.has_value()) {
      cann_cpu::check_shape("alltoall_out", *exchanged, {product.x1.size(0) / size, depth});
    }
    if (phase == Phase::Check) return;
    const auto beside = product.beside();
    if (exchanged.has_value()) exchanged->copy_(beside);
    const auto wide = beside.to(at::kFloat);
    const auto rows = dynamically_quantized(x1_scale.has_value() ? wide * *x1_scale : wide, at::kChar);
    output.copy_(scaled_product(rows.values, rows.scale, output.scalar_type()));
  }

  void run_after(Phase phase, Out output) const {
    const int64_t size = rank_count(kByRow, {-1, -2});
    const int64_t columns = weight(product.x1.size(1)).columns();
    TORCH_CHECK(columns % size == 0, "x2 has ", columns, " columns; expected a multiple of the ", size, " ranks");
    check_factors(columns);
    TORCH_CHECK(x1_scale.has_value(), "x1_scale must be given");
    TORCH_CHECK(x1_scale->numel() == product.x1.size(0), "x1_scale has shape ", x1_scale->sizes(), "; expected [",
                product.x1.size(0), "]");
    cann_cpu::check_shape("output", output, {product.x1.size(0) * size, columns / size});
    if (phase == Phase::Check) return;
    product.exchange_columns(scaled_product(product.x1, *x1_scale, output.scalar_type()), output);
  }
};

using CommScale = Absent<"commScale", OptionalIn>;
using X1Offset = Absent<"x1Offset", OptionalIn>;
using X2Offset = Absent<"x2Offset", OptionalIn>;
using CommDtype = Ignored<int64_t>;  // of a transport that is not quantised
using RowDtype = Ignored<int64_t>;   // of 8-bit floats

constexpr const char* kQuantizedBeforeDtypes =
    "x1: float16 bfloat16; x2: int8 int32; bias: float32 float16 bfloat16; x1_scale: float16 bfloat16; x2_scale: "
    "float32; "
    "output, alltoall_out: as x1";
constexpr const char* kQuantizedAfterDtypes =
    "x1, x2: int8; bias: float32 float16 bfloat16; x1_scale, x2_scale: float32; output: float16 bfloat16";

}  // namespace

ACLNN_TYPED_OF_GROUP(AlltoAllQuantMatmul, kQuantizedBeforeDtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x1_scale, In x2_scale, CommScale,
                        X1Offset, X2Offset, Text group, OptionalInts alltoall_axes, int64_t x1_quant_mode,
                        int64_t x2_quant_mode, int64_t comm_quant_mode, CommDtype, RowDtype, int64_t group_size,
                        bool transpose_x1, bool transpose_x2, Out output, OptionalOut alltoall_out) {
                       QuantizedExchange({x1, x2, bias, alltoall_axes, group, transpose_x1, transpose_x2, x1_scale,
                                          x2_scale, x1_quant_mode, x2_quant_mode, comm_quant_mode, group_size})
                           .run_before(phase, output, alltoall_out);
                     });
ACLNN_TYPED_OF_GROUP(AlltoAllQuantMatmulV2, kQuantizedBeforeDtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x1_scale, In x2_scale, CommScale,
                        X1Offset, X2Offset, Text group, CommMode, OptionalInts alltoall_axes, int64_t x1_quant_mode,
                        int64_t x2_quant_mode, int64_t comm_quant_mode, CommDtype, RowDtype, int64_t group_size,
                        bool transpose_x1, bool transpose_x2, Out output, OptionalOut alltoall_out) {
                       QuantizedExchange({x1, x2, bias, alltoall_axes, group, transpose_x1, transpose_x2, x1_scale,
                                          x2_scale, x1_quant_mode, x2_quant_mode, comm_quant_mode, group_size})
                           .run_before(phase, output, alltoall_out);
                     });
ACLNN_TYPED_OF_GROUP(QuantMatmulAlltoAll, kQuantizedAfterDtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x1_scale, In x2_scale, CommScale,
                        X1Offset, X2Offset, OptionalInts alltoall_axes, Text group, int64_t x1_quant_mode,
                        int64_t x2_quant_mode, int64_t comm_quant_mode, CommDtype, int64_t group_size,
                        bool transpose_x1, bool transpose_x2, Out output) {
                       QuantizedExchange({x1, x2, bias, alltoall_axes, group, transpose_x1, transpose_x2, x1_scale,
                                          x2_scale, x1_quant_mode, x2_quant_mode, comm_quant_mode, group_size})
                           .run_after(phase, output);
                     });
ACLNN_TYPED_OF_GROUP(QuantMatmulAlltoAllV2, kQuantizedAfterDtypes,
                     [](Phase phase, In x1, In x2, OptionalIn bias, OptionalIn x1_scale, In x2_scale, CommScale,
                        X1Offset, X2Offset, OptionalInts alltoall_axes, Text group, CommMode, int64_t x1_quant_mode,
                        int64_t x2_quant_mode, int64_t comm_quant_mode, CommDtype, int64_t group_size,
                        bool transpose_x1, bool transpose_x2, Out output) {
                       QuantizedExchange({x1, x2, bias, alltoall_axes, group, transpose_x1, transpose_x2, x1_scale,
                                          x2_scale, x1_quant_mode, x2_quant_mode, comm_quant_mode, group_size})
                           .run_after(phase, output);
                     });

namespace {

// The same products of 8-bit floats with an exponent for each 32 numbers along the columns of x: (m, k / 64, 2), and
// those of the weights in the weights' order.
struct MicroscaledExperts {
  ExpertProducts products;
  In x_scale, weight_scale;
  OptionalIn shared_scale, shared_weight_scale;
  int64_t x_mode, weight_mode, shared_mode, shared_weight_mode, group_size;

  static constexpr int64_t kMicroscaling = 6, kBlock = 32;
  static constexpr int64_t kBlockSizes = kBlock | int64_t{1} << 16 | int64_t{1} << 32;  // of k, n and m

  static int64_t pairs(int64_t depth) { return (depth + 2 * kBlock - 1) / (2 * kBlock); }

  void check(In y, OptionalOut shared_y) const {
    check_range("gmm_x_quant_mode", x_mode, kMicroscaling, kMicroscaling);
    check_range("gmm_weight_quant_mode", weight_mode, kMicroscaling, kMicroscaling);
    TORCH_CHECK(group_size == 0 || group_size == kBlockSizes, "group_size is ", group_size, "; expected 0 or ",
                kBlockSizes, ", for 1, 1 and 32 numbers along m, n and k");
    products.check(y, shared_y);
    const int64_t depth = products.x.size(1), n = products.columns();
    cann_cpu::check_shape("gmm_x_scale", x_scale, {products.x.size(0), pairs(depth), 2});
    cann_cpu::check_shape("gmm_weight_scale", weight_scale,
                          products.transpose_weights ? at::IntArrayRef{products.experts(), n, pairs(depth), 2}
                                                     : at::IntArrayRef{products.experts(), pairs(depth), n, 2});
    TORCH_CHECK(shared_scale.has_value() == products.shared_x.has_value() &&
                    shared_weight_scale.has_value() == products.shared_x.has_value(),
                "mm_x_scale and mm_weight_scale must be given if and only if mm_x is");
    if (!products.shared_x.has_value()) return;
    check_range("mm_x_quant_mode", shared_mode, kMicroscaling, kMicroscaling);
    check_range("mm_weight_quant_mode", shared_weight_mode, kMicroscaling, kMicroscaling);
    const int64_t k = products.shared_x->size(1), columns = shared_y->size(1);
    cann_cpu::check_shape("mm_x_scale", *shared_scale, {products.shared_x->size(0), pairs(k), 2});
    cann_cpu::check_shape(
        "mm_weight_scale", *shared_weight_scale,
        products.transpose_shared ? at::IntArrayRef{columns, pairs(k), 2} : at::IntArrayRef{pairs(k), columns, 2});
  }

  // Rows of numbers times their exponents.
  static at::Tensor scaled(In rows, In scale) {
    const auto factors = scale.to(at::kFloat).flatten(1).unsqueeze(2).expand({-1, -1, kBlock}).flatten(1);
    return rows.to(at::kFloat).mul_(factors.narrow(1, 0, rows.size(1)));
  }
  // The weight and its exponents have the columns of the product as rows.
  static void write(Out y, In x, In x_exponents, In weight, In weight_exponents) {
    constexpr int64_t kElements = 1 << 21;  // of a temporary
    const int64_t k = std::max<int64_t>(x.size(1), 1), width = std::max<int64_t>(kElements / k, 64);
    by_steps(y.size(1), width, [&](int64_t column, int64_t columns) {
      const auto right = scaled(weight.narrow(0, column, columns), weight_exponents.narrow(0, column, columns));
      by_steps(y.size(0), std::max<int64_t>(kElements / std::max(k, width), 1), [&](int64_t row, int64_t rows) {
        const auto left = scaled(x.narrow(0, row, rows), x_exponents.narrow(0, row, rows));
        y.narrow(0, row, rows).narrow(1, column, columns).copy_(at::mm(left, right.t()));
      });
    });
  }
  static at::Tensor with_columns_first(In tensor, bool is_transposed) {
    return is_transposed ? tensor : tensor.transpose(0, 1);
  }

  void multiply(In rows, In exponents, In counts, const at::Tensor& y) const {
    products.for_experts(counts, y, [&](at::Tensor& part, int64_t begin, int64_t expert) {
      write(part, rows.narrow(0, begin, part.size(0)), exponents.narrow(0, begin, part.size(0)),
            with_columns_first(products.weights[expert], products.transpose_weights),
            with_columns_first(weight_scale[expert], products.transpose_weights));
    });
  }
  void multiply_shared(OptionalOut shared_y) const {
    if (!products.shared_x.has_value()) return;
    auto y = *shared_y;
    write(y, *products.shared_x, *shared_scale, with_columns_first(*products.shared_weight, products.transpose_shared),
          with_columns_first(*shared_weight_scale, products.transpose_shared));
  }

  void exchange_first(Phase phase, Out y, OptionalOut shared_y, bool is_permuted_wanted, OptionalOut permuted) const {
    check(y, shared_y);
    products.check_permuted(y, is_permuted_wanted, permuted);
    if (phase == Phase::Check) return;
    const auto counts = products.table(products.recv_counts);
    const auto order = order_by_expert(counts);
    // Ranks exchange bytes.
    const auto moved = [&](In rows) {
      return products.exchanged(rows.view(at::kChar)).index_select(0, order).view(rows.scalar_type());
    };
    const auto rows = moved(products.x);
    multiply(rows, moved(x_scale), counts, y);
    multiply_shared(shared_y);
    if (is_permuted_wanted) permuted->copy_(rows);
  }
  void multiply_first(Phase phase, Out y, OptionalOut shared_y) const {
    check(y, shared_y);
    if (phase == Phase::Check) return;
    const auto result = at::empty({products.x.size(0), products.columns()}, y.options());
    multiply(products.x, x_scale, products.table(products.send_counts), result);
    multiply_shared(shared_y);
    products.return_products(result, y);
  }
};

constexpr const char* kMicroscaledDtypes =
    "gmm_x, gmm_weight: float8_e4m3fn float8_e5m2; gmm_x_scale, gmm_weight_scale, mm_x_scale, mm_weight_scale: "
    "float8_e8m0fnu; mm_x: as gmm_x; mm_weight: as gmm_weight; gmm_y: float16 bfloat16; mm_y: as gmm_y; permute_out: "
    "as gmm_x";
constexpr const char* kMicroscaledAfterDtypes =
    "gmm_x, gmm_weight: float8_e4m3fn float8_e5m2; gmm_x_scale, gmm_weight_scale, mm_x_scale, mm_weight_scale: "
    "float8_e8m0fnu; mm_x: as gmm_x; mm_weight: as gmm_weight; y: float16 bfloat16; mm_y: as y";

using CommQuantScale = Absent<"commQuantScale", OptionalIn>;

}  // namespace

ACLNN_TYPED_OF_GROUP(AlltoAllvQuantGroupedMatMul, kMicroscaledDtypes,
                     [](Phase phase, In gmm_x, In gmm_weight, In gmm_x_scale, In gmm_weight_scale, SendCounts,
                        RecvCounts, OptionalIn mm_x, OptionalIn mm_weight, OptionalIn mm_x_scale,
                        OptionalIn mm_weight_scale, int64_t gmm_x_quant_mode, int64_t gmm_weight_quant_mode,
                        int64_t mm_x_quant_mode, int64_t mm_weight_quant_mode, Text group, int64_t ep_world_size,
                        Ints send_counts, Ints recv_counts, bool trans_gmm_weight, bool trans_mm_weight,
                        int64_t group_size, bool permute_out_flag, Out gmm_y, OptionalOut mm_y,
                        OptionalOut permute_out) {
                       MicroscaledExperts({gmm_x, gmm_weight, mm_x, mm_weight, group, ep_world_size, send_counts,
                                           recv_counts, trans_gmm_weight, trans_mm_weight, gmm_x_scale,
                                           gmm_weight_scale, mm_x_scale, mm_weight_scale, gmm_x_quant_mode,
                                           gmm_weight_quant_mode, mm_x_quant_mode, mm_weight_quant_mode, group_size})
                           .exchange_first(phase, gmm_y, mm_y, permute_out_flag, permute_out);
                     });

ACLNN_TYPED_OF_GROUP(AlltoAllvQuantGroupedMatMulV2, kMicroscaledDtypes,
                     [](Phase phase, In gmm_x, In gmm_weight, In gmm_x_scale, In gmm_weight_scale, SendCounts,
                        RecvCounts, OptionalIn mm_x, OptionalIn mm_weight, OptionalIn mm_x_scale,
                        OptionalIn mm_weight_scale, int64_t gmm_x_quant_mode, int64_t gmm_weight_quant_mode,
                        int64_t mm_x_quant_mode, int64_t mm_weight_quant_mode, Text group, CommMode,
                        int64_t ep_world_size, Ints send_counts, Ints recv_counts, bool trans_gmm_weight,
                        bool trans_mm_weight, int64_t group_size, bool permute_out_flag, Out gmm_y, OptionalOut mm_y,
                        OptionalOut permute_out) {
                       MicroscaledExperts({gmm_x, gmm_weight, mm_x, mm_weight, group, ep_world_size, send_counts,
                                           recv_counts, trans_gmm_weight, trans_mm_weight, gmm_x_scale,
                                           gmm_weight_scale, mm_x_scale, mm_weight_scale, gmm_x_quant_mode,
                                           gmm_weight_quant_mode, mm_x_quant_mode, mm_weight_quant_mode, group_size})
                           .exchange_first(phase, gmm_y, mm_y, permute_out_flag, permute_out);
                     });

ACLNN_TYPED_OF_GROUP(
    QuantGroupedMatMulAlltoAllv, kMicroscaledAfterDtypes,
    [](Phase phase, In gmm_x, In gmm_weight, In gmm_x_scale, In gmm_weight_scale, SendCounts, RecvCounts,
       OptionalIn mm_x, OptionalIn mm_weight, OptionalIn mm_x_scale, OptionalIn mm_weight_scale, CommQuantScale,
       int64_t gmm_x_quant_mode, int64_t gmm_weight_quant_mode, int64_t mm_x_quant_mode, int64_t mm_weight_quant_mode,
       int64_t comm_quant_mode, CommDtype, int64_t group_size, Text group, int64_t ep_world_size, Ints send_counts,
       Ints recv_counts, bool trans_gmm_weight, bool trans_mm_weight, Out y, OptionalOut mm_y) {
      check_range("comm_quant_mode", comm_quant_mode, 0, 0);
      MicroscaledExperts({gmm_x, gmm_weight, mm_x, mm_weight, group, ep_world_size, send_counts, recv_counts,
                          trans_gmm_weight, trans_mm_weight, gmm_x_scale, gmm_weight_scale, mm_x_scale, mm_weight_scale,
                          gmm_x_quant_mode, gmm_weight_quant_mode, mm_x_quant_mode, mm_weight_quant_mode, group_size})
          .multiply_first(phase, y, mm_y);
    });

ACLNN_TYPED_OF_GROUP(
    QuantGroupedMatMulAlltoAllvV2, kMicroscaledAfterDtypes,
    [](Phase phase, In gmm_x, In gmm_weight, In gmm_x_scale, In gmm_weight_scale, SendCounts, RecvCounts,
       OptionalIn mm_x, OptionalIn mm_weight, OptionalIn mm_x_scale, OptionalIn mm_weight_scale, CommQuantScale,
       int64_t gmm_x_quant_mode, int64_t gmm_weight_quant_mode, int64_t mm_x_quant_mode, int64_t mm_weight_quant_mode,
       int64_t comm_quant_mode, CommDtype, int64_t group_size, Text group, CommMode, int64_t ep_world_size,
       Ints send_counts, Ints recv_counts, bool trans_gmm_weight, bool trans_mm_weight, Out y, OptionalOut mm_y) {
      check_range("comm_quant_mode", comm_quant_mode, 0, 0);
      MicroscaledExperts({gmm_x, gmm_weight, mm_x, mm_weight, group, ep_world_size, send_counts, recv_counts,
                          trans_gmm_weight, trans_mm_weight, gmm_x_scale, gmm_weight_scale, mm_x_scale, mm_weight_scale,
                          gmm_x_quant_mode, gmm_weight_quant_mode, mm_x_quant_mode, mm_weight_quant_mode, group_size})
          .multiply_first(phase, y, mm_y);
    });
