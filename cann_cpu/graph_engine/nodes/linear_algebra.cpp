// SPDX-License-Identifier: Apache-2.0
// Matrix products, and recurrent layers, which consist of them.
#include "aclnn.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_fft_c2c.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace cann_cpu::graph {
namespace {

at::Tensor transposed_if(bool transpose, const at::Tensor& x) { return transpose ? x.transpose(-2, -1) : x; }

// A vector is a row before a matrix, and a column after one.
std::vector<int64_t> product_shape(const at::Tensor& a, const at::Tensor& b) {
  const auto batch = [](const at::Tensor& x) { return x.sizes().slice(0, std::max<int64_t>(x.dim() - 2, 0)); };
  auto shape = at::infer_size(batch(a), batch(b));
  if (a.dim() > 1) {
    shape.push_back(a.size(-2));
  }
  if (b.dim() > 1) {
    shape.push_back(b.size(-1));
  }
  return shape;
}

// A product with an optional bias as input 2.
NodeFunction product(const char* transpose_1, const char* transpose_2) {
  return [=](NodeCall& n) -> Outputs {
    n.only("offset_x", 0);
    const at::Tensor a = transposed_if(n.flag(transpose_1, false), n.in(0));
    const at::Tensor b = transposed_if(n.flag(transpose_2, false), n.in(1));
    const auto y = [&](NodeCall&) { return new_tensor(product_shape(a, b), a.scalar_type()); };
    const at::Tensor bias = n.has(2) ? n.in(2) : at::Tensor();
    if (bias.defined() && a.dim() == 2 && b.dim() == 2) {
      return aclnn("Addmm", value(bias), value(a), value(b), value(kOne), value(kOne), out(y),
                   plain(kKeepPrecision))(n);
    }
    const Outputs plain_product = aclnn("Matmul", value(a), value(b), out(y), plain(kKeepPrecision))(n);
    return bias.defined() ? aclnn("Add", value(plain_product[0]), value(bias), value(kOne), out(y))(n) : plain_product;
  };
}

// A dynamic input's tensors, which are called x0, x1, ...; torchair writes down one without elements for a list that is
// left out.
std::vector<at::Tensor> listed(NodeCall& n, const std::string& name) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < n.input_count(); ++i) {
    const std::string& given = n.input_name(i);
    const bool numbered = given.size() > name.size() && given.starts_with(name) &&
                          given.find_first_not_of("0123456789", name.size()) == std::string::npos;
    if ((numbered || given == name) && n.has(i) && n.in(i).numel() > 0) {
      tensors.push_back(n.in(i));
    }
  }
  return tensors;
}
Parameter list(const char* name) {
  return [=](AclnnCall& c) { value(listed(c.node, name))(c); };
}
at::Tensor group_list(NodeCall& n) {
  const auto given = listed(n, "group_list");
  return given.empty() ? at::Tensor() : given[0];
}

// The dtype of a grouped product: torchair's number, or as x.
at::ScalarType grouped_dtype(NodeCall& n, at::ScalarType of_x) {
  switch (n.integer("dtype", -1)) {
    case -1:
      return of_x;
    case 0:
      return at::kHalf;
    case 1:
      return at::kBFloat16;
    case 2:
      return at::kInt;
    default:
      throw GraphError("a grouped product of this dtype is not implemented");
  }
}

std::vector<at::Tensor> grouped_products(NodeCall& n) {
  const auto x = listed(n, "x"), weight = listed(n, "weight");
  reject_unless(!x.empty() && !weight.empty() && weight[0].scalar_type() != at::kInt, "a product of these groups");
  const at::ScalarType dtype = grouped_dtype(n, x[0].scalar_type());
  const at::Tensor groups = group_list(n);
  const int64_t columns = weight[0].size(-1);
  const auto rows_of = [&](int64_t rows) { return new_tensor({rows, columns}, dtype); };
  const bool is_one = n.integer("split_item", 0) >= 2;
  if (is_one && n.integer("group_type", -1) == 2) {
    return {new_tensor({groups.size(0), x[0].size(0), columns}, dtype)};
  }
  if (is_one) {
    int64_t rows = 0;
    for (const at::Tensor& part : x) {
      rows += part.size(0);
    }
    return {rows_of(rows)};
  }
  std::vector<at::Tensor> y;
  if (groups.defined()) {
    auto sizes = groups.to(at::kLong);
    if (n.integer("group_list_type", 0) == 0) {
      sizes = sizes.diff(1, 0, at::zeros({1}, at::kLong));
    }
    for (int64_t group = 0; group < sizes.numel(); ++group) {
      y.push_back(rows_of(sizes[group].item<int64_t>()));
    }
    return y;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    auto shape = x[i].sizes().vec();
    shape.back() = weight[i].size(-1);
    y.push_back(new_tensor(shape, dtype));
  }
  return y;
}

// Products of a quantised type, of the dtype that an attribute names.
at::Tensor quantized_product(NodeCall& n) {
  const at::Tensor a = transposed_if(n.flag("transpose_x1", false), n.in(0));
  const at::Tensor b = transposed_if(n.flag("transpose_x2", false), n.in(1));
  return new_tensor(product_shape(a, b), n.dtype("dtype"));
}

// Int4 comes eight in an int32, along the columns or along the rows.
at::Tensor weight_quantized_product(NodeCall& n) {
  const at::Tensor& x = n.in(0);
  const at::Tensor& weight = n.in(1);
  const bool along_columns = weight.scalar_type() == at::kInt && weight.size(0) == x.size(-1);
  return new_tensor({x.size(0), weight.size(1) * (along_columns ? 8 : 1)}, n.has(4) ? at::kChar : x.scalar_type());
}

at::Tensor summed_product(NodeCall& n) { return new_tensor({n.in(0).size(1), n.in(1).size(2)}, n.dtype("dtype")); }

at::Tensor transposed_products(NodeCall& n) {
  const at::Tensor x1 = n.in(0).permute(n.integers("perm_x1", {0, 1, 2}));
  const at::Tensor x2 = n.in(1).permute(n.integers("perm_x2", {0, 1, 2}));
  const int64_t batch = x1.size(0), m = x1.size(1), columns = x2.size(2), factor = n.integer("batch_split_factor", 1);
  if (n.has(3)) return new_tensor({m, 1, batch * columns}, at::kChar);
  if (factor > 1) return new_tensor({factor, m, batch / factor * columns}, x1.scalar_type());
  return new_tensor({m, batch, columns}, x1.scalar_type());
}

at::Tensor transposed_quantised_products(NodeCall& n) {
  const at::Tensor x2 = n.in(1).permute(n.integers("perm_x2", {0, 1, 2}));
  reject_unless(n.in(0).dim() == 3 && x2.dim() == 3, "a product of other than 3 dimensions");
  return new_tensor({n.in(0).size(0), n.in(0).size(1), x2.size(2)}, n.dtype("dtype", at::kHalf));
}

at::Tensor feed_forward_result(NodeCall& n) {
  const int64_t dtype = n.integer("output_dtype", -1);
  const at::ScalarType of_x = n.in(0).scalar_type();
  return new_tensor(n.in(0).sizes(), of_x != at::kChar ? of_x : dtype == 1 ? at::kBFloat16 : at::kHalf);
}

at::Tensor finalized_rows(NodeCall& n) {
  reject_unless(n.in(1).scalar_type() != at::kInt, "int4 in int32");
  const int64_t rows = n.integer("output_bs", 0);
  return new_tensor({rows == 0 ? n.in(0).size(0) : rows, n.in(1).size(2)}, at::kFloat);
}

Rule swiglu_halves(bool is_scale) {
  return [=](NodeCall& n) {
    const int64_t rows = n.in(0).size(0), columns = listed(n, "weight_scale").at(0).size(-1);
    return is_scale ? new_tensor({rows}, at::kFloat) : new_tensor({rows, columns / 2}, at::kChar);
  };
}

// A list of integers from an input, or null.
Parameter integers_or_null(size_t i) {
  return [=](AclnnCall& c) { (c.node.has(i) ? integers(i) : absent())(c); };
}

// -1 stands for all columns.
Parameter slice_size(const char* name) {
  return [=](AclnnCall& c) {
    const int64_t size = c.node.integer(name, -1);
    plain(size == -1 ? c.node.in(0).size(1) : size)(c);
  };
}

at::Tensor rows_by_channels(NodeCall& n) { return new_tensor({n.in(0).size(0), n.in(2).size(-1)}, at::kHalf); }

at::Tensor fused_product(NodeCall& n) {
  const bool to_float = n.text("fused_op_type", "") == "16cast32";
  return new_tensor(product_shape(n.in(0), n.in(1)), to_float ? at::kFloat : n.in(0).scalar_type());
}

// One direction of one layer of an LSTM, on steps of a whole batch. Its weight is that of the inputs above that of the
// hidden state, transposed; torch_npu orders the gates as torch does.
struct LstmLayer {
  explicit LstmLayer(NodeCall& n) : x(n.in(0)), input_size(x.size(-1)) {
    const std::pair<const char*, Attribute> served[] = {
        {"direction", "UNIDIRECTIONAL"}, {"use_peephole", false}, {"cell_clip", -1.f},
        {"num_proj", int64_t{0}},        {"time_major", true},    {"forget_bias", 0.f},
        {"gate_order", "ifjo"},
    };
    for (const auto& [name, value] : served) {
      n.only(name, value);
    }
    n.one_of("cell_type", {"LSTM", true});  // the gradient's text comes from torch_npu as a bool
    n.one_of("keep_prob", {1.f, -1.f});
    n.ignore("cell_depth");  // how many layers there are; this is one
    const at::Tensor weight = n.in(1).t(), bias = n.in(2);
    params = {weight.narrow(1, 0, input_size).contiguous(),
              weight.narrow(1, input_size, weight.size(1) - input_size).contiguous(), bias, at::zeros_like(bias)};
  }

  at::Tensor x;
  int64_t input_size;
  std::vector<at::Tensor> params;
};

at::Tensor as_batch(const at::Tensor& state) { return state.dim() == 2 ? state.unsqueeze(0) : state; }

// No separate biases, the node's number of layers and directions, no dropout.
Parameter lstm_attributes() {
  return [](AclnnCall& c) {
    for (const Parameter& parameter :
         {plain(true), plain(int64_t{1}), plain(0.0), plain(true), plain(false), plain(false)}) {
      parameter(c);
    }
  };
}

Outputs dynamic_rnn(NodeCall& n) {
  const LstmLayer layer(n);
  n.one_of("activation", {"tanh"});
  n.ignore("is_training");  // whether the gates are kept: they are
  const std::vector<at::Tensor> state{n.in(4), n.in(5)};
  const auto made = [&] {
    return new_tensor({layer.x.size(0), layer.x.size(1), state[0].size(-1)}, layer.x.scalar_type());
  };
  const at::Tensor y = made(), h = made(), c = made(), i = made(), j = made(), f = made(), o = made(), tanh_c = made();
  const auto last = [&] { return new_tensor(state[0].sizes(), layer.x.scalar_type()); };
  const auto list = [](const at::Tensor& tensor) { return value(std::vector<at::Tensor>{tensor}); };
  aclnn("LSTM", value(layer.x), value(layer.params), value(state), absent(), lstm_attributes(), value(y), value(last()),
        value(last()), list(i), list(j), list(f), list(o), list(h), list(c), list(tanh_c))(n);
  return std::vector<at::Tensor>{y, h, c, i, j, f, o, tanh_c};
}

Outputs dynamic_rnn_grad(NodeCall& n) {
  const LstmLayer layer(n);
  reject_unless(!n.has(16) || n.in(16).numel() == 1, "a sequence length");
  for (const size_t i : {3, 17, 18, 19, 20}) {  // y, which is h; a mask and peepholes, which torch_npu does not use
    n.ignore(i);
  }
  const std::vector<at::Tensor> state{as_batch(n.in(4)), as_batch(n.in(5))};
  const auto list = [&](size_t i) { return value(std::vector<at::Tensor>{n.in(i)}); };
  const auto like_tensor = [](const at::Tensor& tensor) { return new_tensor(tensor.sizes(), tensor.scalar_type()); };
  const at::Tensor dx = like_tensor(layer.x), dh = like_tensor(state[0]), dc = like_tensor(state[1]);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : layer.params) {
    gradients.push_back(like_tensor(parameter));
  }
  aclnn("LstmBackward", value(layer.x), value(state), value(layer.params), in(8), value(as_batch(n.in(9))),
        value(as_batch(n.in(10))), list(11), list(12), list(13), list(14), list(6), list(7), list(15), absent(),
        lstm_attributes(), absent(), value(dx), value(dh), value(dc), value(gradients))(n);
  const auto dw = at::cat({gradients[0], gradients[1]}, 1).t().contiguous();
  return std::vector<at::Tensor>{dw, gradients[2], dx, dh.reshape(n.in(4).sizes()), dc.reshape(n.in(5).sizes())};
}

// Along the last dimensions, neither backward nor scaled: torchair's nodes say no more.
NodeFunction fourier(int64_t dimensions) {
  return [=](NodeCall& n) -> Outputs {
    std::vector<int64_t> dims;
    for (int64_t dim = -dimensions; dim < 0; ++dim) dims.push_back(n.in(0).dim() + dim);
    reject_unless(dims.front() >= 0, "a transform of fewer dimensions");
    return at::_fft_c2c(n.in(0), dims, /*normalization=*/0, /*forward=*/true);
  };
}

}  // namespace

const NodeTable kLinearAlgebraNodes = {
    {"MatMul", product("transpose_x1", "transpose_x2")},
    {"MatMulV2", product("transpose_x1", "transpose_x2")},
    {"MatMulV3", product("transpose_x1", "transpose_x2")},
    {"BatchMatMul", product("adj_x1", "adj_x2")},
    {"BatchMatMulV2", product("adj_x1", "adj_x2")},
    {"BatchMatMulV3", product("adj_x1", "adj_x2")},
    {"FFT", fourier(1)},
    {"FFT2D", fourier(2)},
    {"DynamicRNN", dynamic_rnn},
    {"DynamicRNNGrad", dynamic_rnn_grad},
    {"GroupedMatmul",
     aclnn("GroupedMatmulV4", list("x"), list("weight"), list("bias"), list("scale"), list("offset"),
           list("antiquant_scale"), list("antiquant_offset"), list("per_token_scale"), computed(group_list), absent(),
           absent(), absent(), integer("split_item", 0), integer("group_type", -1), integer("group_list_type", 0),
           integer("act_type", 0), outs(grouped_products), absent(), absent(), ignore("dtype"),
           only("transpose_weight", false), only("transpose_x", false), ignore("tuning_config"))},
    {"QuantBatchMatmulV3",
     aclnn("QuantMatmulV5", in(0), in(1), optional(5), in(2), absent(), absent(), optional(3), absent(), optional(4),
           flag("transpose_x1", false), flag("transpose_x2", false), plain(int64_t{0}), out(quantized_product))},
    {"QuantBatchMatmulV4",
     aclnn("QuantMatmulV5", in(0), in(1), optional(3), in(4), optional(5), optional(6), optional(7), optional(8),
           optional(2), flag("transpose_x1", false), flag("transpose_x2", false), integer("group_size", 0),
           out(quantized_product), ignore("compute_type"))},
    {"FusedQuantMatMul",
     aclnn("FusedQuantMatmul", in(0), in(1), in(3), in(4), optional(5), optional(6), optional(7), optional(8),
           optional(2), optional(10), text("fused_op_type", ""), integer("group_size", 0), out(quantized_product),
           only("transpose_x1", false), only("transpose_x2", false), ignore("compute_type"))},
    {"QuantMatmulReduceSum", aclnn("QuantMatmulReduceSumWeightNz", in(0), in(1), in(4), in(5), optional(6), optional(7),
                                   optional(8), optional(9), optional(3), flag("transpose_x1", false),
                                   flag("transpose_x2", false), integer("group_size", -1), integers(2),
                                   flag("keep_dims", false), out(summed_product), ignore("compute_type"))},
    {"WeightQuantBatchMatmulV2",
     aclnn("WeightQuantBatchMatmulV2", in(0), in(1), in(2), optional(3), optional(4), optional(5), optional(6),
           integer("antiquant_group_size", 0), out(weight_quantized_product), only("transpose_x", false),
           only("transpose_weight", false), only("dtype", int64_t{-1}), ignore("inner_precise"))},
    {"QuantMatmulDequant",
     aclnn("QuantMatmulDequant", in(0), in(1), in(2), optional(3), optional(4), optional(5), optional(6),
           text("x_quant_mode", "pertoken"), flag("transpose_weight", true), out(rows_by_channels)),
     "bias x_scale x_offset smooth_scale", "x_quant_mode transpose_weight"},
    {"QuantGroupedMatmulDequant",
     aclnn("QuantGroupedMatmulDequant", in(0), in(1), in(2), in(3), optional(4), optional(5), optional(6), optional(7),
           text("x_quant_mode", "pertoken"), flag("transpose_weight", true), out(rows_by_channels)),
     "bias x_scale x_offset smooth_scale", "x_quant_mode transpose_weight"},
    {"TransposeBatchMatMul",
     aclnn("TransposeBatchMatMul", in(0), in(1), optional(2), optional(3), integers("perm_x1", {0, 1, 2}),
           integers("perm_x2", {0, 1, 2}), integers("perm_y", {1, 0, 2}), plain(kKeepPrecision),
           integer("batch_split_factor", 1), out(transposed_products), ignore("enable_hf32")),
     "bias scale", "perm_x1 perm_x2 perm_y enable_hf32 batch_split_factor"},
    {"QuantBatchMatmulInplaceAdd",
     aclnn("QuantBatchMatmulInplaceAdd", in(0), in(1), in(4), in(2), out(written(3)), flag("transpose_x1", false),
           flag("transpose_x2", false), integer("group_size", 0)),
     "x1_scale", "transpose_x1 transpose_x2 group_size"},
    {"QuantGroupedMatmulInplaceAdd",
     aclnn("QuantGroupedMatmulInplaceAdd", in(0), in(1), in(5), in(2), in(3), out(written(4)),
           integer("group_list_type", 0), integer("group_size", 0)),
     "scale1", "group_list_type group_size"},
    {"TransposeQuantBatchMatMul",
     aclnn("TransposeQuantBatchMatMul", in(0), in(1), optional(2), optional(3), optional(4), integer("dtype", 1),
           integer("group_size", 0), integers("perm_x1", {1, 0, 2}), integers("perm_x2", {0, 1, 2}),
           integers("perm_y", {1, 0, 2}), integer("batch_split_factor", 1), out(transposed_quantised_products)),
     "bias x1_scale x2_scale", "dtype group_size perm_x1 perm_x2 perm_y batch_split_factor"},
    {"FusedMatMul",
     aclnn("FusedMatmul", in(0), in(1), optional(2), optional(3), text("fused_op_type", ""), plain(kKeepPrecision),
           out(fused_product), only("transpose_x1", false), only("transpose_x2", false), ignore("enable_hf32")),
     "bias x3", "transpose_x1 transpose_x2 enable_hf32 fused_op_type"},
    {"FFN",
     aclnn("FFNV2", in(0), in(1), in(2), integers_or_null(3), optional(4), optional(5), optional(6), optional(7),
           optional(8), optional(9), optional(10), optional(11), optional(12), optional(13), text("activation", ""),
           integer("inner_precise", 0), flag("tokens_index_flag", false), out(feed_forward_result))},
    {"AddLora",
     aclnn("AddLora", in(0), in(1), in(2), in(3), optional(4), integer("layer_idx", 0), real("scale", 1e-3),
           integer("y_offset", 0), slice_size("y_slice_size"), out(like(0))),
     "weightA", "layer_idx scale y_offset y_slice_size"},
    {"GroupedMatmulSwigluQuantV2",
     aclnn("GroupedMatmulSwigluQuantV2", in(0), list("weight"), list("weight_scale"), list("weight_assist_matrix"),
           absent(), in(1), absent(), in(2), integer("dequant_mode", 0), integer("dequant_dtype", 0),
           integer("quant_mode", 0), integer("group_list_type", 0), absent(), out(swiglu_halves(false)),
           out(swiglu_halves(true)), only("quant_dtype", int64_t{2}), only("transpose_weight", false),
           ignore("tuning_config")),
     "bias smooth_scale",
     "dequant_mode dequant_dtype quant_mode quant_dtype transpose_weight group_list_type tuning_config"},
    {"GroupedMatmulFinalizeRouting",
     aclnn("GroupedMatmulFinalizeRoutingV3", in(0), in(1), optional(2), optional(3), optional(9), absent(), absent(),
           optional(4), optional(5), optional(6), optional(7), optional(8), integer("dtype", 0),
           real32("shared_input_weight", 1), integer("shared_input_offset", 0), flag("transpose_x", false),
           flag("transpose_w", false), integer("group_list_type", 1), absent(), out(finalized_rows),
           ignore("tuning_config")),
     "scale bias pertoken_scale group_list shared_input logit row_index offset",
     "dtype shared_input_weight shared_input_offset transpose_x transpose_w output_bs group_list_type tuning_config"},
};

}  // namespace cann_cpu::graph
