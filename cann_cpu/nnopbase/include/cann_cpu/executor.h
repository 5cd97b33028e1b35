// SPDX-License-Identifier: Apache-2.0
// The two phases of an aclnn function: phase one stores a call, phase two enqueues it on a stream.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl_base.h"
#include "aclnn/acl_meta.h"
#include "cann_cpu/accesses.h"
#include "cann_cpu/acl_objects.h"
#include "cann_cpu/export.h"

namespace cann_cpu {

// What a call does to memory, in bytes from one of its addresses.
struct Extent {
  size_t address;
  int64_t begin;
  int64_t end;
  bool is_write;
  uint32_t argument;  // from 1
};

// The extents of a tensor, one for each run of adjoining elements. Of views with very many runs none: what lies between
// them may be anybody's.
CANN_EXPORT void add_extents(const aclTensor& tensor, const Extent& of, std::vector<Extent>& extents);

// A parameter of an aclnn function that is a tensor or a list of tensors. aclSetTensorAddr and its kin count these.
struct TensorParameter {
  uint32_t argument;  // from 1
  bool is_list;
  bool is_input;
  bool is_output;
  size_t first = 0;  // of its addresses
  size_t count = 0;  // of its addresses; 0 of a tensor that is null
};

// The tensors of a call, in the order of its arguments.
struct Operands {
  void add(const aclTensor& tensor, bool is_write, uint32_t argument) {
    if (accesses_are_checked()) add_extents(tensor, {addresses.size(), 0, 0, is_write, argument}, extents);
    addresses.push_back(tensor.data);
    is_empty.push_back(std::ranges::find(tensor.shape, 0) != tensor.shape.end());
  }

  std::vector<void*> addresses;
  std::vector<bool> is_empty;           // the tensor at the address, which may be null then
  std::vector<const aclTensor*> given;  // the tensor at the address, where the caller's tensor identifies it
  std::vector<TensorParameter> parameters;
  std::vector<Extent> extents;  // empty unless accesses_are_checked()
};

// One call of an aclnn function, with copies of all its arguments: it can run after the caller has destroyed them, any
// number of times, and with tensors of the same kind at other addresses.
class Call {
 public:
  Call(const char* name, Operands operands, uint64_t workspace_size = 0)
      : name(name), operands(std::move(operands)), workspace_size(workspace_size) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;

  // Runs the kernel on tensors whose storages start at these addresses, in the order of the arguments; the workspace,
  // if there is one, is the last. Never throws.
  virtual aclError run(const std::vector<void*>& addresses) const = 0;

  // What errors call a tensor or a list: operands.parameters[parameter].
  virtual std::string name_of(size_t parameter) const {
    return "argument " + std::to_string(operands.parameters[parameter].argument);
  }

  const char* const name;         // "aclnnAdd"
  const Operands operands;        // that phase one was given
  const uint64_t workspace_size;  // bytes that phase two is to be given
};

// Ends phase one: hands the call out as an executor and, where the caller has set a key, into the executor cache.
CANN_EXPORT aclnnStatus finish_phase_one(std::shared_ptr<const Call> call, uint64_t* workspace_size,
                                         aclOpExecutor** executor);

// All of phase two. Most kernels on the CPU keep their scratch memory to themselves, and have no workspace.
CANN_EXPORT aclnnStatus run_phase_two(aclOpExecutor* executor, aclrtStream stream, void* workspace = nullptr);

}  // namespace cann_cpu
