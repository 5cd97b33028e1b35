// SPDX-License-Identifier: Apache-2.0
// Data types of collectives, and reductions in the order of the ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "failure.h"
#include "hccl/hccl_types.h"

namespace cann_cpu {

// Dtypes and reductions are those that CANN documents for Atlas A2 and A3; other chips are treated alike. All functions
// throw CollectiveFailure for a value that is none of CANN's, and size_of() for a type that is not moved.
const char* name_of(HcclDataType type);
size_t size_of(HcclDataType type);
const char* name_of(HcclReduceOp op);

// For a collective that has no such reduction.
CollectiveFailure not_reduced(HcclDataType type, HcclReduceOp op);

// Folds up to kBlock elements of each rank into one result: begin() with rank 0's, add() the others' in order, end().
// float16 and bfloat16 are folded in float32 and rounded once, to nearest even, at the end; all others in their own
// type, where integers wrap around. The maximum or minimum with a NaN is a NaN.
class Reduction {
 public:
  static constexpr size_t kBlock = 16384;

  virtual ~Reduction() = default;
  virtual void begin(const void* elements, size_t count) = 0;
  virtual void add(const void* elements, size_t count) = 0;
  virtual void end(void* result, size_t count) = 0;

  // Throws CollectiveFailure when the type has no such reduction.
  static std::unique_ptr<Reduction> make(HcclDataType type, HcclReduceOp op);
};

}  // namespace cann_cpu
