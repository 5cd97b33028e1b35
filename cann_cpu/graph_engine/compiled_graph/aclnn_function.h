// SPDX-License-Identifier: Apache-2.0
// aclnn functions found at run time, and calls of them with arguments known only at run time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "acl/acl_base.h"
#include "aclnn/acl_meta.h"
#include "cann_cpu/stored_tensor.h"

namespace cann_cpu::graph {

struct AclnnFunction {
  std::string name;           // "aclnnAddCustom"
  void* phase_one = nullptr;  // its signature is the caller's knowledge
  aclnnStatus (*phase_two)(void*, uint64_t, aclOpExecutor*, aclrtStream) = nullptr;
};

// The function in the first library that has it: the operator packages' libcust_opapi.so in order of priority, then
// libopapi.so. Nothing when one of the two phases is in none of them; `reason` says which.
std::optional<AclnnFunction> find_aclnn(const std::string& name, std::string& reason);

// Arguments in order of declaration. The acl objects among them live as long as this.
class AclnnArguments {
 public:
  AclnnArguments() = default;
  AclnnArguments(const AclnnArguments&) = delete;
  AclnnArguments& operator=(const AclnnArguments&) = delete;
  ~AclnnArguments();

  AclnnArguments& tensor(const at::Tensor& tensor);  // an undefined tensor is a null pointer
  AclnnArguments& tensor(const StoredTensor& stored);
  AclnnArguments& list(const std::vector<StoredTensor>& tensors);
  AclnnArguments& scalar(const at::Scalar& scalar);
  AclnnArguments& scalars(const std::vector<at::Scalar>& scalars);
  AclnnArguments& array(const std::vector<int64_t>& values);
  AclnnArguments& array(const std::vector<float>& values);
  AclnnArguments& array(const std::vector<bool>& values);
  AclnnArguments& text(std::string text);
  AclnnArguments& integer(uint64_t value);  // every integer type, bool and enum
  AclnnArguments& real(double value);
  AclnnArguments& real32(float value);

  // Runs both phases; the second launches on the stream. Throws GraphError with the function's message.
  void call(const AclnnFunction& function, aclrtStream stream) const;

 private:
  template <class T>
  AclnnArguments& keep(T* object, aclnnStatus (*destroy)(const T*));
  aclnnStatus call_phase_one(void* function, uint64_t* workspace_size, aclOpExecutor** executor) const;

  std::vector<uint64_t> integers_;  // pointers too
  std::vector<double> reals_;
  std::vector<at::Tensor> tensors_;  // what the aclTensors point to
  std::deque<std::string> texts_;
  std::vector<std::function<void()>> destroyers_;
};

}  // namespace cann_cpu::graph
