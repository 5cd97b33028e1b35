// SPDX-License-Identifier: Apache-2.0
// Prints the definitions of opp/device as JSON, and what they make of a few calls.
#include <algorithm>
#include <cstdio>

#include "op_host/add_custom_tiling.h"
#include "op_host/advance_step_flashattn_tiling.h"
#include "op_host/reshape_and_cache_tiling.h"
#include "register/op_def_registry.h"

namespace {

const char* text_of(ops::Option presence) {
  return presence == ops::OPTIONAL ? "optional" : presence == ops::DYNAMIC ? "dynamic" : "required";
}

template <class List, class Print>
void print_list(const char* name, const List& list, const Print& print, const char* end) {
  std::printf("\"%s\": [", name);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) std::printf(", ");
    print(list[i]);
  }
  std::printf("]%s", end);
}

void print(const ops::OpParamDef& parameter) {
  std::printf("{\"name\": \"%s\", \"presence\": \"%s\", ", parameter.name.c_str(), text_of(parameter.presence));
  print_list("formats", parameter.formats, [](ge::Format format) { std::printf("%d", format); }, ", ");
  print_list(
      "formats_of_unknown_shapes", parameter.formats_of_unknown_shapes,
      [](ge::Format format) { std::printf("%d", format); }, ", ");
  print_list("types", parameter.types, [](ge::DataType type) { std::printf("%d", type); }, "}");
}

void print(const ops::OpDef& definition) {
  const auto parameter = [](const ops::OpParamDef& each) { print(each); };
  std::printf("{\"type\": \"%s\", ", definition.type.c_str());
  print_list("inputs", definition.inputs, parameter, ", ");
  print_list("outputs", definition.outputs, parameter, ", ");
  print_list(
      "attributes", definition.attributes,
      [](const ops::OpAttrDef& each) {
        std::printf("{\"name\": \"%s\", \"presence\": \"%s\", \"type\": \"%s\", \"value\": \"%s\"}", each.name.c_str(),
                    text_of(each.presence), each.type.c_str(), each.value.c_str());
      },
      ", ");
  print_list("socs", definition.core.socs, [](const std::string& soc) { std::printf("\"%s\"", soc.c_str()); }, "}\n");
}

gert::TilingContext context(std::vector<std::pair<std::vector<int64_t>, ge::DataType>> inputs,
                            gert::RuntimeAttrs attributes) {
  gert::TilingContext made;
  for (auto& [sizes, type] : inputs) {
    const bool given = type != ge::DT_UNDEFINED;
    made.inputs.push_back(given ? std::make_unique<gert::Tensor>(gert::Tensor{{{sizes}}, {type}}) : nullptr);
  }
  made.attributes = std::move(attributes);
  return made;
}

ge::graphStatus tile(const char* type, gert::TilingContext& call) {
  return ops::definitions().at(type).core.tiling(&call);
}

void print_calls() {
  auto write = context({{{4096, 8, 128}, ge::DT_BF16},
                        {{4096, 8, 64}, ge::DT_INT8},
                        {{64, 128, 8, 128}, ge::DT_BF16},
                        {{64, 128, 8, 64}, ge::DT_INT8},
                        {{4096}, ge::DT_INT32}},
                       {{}, {"ND"}});
  auto status = tile("ReshapeAndCache", write);
  const auto& cache = *write.GetTilingData<opp::ReshapeAndCacheTiling>();
  std::printf(
      "{\"status\": %u, \"blocks\": %u, \"copies\": %d, \"tokens\": %d, \"capacity\": %d, \"runs\": [%u, %u]}\n",
      status, write.blocks, static_cast<int>(cache.copies), static_cast<int>(cache.tokens),
      static_cast<int>(cache.capacity), cache.copy[0].run, cache.copy[1].run);
  auto keys = context({{{5, 48}, ge::DT_FLOAT16},
                       {{}, ge::DT_UNDEFINED},
                       {{7, 3, 8, 16}, ge::DT_FLOAT16},
                       {{}, ge::DT_UNDEFINED},
                       {{5}, ge::DT_INT64}},
                      {{}, {"NZ"}});
  status = tile("ReshapeAndCache", keys);
  const auto& nz = *keys.GetTilingData<opp::ReshapeAndCacheTiling>();
  std::printf("{\"status\": %u, \"blocks\": %u, \"copies\": %d, \"run\": %u, \"runs\": %u}\n", status, keys.blocks,
              static_cast<int>(nz.copies), nz.copy[0].run, nz.copy[0].runs);
  auto step = context({{{512}, ge::DT_INT64},
                       {{500, 1}, ge::DT_INT64},
                       {{512}, ge::DT_INT64},
                       {{512}, ge::DT_INT32},
                       {{512}, ge::DT_INT64},
                       {{512, 9}, ge::DT_INT32}},
                      {{512, 500, 128}, {}});
  status = tile("AdvanceStepFlashattn", step);
  const auto& rows = *step.GetTilingData<opp::AdvanceStepFlashattnTiling>();
  std::printf("{\"status\": %u, \"blocks\": %u, \"table_row\": %d, \"lengths\": %d}\n", status, step.blocks,
              static_cast<int>(rows.block_table_row), static_cast<int>(rows.seq_lens.stride));
  auto sum = context({{{8, 2048}, ge::DT_BF16}, {{8, 2048}, ge::DT_BF16}}, {});
  status = tile("AddCustom", sum);
  auto broadcast = context({{{8, 2048}, ge::DT_BF16}, {{2048}, ge::DT_BF16}}, {});
  auto wide = context({{{8}, ge::DT_DOUBLE}, {{8}, ge::DT_DOUBLE}}, {});
  std::printf("{\"status\": %u, \"blocks\": %u, \"key\": %d, \"broadcast\": %u, \"double\": %u}\n", status, sum.blocks,
              static_cast<int>(sum.key), tile("AddCustom", broadcast), tile("AddCustom", wide));
}

}  // namespace

int main() {
  for (const auto& [type, definition] : ops::definitions()) print(definition);
  print_calls();
}
