// SPDX-License-Identifier: Apache-2.0
#include "handshake.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <type_traits>

#include <c10/util/hash.h>

#include "failure.h"

namespace cann_cpu {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kHandshakeMagic = 0x4c434348;
constexpr uint32_t kVersion = 1;
constexpr auto kPatience = 10s;      // with a guest
constexpr auto kPause = 20ms;        // between two looks
constexpr size_t kMaxGuests = 4096;  // at once

static_assert(std::has_unique_object_representations_v<Challenge> &&
              std::has_unique_object_representations_v<Handshake> && std::has_unique_object_representations_v<Reply>);

template <class T>
std::string bytes_of(const T& value, size_t bytes = sizeof(T)) {
  return {reinterpret_cast<const char*>(&value), bytes};
}

// HMAC (RFC 2104).
Hash proof_of(const std::string& secret, const std::string& said) {
  const Hash key = hash_of("key " + secret);
  std::string inner(64, '\x36'), outer(64, '\x5c');
  for (size_t i = 0; i < key.size(); ++i) {
    inner[i] = static_cast<char>(inner[i] ^ key[i]);
    outer[i] = static_cast<char>(outer[i] ^ key[i]);
  }
  const Hash hash = hash_of(inner + said);
  return hash_of(outer + std::string(hash.data(), hash.size()));
}

// The proof of everything that was said so far.
template <class T>
Hash proof_of(const std::string& secret, const std::string& before, const T& said) {
  return proof_of(secret, before + bytes_of(said, offsetof(T, proof)));
}

// Takes the same time wherever the two differ.
bool is_same(const Hash& one, const Hash& other) {
  int differences = 0;
  for (size_t i = 0; i < one.size(); ++i) differences |= one[i] ^ other[i];
  return differences == 0;
}

bool is_hash(const Hash& hash) {
  return std::all_of(hash.begin(), hash.end(), [](char c) { return std::isxdigit(static_cast<unsigned char>(c)); });
}

template <size_t size>
bool ends(const std::array<char, size>& text) {
  return text.back() == '\0';
}

Nonce random_nonce() {
  std::random_device random;
  return {random(), random(), random(), random()};
}

struct Name {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// In the kernel's own namespace of names, which no folder's permissions and no file outlive.
Name local_name(const std::string& text) {
  Name name;
  auto& address = reinterpret_cast<sockaddr_un&>(name.storage);
  address.sun_family = AF_UNIX;
  text.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  name.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

Name ip_name(const std::string& ip, uint16_t port) {
  Name name;
  auto& address = reinterpret_cast<sockaddr_in&>(name.storage);
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  name.bytes = sizeof(address);
  if (inet_pton(AF_INET, ip.c_str(), &address.sin_addr) != 1) {
    throw CollectiveFailure(HCCL_E_PARA, "'" + ip + "' is not an IPv4 address");
  }
  return name;
}

Socket open_socket(const Name& name) {
  Socket made(socket(name.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) throw CollectiveFailure(HCCL_E_SYSCALL, std::string("socket: ") + std::strerror(errno));
  return made;
}

bool wait_for(const Socket& socket, short events, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{socket.get(), events, 0};
    const int count = poll(&wait, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (count > 0) return true;
    if (count == 0 && left <= 0) return false;
    if (count < 0 && errno != EINTR)
      throw CollectiveFailure(HCCL_E_SYSCALL, std::string("poll: ") + std::strerror(errno));
  }
}

// The process at the other end of a Unix socket. TCP does not report it.
std::optional<ucred> credentials_of(const Socket& socket) {
  ucred found{};
  int family = 0;
  socklen_t bytes = sizeof(found), family_bytes = sizeof(family);
  getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &family, &family_bytes);
  if (family != AF_UNIX) return {};
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0) found.uid = ~geteuid();
  return found;
}

bool is_of_other_user(const Socket& socket) {
  const auto other = credentials_of(socket);
  return other && other->uid != geteuid();
}

Socket connect_to(const Name& name, Clock::time_point deadline, int& error) {
  Socket socket = open_socket(name);
  error = connect(socket.get(), name.get(), name.bytes) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    socklen_t bytes = sizeof(error);
    if (wait_for(socket, POLLOUT, deadline)) getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  }
  return error == 0 ? std::move(socket) : Socket();
}

// TCP alone knows these: a small message goes at once, and a host that has vanished is noticed in a silence.
void set_up(const Socket& socket) {
  const auto set = [&](int option, int value) { setsockopt(socket.get(), IPPROTO_TCP, option, &value, sizeof(value)); };
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  set(TCP_NODELAY, 1);
  set(TCP_KEEPIDLE, 10);
  set(TCP_KEEPINTVL, 5);
  set(TCP_KEEPCNT, 4);
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Hash hash_of(const std::string& text) {
  Hash hash;
  c10::sha1("cann_cpu " + text).str().copy(hash.data(), hash.size());  // which takes no empty text
  return hash;
}

std::string random_digits() {
  const Nonce nonce = random_nonce();
  return text_of(hash_of(bytes_of(nonce))).substr(0, 32);
}

bool PeerInfo::is_valid() const {
  in_addr address{};
  return is_hash(host) && ends(local) && ends(ip) && ends(host_name) && port <= 65535 &&
         (ip[0] == '\0' || inet_pton(AF_INET, ip.data(), &address) == 1);
}

bool Handshake::is_valid() const {
  return magic == kHandshakeMagic && version == kVersion && rank < size && is_hash(group) && info.is_valid();
}

bool Reply::is_valid() const { return code >= 0 && code < HCCL_E_RESERVED && ends(token) && ends(text); }

std::optional<int> process_behind(const Socket& socket) {
  const auto other = credentials_of(socket);
  return other ? std::optional<int>(other->pid) : std::nullopt;
}

bool send_all(const Socket& socket, const void* data, size_t bytes, Clock::time_point deadline) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    if (!wait_for(socket, POLLOUT, deadline)) return false;
    const ssize_t count = send(socket.get(), from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return false;
    from += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}

bool receive_all(const Socket& socket, void* data, size_t bytes, Clock::time_point deadline) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    if (!wait_for(socket, POLLIN, deadline)) return false;
    const ssize_t count = recv(socket.get(), to, bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return false;
    to += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}

Listener::Listener(const std::string& local, const std::string& ip, uint16_t port) : local_(local), ip_(ip) {
  std::vector<Name> names;
  if (!local.empty()) names.push_back(local_name(local));
  if (!ip.empty()) names.push_back(ip_name(ip, port));
  for (Name& name : names) {
    Socket listener = open_socket(name);
    const int on = 1;  // a process that has ended leaves its port closing for a while
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    auto* address = reinterpret_cast<sockaddr*>(&name.storage);
    if (bind(listener.get(), address, name.bytes) != 0 || listen(listener.get(), SOMAXCONN) != 0 ||
        getsockname(listener.get(), address, &name.bytes) != 0) {
      const std::string where = name.family() == AF_UNIX ? local : ip + ":" + std::to_string(port);
      throw CollectiveFailure(HCCL_E_TCP_CONNECT,
                              "cannot listen for the other ranks at " + where + ": " + std::strerror(errno));
    }
    if (name.family() == AF_INET) port_ = ntohs(reinterpret_cast<sockaddr_in&>(name.storage).sin_port);
    listeners_.push_back(std::move(listener));
  }
}

void Listener::describe(PeerInfo& info) const {
  store(info.local, local_);
  store(info.ip, ip_);
  info.port = port_;
}

void Listener::accept_from(const Socket& listener) {
  while (guests_.size() < kMaxGuests) {
    Guest guest{{Socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)),
                 {kHandshakeMagic, kVersion, random_nonce()},
                 {}},
                0,
                Clock::now() + kPatience};
    if (!guest.socket) return;
    if (is_of_other_user(guest.socket)) continue;
    set_up(guest.socket);
    const ssize_t sent = send(guest.socket.get(), &guest.challenge, sizeof(Challenge), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == sizeof(Challenge)) guests_.push_back(std::move(guest));
  }
}

bool Listener::stays(Guest& guest) const {
  char more;
  char* into = guest.have < sizeof(Handshake) ? reinterpret_cast<char*>(&guest.handshake) + guest.have : &more;
  const ssize_t count =
      recv(guest.socket.get(), into, std::max<size_t>(sizeof(Handshake) - guest.have, 1), MSG_DONTWAIT);
  if (count < 0 && (errno == EINTR || errno == EAGAIN))
    return guest.have == sizeof(Handshake) || Clock::now() < guest.deadline;
  if (count <= 0 || guest.have == sizeof(Handshake)) return false;  // gone, or talks before it is asked
  guest.have += static_cast<size_t>(count);
  if (guest.have < sizeof(Handshake)) return true;
  if (is_same(guest.handshake.proof, proof_of(secret_, bytes_of(guest.challenge), guest.handshake)))
    return guest.handshake.is_valid();
  answer(guest, {HCCL_E_PARA, {}, {}, {}});  // its proof shows the other that the secrets differ
  return false;
}

std::optional<Arrival> Listener::next(const Hash& group, Clock::time_point deadline) {
  while (true) {
    std::vector<pollfd> waits;
    {
      std::lock_guard lock(mutex_);
      for (const Socket& listener : listeners_) accept_from(listener);
      for (auto guest = guests_.begin(); guest != guests_.end();) {
        if (!stays(*guest)) {
          guest = guests_.erase(guest);
          continue;
        }
        if (guest->have == sizeof(Handshake) && guest->handshake.group == group) {
          Arrival arrival = std::move(*guest);
          guests_.erase(guest);
          return arrival;
        }
        if (guest->have < sizeof(Handshake)) waits.push_back({guest->socket.get(), POLLIN, 0});
        ++guest;
      }
      for (const Socket& listener : listeners_) waits.push_back({listener.get(), POLLIN, 0});
    }
    if (Clock::now() >= deadline) return {};
    // Another thread may take a guest meanwhile, so not for long.
    poll(waits.data(), waits.size(), static_cast<int>(kPause.count()));
  }
}

void Listener::answer(const Arrival& arrival, Reply reply) const {
  reply.proof = proof_of(secret_, bytes_of(arrival.challenge) + bytes_of(arrival.handshake), reply);
  // It fits into an empty socket. A peer that is gone is noticed later.
  (void)!send(arrival.socket.get(), &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
}

Socket knock(const PeerInfo& at, Handshake handshake, const std::string& secret, bool awaited,
             Clock::time_point deadline, Reply& reply) {
  handshake.magic = kHandshakeMagic;
  handshake.version = kVersion;
  handshake.nonce = random_nonce();
  const bool is_local = at.host == handshake.info.host && at.local[0] != '\0';
  const std::string ip = text_of(at.ip);
  if (!is_local && ip.empty()) {
    throw CollectiveFailure(
        HCCL_E_TCP_CONNECT,
        "rank 0 is on another host, and listens on its own alone, as nothing in its environment says "
        "that there are others: set HCCL_IF_IP or HCCL_SOCKET_IFNAME there");
  }
  const std::string where = is_local ? text_of(at.local) : ip + ":" + std::to_string(at.port);
  const Name name = is_local ? local_name(where) : ip_name(ip, static_cast<uint16_t>(at.port));
  for (; Clock::now() < deadline; std::this_thread::sleep_for(kPause)) {
    int error = 0;
    Socket socket = connect_to(name, deadline, error);
    if (error == ECONNREFUSED && !awaited) {
      throw CollectiveFailure(HCCL_E_TCP_CONNECT,
                              "cannot connect to " + where + ": its rank has ended, or all have come already");
    }
    if (!socket || is_of_other_user(socket)) continue;
    Challenge challenge{};
    if (!receive_all(socket, &challenge, sizeof(challenge), deadline)) continue;
    if (challenge.magic != kHandshakeMagic || challenge.version != kVersion) {
      throw CollectiveFailure(HCCL_E_TCP_CONNECT, where + " is not a rank of this version of cann_cpu");
    }
    handshake.proof = proof_of(secret, bytes_of(challenge), handshake);
    if (!send_all(socket, &handshake, sizeof(handshake), deadline) ||
        !receive_all(socket, &reply, sizeof(reply), deadline)) {
      continue;
    }
    if (!is_same(reply.proof, proof_of(secret, bytes_of(challenge) + bytes_of(handshake), reply)) ||
        !reply.is_valid()) {
      throw CollectiveFailure(HCCL_E_TCP_CONNECT, where +
                                                      " has another secret; CANN_CPU_HCCL_SECRET must be the same for "
                                                      "all ranks, and the job the same");
    }
    if (reply.code != 0) throw CollectiveFailure(static_cast<HcclResult>(reply.code), text_of(reply.text));
    set_up(socket);
    return socket;
  }
  return Socket();
}

}  // namespace cann_cpu
