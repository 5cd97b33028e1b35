// SPDX-License-Identifier: Apache-2.0
// The host's side of kernels that are templates: what a header selects is checked when it is registered, and what
// tiling asks for against that.
#include <set>

#include "ascendc/template_variants.h"
#include "call_error.h"
#include "definition.h"

namespace AscendC::tpl {
namespace {

// "Scale<DTYPE = 1, TILES = 8>"
std::string text_of(const Templates& templates, const uint64_t* values) {
  std::string text;
  for (size_t i = 0; i < templates.declared_count; ++i) {
    text += (i == 0 ? "" : ", ") + std::string(templates.declared[i].name) + " = " + std::to_string(values[i]);
  }
  return std::string(templates.name) + "<" + text + ">";
}

bool selects(const Templates& templates, const Selection& selection, const uint64_t* values) {
  for (size_t i = 0; i < templates.declared_count; ++i) {
    const ValueList known = values_of(*find(selection, templates.declared[i].name));
    if (known.index_of(values[i]) == known.count) return false;
  }
  return true;
}

}  // namespace

uint64_t tiling_key(const Templates& templates, const uint64_t* values, size_t count) {
  const std::string place = std::string(templates.file) + ":" + std::to_string(templates.line);
  if (count != templates.declared_count) {
    throw cann_cpu::CallError(cann_cpu::kTilingError, "tiling failed: GET_TPL_TILING_KEY has " + std::to_string(count) +
                                                          " arguments; " + templates.name + " (" + place + ") has " +
                                                          std::to_string(templates.declared_count) + " parameters");
  }
  for (size_t i = 0; i < templates.selected_count; ++i) {
    if (selects(templates, templates.selected[i], values)) return key_of(templates, values);
  }
  throw cann_cpu::CallError(cann_cpu::kTilingError, "tiling failed: it asks for " + text_of(templates, values) +
                                                        ", which no ASCENDC_TPL_ARGS_SEL selects (" + place + ")");
}

Registration::Registration(const Templates& templates) {
  std::string wrong;
  if (const Problem problem = problem_of(templates); problem.what != nullptr) {
    wrong = std::string(problem.parameter) + problem.what;
  } else {
    std::set<uint64_t> keys;
    for_each_instance(templates, [&](const Instance& instance) {
      if (wrong.empty() && !keys.insert(instance.key).second) {
        wrong = text_of(templates, instance.values) + " is selected twice";
      }
    });
  }
  if (!wrong.empty()) {
    cann_cpu::reject_library(std::string(templates.file) + ":" + std::to_string(templates.line) + ": " + wrong);
  }
}

}  // namespace AscendC::tpl
