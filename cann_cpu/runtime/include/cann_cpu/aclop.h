// SPDX-License-Identifier: Apache-2.0
// The structs of the opaque arguments of the aclop path, and a call of an operator by the name of its type.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "acl/acl_op.h"

struct aclDataBuffer {
  void* data;
  size_t size;
};

struct aclTensorDesc {
  aclDataType type;
  aclFormat format;
  std::vector<int64_t> dims;
  std::string name;
  aclFormat storage_format = ACL_FORMAT_UNDEFINED;
  std::vector<int64_t> storage_dims;
  aclMemType placement = ACL_MEMTYPE_DEVICE;
  std::string constant;  // the elements of an input that is a constant, or empty

  bool is_fractal_nz() const { return storage_format == ACL_FORMAT_FRACTAL_NZ; }
};

struct aclopAttr {
  using Value = std::variant<bool, int64_t, float, std::string, aclDataType, std::vector<bool>, std::vector<int64_t>,
                             std::vector<float>, std::vector<std::string>, std::vector<aclDataType>,
                             std::vector<std::vector<int64_t>>>;
  std::map<std::string, Value> values;
};

namespace cann_cpu {

struct Operand {
  aclTensorDesc desc;
  aclDataBuffer buffer;
};

// One call, with copies of what describes it: the caller destroys the descriptions when the call returns.
struct SingleOperator {
  std::string type;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  aclopAttr attributes;
  std::vector<std::string> host_inputs;  // the memory of the inputs that lie on the host
  // Whether the outputs may be smaller than their memory; running the operator then sets their dims.
  bool decides_shapes = false;
};

// libge_runner's cann_cpu_run_operator: computes the outputs, from a task of the stream. ACL_ERROR_OP_NOT_FOUND: it has
// no node of this type.
using RunOperator = aclError(SingleOperator& op, aclrtStream stream);

}  // namespace cann_cpu
