// SPDX-License-Identifier: Apache-2.0
#include "group.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>

#include <numeric>

#include "acl/acl_rt.h"
#include "cann_cpu/waiting.h"
#include "hccl/hcom.h"
#include "nnopbase/executor.h"

using namespace cann_cpu;

namespace {

void require_success(HcclResult code) { TORCH_CHECK(code == HCCL_SUCCESS, reason_of(code)); }

uint64_t element_count(In tensor) { return static_cast<uint64_t>(tensor.numel()); }

HcclDataType hccl_type_of(In tensor) {
  const auto found = hccl_type(tensor.scalar_type());
  TORCH_CHECK(found.has_value(), "there are no collectives of ", tensor.scalar_type());
  return *found;
}

// The first text among a call's arguments.
Text group_of(const detail::KernelCall& call) {
  static const std::string none;
  for (const StoredArgument& argument : call.arguments) {
    const auto* text = std::get_if<std::string>(&argument);
    if (text != nullptr && !text->empty()) return *text;
  }
  return none;
}

// Counts of rows as counts and displacements of elements.
struct RowExtents {
  std::vector<uint64_t> counts, begins;

  RowExtents(Ints rows, int64_t size) : begins(rows.size()) {
    for (const int64_t count : rows) counts.push_back(static_cast<uint64_t>(count * size));
    std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), uint64_t{0});
  }
};

}  // namespace

Group::Group(Text name) {
  require_success(HcomGetCommHandleByGroup(name.c_str(), &comm_));
  uint32_t size = 0, rank = 0;
  require_success(HcclGetRankSize(comm_, &size));
  require_success(HcclGetRankId(comm_, &rank));
  size_ = size;
  rank_ = rank;
}

at::Tensor Group::gathered(In mine) const {
  auto sizes = mine.sizes().vec();
  sizes[0] *= size_;
  const at::Tensor rows = mine.contiguous(), all = at::empty(sizes, mine.options());
  require_success(
      HcclAllGather(rows.data_ptr(), all.data_ptr(), element_count(rows), hccl_type_of(rows), comm_, stream_of_task()));
  return all;
}

void Group::reduce(In whole, In result, HcclReduceOp op) const {
  require_success(HcclAllReduce(whole.data_ptr(), result.data_ptr(), element_count(whole), hccl_type_of(whole), op,
                                comm_, stream_of_task()));
}

void Group::reduce_parts(In whole, In part, HcclReduceOp op) const {
  require_success(HcclReduceScatter(whole.data_ptr(), part.data_ptr(), element_count(part), hccl_type_of(whole), op,
                                    comm_, stream_of_task()));
}

at::Tensor Group::exchanged(In rows, Ints counts, Ints counts_of_others) const {
  auto sizes = rows.sizes().vec();
  sizes[0] = std::accumulate(counts_of_others.begin(), counts_of_others.end(), int64_t{0});
  const int64_t size = c10::multiply_integers(rows.sizes().slice(1));
  const at::Tensor sent = rows.contiguous(), received = at::empty(sizes, rows.options());
  const RowExtents out(counts, size), in(counts_of_others, size);
  require_success(HcclAlltoAllV(sent.data_ptr(), out.counts.data(), out.begins.data(), hccl_type_of(sent),
                                received.data_ptr(), in.counts.data(), in.begins.data(), hccl_type_of(sent), comm_,
                                stream_of_task()));
  return received;
}

void Group::wait_for_all() const { require_success(HcclBarrier(comm_, stream_of_task())); }

Window Group::window(int64_t rank) const {
  Window found{};
  require_success(find_window(comm_, static_cast<uint32_t>(rank), found));
  return found;
}

std::chrono::seconds Group::timeout() const {
  std::chrono::seconds found{};
  require_success(find_timeout(comm_, found));
  return found;
}

at::Tensor cann_cpu::order_by_expert(In counts) {
  const auto experts = at::arange(counts.size(1), at::kLong).repeat({counts.size(0)});
  return at::argsort(experts.repeat_interleave(counts.reshape({-1})), /*stable=*/true, 0, /*descending=*/false);
}

aclnnStatus cann_cpu::phase_two_ordered(aclOpExecutor* executor, aclrtStream stream) {
  if (executor == nullptr) return run_phase_two(executor, stream);
  aclnnStatus status = ACLNN_SUCCESS;
  const aclnnStatus found = detail::guarded(executor->call->name, ACLNN_ERR_PARAM_INVALID, [&] {
    const Group group(group_of(static_cast<const detail::KernelCall&>(*executor->call)));
    status = enqueue_ordered(group.comm(), stream, [&] { return run_phase_two(executor, stream); });
  });
  return found == ACLNN_SUCCESS ? status : found;
}
