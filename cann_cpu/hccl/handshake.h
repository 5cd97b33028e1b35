// SPDX-License-Identifier: Apache-2.0
// Connects two ranks: over a Unix socket on one host, where the kernel names the other's user, and over TCP between
// hosts. Each proves that it has the secret of the communicator before its other messages are trusted.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hccl/hccl_types.h"

namespace cann_cpu {

using Clock = std::chrono::steady_clock;

// Closes the descriptor.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

using Hash = std::array<char, 40>;  // SHA-1 in hexadecimal digits
Hash hash_of(const std::string& text);
// Digits that cannot be guessed.
std::string random_digits();

// What ranks say before they are connected. Texts end with a zero; the structs have no padding.
using Nonce = std::array<uint32_t, 4>;

// A rank's description of itself for all others.
struct PeerInfo {
  std::array<char, 40> host;   // the same for processes that reach each other over Unix sockets
  std::array<char, 40> local;  // the name of its Unix socket; empty: none
  std::array<char, 16> ip;     // where it listens for other hosts; empty: nowhere
  uint32_t port;
  int32_t process;
  std::array<char, 64> host_name;

  bool is_valid() const;
};

// The side that accepts begins.
struct Challenge {
  uint32_t magic;
  uint32_t version;
  Nonce nonce;
};

struct Handshake {
  uint32_t magic;
  uint32_t version;
  uint32_t size;  // of the communicator, as given to the rank
  uint32_t rank;
  Hash group;  // of the ranks that connect, and for what
  Nonce nonce;
  PeerInfo info;
  Hash proof;

  bool is_valid() const;
};

struct Reply {
  int32_t code;  // HcclResult
  std::array<char, 36> token;
  std::array<char, 256> text;  // why not, unless the code is 0
  Hash proof;

  bool is_valid() const;
};

// A text as far as its zero, or the end of the array.
template <size_t size>
std::string text_of(const std::array<char, size>& text) {
  return {text.data(), strnlen(text.data(), size)};
}

template <size_t size>
void store(std::array<char, size>& to, const std::string& text) {
  to.fill('\0');
  text.copy(to.data(), size - 1);
}

// False: the other side has gone, or it is too late.
bool send_all(const Socket& socket, const void* data, size_t bytes, Clock::time_point deadline);
bool receive_all(const Socket& socket, void* data, size_t bytes, Clock::time_point deadline);

// The process at the other end of a Unix socket, as the kernel says; 0 where it is not seen from here. None of TCP.
std::optional<int> process_behind(const Socket& socket);

struct Arrival {
  Socket socket;
  Challenge challenge;
  Handshake handshake;
};

// Accepts connections of other ranks. A peer that does not prove to have the secret within a few seconds is
// disconnected. Several peers are handled at the same time.
class Listener {
 public:
  // By a name on this host, by an address and a port (0: any), or by both; what is empty is left out.
  Listener(const std::string& local, const std::string& ip, uint16_t port);
  // Before next().
  void set_secret(const std::string& secret) { secret_ = secret; }

  // Writes where it is reached.
  void describe(PeerInfo& info) const;
  // Takes the next rank that comes for a group; nothing: it is too late.
  std::optional<Arrival> next(const Hash& group, Clock::time_point deadline);
  void answer(const Arrival& arrival, Reply reply) const;

 private:
  struct Guest : Arrival {
    size_t have = 0;  // bytes of its handshake
    Clock::time_point deadline;
  };
  void accept_from(const Socket& listener);
  bool stays(Guest& guest) const;

  std::string secret_, local_, ip_;
  uint16_t port_ = 0;
  std::vector<Socket> listeners_;
  std::mutex mutex_;
  std::list<Guest> guests_;  // those whose handshake is whole have proved the secret
};

// Knocks until it is let in; none: it is too late. A listener that is `awaited` need not be there yet. Throws
// CollectiveFailure when it is none of this job, or answers why not.
Socket knock(const PeerInfo& at, Handshake handshake, const std::string& secret, bool awaited,
             Clock::time_point deadline, Reply& reply);

}  // namespace cann_cpu
