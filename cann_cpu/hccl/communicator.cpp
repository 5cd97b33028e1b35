// SPDX-License-Identifier: Apache-2.0
#include "communicator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "acl/acl_rt.h"
#include "cann_cpu/runtime.h"
#include "cann_cpu/waiting.h"

namespace cann_cpu {
namespace {

// How long destroy() waits for calls that streams have not run yet.
constexpr auto kDestroyPatience = std::chrono::seconds(10);

bool is_captured(aclrtStream stream) {
  if (stream == nullptr) return false;  // the default stream takes no part in a capture
  aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  aclmdlRI graph = nullptr;
  if (aclmdlRICaptureGetInfo(stream, &status, &graph) != ACL_SUCCESS) {
    const char* reason = aclGetRecentErrMsg();
    throw CollectiveFailure(HCCL_E_PARA, reason == nullptr ? "the stream cannot be used" : reason);
  }
  return status != ACL_MODEL_RI_CAPTURE_STATUS_NONE;
}

// Belongs to no call, so that every call believes it.
constexpr uint64_t kAnyCall = ~uint64_t{0};

}  // namespace

// The place of an enqueued call among the calls of its communicator, until it has run or is dropped unrun.
class Communicator::Ticket {
 public:
  explicit Ticket(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {
    std::lock_guard lock(communicator_->state_mutex_);
    number_ = communicator_->tickets_++;
    communicator_->open_tickets_.insert(number_);
  }
  ~Ticket() { end(); }
  Ticket(const Ticket&) = delete;

  void wait() {
    std::unique_lock lock(communicator_->state_mutex_);
    communicator_->ticket_ended_.wait(lock, [&] { return *communicator_->open_tickets_.begin() == number_; });
  }
  void end() {
    if (!std::exchange(is_open_, false)) return;
    std::lock_guard lock(communicator_->state_mutex_);
    communicator_->open_tickets_.erase(number_);
    communicator_->ticket_ended_.notify_all();
  }
  bool is_open() const { return is_open_; }

 private:
  const std::shared_ptr<Communicator> communicator_;
  uint64_t number_ = 0;
  bool is_open_ = true;
};

Communicator::Communicator(Rendezvous rendezvous, const std::string& group, uint32_t rank,
                           const CommunicatorOptions& options)
    : rendezvous_(std::move(rendezvous)),
      group_(group),
      rank_(rank),
      size_(static_cast<uint32_t>(rendezvous_.peers.size())),
      timeout_(options.timeout),
      name_(options.name.empty() ? rendezvous_.name + (group.empty() ? "" : "_" + group) : options.name),
      sent_(size_, 0),
      received_(size_, 0) {
  mesh_ = connect_all(rendezvous_, group_, rank, connect_timeout());
}

Communicator::~Communicator() = default;

std::optional<Communicator::Broken> Communicator::broken() const {
  std::lock_guard lock(state_mutex_);
  return broken_;
}

std::shared_ptr<Communicator> Communicator::make_part(const std::vector<uint32_t>& ranks, uint64_t id, uint32_t rank,
                                                      const CommunicatorOptions& options) {
  uint64_t number = 0;
  {
    std::lock_guard lock(state_mutex_);
    number = parts_[{id, ranks}]++;
  }
  std::string group = group_ + "part_" + std::to_string(id) + "_" + std::to_string(number);
  for (const uint32_t member : ranks) add(group, "_", std::to_string(member));
  return std::make_shared<Communicator>(rendezvous_.part_of(ranks), group, rank, options);
}

void Communicator::destroy() {
  {
    std::unique_lock lock(state_mutex_);
    if (!broken_) ticket_ended_.wait_for(lock, kDestroyPatience, [&] { return open_tickets_.empty() || broken_; });
    if (!broken_) broken_ = {HCCL_E_UNAVAIL, "the communicator was destroyed on this rank"};
    if (mesh_) mesh_->interrupt(broken_->reason);
  }
  std::lock_guard lock(run_mutex_);
  if (!mesh_) return;
  mesh_->broadcast_abort(kAnyCall,
                         std::string("rank ") + std::to_string(rank_) + " has destroyed communicator " + name_);
  std::lock_guard state_lock(state_mutex_);
  mesh_.reset();
}

void Communicator::suspend() {
  std::lock_guard lock(state_mutex_);
  if (!broken_) broken_ = {HCCL_E_SUSPENDING, "it is suspended, until all ranks call HcclCommResume"};
  if (mesh_) mesh_->interrupt(broken_->reason);
}

void Communicator::resume() {
  {
    std::lock_guard lock(state_mutex_);
    if (mesh_) mesh_->interrupt("the communicator is resumed");
  }
  std::lock_guard lock(run_mutex_);
  if (!mesh_) throw CollectiveFailure(HCCL_E_UNAVAIL, "the communicator is destroyed");
  mesh_->broadcast_abort(kAnyCall, std::string("rank ") + std::to_string(rank_) + " resumes communicator " + name_);
  const std::string group = group_ + "_resumed_" + std::to_string(++resumed_);
  try {
    std::unique_ptr<Mesh> mesh = connect_all(rendezvous_, group, rank_, connect_timeout());
    std::lock_guard state_lock(state_mutex_);
    mesh_ = std::move(mesh);
    broken_.reset();
  } catch (const CollectiveFailure& failure) {
    std::lock_guard state_lock(state_mutex_);
    if (!broken_) broken_ = Broken{failure.code, std::string("it could not be resumed: ") + failure.what()};
    throw;
  }
  calls_ = current_ = 0;
  std::fill(sent_.begin(), sent_.end(), 0);
  std::fill(received_.begin(), received_.end(), 0);
}

void Communicator::give_up(const std::string& reason) {
  {
    std::lock_guard lock(state_mutex_);
    if (broken_) return;
    broken_ = {HCCL_E_INTERNAL, reason};
    if (mesh_) mesh_->interrupt(reason);
    ticket_ended_.notify_all();
  }
  std::lock_guard lock(run_mutex_);
  if (mesh_) mesh_->broadcast_abort(kAnyCall, std::string("rank ") + std::to_string(rank_) + ": " + reason);
}

// Null where the stream's own order is that of the calls.
std::shared_ptr<Communicator::Ticket> Communicator::take_ticket(aclrtStream stream) {
  return is_running(stream) || is_captured(stream) ? nullptr : std::make_shared<Ticket>(shared_from_this());
}

aclError Communicator::enqueue_ordered(aclrtStream stream, const std::function<aclError()>& enqueue) {
  const std::shared_ptr<Ticket> ticket = take_ticket(stream);
  if (!ticket) return enqueue();
  const auto wait = [ticket] {
    const BlockingRegion blocking;
    ticket->wait();
    return ACL_SUCCESS;
  };
  const auto end = [ticket] {
    ticket->end();
    return ACL_SUCCESS;
  };
  if (const aclError code = launch(stream, "WaitForTicket", wait)) return code;
  if (const aclError code = enqueue()) return code;
  return launch(stream, "ReleaseTicket", end);
}

aclError Communicator::launch_run(aclrtStream stream, const char* name, const Accesses& accesses, Run run) {
  const auto task = [self = shared_from_this(), name, run = std::move(run), ticket = take_ticket(stream)] {
    const BlockingRegion blocking;
    const bool has_ticket = ticket && ticket->is_open();
    if (has_ticket) ticket->wait();
    const aclError code = self->perform(name, run);
    if (has_ticket) ticket->end();
    return code;
  };
  return launch(stream, name, task, accesses);
}

aclError Communicator::perform(const char* name, const Run& run) {
  std::lock_guard lock(run_mutex_);
  const std::string where = " of communicator " + name_ + " on rank " + std::to_string(rank_);
  if (const auto before = broken()) {
    return error(ACL_ERROR_INTERNAL_ERROR, "%s%s did not run, because the communicator failed before: %s", name,
                 where.c_str(), before->reason.c_str());
  }
  Deadline deadline;
  if (timeout_.count() > 0) deadline = std::chrono::steady_clock::now() + timeout_;
  std::string what = name;
  Broken found{HCCL_E_INTERNAL, ""};
  bool is_remote = false;
  try {
    run(deadline, what);
    return ACL_SUCCESS;
  } catch (const RemoteFailure& failure) {
    found = {failure.code, failure.what()};
    is_remote = true;
  } catch (const CollectiveFailure& failure) {
    found = {failure.code, failure.what()};
  } catch (const PeerTimeout& timeout) {
    std::string text;
    for (const uint32_t peer : timeout.peers) {
      add(text, ", ", std::string("rank ") + std::to_string(peer) + " (" + mesh_->place(peer) + ")");
    }
    found = {HCCL_E_TIMEOUT, text + " did not come within " + std::to_string(timeout_.count()) + " s"};
  } catch (const std::exception& exception) {
    found = {HCCL_E_INTERNAL, exception.what()};
  }
  // A disagreement has the same text on all ranks. For other errors the text also names the rank and the call.
  std::string message = found.reason;
  if (!is_remote) message = std::string("rank ") + std::to_string(rank_) + " in " + what + ": " + found.reason;
  mesh_->broadcast_abort(current_, message);
  const std::string reason = what + where + ": " + found.reason;
  {
    std::lock_guard state_lock(state_mutex_);
    if (!broken_) broken_ = Broken{found.code, reason};
    ticket_ended_.notify_all();
  }
  return error(ACL_ERROR_INTERNAL_ERROR, "%s", reason.c_str());
}

// A collective: the ranks agree in the call before its data moves.
Communicator::Run Communicator::agreed(Call call, Body body) {
  return [this, call = std::move(call), body = std::move(body)](const Deadline& deadline, std::string& what) {
    const uint64_t sequence = current_ = ++calls_;
    what += " (call " + std::to_string(sequence) + ")";
    const std::string own = write(call, sequence);
    std::vector<CallDescriptor> calls(size_);
    calls[rank_] = read(own, size_);
    mesh_->open({own, [&calls, this](uint32_t peer, const std::string& text) { calls[peer] = read(text, size_); },
                 [&calls] { require_agreement(calls); }});
    body(*mesh_, deadline);
    mesh_->finish(deadline);
    mesh_->throw_if_remote_failed(sequence);  // what nothing of this rank depended on
  };
}

aclError Communicator::enqueue(aclrtStream stream, Call call, const Accesses& accesses, Body body) {
  const char* name = name_of(call.kind);
  return launch_run(stream, name, accesses, agreed(std::move(call), std::move(body)));
}

aclError Communicator::run(Call call, Body body) {
  const char* name = name_of(call.kind);
  return perform(name, agreed(std::move(call), std::move(body)));
}

namespace {

Call call_of(const PointToPoint& item) { return {CallKind::kSend, item.type, {}, {}, item.count, {}, {}}; }

// What a rank sends to itself, in order.
void copy_own(const std::vector<PointToPoint>& sends, const std::vector<PointToPoint>& receives) {
  for (size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    if (i >= sends.size() || i >= receives.size() || sends[i].count != receives[i].count ||
        sends[i].type != receives[i].type) {
      throw CollectiveFailure(HCCL_E_PARA, "what the rank sends to itself is not what it expects from itself");
    }
    std::memmove(receives[i].data, sends[i].data, sends[i].count * size_of(sends[i].type));
  }
}

}  // namespace

void Communicator::run_items(const std::vector<PointToPoint>& items, std::string& what, const Deadline& deadline) {
  current_ = calls_ + 1;
  std::vector<PointToPoint> own_sends;
  std::vector<PointToPoint> own_receives;
  std::vector<std::string> begins;
  begins.reserve(items.size());
  std::vector<Outgoing> out;
  std::vector<Outgoing> done;
  std::vector<Incoming> in;
  std::vector<Incoming> dones;
  std::string details;
  for (const PointToPoint& item : items) {
    const bool is_send = item.direction == HCCL_SEND;
    if (item.peer == rank_) {
      (is_send ? own_sends : own_receives).push_back(item);
      continue;
    }
    const uint64_t sequence = is_send ? ++sent_[item.peer] : ++received_[item.peer];
    add(details, ", ",
        std::string("message ") + std::to_string(sequence) + (is_send ? " to rank " : " from rank ") +
            std::to_string(item.peer));
    const size_t bytes = item.count * size_of(item.type);
    if (is_send) {
      begins.push_back(write(call_of(item), sequence));
      out.push_back({item.peer, MessageType::kBegin, begins.back().data(), begins.back().size()});
      if (bytes > 0) out.push_back({item.peer, MessageType::kData, item.data, bytes});
      dones.push_back({item.peer, MessageType::kDone});
    } else {
      in.push_back({item.peer, MessageType::kBegin});
      in.back().begun = [&item, sequence, this](const std::string& text) {
        require_expected(read(text, size_), call_of(item), item.peer, sequence, rank_);
      };
      if (bytes > 0) in.push_back({item.peer, MessageType::kData, item.data, bytes});
      done.push_back({item.peer, MessageType::kDone});
    }
  }
  if (!details.empty()) what += " (" + details + ")";
  copy_own(own_sends, own_receives);
  mesh_->exchange(out, in, deadline);
  for (const Incoming& message : in) {
    if (message.address != 0) mesh_->read(message.peer, message.address, message.into, message.bytes);
  }
  mesh_->exchange(done, dones, deadline);
}

aclError Communicator::exchange(const char* name, const std::vector<uint32_t>& peers, std::string mine,
                                std::map<uint32_t, std::string>& theirs) {
  std::vector<PointToPoint> items;
  for (const uint32_t peer : peers) {
    std::string& received = theirs.try_emplace(peer, mine.size(), '\0').first->second;
    items.push_back({HCCL_SEND, mine.data(), mine.size(), HCCL_DATA_TYPE_UINT8, peer});
    items.push_back({HCCL_RECV, received.data(), received.size(), HCCL_DATA_TYPE_UINT8, peer});
  }
  return perform(name, [&](const Deadline& deadline, std::string& what) { run_items(items, what, deadline); });
}

aclError Communicator::enqueue(aclrtStream stream, std::vector<PointToPoint> items) {
  const char* name = items.size() > 1 ? "BatchSendRecv" : items[0].direction == HCCL_SEND ? "Send" : "Recv";
  Accesses accesses;
  if (accesses_are_checked()) {
    for (const PointToPoint& item : items) {
      const auto begin = reinterpret_cast<uintptr_t>(item.data);
      accesses.push_back({begin, begin + item.count * size_of(item.type), item.direction == HCCL_RECV, 1});
    }
  }
  return launch_run(stream, name, accesses,
                    [this, items = std::move(items)](const Deadline& deadline, std::string& what) {
                      run_items(items, what, deadline);
                    });
}

}  // namespace cann_cpu
