// SPDX-License-Identifier: Apache-2.0
// Checks the collectives that cores prepare. One core passes them to the server.
#include "ascendc/hccl.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "cann_cpu/kernel_communicator.h"
#include "cann_cpu/soc.h"
#include "checker.h"
#include "hccl_server.h"
#include "running_block.h"

namespace AscendC::cpu {
namespace {

using cann_cpu::KernelCollective;

struct Served {
  HcclCMDType command;
  KernelCollective::Kind kind;
  const char* name;
};
constexpr Served kServed[] = {
    {HcclCMDType::HCCL_CMD_ALLREDUCE, KernelCollective::Kind::AllReduce, "AllReduce"},
    {HcclCMDType::HCCL_CMD_ALLGATHER, KernelCollective::Kind::AllGather, "AllGather"},
    {HcclCMDType::HCCL_CMD_REDUCE_SCATTER, KernelCollective::Kind::ReduceScatter, "ReduceScatter"},
    {HcclCMDType::HCCL_CMD_ALLTOALL, KernelCollective::Kind::AlltoAll, "AlltoAll"},
    {HcclCMDType::HCCL_CMD_ALLTOALLV, KernelCollective::Kind::AlltoAllV, "AlltoAllV"},
};

const Served& served(HcclCMDType command) { return *std::ranges::find(kServed, command, &Served::command); }

// A part of a buffer that the collective reads or writes, in elements.
struct Part {
  Use use;
  uint64_t offset, count;
};

std::vector<Part> parts_of(const KernelCollective& of, uint32_t ranks) {
  using enum KernelCollective::Kind;
  std::vector<Part> parts;
  const auto add = [&](Use use, uint64_t offset, uint64_t count) { parts.push_back({use, offset, count}); };
  const auto add_all = [&](Use use, const std::vector<uint64_t>& offsets, const std::vector<uint64_t>& counts) {
    for (uint32_t rank = 0; rank < ranks; ++rank) add(use, offsets[rank], counts[rank]);
  };
  if (of.kind == AlltoAllV) {
    add_all(Use::Read, of.send_offsets, of.sends);
    add_all(Use::Write, of.receive_offsets, of.receives);
    return parts;
  }
  const std::vector<uint64_t> counts(ranks, of.count);
  std::vector<uint64_t> offsets;
  for (uint32_t rank = 0; rank < ranks; ++rank) offsets.push_back(rank * of.stride);
  const bool scatters = of.kind == ReduceScatter || of.kind == AlltoAll;
  scatters ? add_all(Use::Read, offsets, counts) : add(Use::Read, 0, of.count);
  const bool gathers = of.kind == AllGather || of.kind == AlltoAll;
  gathers ? add_all(Use::Write, offsets, counts) : add(Use::Write, 0, of.count);
  return parts;
}

// Checks the server's reads and writes as those of the core that commits the collective.
void check(Checker& checker, const char* name, Where where, const KernelCollective& of, size_t element,
           uint32_t ranks) {
  Checker::Instruction by{name, where, PIPE_S};
  by.by_server = true;
  for (const Part& part : parts_of(of, ranks)) {
    auto* const data = reinterpret_cast<std::byte*>(part.use == Use::Read ? of.send : of.receive);
    const GlobalMemory memory{data, data, INT64_MAX, 0, static_cast<uint32_t>(element)};
    checker.touch(by, part.use, memory, static_cast<int64_t>(part.offset * element),
                  static_cast<int64_t>(part.count * element));
  }
}

std::vector<uint64_t> numbers(const char* name, Where where, const uint64_t* values, uint32_t count) {
  if (values == nullptr) fail(where, "AlltoAllV: %s is null", name);
  return {values, values + count};
}

}  // namespace

void HcclClient::init(Where where, HcclServerType server, HcclServerConfig config, GM_ADDR context,
                      const void* tiling) {
  RunningBlock& block = running_block(where);
  // A collective cannot be taken back, so the cores that a kernel is for must be known before the first one.
  if (!block.type.known && !block.type.tried && !block.type.fused()) find_type();
  const uint32_t architecture = block.chip.architecture().number;
  const bool is_950 = architecture == 3510;
  if (architecture != 2201 && !is_950) fail(where, "Hccl: %s has no collectives in kernels", block.chip.name);
  if (is_950 != (server == HCCL_SERVER_TYPE_CCU)) {
    fail(where, "Hccl: %s only has the server %s", block.chip.name,
         is_950 ? "HCCL_SERVER_TYPE_CCU" : "HCCL_SERVER_TYPE_AICPU");
  }
  if (context == nullptr) {
    fail(where,
         "Hccl: the context is null: the launch has no communicator. An operator's definition names the attribute that "
         "has its group, this->MC2().HcclGroup(\"group\"), and GetHcclContext<0>() gives that of the first");
  }
  const auto& given = *reinterpret_cast<const cann_cpu::KernelContext*>(context);
  if (given.magic != cann_cpu::KernelContext::kMagic) {
    fail(where, "Hccl: the context was not returned by GetHcclContext");
  }
  if (tiling != nullptr) {
    Mc2Init filled;
    std::memcpy(&filled, tiling, sizeof(filled));
    if (filled.magic != Mc2Init::kMagic) {
      fail(where,
           "Hccl: the tiling data do not begin with a Mc2InitTiling that the tiling function has filled, by "
           "Mc2CcTilingConfig::GetTiling");
    }
  }
  RunningBlock::Turns& turns = block.turns[given.communicator];
  if (turns.is_open) fail(where, "Hccl: another object of this core has the context, and Finalize was not called");
  turns.is_open = true;
  *this = {};
  server_ = &block.team->server(*given.communicator, turns.begun++);
  config_ = config;
  tilings_ = static_cast<const std::byte*>(tiling);
  has_tilings_ = tiling != nullptr;
  is_tried_ = block.type.tried;
}

void HcclClient::require_open(const char* name, Where where) const {
  if (server_ == nullptr) fail(where, "%s: the Hccl object is not initialised; call InitV2 first", name);
  if (is_final_) fail(where, "%s: Finalize was called; another Hccl object can be initialised", name);
}

const void* HcclClient::tiling_at(Where where, uint64_t offset) const {
  require_open("SetCcTilingV2", where);
  if (!has_tilings_) fail(where, "SetCcTilingV2: Init was called without initTiling");
  return tilings_ + offset;
}

void HcclClient::set_tiling(const char* name, Where where, const void* tiling) {
  require_open(name, where);
  Mc2Cc of;
  if (tiling != nullptr) std::memcpy(&of, tiling, sizeof(of));
  if (tiling == nullptr || of.magic != Mc2Cc::kMagic) {
    fail(where, "%s: there is no Mc2CcTiling that the tiling function has filled, by Mc2CcTilingConfig::GetTiling",
         name);
  }
  const std::string& group = server_->communicator().name();
  if (group != of.group) {
    fail(where,
         "%s: the tiling is of the group '%s', the context of '%s'; Mc2CcTilingConfig takes the attribute's value",
         name, of.group, group.c_str());
  }
  if (of.debug_mode != 0) fail(where, "%s: SetDebugMode(%u) is not supported", name, of.debug_mode);
  if (of.step_size != 0) fail(where, "%s: SetStepSize(%u) is not supported: collectives in steps", name, of.step_size);
  if (of.skip_window_copy == 2)
    fail(where, "%s: SetSkipBufferWindowCopy(2) is not supported: there are no windows", name);
  is_set_[of.command] = true;
  const bool is_a2 = std::string_view(block(where).chip.family) == "ascend910b";
  const bool gathers = of.command == static_cast<uint32_t>(HcclCMDType::HCCL_CMD_ALLGATHER) ||
                       of.command == static_cast<uint32_t>(HcclCMDType::HCCL_CMD_ALLTOALL);
  keeps_own_[of.command] = of.skip_local_copy == 1 && is_a2 && gathers;
}

// Whether this core passes the collectives to the server.
bool HcclClient::tells(Where where) const {
  const Block& block = cpu::block(where);
  if (GetBlockIdx(where) != config_.blockId || is_tried_) return false;
  if (config_.type == CoreType::DEFAULT) return true;
  return block.type.fused() || block.core.cube == (config_.type == CoreType::ON_AIC);
}

HcclHandle HcclClient::prepare(Where where, const Collective& given, bool commits) {
  const char* const name = served(given.command).name;
  const auto command = static_cast<size_t>(given.command);
  require_open(name, where);
  RunningBlock& block = running_block(where);
  if (is_tried_ && block.type.asked) is_mixed();
  if (has_tilings_ && !is_set_[command]) {
    fail(where, "%s: SetCcTilingV2 was not called with a Mc2CcTiling of its opType, %zu", name, command);
  }
  if (given.repeat == 0) fail(where, "%s: repeat is 0; expected 1 to 255", name);
  if (count_ == kMaxHandles) {
    fail(where, "%s: a communicator takes %d calls of Prepare functions before Finalize", name, kMaxHandles);
  }
  const auto handle = static_cast<HcclHandle>(count_++);
  prepared_[handle] = {name, given.repeat, 0};
  if (!tells(where)) return handle;
  if (!server_->takes_from(block.core)) {
    fail(where,
         "%s: both the first cube core and the first vector core call it, and only one of them may use the server: "
         "write if ASCEND_IS_AIV, or name the CoreType in Hccl's second template argument",
         name);
  }
  cann_cpu::KernelCommunicator& communicator = server_->communicator();
  const uint32_t ranks = communicator.size();
  KernelCollective of{served(given.command).kind,
                      reinterpret_cast<char*>(given.send),
                      reinterpret_cast<char*>(given.receive),
                      given.type,
                      given.op,
                      given.count,
                      given.stride == 0 ? given.count : given.stride,
                      keeps_own_[command],
                      {},
                      {},
                      {},
                      {}};
  if (given.command == HcclCMDType::HCCL_CMD_ALLTOALLV) {
    of.sends = numbers("sendCounts", where, given.sends, ranks);
    of.send_offsets = numbers("sdispls", where, given.send_offsets, ranks);
    of.receives = numbers("recvCounts", where, given.receives, ranks);
    of.receive_offsets = numbers("rdispls", where, given.receive_offsets, ranks);
  }
  if (of.stride < of.count) {
    fail(where, "%s: strideCount is %llu, less than the %llu elements of each rank", name,
         static_cast<unsigned long long>(of.stride), static_cast<unsigned long long>(of.count));
  }
  size_t element = 0;
  try {
    element = communicator.bytes_of(of.type);
    communicator.check(of);
  } catch (const std::exception& e) {
    fail(where, "%s: %s", name, e.what());
  }
  CollectiveServer::Task task{name, where};
  for (uint8_t turn = 0; turn < given.repeat; ++turn) {
    task.turns.push_back(of);
    of.send += of.count * element;
    of.receive += of.count * element;
    for (size_t rank = 0; rank < of.sends.size(); ++rank) {
      of.send_offsets[rank] += of.sends[rank];
      of.receive_offsets[rank] += of.receives[rank];
    }
  }
  server_->prepare(std::move(task));
  for (uint8_t turn = 0; commits && turn < given.repeat; ++turn) commit_turn(where, handle);
  return handle;
}

const HcclClient::Prepared& HcclClient::prepared(const char* name, Where where, HcclHandle handle) const {
  require_open(name, where);
  if (handle < 0 || handle >= count_) {
    fail(where, "%s(%d): no Prepare function of this core has returned that handle; it has called %d", name, handle,
         count_);
  }
  return prepared_[handle];
}

void HcclClient::commit_turn(Where where, HcclHandle handle) const {
  finish_stores();
  Checker* const checker = block(where).checker;
  if (checker != nullptr) {
    const auto [collective, element] = server_->next(static_cast<size_t>(handle));
    if (collective != nullptr) {
      check(*checker, prepared_[handle].name, where, *collective, element, server_->communicator().size());
    }
  }
  if (server_->commit(static_cast<size_t>(handle), checker != nullptr ? checker->said(PIPE_S) : nullptr)) return;
  fail(where, "Commit(%d): %s was committed %u times, as often as its repeat says", handle, prepared_[handle].name,
       prepared_[handle].repeat);
}

void HcclClient::commit(Where where, HcclHandle handle) {
  prepared("Commit", where, handle);
  if (tells(where)) commit_turn(where, handle);
}

void HcclClient::wait(Where where, HcclHandle handle) {
  const Prepared& of = prepared("Wait", where, handle);
  if (of.waited == of.repeat) {
    fail(where, "Wait(%d): the core has waited for %s %u times, as often as its repeat says", handle, of.name,
         of.repeat);
  }
  const uint32_t turns = ++prepared_[handle].waited;
  if (is_tried_) return;
  RunningBlock& block = running_block(where);
  const Message said = server_->wait(static_cast<size_t>(handle), turns, block.core, where);
  if (block.checker != nullptr) block.checker->served(said);
}

int32_t HcclClient::query(Where where, HcclHandle handle) const {
  const Prepared& of = prepared("Query", where, handle);
  return is_tried_ ? of.repeat : static_cast<int32_t>(server_->finished(static_cast<size_t>(handle), where));
}

void HcclClient::finalize(Where where, bool sync) {
  require_open("Finalize", where);
  RunningBlock& block = running_block(where);
  if (tells(where)) {
    const std::string uncommitted = server_->uncommitted();
    if (!uncommitted.empty())
      fail(where, "Finalize: %s; the server waits for the rest indefinitely", uncommitted.c_str());
    if (sync) server_->wait_for_all(block.core, where);
    server_->finalize();
  }
  is_final_ = true;
  block.turns[&server_->communicator()].is_open = false;
}

uint32_t HcclClient::rank(Where where) const {
  if (server_ == nullptr) require_open("GetRankId", where);
  return server_->communicator().rank();
}
uint32_t HcclClient::size(Where where) const {
  if (server_ == nullptr) require_open("GetRankDim", where);
  return server_->communicator().size();
}

}  // namespace AscendC::cpu
