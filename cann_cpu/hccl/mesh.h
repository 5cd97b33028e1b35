// SPDX-License-Identifier: Apache-2.0
// The connections of one rank with all others: messages over sockets, and, of ranks of the same machine, reads of each
// other's memory.
//
// A message has a type and a payload. A large payload for a rank of the same machine stays where it is: the message
// says its address, the receiver reads it there, and says kDone, upon which the sender may change it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "handshake.h"
#include "reduction.h"

namespace cann_cpu {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;

enum class MessageType : uint32_t { kBegin = 1, kData, kDone, kBroken };

struct Outgoing {
  uint32_t peer;
  MessageType type;
  const void* data = nullptr;
  size_t bytes = 0;
};

struct Incoming {
  uint32_t peer;
  MessageType type;
  void* into = nullptr;  // of kData
  size_t bytes = 0;      // of kData
  // For kBegin: gets the payload as it arrives, and throws if it is not the expected one.
  std::function<void(const std::string&)> begun{};
  uint64_t address = 0;  // set: the payload of kData lies there, in the memory of the peer
};

// Data to or from a rank.
struct Piece {
  uint32_t peer;
  char* data;
  size_t bytes;
};

// A connected socket, and what is known of the process at its other end.
struct Peer {
  Socket socket;
  int process = 0;                   // that the kernel names; 0: none
  std::shared_ptr<void> permission;  // of that process to read this one's memory
  bool is_direct = false;            // both processes can read each other's memory
  std::string place;                 // for messages: "process 12 on host"
};

// The beginning of a call in which all ranks take part. Each rank describes the call to all others, and no data of the
// call is received before all have done so and agreed() did not throw.
struct Opening {
  std::string call;
  std::function<void(uint32_t peer, const std::string& call)> came;
  std::function<void()> agreed;
};

// Thrown when a deadline has come: the ranks that were waited for.
struct PeerTimeout {
  std::vector<uint32_t> peers;
};

class Mesh {
 public:
  // The own rank's entry has no socket.
  Mesh(uint32_t rank, std::vector<Peer> peers);
  Mesh(const Mesh&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return static_cast<uint32_t>(links_.size()); }
  const std::string& place(uint32_t rank) const { return links_[rank].peer.place; }

  // Has the next exchange begin with this.
  void open(Opening opening) { opening_ = std::move(opening); }
  // Exchanges what move() and fold() leave for the next exchange to save a separate turn: the confirmation that pieces
  // have been read. Until then their senders do not change them.
  void finish(const Deadline& deadline);

  // Sends and receives all at once, in order per peer. Throws CollectiveFailure for a peer that ended or reported an
  // error, and PeerTimeout.
  void exchange(std::vector<Outgoing> out, std::vector<Incoming>& in, const Deadline& deadline);
  // Sends pieces and receives pieces. Empty pieces are omitted on both sides.
  void move(const std::vector<Piece>& sends, const std::vector<Piece>& receives, const Deadline& deadline);
  // Sends pieces, and folds the pieces that come with the own one into the result.
  struct FoldResult {
    const void* own;
    void* result;
    size_t count;
    size_t element_size;
    Reduction& reduction;
  };
  void fold(const std::vector<Piece>& sends, const FoldResult& fold, const Deadline& deadline);
  // The payload of an Incoming that came by address.
  void read(uint32_t peer, uint64_t address, void* into, size_t bytes) const;
  bool goes_by_address(uint32_t peer, size_t bytes) const;

  // Throws the error that a peer has already reported in this call or an earlier one.
  void throw_if_remote_failed(uint64_t call);
  // Reports to all peers why this rank takes no part in this call and later ones, as far as that needs no waiting.
  void broadcast_abort(uint64_t call, const std::string& reason);
  // Ends an exchange that another thread is in, and all later ones, with this reason.
  void interrupt(const std::string& reason);

  // A payload up to this size is sent, never read from the sender's memory.
  static constexpr size_t kSentBytes = 65536;

 private:
  struct Header {
    uint32_t magic;
    MessageType type;
    uint64_t bytes;
    uint64_t address;
  };
  struct Stashed {
    Header header;
    std::string payload;
  };
  struct Link {
    Peer peer;
    std::deque<Stashed> stash;  // came before they were asked for
    size_t done = 0;            // kDone messages that came before they were asked for
    bool is_inside = false;     // a message is sent in part
    bool is_closed = false;     // nothing more is sent
  };
  struct Sending;
  struct Receiving;

  bool advance(Link& link, Sending& sending);
  bool advance(uint32_t rank, Receiving& receiving, const size_t& unopened);
  void leave_done(const std::vector<Piece>& sends, const std::vector<Incoming>& came);
  bool take_stashed(uint32_t rank, Receiving& receiving);
  void deliver(uint32_t rank, Receiving& receiving);
  // Throws unless it is a message of this peer, as far as its header shows.
  void require_message(uint32_t rank, const Header& header) const;
  static void require_size(uint32_t rank, const Header& header, const Incoming& expected);
  // True: all of it is there; false: nothing more is to be read now.
  bool receive(uint32_t rank, void* into, size_t bytes, size_t& have);
  [[noreturn]] void throw_gone(uint32_t rank) const;
  // Throws why a rank has closed its connection, if it has said so before.
  [[noreturn]] void throw_closed(uint32_t rank);

  const uint32_t rank_;
  std::vector<Link> links_;
  std::optional<Opening> opening_;
  std::vector<Outgoing> left_out_;
  std::vector<Incoming> left_in_;
  Socket wake_;
  std::atomic<bool> interrupted_{false};
  std::string interruption_;  // set once, before interrupted_
};

}  // namespace cann_cpu
