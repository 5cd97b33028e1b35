// SPDX-License-Identifier: Apache-2.0
#include "rendezvous.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#include "environment.h"
#include "failure.h"
#include "tracing.h"

namespace cann_cpu {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr char kRootInfoMagic[8] = {'C', 'A', 'N', 'N', 'C', 'P', 'U', '2'};

// What a root info holds.
struct RootInfo {
  char magic[sizeof(kRootInfoMagic)];
  std::array<char, 36> token;
  PeerInfo peer;
};
static_assert(sizeof(RootInfo) <= HCCL_ROOT_INFO_BYTES);

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string link_target(const char* path) {
  char target[128] = {};
  return readlink(path, target, sizeof(target) - 1) < 0 ? "" : target;
}

// The same for processes of one user that reach each other's Unix sockets.
Hash host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return hash_of(boot + link_target("/proc/self/ns/net") + link_target("/proc/self/ns/user") +
                 std::to_string(geteuid()));
}

bool prefers_tcp() {
  const std::string value = environment("CANN_CPU_HCCL_TRANSPORT");
  if (!value.empty() && value != "auto" && value != "tcp") {
    throw CollectiveFailure(HCCL_E_PARA, "CANN_CPU_HCCL_TRANSPORT is " + value + "; auto or tcp");
  }
  return value == "tcp";
}

// As far as the launcher says.
bool spans_hosts() {
  const std::string all = environment("WORLD_SIZE"), here = environment("LOCAL_WORLD_SIZE");
  if (!all.empty() && !here.empty()) return all != here;
  if (!environment("HCCL_IF_IP").empty() || !environment("HCCL_SOCKET_IFNAME").empty()) return true;
  const std::string master = environment("MASTER_ADDR");
  return !master.empty() && master != "localhost" && master != "::1" && master.rfind("127.", 0) != 0;
}

std::string text_of(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = {};
  return inet_ntop(AF_INET, &address, text, sizeof(text));
}

// The address of the first interface that is up and whose name begins with the prefix. Without a prefix, loopback is
// taken only if there is no other interface.
std::string interface_address(const std::string& prefix) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0)
    throw CollectiveFailure(HCCL_E_SYSCALL, std::string("getifaddrs: ") + std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP)) continue;
    const bool is_wanted =
        prefix.empty() ? (one->ifa_flags & IFF_LOOPBACK) == 0 : std::string(one->ifa_name).rfind(prefix, 0) == 0;
    if (is_wanted) return text_of(reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr);
  }
  if (prefix.empty()) return kLoopback;
  throw CollectiveFailure(HCCL_E_NOT_FOUND,
                          "HCCL_SOCKET_IFNAME is " + prefix + ", and no interface with an IPv4 address has that name");
}

// The own address from which packets go to another host; empty: none goes, or the host is no IPv4 address.
std::string address_towards(const std::string& host) {
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  const Socket route(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));  // sends nothing
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1 ||
      connect(route.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      getsockname(route.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return "";
  }
  return text_of(address.sin_addr);
}

// The address at which other hosts, `other` among them, reach this one.
std::string own_address(const std::string& other) {
  if (const std::string given = environment("HCCL_IF_IP"); !given.empty()) return given;
  const std::string prefix = environment("HCCL_SOCKET_IFNAME");
  const std::string found = prefix.empty() ? address_towards(other) : "";
  return found.empty() ? interface_address(prefix) : found;
}

// Where the root listens for other hosts; empty: there are none.
std::string root_address() {
  if (spans_hosts()) return own_address(environment("MASTER_ADDR"));
  return prefers_tcp() ? kLoopback : "";
}

std::string name_of_socket() { return prefers_tcp() ? "" : "cann_cpu." + random_digits().substr(0, 24); }

// With the launcher's, so that the token alone, which torch's store carries, is not enough.
std::string secret_of(const std::string& token) { return token + " " + environment("CANN_CPU_HCCL_SECRET"); }

struct OpenRoots {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Listener>> listeners;  // by token
};

OpenRoots& open_roots() {
  static auto* const roots = new OpenRoots;
  return *roots;
}

PeerInfo own_info(const Listener& listener) {
  PeerInfo info{};
  info.host = host_identity();
  info.process = getpid();
  gethostname(info.host_name.data(), info.host_name.size() - 1);
  listener.describe(info);
  return info;
}

std::string seconds_text(std::chrono::seconds time) {
  return std::to_string(time.count()) + " s (HCCL_CONNECT_TIMEOUT)";
}

// Which did not come in time, of those that are awaited.
template <class IsMissing>
CollectiveFailure missing_ranks(uint32_t size, std::chrono::seconds timeout, IsMissing&& is_missing) {
  std::string ranks;
  for (uint32_t rank = 0; rank < size; ++rank) {
    if (is_missing(rank)) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  return {HCCL_E_TIMEOUT,
          "of " + std::to_string(size) + " ranks, " + ranks + " did not come within " + seconds_text(timeout)};
}

CollectiveFailure size_differs(uint32_t size, uint32_t rank, const Handshake& handshake) {
  return {HCCL_E_PARA, "the ranks disagree in the number of ranks: " + std::to_string(size) + " on rank " +
                           std::to_string(rank) + ", " + std::to_string(handshake.size) + " on rank " +
                           std::to_string(handshake.rank)};
}

Reply reply_of(const CollectiveFailure& failure) {
  Reply reply{};
  reply.code = failure.code;
  store(reply.text, failure.what());
  return reply;
}

// Accepts the ranks from `first` on, and rejects a process that claims a rank which is taken.
std::vector<std::optional<Arrival>> welcome(Listener& listener, const Hash& group, uint32_t rank, uint32_t size,
                                            uint32_t first, std::chrono::seconds timeout, Clock::time_point deadline) {
  std::vector<std::optional<Arrival>> arrivals(size);
  const auto is_missing = [&](uint32_t other) { return other >= first && other != rank && !arrivals[other]; };
  uint32_t missing = 0;
  for (uint32_t other = 0; other < size; ++other) missing += is_missing(other);
  try {
    while (missing > 0) {
      std::optional<Arrival> arrival = listener.next(group, deadline);
      if (!arrival) throw missing_ranks(size, timeout, is_missing);
      const uint32_t other = arrival->handshake.rank;
      if (arrival->handshake.size != size) {
        const CollectiveFailure differs = size_differs(size, rank, arrival->handshake);
        listener.answer(*arrival, reply_of(differs));
        throw differs;
      }
      if (is_missing(other)) {
        arrivals[other] = std::move(arrival);
        --missing;
      } else {
        listener.answer(*arrival, reply_of({HCCL_E_PARA, "two processes claim rank " + std::to_string(other)}));
      }
    }
    return arrivals;
  } catch (const CollectiveFailure& failure) {
    for (const auto& arrival : arrivals) {
      if (arrival) listener.answer(*arrival, reply_of(failure));
    }
    throw;
  }
}

// What other processes read to learn that they can.
const uint64_t& probe() {
  static const uint64_t value = [] {
    const std::string digits = random_digits();
    return std::stoull(digits.substr(0, 16), nullptr, 16);
  }();
  return value;
}

struct Probe {
  uint64_t address, value;
};

bool can_read(int process, const Probe& at) {
  uint64_t found = 0;
  iovec local{&found, sizeof(found)};
  iovec remote{reinterpret_cast<void*>(at.address), sizeof(found)};
  return process > 0 && process_vm_readv(process, &local, 1, &remote, 1, 0) == sizeof(found) && found == at.value;
}

[[noreturn]] void throw_lost(const Peer& peer, std::chrono::seconds timeout) {
  throw CollectiveFailure(HCCL_E_TCP_CONNECT,
                          peer.place + " has ended, or did not answer within " + seconds_text(timeout));
}

// Processes of one host say to each other whether they can read the other's memory.
void agree_on_direct(std::vector<Peer>& peers, std::chrono::seconds timeout, Clock::time_point deadline) {
  std::vector<Peer*> near;
  for (Peer& peer : peers) {
    const auto process = peer.socket ? process_behind(peer.socket) : std::nullopt;
    if (!process) continue;
    near.push_back(&peer);
    peer.process = *process;
    if (*process > 0) peer.permission = permit_reading_by(*process);
  }
  const auto exchange = [&](auto&& mine, auto&& came) {
    for (const Peer* peer : near) {
      const auto said = mine(*peer);
      if (!send_all(peer->socket, &said, sizeof(said), deadline)) throw_lost(*peer, timeout);
    }
    for (Peer* peer : near) {
      auto said = mine(*peer);
      if (!receive_all(peer->socket, &said, sizeof(said), deadline)) throw_lost(*peer, timeout);
      came(*peer, said);
    }
  };
  exchange([](const Peer&) { return Probe{reinterpret_cast<uint64_t>(&probe()), probe()}; },
           [](Peer& peer, const Probe& theirs) { peer.is_direct = can_read(peer.process, theirs); });
  exchange([](const Peer& peer) { return static_cast<char>(peer.is_direct); },
           [](Peer& peer, char theirs) {
             peer.is_direct = peer.is_direct && theirs == 1;
             if (!peer.is_direct) peer.permission.reset();
           });
}

}  // namespace

void open_root(HcclRootInfo& root_info) {
  Root root;
  root.listener = std::make_unique<Listener>(name_of_socket(), root_address(), uint16_t{0});
  RootInfo info{};
  std::memcpy(info.magic, kRootInfoMagic, sizeof(kRootInfoMagic));
  store(info.token, random_digits());
  info.peer = own_info(*root.listener);
  std::memset(&root_info, 0, sizeof(root_info));
  std::memcpy(root_info.internal, &info, sizeof(info));
  std::lock_guard lock(open_roots().mutex);
  open_roots().listeners[text_of(info.token)] = std::move(root.listener);
}

Root find_root(const HcclRootInfo& root_info) {
  RootInfo info{};
  std::memcpy(&info, root_info.internal, sizeof(info));
  if (std::memcmp(info.magic, kRootInfoMagic, sizeof(kRootInfoMagic)) != 0 || !info.peer.is_valid()) {
    throw CollectiveFailure(HCCL_E_PARA, "rootInfo was not made by HcclGetRootInfo of this library");
  }
  const std::string token = text_of(info.token);
  Root root{secret_of(token), info.peer, nullptr, false};
  std::lock_guard lock(open_roots().mutex);
  if (auto found = open_roots().listeners.extract(token)) root.listener = std::move(found.mapped());
  return root;
}

std::chrono::seconds connect_timeout() {
  return std::chrono::seconds(number_in("HCCL_CONNECT_TIMEOUT", 120, 1, INT_MAX));
}

Root root_of_table(const RankTable& table, uint32_t rank) {
  const auto port = static_cast<uint16_t>(number_in("HCCL_IF_BASE_PORT", 60000, 1024, 65535));
  Root root{secret_of(""), {}, nullptr, true};
  std::string local;
  if (table.root_address.empty()) {
    local = "cann_cpu." + std::to_string(geteuid()) + "." + std::to_string(port);
  } else if (environment("CANN_CPU_HCCL_SECRET").empty()) {
    throw CollectiveFailure(HCCL_E_PARA,
                            "a rank table of several servers needs a secret, by which their ranks know each other: set "
                            "CANN_CPU_HCCL_SECRET to the same text for all of them");
  }
  root.info.host = host_identity();
  store(root.info.local, local);
  store(root.info.ip, table.root_address);
  root.info.port = port;
  if (rank == 0) root.listener = std::make_unique<Listener>(local, table.root_address, port);
  return root;
}

Rendezvous Rendezvous::part_of(const std::vector<uint32_t>& ranks) const {
  Rendezvous part{secret, name, {}, listener};
  for (const uint32_t rank : ranks) part.peers.push_back(peers[rank]);
  return part;
}

Rendezvous gather(Root root, uint32_t rank, uint32_t size, std::chrono::seconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const std::string root_ip = text_of(root.info.ip);
  const bool is_alone = root_ip.empty() && prefers_tcp();  // a table's root listens by name even then
  const std::string ip = is_alone || root_ip.rfind("127.", 0) == 0 ? kLoopback
                         : root_ip.empty()                         ? ""
                                                                   : own_address(root_ip);
  Rendezvous rendezvous{"", "", std::vector<PeerInfo>(size),
                        std::make_shared<Listener>(name_of_socket(), ip, uint16_t{0})};
  const Hash group = hash_of("all");
  Handshake handshake{};
  handshake.size = size;
  handshake.rank = rank;
  handshake.group = group;
  handshake.info = rendezvous.peers[rank] = own_info(*rendezvous.listener);
  Reply reply{};
  const size_t bytes = size * sizeof(PeerInfo);
  if (root.listener) {
    root.listener->set_secret(root.secret);
    const auto arrivals = welcome(*root.listener, group, rank, size, 0, timeout, deadline);
    for (uint32_t other = 0; other < size; ++other) {
      if (arrivals[other]) rendezvous.peers[other] = arrivals[other]->handshake.info;
    }
    store(reply.token, random_digits());
    for (const auto& arrival : arrivals) {
      if (!arrival) continue;
      root.listener->answer(*arrival, reply);
      send_all(arrival->socket, rendezvous.peers.data(), bytes, deadline);  // who is gone is missed later
    }
  } else {
    const auto late = deadline + std::chrono::seconds(1);  // the root says who is missing
    const Socket socket = knock(root.info, handshake, root.secret, root.awaited, late, reply);
    if (!socket || !receive_all(socket, rendezvous.peers.data(), bytes, late)) {
      throw CollectiveFailure(HCCL_E_TIMEOUT, "rank 0 did not answer within " + seconds_text(timeout));
    }
    for (const PeerInfo& info : rendezvous.peers) {
      if (!info.is_valid()) throw CollectiveFailure(HCCL_E_TCP_CONNECT, "rank 0 described an invalid rank");
    }
  }
  const std::string token = text_of(reply.token);
  rendezvous.secret = root.secret + token;
  rendezvous.name = "hccl_" + text_of(hash_of(token)).substr(0, 8);
  rendezvous.listener->set_secret(rendezvous.secret);
  return rendezvous;
}

std::unique_ptr<Mesh> connect_all(const Rendezvous& rendezvous, const std::string& group, uint32_t rank,
                                  std::chrono::seconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const auto size = static_cast<uint32_t>(rendezvous.peers.size());
  std::vector<Peer> peers(size);
  Handshake handshake{};
  handshake.size = size;
  handshake.rank = rank;
  handshake.group = hash_of(group);
  handshake.info = rendezvous.peers[rank];
  Reply reply{};
  for (uint32_t other = 0; other < rank; ++other) {  // one after the other: who is let in answers at once
    peers[other].socket = knock(rendezvous.peers[other], handshake, rendezvous.secret, false, deadline, reply);
    if (!peers[other].socket) throw missing_ranks(size, timeout, [&](uint32_t one) { return one == other; });
  }
  auto arrivals = welcome(*rendezvous.listener, handshake.group, rank, size, rank + 1, timeout, deadline);
  for (uint32_t other = 0; other < size; ++other) {
    const PeerInfo& info = rendezvous.peers[other];
    Peer& peer = peers[other];
    peer.place = "process " + std::to_string(info.process) + " on " + text_of(info.host_name);
    if (!arrivals[other]) continue;
    rendezvous.listener->answer(*arrivals[other], {});
    peer.socket = std::move(arrivals[other]->socket);
  }
  agree_on_direct(peers, timeout, deadline);
  return std::make_unique<Mesh>(rank, std::move(peers));
}

}  // namespace cann_cpu
