// SPDX-License-Identifier: Apache-2.0
// Matrix products, and recurrent layers, which consist of them.
#include "aclnn.h"

#include <ATen/ExpandUtils.h>
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
  const auto& descriptions = n.node().input_descriptions;
  for (size_t i = 0; i < n.input_count() && i < descriptions.size(); ++i) {
    const std::string& given = descriptions[i].name;
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

std::vector<at::Tensor> grouped_products(NodeCall& n) {
  const auto x = listed(n, "x"), weight = listed(n, "weight");
  reject_unless(!x.empty() && !weight.empty() && x[0].is_floating_point(), "a product of these groups");
  const at::Tensor groups = group_list(n);
  const int64_t columns = weight[0].size(-1);
  const auto rows_of = [&](int64_t rows) { return new_tensor({rows, columns}, x[0].scalar_type()); };
  const bool is_one = n.integer("split_item", 0) >= 2;
  if (is_one && n.integer("group_type", -1) == 2) {
    return {new_tensor({groups.numel(), x[0].size(0), columns}, x[0].scalar_type())};
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
    y.push_back(new_tensor(shape, x[i].scalar_type()));
  }
  return y;
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

}  // namespace

const NodeTable kLinearAlgebraNodes = {
    {"MatMul", product("transpose_x1", "transpose_x2")},
    {"MatMulV2", product("transpose_x1", "transpose_x2")},
    {"MatMulV3", product("transpose_x1", "transpose_x2")},
    {"BatchMatMul", product("adj_x1", "adj_x2")},
    {"BatchMatMulV2", product("adj_x1", "adj_x2")},
    {"BatchMatMulV3", product("adj_x1", "adj_x2")},
    {"DynamicRNN", dynamic_rnn},
    {"DynamicRNNGrad", dynamic_rnn_grad},
    {"GroupedMatmul",
     aclnn("GroupedMatmulV4", list("x"), list("weight"), list("bias"), list("scale"), list("offset"),
           list("antiquant_scale"), list("antiquant_offset"), list("per_token_scale"), computed(group_list), absent(),
           absent(), absent(), integer("split_item", 0), integer("group_type", -1), integer("group_list_type", 0),
           integer("act_type", 0), outs(grouped_products), absent(), absent(), only("dtype", int64_t{-1}),
           only("transpose_weight", false), only("transpose_x", false), ignore("tuning_config"))},
};

}  // namespace cann_cpu::graph
