// SPDX-License-Identifier: Apache-2.0
// Communicators for kernels: libhccl provides them, libnnopbase finds those of a call, libascendc_cpu calls them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ascendc/hccl_names.h"
#include "cann_cpu/export.h"

namespace cann_cpu {

// A collective that a kernel asks for. Counts and offsets are in elements.
struct KernelCollective {
  enum class Kind : uint8_t { AllReduce, AllGather, ReduceScatter, AlltoAll, AlltoAllV };

  Kind kind;
  char* send;
  char* receive;
  AscendC::HcclDataType type;
  AscendC::HcclReduceOp op;
  uint64_t count;   // elements of each rank
  uint64_t stride;  // from one rank's block to the next; AllReduce has none
  bool keeps_own;   // what the rank sends to itself is left out
  std::vector<uint64_t> sends, send_offsets, receives, receive_offsets;  // of AlltoAllV, for each rank
};

class KernelCommunicator {
 public:
  virtual ~KernelCommunicator() = default;

  virtual const std::string& name() const = 0;
  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  // Throws std::exception for a dtype, or a collective, that is not supported.
  virtual size_t bytes_of(AscendC::HcclDataType type) const = 0;
  virtual void check(const KernelCollective& collective) const = 0;
  // Runs it in this thread, until all ranks have taken part. Returns why it failed; empty: it succeeded.
  virtual std::string run(const KernelCollective& collective) = 0;
  // Ends the running collective after a kernel has failed. The other ranks receive the reason.
  virtual void give_up(const std::string& reason) = 0;
  // The task that enqueue() appends to the stream takes the place of one call of the communicator.
  virtual int enqueue_ordered(void* stream, const std::function<int()>& enqueue) = 0;
};

// GetHcclContext returns its address to a kernel.
struct KernelContext {
  static constexpr uint64_t kMagic = 0x6363685f75706363;

  uint64_t magic;
  KernelCommunicator* communicator;
};

// Returns the communicator with this name; throws std::exception if the process has none.
using FindKernelCommunicator = std::shared_ptr<KernelCommunicator> (*)(const std::string& group);
CANN_EXPORT std::shared_ptr<KernelCommunicator> kernel_communicator(const std::string& group);
CANN_EXPORT void provide_kernel_communicators(FindKernelCommunicator find);

}  // namespace cann_cpu
