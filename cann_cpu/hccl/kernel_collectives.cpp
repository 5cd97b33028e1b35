// SPDX-License-Identifier: Apache-2.0
#include "kernel_collectives.h"

#include <algorithm>
#include <utility>

#include "acl/acl_rt.h"
#include "algorithms.h"

namespace cann_cpu {
namespace {

using Kind = KernelCollective::Kind;

// Ascend C's numbers of dtypes and reductions are HCCL's.
HcclDataType type_of(const KernelCollective& of) { return static_cast<HcclDataType>(of.type); }
HcclReduceOp op_of(const KernelCollective& of) { return static_cast<HcclReduceOp>(of.op); }

// The bytes that a rank would send to itself stay as they are while this lives.
class Kept {
 public:
  Kept(char* data, size_t bytes) : data_(data), bytes_(data, data + bytes) {}
  ~Kept() { std::ranges::copy(bytes_, data_); }
  Kept(const Kept&) = delete;

 private:
  char* const data_;
  const std::vector<char> bytes_;
};

class ForKernels final : public KernelCommunicator {
 public:
  explicit ForKernels(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}

  const std::string& name() const override { return communicator_->name(); }
  uint32_t rank() const override { return communicator_->rank(); }
  uint32_t size() const override { return communicator_->size(); }
  size_t bytes_of(AscendC::HcclDataType type) const override { return size_of(static_cast<HcclDataType>(type)); }
  void give_up(const std::string& reason) override { communicator_->give_up(reason); }
  aclError enqueue_ordered(aclrtStream stream, const std::function<aclError()>& enqueue) override {
    return communicator_->enqueue_ordered(stream, enqueue);
  }

  // A kernel's reductions are fewer than those of a stream.
  void check(const KernelCollective& collective) const override {
    const HcclDataType type = type_of(collective);
    const HcclReduceOp op = op_of(collective);
    size_of(type);
    const bool reduces = collective.kind == Kind::AllReduce || collective.kind == Kind::ReduceScatter;
    if (!reduces) {
      if (collective.send == collective.receive && collective.kind != Kind::AllGather) {
        throw CollectiveFailure(HCCL_E_PARA, "sendBuf and recvBuf are one buffer; it takes two");
      }
      return;
    }
    if (type == HCCL_DATA_TYPE_INT64 || op == HCCL_REDUCE_PROD) throw not_reduced(type, op);
    Reduction::make(type, op);
  }

  std::string run(const KernelCollective& of) override {
    const auto [call, body] = prepared(of);
    if (communicator_->run(call, body) == ACL_SUCCESS) return "";
    const char* reason = aclGetRecentErrMsg();
    return reason == nullptr ? "it failed" : reason;
  }

 private:
  // Valid as long as the collective is.
  std::pair<Call, Communicator::Body> prepared(const KernelCollective& of) const {
    const std::vector<uint64_t> each(size(), of.count);
    std::vector<uint64_t> offsets;
    for (uint32_t rank = 0; rank < size(); ++rank) offsets.push_back(rank * of.stride);
    const HcclDataType type = type_of(of);
    const size_t element = size_of(type);
    const Parts parts = parts_of(each, offsets, element);
    const Reduced reduced{type, op_of(of)};
    const size_t own = parts.offsets[rank()], kept = of.keeps_own ? parts.bytes[rank()] : 0;
    switch (of.kind) {
      case Kind::AllReduce:
        return {{CallKind::kAllReduce, type, op_of(of), {}, of.count, {}, {}},
                [&of, reduced](Mesh& mesh, const Deadline& deadline) {
                  all_reduce(mesh, of.send, of.receive, of.count, reduced, deadline);
                }};
      case Kind::ReduceScatter:
        return {{CallKind::kReduceScatter, type, op_of(of), {}, of.count, {}, {}},
                [&of, reduced, parts](Mesh& mesh, const Deadline& deadline) {
                  reduce_scatter(mesh, of.send, parts, of.receive, reduced, deadline);
                }};
      case Kind::AllGather:
        return {{CallKind::kAllGather, type, {}, {}, of.count, {}, {}},
                [&of, parts, own, kept](Mesh& mesh, const Deadline& deadline) {
                  const Kept as_it_was(of.receive + own, kept);
                  all_gather(mesh, of.send, of.receive, parts, deadline);
                }};
      case Kind::AlltoAll:
        return {{CallKind::kAlltoAll, type, {}, {}, {}, each, each},
                [&of, parts, own, kept](Mesh& mesh, const Deadline& deadline) {
                  const Kept as_it_was(of.receive + own, kept);
                  all_to_all(mesh, of.send, parts, of.receive, parts, deadline);
                }};
      default:
        return {{CallKind::kAlltoAllV, type, {}, {}, {}, of.sends, of.receives},
                [&of, from = parts_of(of.sends, of.send_offsets, element),
                 to = parts_of(of.receives, of.receive_offsets, element)](Mesh& mesh, const Deadline& deadline) {
                  all_to_all(mesh, of.send, from, of.receive, to, deadline);
                }};
    }
  }

  const std::shared_ptr<Communicator> communicator_;
};

}  // namespace

std::shared_ptr<KernelCommunicator> for_kernels(std::shared_ptr<Communicator> communicator) {
  return std::make_shared<ForKernels>(std::move(communicator));
}

}  // namespace cann_cpu
