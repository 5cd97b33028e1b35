// SPDX-License-Identifier: Apache-2.0
// The ranks of a communicator, for functions that compute and communicate.
#pragma once

#include "cann_cpu/collectives.h"
#include "table.h"

namespace cann_cpu {

// The communicator of a name. Its collectives run in place, inside the call's task.
class Group {
 public:
  explicit Group(Text name);

  HcclComm comm() const { return comm_; }
  int64_t size() const { return size_; }
  int64_t rank() const { return rank_; }

  // The rows of all ranks, which have as many each.
  at::Tensor gathered(In mine) const;
  void reduce(In whole, In result, HcclReduceOp op) const;
  void reduce_parts(In whole, In part, HcclReduceOp op) const;

  // Sends the next counts[i] rows to rank i. Returns the rows that the ranks have sent here, in their order.
  at::Tensor exchanged(In rows, Ints counts, Ints counts_of_others) const;
  void wait_for_all() const;

  // The memory that a rank lets others write to, and how long they may wait there; 0: for ever.
  Window window(int64_t rank) const;
  std::chrono::seconds timeout() const;

 private:
  HcclComm comm_ = nullptr;
  int64_t size_ = 0, rank_ = 0;
};

// The order of rows by (expert, rank), of rows by (rank, expert), from their counts of (rank, expert).
at::Tensor order_by_expert(In counts);

// Phase two in the order of the group's calls. The group is the first of the call's texts.
aclnnStatus phase_two_ordered(aclOpExecutor* executor, aclrtStream stream);

}  // namespace cann_cpu

// The kernel's first parameter is a Phase.
#define ACLNN_TYPED_OF_GROUP(op, dtypes, ...) ACLNN_ROW(op, cann_cpu::phase_two_ordered, dtypes, nullptr, __VA_ARGS__)
#define ACLNN_OF_GROUP(op, ...) ACLNN_TYPED_OF_GROUP(op, nullptr, __VA_ARGS__)
