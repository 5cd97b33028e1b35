// SPDX-License-Identifier: Apache-2.0
// The macros by which functions of operators log: OP_LOGE(context, "x has %zu dimensions", n), OP_CHECK_IF(condition,
// log, return
// ...), OP_CHECK_NULL_WITH_CONTEXT(context, pointer), and a macro for each code of CANN's errors. Errors are in the
// call's error.
#pragma once

#include <string>
#include <type_traits>

#include "acl/acl_base.h"
#include "base/dlog_pub.h"
#include "base/err_msg.h"
#include "graph/ge_error_codes.h"
#include "op_common/op_host/util/shape_util.h"

namespace Ops::Base {

// The operator's name, of a context or as it is.
template <class Operator>
std::string GetOpInfo(const Operator& op) {
  if constexpr (std::is_convertible_v<Operator, std::string>) {
    if constexpr (std::is_pointer_v<Operator>) {
      if (op == nullptr) return "nil";
    }
    return op;
  } else {
    const char* type = op == nullptr ? nullptr : op->GetNodeType();
    return type == nullptr ? "nil" : type;
  }
}

template <class Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value>) {
    return std::to_string(value);
  } else {
    return GetOpInfo(value);
  }
}

// The text of a list in an error: "[3, 4], [3, 5]".
template <class First, class... Values>
std::string listed(const First& first, const Values&... values) {
  return text_of(first) + (std::string() + ... + (", " + text_of(values)));
}

}  // namespace Ops::Base

#define CANN_CPU_OP_LOG(level, op, format, ...)                 \
  aclAppLog(level, __func__, __FILE__, __LINE__, "%s: " format, \
            Ops::Base::GetOpInfo(op).c_str() __VA_OPT__(, ) __VA_ARGS__)
#define OpLogSub(module, level, op, ...) CANN_CPU_OP_LOG(static_cast<aclLogLevel>(level), op, __VA_ARGS__)
#define OP_LOGD(op, ...) CANN_CPU_OP_LOG(ACL_DEBUG, op, __VA_ARGS__)
#define OP_LOGI(op, ...) CANN_CPU_OP_LOG(ACL_INFO, op, __VA_ARGS__)
#define OP_LOGW(op, ...) CANN_CPU_OP_LOG(ACL_WARNING, op, __VA_ARGS__)
#define OP_LOGE(op, ...) CANN_CPU_OP_LOG(ACL_ERROR, op, __VA_ARGS__)
#define OP_LOGE_WITHOUT_REPORT(op, ...) OP_LOGE(op, __VA_ARGS__)

#define OP_CHECK_IF(condition, log, leave) \
  do {                                     \
    if (condition) {                       \
      log;                                 \
      leave;                               \
    }                                      \
  } while (false)
#define OP_CHECK_NULL_WITH_CONTEXT(context, pointer) \
  OP_CHECK_IF((pointer) == nullptr, OP_LOGE(context, "%s is null", #pointer), return ge::GRAPH_FAILED)

#define CANN_CPU_OP_INVALID(code, what, op, ...) \
  OP_LOGE(op, "%s: the %s is wrong: %s", code, what, Ops::Base::listed(__VA_ARGS__).c_str())
#define OP_LOGE_WITH_INVALID_INPUT_SHAPE(op, ...) CANN_CPU_OP_INVALID("EZ0001", "shape of an input", op, __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_ATTR(op, ...) CANN_CPU_OP_INVALID("EZ0002", "attribute", op, __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_ATTR_SIZE(op, ...) CANN_CPU_OP_INVALID("EZ0003", "size of an attribute", op, __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_INPUT(op, ...) CANN_CPU_OP_INVALID("EZ0004", "input", op, __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_INPUT_SHAPESIZE(op, ...) \
  CANN_CPU_OP_INVALID("EZ0005", "number of elements of an input", op, __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_INPUT_FORMAT(op, ...) CANN_CPU_OP_INVALID("EZ0006", "format of an input", op, __VA_ARGS__)
#define OP_LOGE_WITH_INVALID_INPUT_DTYPE(op, ...) CANN_CPU_OP_INVALID("EZ0007", "dtype of an input", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPE(op, ...) CANN_CPU_OP_INVALID("EZ0008", "shape", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPE_WITH_REASON(op, ...) CANN_CPU_OP_INVALID("EZ0009", "shape", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPES_WITH_REASON(op, ...) CANN_CPU_OP_INVALID("EZ0010", "shapes", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPEDIM(op, ...) CANN_CPU_OP_INVALID("EZ0011", "number of dimensions", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPEDIM_WITH_REASON(op, ...) \
  CANN_CPU_OP_INVALID("EZ0012", "number of dimensions", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPEDIMS_WITH_REASON(op, ...) \
  CANN_CPU_OP_INVALID("EZ0013", "numbers of dimensions", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPESIZE(op, ...) CANN_CPU_OP_INVALID("EZ0014", "number of elements", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPESIZE_WITH_REASON(op, ...) \
  CANN_CPU_OP_INVALID("EZ0015", "number of elements", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_SHAPESIZES_WITH_REASON(op, ...) \
  CANN_CPU_OP_INVALID("EZ0016", "numbers of elements", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_FORMAT(op, ...) CANN_CPU_OP_INVALID("EZ0017", "format", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_FORMATS_WITH_REASON(op, ...) CANN_CPU_OP_INVALID("EZ0018", "formats", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_DTYPE(op, ...) CANN_CPU_OP_INVALID("EZ0019", "dtype", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_DTYPE_WITH_REASON(op, ...) CANN_CPU_OP_INVALID("EZ0020", "dtype", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_DTYPES_WITH_REASON(op, ...) CANN_CPU_OP_INVALID("EZ0021", "dtypes", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_TENSORNUM(op, ...) CANN_CPU_OP_INVALID("EZ0022", "number of tensors", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_TENSORNUMS_WITH_REASON(op, ...) \
  CANN_CPU_OP_INVALID("EZ0023", "numbers of tensors", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_VALUE(op, ...) CANN_CPU_OP_INVALID("EZ0024", "value", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_LISTSIZE(op, ...) CANN_CPU_OP_INVALID("EZ0025", "size of a list", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_VALUE_WITH_REASON(op, ...) CANN_CPU_OP_INVALID("EZ0026", "value", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_VALUES_WITH_REASON(op, ...) CANN_CPU_OP_INVALID("EZ0027", "values", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_STRIDE(op, ...) CANN_CPU_OP_INVALID("EZ0028", "stride", op, __VA_ARGS__)
#define OP_LOGE_FOR_FILE_PATH(op, ...) CANN_CPU_OP_INVALID("EZ0029", "path of a file", op, __VA_ARGS__)
#define OP_LOGE_FOR_FILE_OPEN(op, ...) CANN_CPU_OP_INVALID("EZ0030", "file, which does not open", op, __VA_ARGS__)
#define OP_LOGE_FOR_FILE_PARSE(op, ...) CANN_CPU_OP_INVALID("EZ0031", "content of a file", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_CONFIG(op, ...) CANN_CPU_OP_INVALID("EZ0032", "configuration", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_CONFIG_WITH_REASON(op, ...) CANN_CPU_OP_INVALID("EZ0033", "configuration", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_CONFIGS_WITH_REASON(op, ...) \
  CANN_CPU_OP_INVALID("EZ0034", "configurations", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_FORMAT_WITH_REASON(op, ...) CANN_CPU_OP_INVALID("EZ0035", "format", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_GRAPH_NODE(op, ...) CANN_CPU_OP_INVALID("EZ0036", "node", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_ARGUMENT_WITH_REASON(op, ...) CANN_CPU_OP_INVALID("EZ0037", "argument", op, __VA_ARGS__)
#define OP_LOGE_FOR_INVALID_LISTSIZE_WITH_REASON(op, ...) \
  CANN_CPU_OP_INVALID("EZ0038", "size of a list", op, __VA_ARGS__)
