// SPDX-License-Identifier: Apache-2.0
// A call of a communicator, as its ranks describe it to each other before data moves, and whether they agree on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hccl/hccl_types.h"

namespace cann_cpu {

enum class CallKind : uint32_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kAllGatherV,
  kReduceScatter,
  kReduceScatterV,
  kScatter,
  kAlltoAll,
  kAlltoAllV,
  kAlltoAllVC,
  kBarrier,
  kSend,
};

// What the ranks of a call must agree in.
struct Call {
  CallKind kind;
  std::optional<HcclDataType> type;
  std::optional<HcclReduceOp> op;
  std::optional<uint32_t> root;
  std::optional<uint64_t> count;
  // Elements to and from each rank, where ranks may differ in them: what one sends is what the other expects.
  std::vector<uint64_t> sends;
  std::vector<uint64_t> receives;
};

// Appends to a list in words.
void add(std::string& list, const char* separator, const std::string& item);

const char* name_of(CallKind kind);

// As it came from a rank: numbers.
struct CallDescriptor {
  enum Field { kKind, kType, kOp, kRoot, kCount, kSequence, kFields };
  uint64_t fields[kFields];
  std::vector<uint64_t> sends;  // to each rank, or nothing
  std::vector<uint64_t> receives;
};

std::string write(const Call& call, uint64_t sequence);
// All three throw CollectiveFailure: of what describes no call among so many ranks; of collectives in which the ranks
// disagree; of a message that is not the one that a rank expects.
CallDescriptor read(const std::string& text, size_t ranks);
void require_agreement(const std::vector<CallDescriptor>& calls);
void require_expected(const CallDescriptor& descriptor, const Call& expected, uint32_t sender, uint64_t sequence,
                      uint32_t self);

}  // namespace cann_cpu
