// SPDX-License-Identifier: Apache-2.0
// Reads a serialized ge.proto.ModelDef.
#include "model.h"

#include "edge.h"

#include <charconv>
#include <utility>

#include "dtypes.h"
#include "protobuf.h"

namespace cann_cpu::graph {
namespace {

// A repeated number: one a field, or packed into one field.
template <class Element, class Append>
void repeated(const Field& field, Element&& element, Append&& append) {
  if (field.wire_type != Field::kBytes) {
    append(field);
    return;
  }
  for (MessageReader packed(field.bytes); !packed.empty();) {
    append(element(packed));
  }
}

void append_integers(const Field& field, std::vector<int64_t>& into) {
  repeated(
      field, [](MessageReader& packed) { return Field{0, Field::kVarint, packed.varint(), {}}; },
      [&](const Field& element) { into.push_back(element.integer()); });
}

void append_reals(const Field& field, std::vector<float>& into) {
  repeated(
      field, [](MessageReader& packed) { return Field{0, Field::kFixed32, packed.fixed(4), {}}; },
      [&](const Field& element) { into.push_back(element.real()); });
}

// How deep messages are nested; attributes hold tensors, whose descriptions hold attributes.
class Level {
 public:
  Level() {
    if (depth_ == kMax) {
      throw GraphError("not a GE model: messages are nested in more than " + std::to_string(kMax) + " others");
    }
    ++depth_;
  }
  ~Level() { --depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  static constexpr int kMax = 100;  // protobuf's own
  static thread_local int depth_;
};
thread_local int Level::depth_ = 0;

// Calls `read` with each field of the message.
template <class Read>
void each_field(std::string_view message, Read&& read) {
  const Level level;
  Field field;
  for (MessageReader reader(message); reader.next(field);) {
    read(field);
  }
}

Attribute read_attribute(const std::string& name, std::string_view message);

void read_attribute_entry(std::string_view message, Attributes& into) {
  std::string key;
  std::string_view value;
  each_field(message, [&](const Field& field) {
    if (field.number == 1) {
      key = field.text();
    } else if (field.number == 2) {
      value = field.message();
    }
  });
  const Level level;
  into[key] = read_attribute(key, value);
}

[[noreturn]] void reject_kind(const std::string& name, const char* kind, const Field& field) {
  throw GraphError("attribute '" + name + "' is a " + kind + " of field " + std::to_string(field.number) +
                   ", which is not read: there are strings, integers, floats, booleans, dtypes, tensors, lists of the "
                   "first five, and lists of lists of integers or floats");
}

std::vector<int64_t> read_shape(std::string_view message) {
  std::vector<int64_t> dims;
  each_field(message, [&](const Field& field) {
    if (field.number == 1) {
      append_integers(field, dims);
    }
  });
  return dims;
}

TensorDescription read_description(std::string_view message) {
  TensorDescription description;
  each_field(message, [&](const Field& field) {
    switch (field.number) {
      case 1:
        description.name = field.text();
        break;
      case 2:
        description.dtype = dtype_of_model(field.integer());
        break;
      case 3:
        description.has_shape = true;
        description.shape = read_shape(field.message());
        break;
      case 5: {
        Attributes attributes;
        read_attribute_entry(field.message(), attributes);
        if (const auto found = attributes.find("_fx_tensor_name"); found != attributes.end()) {
          if (const auto* text = std::get_if<std::string>(&found->second)) {
            description.fx_tensor = *text;
          }
        }
        break;
      }
      case 14:
        description.device = field.text();
        break;
    }
  });
  return description;
}

std::shared_ptr<const ConstTensor> read_tensor(std::string_view message) {
  auto tensor = std::make_shared<ConstTensor>();
  each_field(message, [&](const Field& field) {
    if (field.number == 1) {
      auto description = read_description(field.message());
      tensor->dtype = description.dtype;
      tensor->shape = std::move(description.shape);
    } else if (field.number == 2) {
      tensor->bytes = field.text();
    }
  });
  return tensor;
}

Attribute read_list(const std::string& name, std::string_view message) {
  // The numbers of ListValueType; a list without one is what its elements are.
  enum { kNone = 0, kString = 1, kInt = 2, kFloat = 3, kBool = 4, kDataType = 10 };
  int64_t kind = kNone;
  std::vector<std::string> strings;
  std::vector<int64_t> ints, bools, dtypes;
  std::vector<float> floats;
  each_field(message, [&](const Field& field) {
    switch (field.number) {
      case 2:
        strings.push_back(field.text());
        break;
      case 3:
        append_integers(field, ints);
        break;
      case 4:
        append_reals(field, floats);
        break;
      case 5:
        append_integers(field, bools);
        break;
      case 12:
        append_integers(field, dtypes);
        break;
      case 20:
        kind = field.integer();
        break;
      default:
        reject_kind(name, "list with elements", field);
    }
  });
  if (kind == kString || !strings.empty()) {
    return strings;
  }
  if (kind == kFloat || !floats.empty()) {
    return floats;
  }
  if (kind == kBool || !bools.empty()) {
    return std::vector<bool>(bools.begin(), bools.end());
  }
  if (kind == kDataType || !dtypes.empty()) {
    std::vector<ge::DataType> result;
    for (const int64_t dtype : dtypes) {
      result.push_back(dtype_of_number(dtype));
    }
    return result;
  }
  return ints;
}

// A list of lists: `append` reads the field of an inner list.
template <class Element, class Append>
Attribute read_list_of_lists(std::string_view message, Append&& append) {
  std::vector<std::vector<Element>> lists;
  each_field(message, [&](const Field& outer) {
    if (outer.number == 1) {
      auto& list = lists.emplace_back();
      each_field(outer.message(), [&](const Field& inner) {
        if (inner.number == 1) {
          append(inner, list);
        }
      });
    }
  });
  return lists;
}

Attribute read_attribute(const std::string& name, std::string_view message) {
  Attribute value;
  each_field(message, [&](const Field& field) {
    switch (field.number) {
      case 1:
        value = read_list(name, field.message());
        break;
      case 2:
      case 7:
        value = field.text();
        break;
      case 3:
        value = field.integer();
        break;
      case 4:
        value = field.real();
        break;
      case 5:
        value = field.boolean();
        break;
      case 12:
        value = read_tensor(field.message());
        break;
      case 14:
        value = read_list_of_lists<int64_t>(field.message(), append_integers);
        break;
      case 15:
        value = dtype_of_number(field.integer());
        break;
      case 16:
        value = read_list_of_lists<float>(field.message(), append_reals);
        break;
      default:
        reject_kind(name, "value", field);
    }
  });
  return value;
}

ModelNode read_node(std::string_view message) {
  ModelNode node;
  each_field(message, [&](const Field& field) {
    switch (field.number) {
      case 1:
        node.name = field.text();
        break;
      case 2:
        node.type = field.text();
        break;
      case 5:
        node.inputs.push_back(field.text());
        break;
      case 10:
        read_attribute_entry(field.message(), node.attributes);
        break;
      case 33:
        node.input_descriptions.push_back(read_description(field.message()));
        break;
      case 34:
        node.output_descriptions.push_back(read_description(field.message()));
        break;
    }
  });
  return node;
}

void read_graph(std::string_view message, Model& model) {
  each_field(message, [&](const Field& field) {
    switch (field.number) {
      case 1:
        model.name = field.text();
        break;
      case 6:
        model.nodes.push_back(read_node(field.message()));
        break;
      case 11:
        read_attribute_entry(field.message(), model.attributes);
        break;
    }
  });
}

}  // namespace

Model read_model(const void* data, size_t size) {
  Model model;
  size_t graphs = 0;
  each_field({static_cast<const char*>(data), size}, [&](const Field& field) {
    if (field.number == 7) {
      ++graphs;
      read_graph(field.message(), model);
    }
  });
  if (graphs != 1) {
    throw GraphError("not a GE model: it holds " + std::to_string(graphs) + " graphs, expected 1");
  }
  return model;
}

std::string describe(const ModelNode& node) {
  std::string text = "node '" + node.name + "' of type " + node.type;
  for (const auto& output : node.output_descriptions) {
    if (!output.fx_tensor.empty()) {
      return text + " (FX value '" + output.fx_tensor + "')";
    }
  }
  return text;
}

ModelEdge parse_edge(const ModelNode& node, const std::string& text) {
  const size_t colon = text.rfind(':');
  ModelEdge edge{text.substr(0, colon), 0};
  if (colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, edge.output);
    if (error != std::errc() || rest != end || edge.output < -1) {
      throw GraphError(describe(node) + ": its input '" + text + "' is not written as node:output");
    }
  }
  return edge;
}

}  // namespace cann_cpu::graph
