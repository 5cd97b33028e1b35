// SPDX-License-Identifier: Apache-2.0
// The two phases of an aclnn function: phase one stores a call, phase two enqueues it on a stream.
#pragma once

#include <memory>
#include <vector>

#include "acl/acl_base.h"
#include "aclnn/acl_meta.h"
#include "cann_cpu/accesses.h"
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

// One call of an aclnn function, with copies of all its arguments: it can run after the caller has destroyed them, any
// number of times, and with tensors of the same kind at other addresses.
class Call {
 public:
  Call(const char* name, std::vector<void*> addresses, std::vector<Extent> extents, uint64_t workspace_size = 0)
      : name(name), addresses(std::move(addresses)), extents(std::move(extents)), workspace_size(workspace_size) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;

  // Runs the kernel on tensors whose storages start at these addresses, in the order of the arguments; the workspace,
  // if there is one, is the last. Never throws.
  virtual aclError run(const std::vector<void*>& addresses) const = 0;

  const char* const name;              // "aclnnAdd"
  const std::vector<void*> addresses;  // of the tensors that phase one was given
  const std::vector<Extent> extents;   // empty unless accesses_are_checked()
  const uint64_t workspace_size;       // bytes that phase two is to be given
};

// Ends phase one: hands the call out as an executor and, where the caller has set a key, into the executor cache.
CANN_EXPORT aclnnStatus finish_phase_one(std::shared_ptr<const Call> call, uint64_t* workspace_size,
                                         aclOpExecutor** executor);

// All of phase two. Most kernels on the CPU keep their scratch memory to themselves, and have no workspace.
CANN_EXPORT aclnnStatus run_phase_two(aclOpExecutor* executor, aclrtStream stream, void* workspace = nullptr);

}  // namespace cann_cpu
