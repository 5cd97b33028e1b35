// SPDX-License-Identifier: Apache-2.0
// The functions that the generated aclnn functions of defined operators call. op_build writes these calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "aclnn/acl_meta.h"
#include "cann_cpu/export.h"

namespace cann_cpu {

// An argument as C passes it: a pointer to one of ACL's objects or to text, an integer, or a number.
struct OperatorArgument {
  OperatorArgument(const void* object) : object(object), integer(0), real(0) {}
  OperatorArgument(int64_t value) : object(nullptr), integer(value), real(0) {}
  OperatorArgument(bool value) : object(nullptr), integer(value ? 1 : 0), real(0) {}
  OperatorArgument(double value) : object(nullptr), integer(0), real(value) {}

  // As a parameter of C of type T. In C++11, for builds that ask for it.
  template <class T>
  T as() const {
    return to(static_cast<T*>(nullptr));
  }

  const void* object;
  int64_t integer;
  double real;

 private:
  template <class T>
  T* to(T**) const {
    return static_cast<T*>(const_cast<void*>(object));
  }
  float to(float*) const { return static_cast<float>(real); }
  double to(double*) const { return real; }
  template <class T>
  T to(T*) const {
    return static_cast<T>(integer);
  }
};

// Phase one of operator `type`. `in_library` lies in the library of the function, by which its package is found.
CANN_EXPORT aclnnStatus operator_phase_one(const char* type, const void* in_library, const OperatorArgument* arguments,
                                           size_t count, uint64_t* workspace_size, aclOpExecutor** executor);
CANN_EXPORT aclnnStatus operator_phase_two(void* workspace, uint64_t workspace_size, aclOpExecutor* executor,
                                           aclrtStream stream);

// The package of a library that carries its files itself, for its functions to be linked anywhere: what
// ASCEND_PACK_SHARED_LIBRARY makes has a static object of this.
struct EmbeddedFile {
  const char* path;  // in the package
  const char* begin;
  const char* end;
};
class CANN_EXPORT EmbeddedPackage {
 public:
  EmbeddedPackage(const char* vendor, const EmbeddedFile* files, size_t count);
  ~EmbeddedPackage();
  EmbeddedPackage(const EmbeddedPackage&) = delete;
  EmbeddedPackage& operator=(const EmbeddedPackage&) = delete;
};

// The kernel of an operator that has none in Ascend C, for the CPU alone: `CPU_KERNEL(Type, ...)` of cann_cpu/op.h
// makes it, as the symbol ascendc_cpu_kernel_Type of the package's libcust_cpu_kernels.so.
struct CpuKernel {
  aclnnStatus (*phase_one)(const OperatorArgument* arguments, uint64_t* workspace_size, aclOpExecutor** executor);
  size_t arguments;
};

}  // namespace cann_cpu
