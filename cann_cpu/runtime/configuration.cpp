// SPDX-License-Identifier: Apache-2.0
#include "configuration.h"

#include "cann_cpu/call.h"
#include "cann_cpu/json.h"

#include <string_view>

namespace cann_cpu {
namespace {

// What may be asked for because it changes nothing here. An empty value stands for each one.
struct Harmless {
  std::string_view section;  // empty: the member is at the top level
  std::string_view member;
  std::string_view value;
};
constexpr Harmless kHarmless[] = {
    {"defaultDevice", "default_device", ""},   // read by read_configuration()
    {"dump", "dump_scene", "lite_exception"},  // torch_npu's; the error of a failed kernel names what it is to show
    {"dump", "dump_debug", "off"},
    {"dump", "dump_op_switch", "off"},
    {"op_debug_config", "enable_debug_kernel", "off"},
    {"profiler", "switch", "off"},
    {"StackSize", "aicore_stack_size", ""},  // kernels run on stacks of the host, of megabytes
    {"", "max_opqueue_num", ""},             // no operator is compiled, so none is kept
    {"", "err_msg_mode", "0"},               // messages of each thread
    {"", "err_msg_mode", "1"},               // and of the process, read by read_configuration()
};

void require_harmless(const std::string& section, const std::string& member, const Json& value) {
  const std::string* const text = value.scalar();
  for (const Harmless& known : kHarmless) {
    const bool is_meant = known.section == section && known.member == member;
    if (is_meant && (known.value.empty() || (text != nullptr && *text == known.value))) return;
  }
  fail(ACL_ERROR_FEATURE_UNSUPPORTED, "\"%s%s%s\"%s%s is not supported; remove it", section.c_str(),
       section.empty() ? "" : ".", member.c_str(), text == nullptr ? "" : " of ", text == nullptr ? "" : text->c_str());
}

void require_harmless(const Json::Object& configuration) {
  for (const auto& [name, value] : configuration) {
    if (!std::holds_alternative<Json::Object>(value.value)) {
      require_harmless("", name, value);
      continue;
    }
    for (const auto& [member, of_it] : value.object()) require_harmless(name, member, of_it);
  }
}

}  // namespace

Configuration read_configuration(const std::string& text) {
  Configuration configuration;
  if (text.empty()) return configuration;
  try {
    const Json json = parse_json(text);
    const Json* const section = json.find("defaultDevice");
    const Json* const device = section == nullptr ? nullptr : section->find("default_device");
    const Json* const mode = json.find("err_msg_mode");
    const std::string* const mode_text = mode == nullptr ? nullptr : mode->scalar();
    require_harmless(json.object());
    configuration.shares_messages = mode_text != nullptr && *mode_text == "1";
    if (device == nullptr) return configuration;
    configuration.default_device = device->index();
    if (!configuration.default_device) throw JsonError("default_device is not the number of a device");
    return configuration;
  } catch (const JsonError& error) {
    fail(ACL_ERROR_PARSE_FILE, "%s", error.what());
  }
}

}  // namespace cann_cpu
