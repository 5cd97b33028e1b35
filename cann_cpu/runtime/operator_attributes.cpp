// SPDX-License-Identifier: Apache-2.0
// Attributes and models of operators on the aclop path.
#include <string>
#include <vector>

#include "cann_cpu/aclop.h"
#include "cann_cpu/call.h"
#include "cann_cpu/operator_models.h"

using namespace cann_cpu;

namespace {

// What makes the value may fail: it is made where failures become codes.
template <class MakeValue>
aclError set_attribute(const char* function, aclopAttr* attr, const char* name, const MakeValue& make_value) {
  return host_call(function, [&] {
    require_pointer(attr, "attr");
    require_pointer(name, "attrName");
    attr->values[name] = make_value();
  });
}

void check_list(const char* count_name, int count, const char* name, const void* values) {
  if (count < 0) fail(ACL_ERROR_INVALID_PARAM, "%s is %d", count_name, count);
  if (count > 0) require_pointer(values, name);
}

template <class To, class From>
aclError set_list(const char* function, aclopAttr* attr, const char* name, int count, const From* values) {
  return set_attribute(function, attr, name, [&] {
    check_list("numValues", count, "values", values);
    return std::vector<To>(values, values + count);
  });
}

}  // namespace

aclopAttr* aclopCreateAttr() { return new (std::nothrow) aclopAttr; }

void aclopDestroyAttr(const aclopAttr* attr) { delete attr; }

aclError aclopSetAttrBool(aclopAttr* attr, const char* attrName, uint8_t attrValue) {
  return set_attribute(__func__, attr, attrName, [&] { return attrValue != 0; });
}

aclError aclopSetAttrInt(aclopAttr* attr, const char* attrName, int64_t attrValue) {
  return set_attribute(__func__, attr, attrName, [&] { return attrValue; });
}

aclError aclopSetAttrFloat(aclopAttr* attr, const char* attrName, float attrValue) {
  return set_attribute(__func__, attr, attrName, [&] { return attrValue; });
}

aclError aclopSetAttrString(aclopAttr* attr, const char* attrName, const char* attrValue) {
  return set_attribute(__func__, attr, attrName, [&] {
    require_pointer(attrValue, "attrValue");
    return std::string(attrValue);
  });
}

aclError aclopSetAttrDataType(aclopAttr* attr, const char* attrName, aclDataType attrValue) {
  return set_attribute(__func__, attr, attrName, [&] { return attrValue; });
}

aclError aclopSetAttrListBool(aclopAttr* attr, const char* attrName, int numValues, const uint8_t* values) {
  return set_list<bool>(__func__, attr, attrName, numValues, values);
}

aclError aclopSetAttrListInt(aclopAttr* attr, const char* attrName, int numValues, const int64_t* values) {
  return set_list<int64_t>(__func__, attr, attrName, numValues, values);
}

aclError aclopSetAttrListFloat(aclopAttr* attr, const char* attrName, int numValues, const float* values) {
  return set_list<float>(__func__, attr, attrName, numValues, values);
}

aclError aclopSetAttrListDataType(aclopAttr* attr, const char* attrName, int numValues, const aclDataType values[]) {
  return set_list<aclDataType>(__func__, attr, attrName, numValues, values);
}

aclError aclopSetAttrListString(aclopAttr* attr, const char* attrName, int numValues, const char** values) {
  return set_attribute(__func__, attr, attrName, [&] {
    check_list("numValues", numValues, "values", values);
    std::vector<std::string> strings;
    for (int i = 0; i < numValues; ++i) {
      require_pointer(values[i], "one of values");
      strings.emplace_back(values[i]);
    }
    return strings;
  });
}

aclError aclopSetAttrListListInt(aclopAttr* attr, const char* attrName, int numLists, const int* numValues,
                                 const int64_t* const values[]) {
  return set_attribute(__func__, attr, attrName, [&] {
    check_list("numLists", numLists, "numValues", numValues);
    check_list("numLists", numLists, "values", values);
    std::vector<std::vector<int64_t>> lists;
    for (int i = 0; i < numLists; ++i) {
      check_list("one of numValues", numValues[i], "one of values", values[i]);
      lists.emplace_back(values[i], values[i] + numValues[i]);
    }
    return lists;
  });
}

aclError aclopSetModelDir(const char* modelDir) {
  return host_call(__func__, [&] {
    require_pointer(modelDir, "modelDir");
    load_models(modelDir);
  });
}

aclError aclopLoad(const void* model, size_t modelSize) {
  return host_call(__func__, [&] {
    require_pointer(model, "model");
    load_model({static_cast<const char*>(model), modelSize}, "the model");
  });
}
