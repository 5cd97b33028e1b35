// SPDX-License-Identifier: Apache-2.0
// Quantisation.
#include <ATen/ops/arange.h>

#include "aclnn.h"
#include "graph/types.h"

namespace cann_cpu::graph {

bool is_int4(const NodeCall& n, const std::string& dtype) {
  const Attribute* given = n.attribute(dtype);
  if (given == nullptr) return false;
  const auto* type = std::get_if<ge::DataType>(given);
  return (type == nullptr ? n.integer(dtype) : int64_t{*type}) == ge::DT_INT4;
}

at::Tensor int4_values(const at::Tensor& packed) {
  const at::Tensor left = at::arange(28, -1, -4, packed.options());  // the lowest first
  return packed.unsqueeze(-1).bitwise_left_shift(left).bitwise_right_shift(28).to(at::kChar);
}

at::Tensor packed_int4(const at::Tensor& values) {
  const at::Tensor wide = values.to(at::kLong).bitwise_and(15);
  return wide.bitwise_left_shift(at::arange(0, 32, 4, wide.options())).sum(-1).to(at::kInt);
}

namespace {

constexpr int64_t kInt8 = 2;

at::ScalarType quantised_dtype(NodeCall& n) { return n.dtype("dst_type", at::kChar); }

// Int4 like input i, eight in an int32.
Rule eighth(size_t i) {
  return [=](NodeCall& n) {
    auto sizes = n.in(i).sizes().vec();
    reject_unless(!sizes.empty() && sizes.back() % 8 == 0, "int4 in a last dimension that is no multiple of 8");
    sizes.back() /= 8;
    return new_tensor(sizes, at::kInt);
  };
}

// Like input i, of the dtype in dst_type.
Rule quantised(size_t i) {
  return [=](NodeCall& n) { return like(i, quantised_dtype(n))(n); };
}

// The same, of int4 as well.
Parameter quantised_out(size_t place, size_t i) {
  return [=](AclnnCall& c) {
    if (!is_int4(c.node, "dst_type")) return out(place, quantised(i))(c);
    int4_out(place, eighth(i))(c);
  };
}

// What aclnn calls it: int4 comes in an int32.
Parameter quantised_type() {
  return [](AclnnCall& c) {
    (is_int4(c.node, "dst_type") ? plain(int64_t{ge::DT_INT32}) : integer("dst_type", kInt8))(c);
  };
}

// A float for each row of input i.
Rule row_scales(size_t i) {
  return [=](NodeCall& n) {
    const auto sizes = n.in(i).sizes();
    return new_tensor(sizes.slice(0, sizes.size() - 1), at::kFloat);
  };
}

at::Tensor dynamic_scales(NodeCall& n) {
  auto shape = n.in(0).sizes().vec();
  const std::string mode = n.text("quant_mode", "pertoken");
  reject_unless(shape.size() > 1, "an input of less than two dimensions");
  if (mode == "pertensor") return new_tensor({1}, at::kFloat);
  shape.erase(shape.end() - (mode == "perchannel" ? 2 : 1));
  return new_tensor(shape, at::kFloat);
}

// A result that a flag asks for; otherwise a null pointer, and nothing in its place.
Parameter result_unless(const char* flag_name, size_t place, Rule rule) {
  return [=](AclnnCall& c) {
    if (!c.node.flag(flag_name, false)) return out(place, rule)(c);
    c.set_output(place, new_tensor({0}, at::kFloat));
    absent()(c);
  };
}
Parameter dynamic_scale(size_t place) {
  return [=](AclnnCall& c) {
    if (c.node.text("quant_mode", "dynamic") == "dynamic") return out(place, row_scales(0))(c);
    c.set_output(place, new_tensor({0}, at::kFloat));
    absent()(c);
  };
}

// Whether output_mask asks for this one of the two results of a normalization.
bool is_wanted(NodeCall& n, size_t result) {
  const Attribute* given = n.attribute("output_mask");
  const auto* mask = given == nullptr ? nullptr : std::get_if<std::vector<bool>>(given);
  if (mask != nullptr && !mask->empty()) return mask->at(result);
  return result == 0 || (n.has(3) && n.has(4));
}
Parameter output_mask() {
  return [](AclnnCall& c) {
    const bool is_given = c.node.attribute("output_mask") != nullptr;
    (is_given ? value(std::vector<bool>{is_wanted(c.node, 0), is_wanted(c.node, 1)}) : absent())(c);
  };
}
Parameter masked_values(size_t result) {
  return [=](AclnnCall& c) {
    if (is_wanted(c.node, result)) return quantised_out(result, 0)(c);
    out(result, [](NodeCall& n) { return new_tensor({0}, is_int4(n, "dst_type") ? at::kInt : quantised_dtype(n)); })(c);
  };
}
Parameter masked_scales(size_t place, size_t result) {
  return [=](AclnnCall& c) {
    out(place, is_wanted(c.node, result) ? row_scales(0) : [](NodeCall&) { return new_tensor({0}, at::kFloat); })(c);
  };
}

// The halves of x's last dimension, multiplied.
Rule half_of_columns() {
  return [](NodeCall& n) {
    auto sizes = n.in(0).sizes().vec();
    reject_unless(!sizes.empty(), "x without dimensions");
    sizes.back() /= 2;
    return new_tensor(sizes, n.dtype("dst_type", at::kChar));
  };
}

at::Tensor rows_of_x(NodeCall& n) { return new_tensor({n.in(0).size(0)}, at::kFloat); }

// Quantises to float8 and finds the greatest of x, or of each of its groups.
NodeFunction quantised_with_maximum(const char* name, const Parameter& groups, Rule maxima) {
  return aclnn(name, in(0), in(1), groups, text("round_mode", "rint"), integer("dst_type", ge::DT_FLOAT8_E5M2),
               out([](NodeCall& n) { return like(0, n.dtype("dst_type", at::kFloat8_e5m2))(n); }),
               out(std::move(maxima)));
}

// A float for each block of rows and columns.
at::Tensor block_scales(NodeCall& n) {
  auto shape = n.in(0).sizes().vec();
  reject_unless(shape.size() > 1, "an input of less than two dimensions");
  const auto blocks = [](int64_t size, int64_t block) { return (size + block - 1) / std::max<int64_t>(block, 1); };
  shape.back() = blocks(shape.back(), n.integer("col_block_size", 128));
  shape[shape.size() - 2] = blocks(shape[shape.size() - 2], n.integer("row_block_size", 1));
  return new_tensor(shape, at::kFloat);
}

// The exponents of pairs of blocks along a dimension.
at::Tensor block_exponents(NodeCall& n) {
  auto shape = n.in(0).sizes().vec();
  const auto rank = static_cast<int64_t>(shape.size()), axis = n.integer("axis", -1);
  reject_unless(axis >= -rank && axis < rank, "this axis");
  const int64_t pair = 2 * std::max<int64_t>(n.integer("block_size", 32), 1);
  int64_t& size = shape[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
  size = (size + pair - 1) / pair;
  shape.push_back(2);
  return new_tensor(shape, at::kFloat8_e8m0fnu);
}
at::Tensor in_dst_type(NodeCall& n) { return like(0, n.dtype("dst_type"))(n); }

// Input i as a vector: torchair gives it the rank of x.
Rule vector(size_t i) {
  return [=](NodeCall& n) { return n.in(i).reshape({-1}); };
}
Parameter optional_vector(size_t i) {
  return [=](AclnnCall& c) { (c.node.has(i) ? computed(vector(i)) : absent())(c); };
}

struct NamedDtype {
  at::ScalarType dtype;
  ge::DataType number;
};
NamedDtype named_dtype(NodeCall& n) {
  static constexpr NamedDtype kDtypes[] = {
      {at::kChar, ge::DT_INT8}, {at::kByte, ge::DT_UINT8}, {at::kInt, ge::DT_INT32}};
  return kDtypes[n.choice("dtype", {"torch.qint8", "torch.quint8", "torch.qint32"})];
}
at::Tensor named(NodeCall& n) { return like(0, named_dtype(n).dtype)(n); }
Parameter named_type() {
  return [](AclnnCall& c) { plain(int64_t{named_dtype(c.node).number})(c); };
}

}  // namespace

const NodeTable kQuantizationNodes = {
    {"AscendQuantV2",
     aclnn("AscendQuantV3", in(0), in(1), optional(2), flag("sqrt_mode", false), text("round_mode", "round"),
           quantised_type(), integer("axis", -1), quantised_out(0, 0)),
     "offset", "sqrt_mode round_mode dst_type axis"},
    {"AscendAntiQuantV2",
     aclnn("AscendAntiQuant", in(0), in(1), optional(2), integer("dst_type", 1), flag("sqrt_mode", false),
           out([](NodeCall& n) { return like(0, n.dtype("dst_type", at::kHalf))(n); })),
     "offset", "dst_type sqrt_mode"},
    {"Quantize",
     aclnn("Quantize", in(0), computed(vector(1)), optional_vector(2), named_type(), integer("axis", 1), out(named)),
     "zero_points", "axis"},
    {"DynamicQuant",
     aclnn("DynamicQuantV2", in(0), optional(1), optional(2), quantised_type(), quantised_out(0, 0),
           out(1, row_scales(0)), absent()),
     "smooth_scales group_index", "dst_type"},
    {"DynamicQuantV2",
     aclnn("DynamicQuantV4", in(0), optional(1), optional(2), quantised_type(), flag("is_symmetrical", false),
           text("quant_mode", "pertoken"), real32("dst_type_max", 0), quantised_out(0, 0), out(1, dynamic_scales),
           result_unless("is_symmetrical", 2, dynamic_scales)),
     "smooth_scales group_index", "dst_type is_symmetrical quant_mode dst_type_max"},
    {"DynamicBlockQuant", aclnn("DynamicBlockQuantV2", in(0), real("min_scale", 0), text("round_mode", "rint"),
                                integer("dst_type"), integer("row_block_size", 1), integer("col_block_size", 128),
                                real("dst_type_max", 0), out(0, in_dst_type), out(1, block_scales))},
    {"DynamicMxQuant",
     aclnn("DynamicMxQuantV3", in(0), integer("axis", -1), text("round_mode", "rint"), integer("dst_type"),
           integer("blocksize", 32), integer("scale_alg", 0), real("dst_type_max", 0), real("max_low_bound", 0),
           out(0, in_dst_type), out(1, block_exponents))},
    {"AntiMxQuant", aclnn("AntiMxQuant", in(0), in(1), integer("axis", -1), integer("dst_type"), out(in_dst_type))},
    {"GroupQuant", aclnn("GroupQuant", in(0), in(1), in(2), optional(3), integer("dst_type", kInt8), out(quantised(0))),
     "offset", "dst_type"},
    {"TransQuantParamV2", aclnn("TransQuantParamV3", in(0), optional(1), integer("round_mode", 0), out([](NodeCall& n) {
                                  auto shape = n.in(0).sizes().vec();
                                  if (shape.size() == 1 && n.has(1)) shape[0] = std::max(shape[0], n.in(1).size(0));
                                  return new_tensor(shape, at::kLong);
                                })),
     "offset", "round_mode"},
    {"AddRmsNormDynamicQuant",
     aclnn("AddRmsNormDynamicQuantV2", in(0), in(1), in(2), optional(3), optional(4), optional(5),
           real("epsilon", 1e-6), output_mask(), masked_values(0), masked_values(1), out(2, like(0)),
           masked_scales(3, 0), masked_scales(4, 1)),
     "smooth_scale1 smooth_scale2 beta", "epsilon output_mask dst_type"},
    {"DequantSwigluQuant",
     aclnn("DequantSwigluQuantV2", in(0), optional(1), optional(2), optional(3), optional(4), optional(5), optional(6),
           flag("activate_left", false), text("quant_mode", "static"), integer("dst_type", kInt8),
           text("round_mode", "rint"), integer("activate_dim", -1), integer("swiglu_mode", 0), real("clamp_limit", 7),
           real("glu_alpha", 1.702), real("glu_bias", 1), out(half_of_columns()), out(row_scales(0))),
     "weight_scale activation_scale bias quant_scale quant_offset group_index",
     "activate_left quant_mode dst_type round_mode activate_dim swiglu_mode clamp_limit glu_alpha glu_bias"},
    {"FlatQuant", aclnn("FlatQuant", in(0), in(1), in(2), real("clip_ratio", 1), int4_out(0, eighth(0)),
                        out(1, rows_of_x), only("dst_dtype", int64_t{ge::DT_INT32}), only("dst_type_max", 0.f))},
    {"RotateQuant",
     aclnn(
         "RotateQuant", in(0), in(1), optional(2), integer("axis", -1), text("round_mode", "rint"),
         integer("scale_alg", 0), real("dst_type_max", 0), flag("transpose_y", false),
         [](AclnnCall& c) {
           if (is_int4(c.node, "y_dtype")) return int4_out(0, eighth(0))(c);
           out(0, [](NodeCall& n) { return like(0, n.dtype("y_dtype", at::kFloat))(n); })(c);
         },
         out(1, rows_of_x)),
     "alpha", "y_dtype axis round_mode scale_alg dst_type_max transpose_y"},
    {"RmsNormGradQuant",
     aclnn("RmsNormGradQuant", in(0), in(1), in(2), in(3), in(4), optional(5), text("quant_mode", "static"),
           flag("div_mode", true), out(quantised(0)), out(like(3, at::kFloat))),
     "offset_x", "div_mode quant_mode dst_type"},
    {"QuantMax",
     quantised_with_maximum(
         "QuantMax", [](AclnnCall&) {}, [](NodeCall& n) { return new_tensor({1}, n.in(0).scalar_type()); })},
    {"GroupedQuantMax",
     quantised_with_maximum("GroupedQuantMax", in(2),
                            [](NodeCall& n) { return new_tensor(n.in(2).sizes(), n.in(0).scalar_type()); })},
    {"GeluQuant",
     aclnn("GeluQuant", in(0), optional(1), optional(2), text("approximate", "none"), text("quant_mode", "dynamic"),
           text("round_mode", "rint"), integer("dst_type", kInt8), out(0, quantised(0)), dynamic_scale(1)),
     "x input_scale input_offset", "approximate quant_mode dst_type round_mode"},
};

}  // namespace cann_cpu::graph
