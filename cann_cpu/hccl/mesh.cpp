// SPDX-License-Identifier: Apache-2.0
#include "mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "failure.h"

namespace cann_cpu {
namespace {

constexpr uint32_t kMessageMagic = 0x4c43434d;
constexpr size_t kTextBytes = 1 << 24;  // that a kBegin or kBroken may have
constexpr size_t kAhead = 1 << 20;      // bytes of memory for what is said to come, beyond what has

}  // namespace

struct Mesh::Sending {
  std::vector<const Outgoing*> queue;
  size_t next = 0;
  Header header{};
  size_t sent = 0;  // of the header and the payload
  bool is_over() const { return next == queue.size(); }
};

struct Mesh::Receiving {
  std::vector<Incoming*> queue;
  size_t next = 0;
  Header header{};
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  std::string text;  // the payload, unless it goes straight to where it belongs
  bool is_over() const { return next == queue.size(); }
};

Mesh::Mesh(uint32_t rank, std::vector<Peer> peers) : rank_(rank), links_(peers.size()) {
  for (size_t i = 0; i < peers.size(); ++i) links_[i].peer = std::move(peers[i]);
  wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) throw CollectiveFailure(HCCL_E_SYSCALL, std::string("eventfd: ") + std::strerror(errno));
}

void Mesh::throw_gone(uint32_t rank) const {
  throw CollectiveFailure(HCCL_E_REMOTE, "rank " + std::to_string(rank) + " (" + place(rank) +
                                             ") has closed its connection: its process has ended");
}

void Mesh::throw_closed(uint32_t rank) {
  Incoming none{rank, MessageType::kDone};
  Receiving receiving;
  receiving.queue = {&none};
  while (advance(rank, receiving, 0)) receiving.next = 0;
  throw_gone(rank);
}

bool Mesh::goes_by_address(uint32_t peer, size_t bytes) const {
  return bytes > kSentBytes && links_[peer].peer.is_direct;
}

void Mesh::read(uint32_t peer, uint64_t address, void* into, size_t bytes) const {
  char* to = static_cast<char*>(into);
  while (bytes > 0) {
    iovec local{to, bytes};
    iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t count = process_vm_readv(links_[peer].peer.process, &local, 1, &remote, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == ESRCH) throw_gone(peer);
    if (count <= 0) {
      throw CollectiveFailure(HCCL_E_SYSCALL, "cannot read the memory of rank " + std::to_string(peer) + " (" +
                                                  place(peer) + "): " + std::strerror(errno));
    }
    to += count;
    address += static_cast<uint64_t>(count);
    bytes -= static_cast<size_t>(count);
  }
}

// True: the queue is sent.
bool Mesh::advance(Link& link, Sending& sending) {
  while (!sending.is_over()) {
    const Outgoing& message = *sending.queue[sending.next];
    if (sending.sent == 0) {
      const bool by_address = message.type == MessageType::kData && goes_by_address(message.peer, message.bytes);
      sending.header = {kMessageMagic, message.type, message.bytes,
                        by_address ? reinterpret_cast<uint64_t>(message.data) : 0};
    }
    const size_t payload = sending.header.address == 0 ? message.bytes : 0;
    const size_t total = sizeof(Header) + payload;
    const size_t header_left = sizeof(Header) - std::min(sending.sent, sizeof(Header));
    const size_t payload_sent = sending.sent - (sizeof(Header) - header_left);
    iovec parts[2] = {
        {reinterpret_cast<char*>(&sending.header) + sizeof(Header) - header_left, header_left},
        {const_cast<char*>(static_cast<const char*>(message.data)) + payload_sent, payload - payload_sent}};
    msghdr all{};
    all.msg_iov = parts;
    all.msg_iovlen = payload == 0 ? 1 : 2;
    const ssize_t count = sendmsg(link.peer.socket.get(), &all, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      // The peer's last messages before it closed are still to be read. They say more.
      link.is_closed = true;
      sending.next = sending.queue.size();
      return true;
    }
    sending.sent += static_cast<size_t>(count);
    link.is_inside = sending.sent < total;
    if (link.is_inside) continue;
    sending.sent = 0;
    ++sending.next;
  }
  return true;
}

bool Mesh::receive(uint32_t rank, void* into, size_t bytes, size_t& have) {
  while (have < bytes) {
    const ssize_t count =
        recv(links_[rank].peer.socket.get(), static_cast<char*>(into) + have, bytes - have, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count < 0 && (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH)) {
      throw CollectiveFailure(HCCL_E_REMOTE, "rank " + std::to_string(rank) + " (" + place(rank) +
                                                 ") is no longer reached: its host or the network has gone");
    }
    if (count <= 0) throw_gone(rank);
    have += static_cast<size_t>(count);
  }
  return true;
}

void Mesh::require_message(uint32_t rank, const Header& header) const {
  const bool by_address = header.type == MessageType::kData && goes_by_address(rank, header.bytes);
  bool is_one = header.magic == kMessageMagic && (header.address != 0) == by_address;
  switch (header.type) {
    case MessageType::kData:
      break;
    case MessageType::kDone:
      is_one = is_one && header.bytes == 0;
      break;
    case MessageType::kBroken:
      is_one = is_one && header.bytes >= sizeof(uint64_t);
      [[fallthrough]];
    case MessageType::kBegin:
      is_one = is_one && header.bytes <= kTextBytes;
      break;
    default:
      is_one = false;
  }
  if (!is_one) {
    throw CollectiveFailure(HCCL_E_TCP_TRANSFER, "rank " + std::to_string(rank) + " sent an invalid message");
  }
}

void Mesh::require_size(uint32_t rank, const Header& header, const Incoming& expected) {
  if (expected.type != MessageType::kData || header.bytes == expected.bytes) return;
  throw CollectiveFailure(HCCL_E_INTERNAL, "rank " + std::to_string(rank) + " sent " + std::to_string(header.bytes) +
                                               " bytes in place of " + std::to_string(expected.bytes));
}

void Mesh::deliver(uint32_t rank, Receiving& receiving) {
  Incoming& expected = *receiving.queue[receiving.next];
  const Header& header = receiving.header;
  if (header.type != expected.type) {
    throw CollectiveFailure(HCCL_E_INTERNAL, "rank " + std::to_string(rank) + " sent message " +
                                                 std::to_string(static_cast<uint32_t>(header.type)) + " in place of " +
                                                 std::to_string(static_cast<uint32_t>(expected.type)));
  }
  require_size(rank, header, expected);
  expected.address = header.address;
  if (header.type == MessageType::kBegin) expected.begun(receiving.text);
  ++receiving.next;
  receiving.header_bytes = receiving.payload_bytes = 0;
  receiving.text.clear();
}

// Answers what is expected next with what came before; true when it could.
bool Mesh::take_stashed(uint32_t rank, Receiving& receiving) {
  Link& link = links_[rank];
  Incoming& expected = *receiving.queue[receiving.next];
  if (expected.type == MessageType::kDone) {
    if (link.done == 0) return false;
    --link.done;
    ++receiving.next;
    return true;
  }
  if (link.stash.empty()) return false;
  Stashed stashed = std::move(link.stash.front());
  link.stash.pop_front();
  receiving.header = stashed.header;
  receiving.text = std::move(stashed.payload);
  if (expected.type == MessageType::kData && stashed.header.bytes == expected.bytes && stashed.header.address == 0) {
    std::memcpy(expected.into, receiving.text.data(), receiving.text.size());
  }
  deliver(rank, receiving);
  return true;
}

// True: the queue has come.
bool Mesh::advance(uint32_t rank, Receiving& receiving, const size_t& unopened) {
  Link& link = links_[rank];
  while (!receiving.is_over()) {
    if (unopened > 0 && receiving.queue[receiving.next]->type != MessageType::kBegin) return false;
    if (receiving.header_bytes == 0 && take_stashed(rank, receiving)) continue;
    Header& header = receiving.header;
    if (!receive(rank, &header, sizeof(Header), receiving.header_bytes)) return false;
    require_message(rank, header);
    Incoming& expected = *receiving.queue[receiving.next];
    const bool is_expected = header.type == expected.type;
    if (is_expected) require_size(rank, header, expected);
    size_t& have = receiving.payload_bytes;
    while (header.address == 0 && have < header.bytes) {
      char* into = static_cast<char*>(expected.into);
      size_t until = header.bytes;
      if (header.type != MessageType::kData || !is_expected) {
        until = std::min(until, have + kAhead);
        receiving.text.resize(until);
        into = receiving.text.data();
      }
      if (!receive(rank, into, until, have)) return false;
    }
    if (header.type == MessageType::kBroken) {
      throw RemoteFailure(HCCL_E_REMOTE, receiving.text.substr(sizeof(uint64_t)));
    }
    if (is_expected) {
      deliver(rank, receiving);
      continue;
    }
    if (header.type == MessageType::kDone) {
      ++link.done;
    } else if (expected.type == MessageType::kDone) {
      link.stash.push_back({header, std::move(receiving.text)});
    } else {
      deliver(rank, receiving);  // which says what is wrong with it
    }
    receiving.header_bytes = receiving.payload_bytes = 0;
    receiving.text.clear();
  }
  return true;
}

void Mesh::exchange(std::vector<Outgoing> out, std::vector<Incoming>& in, const Deadline& deadline) {
  const std::optional<Opening> opening = std::exchange(opening_, std::nullopt);
  const std::vector<Outgoing> left_out = std::exchange(left_out_, {});
  std::vector<Incoming> first = std::exchange(left_in_, {});
  std::vector<Outgoing> all_out;
  size_t unopened = opening ? 1 : 0;  // ranks that did not begin the call so far, and 1 until they have agreed
  for (uint32_t peer = 0; opening && peer < size(); ++peer) {
    if (peer == rank_) continue;
    ++unopened;
    all_out.push_back({peer, MessageType::kBegin, opening->call.data(), opening->call.size()});
    first.push_back({peer, MessageType::kBegin});
    first.back().begun = [&opening, &unopened, peer](const std::string& call) {
      opening->came(peer, call);
      --unopened;
    };
  }
  all_out.insert(all_out.end(), left_out.begin(), left_out.end());
  all_out.insert(all_out.end(), out.begin(), out.end());

  std::vector<Sending> sendings(links_.size());
  std::vector<Receiving> receivings(links_.size());
  for (const Outgoing& message : all_out) sendings[message.peer].queue.push_back(&message);
  for (Incoming& message : first) receivings[message.peer].queue.push_back(&message);
  for (Incoming& message : in) receivings[message.peer].queue.push_back(&message);
  std::vector<pollfd> waits;
  std::vector<uint32_t> missing;
  while (true) {
    waits.assign(1, {wake_.get(), POLLIN, 0});
    missing.clear();
    for (uint32_t rank = 0; rank < links_.size(); ++rank) {
      Link& link = links_[rank];
      if (sendings[rank].queue.empty() && receivings[rank].queue.empty()) continue;
      if (interrupted_) throw CollectiveFailure(HCCL_E_UNAVAIL, interruption_);
      const bool sent = advance(link, sendings[rank]);
      const bool came = advance(rank, receivings[rank], unopened);
      // Only after all have begun: a rank that has left may have found a disagreement, and this one must also find it.
      if (came && link.is_closed && unopened == 0) throw_closed(rank);
      // A rank that has begun is not waited for while others have not.
      const bool is_ahead = unopened > 0 && receivings[rank].next > 0;
      const int events = (sent ? 0 : POLLOUT) | (came || is_ahead ? 0 : POLLIN);
      if (events == 0) continue;
      waits.push_back({link.peer.socket.get(), static_cast<short>(events), 0});
      missing.push_back(rank);
    }
    if (unopened == 1) {
      opening->agreed();
      unopened = 0;
      continue;
    }
    if (missing.empty()) return;
    int milliseconds = -1;
    if (deadline) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now()).count();
      if (left <= 0) throw PeerTimeout{missing};
      milliseconds = static_cast<int>(std::min<int64_t>(left, 1 << 30));
    }
    if (poll(waits.data(), waits.size(), milliseconds) < 0 && errno != EINTR) {
      throw CollectiveFailure(HCCL_E_SYSCALL, std::string("poll: ") + std::strerror(errno));
    }
  }
}

void Mesh::finish(const Deadline& deadline) {
  std::vector<Incoming> nothing;
  if (opening_ || !left_out_.empty() || !left_in_.empty()) exchange({}, nothing, deadline);
}

namespace {

std::vector<Outgoing> data_of(const std::vector<Piece>& sends) {
  std::vector<Outgoing> out;
  for (const Piece& piece : sends) {
    if (piece.bytes > 0) out.push_back({piece.peer, MessageType::kData, piece.data, piece.bytes});
  }
  return out;
}

}  // namespace

void Mesh::leave_done(const std::vector<Piece>& sends, const std::vector<Incoming>& came) {
  for (const Incoming& message : came) {
    if (message.address != 0) left_out_.push_back({message.peer, MessageType::kDone});
  }
  for (const Piece& piece : sends) {
    if (goes_by_address(piece.peer, piece.bytes)) left_in_.push_back({piece.peer, MessageType::kDone});
  }
}

void Mesh::move(const std::vector<Piece>& sends, const std::vector<Piece>& receives, const Deadline& deadline) {
  std::vector<Incoming> in;
  for (const Piece& piece : receives) {
    if (piece.bytes > 0) in.push_back({piece.peer, MessageType::kData, piece.data, piece.bytes});
  }
  exchange(data_of(sends), in, deadline);
  for (const Incoming& message : in) {
    if (message.address != 0) read(message.peer, message.address, message.into, message.bytes);
  }
  leave_done(sends, in);
}

void Mesh::fold(const std::vector<Piece>& sends, const FoldResult& fold, const Deadline& deadline) {
  const size_t bytes = fold.count * fold.element_size;
  std::vector<std::vector<char>> sent(size());
  std::vector<Incoming> in;
  for (uint32_t peer = 0; peer < size() && bytes > 0; ++peer) {
    if (peer == rank_) continue;
    if (!goes_by_address(peer, bytes)) sent[peer].resize(bytes);
    in.push_back({peer, MessageType::kData, sent[peer].data(), bytes});
  }
  exchange(data_of(sends), in, deadline);
  std::vector<uint64_t> addresses(size(), 0);
  for (const Incoming& message : in) addresses[message.peer] = message.address;

  std::vector<char> block(Reduction::kBlock * fold.element_size);
  for (size_t first = 0; first < fold.count; first += Reduction::kBlock) {
    const size_t count = std::min(Reduction::kBlock, fold.count - first);
    const size_t offset = first * fold.element_size;
    for (uint32_t rank = 0; rank < size(); ++rank) {
      const void* elements = block.data();
      if (rank == rank_) {
        elements = static_cast<const char*>(fold.own) + offset;
      } else if (addresses[rank] != 0) {
        read(rank, addresses[rank] + offset, block.data(), count * fold.element_size);
      } else {
        elements = sent[rank].data() + offset;
      }
      if (rank == 0) {
        fold.reduction.begin(elements, count);
      } else {
        fold.reduction.add(elements, count);
      }
    }
    fold.reduction.end(static_cast<char*>(fold.result) + offset, count);
  }
  leave_done(sends, in);
}

void Mesh::throw_if_remote_failed(uint64_t call) {
  struct Beginning {
    Header header;
    uint64_t call;
  } beginning{};
  for (uint32_t rank = 0; rank < links_.size(); ++rank) {
    const Link& link = links_[rank];
    if (!link.peer.socket) continue;
    const ssize_t count = recv(link.peer.socket.get(), &beginning, sizeof(beginning), MSG_DONTWAIT | MSG_PEEK);
    if (count != sizeof(beginning) || beginning.header.type != MessageType::kBroken || beginning.call > call) continue;
    Incoming none{rank, MessageType::kDone};
    Receiving receiving;
    receiving.queue = {&none};
    advance(rank, receiving, 0);
  }
}

void Mesh::broadcast_abort(uint64_t call, const std::string& reason) {
  for (Link& link : links_) {
    if (!link.peer.socket || link.is_closed) continue;
    link.is_closed = true;
    if (!link.is_inside) {
      const Header header{kMessageMagic, MessageType::kBroken, sizeof(call) + reason.size(), 0};
      std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
      message.append(reinterpret_cast<const char*>(&call), sizeof(call)).append(reason);
      // Best effort: a full socket has a peer that does not read, and which sees the end of the connection instead.
      (void)!send(link.peer.socket.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    shutdown(link.peer.socket.get(), SHUT_WR);
  }
}

void Mesh::interrupt(const std::string& reason) {
  if (interrupted_) return;
  interruption_ = reason;
  interrupted_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

}  // namespace cann_cpu
