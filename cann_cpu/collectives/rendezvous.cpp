// SPDX-License-Identifier: Apache-2.0
#include "rendezvous.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "environment.h"
#include "failure.h"

namespace cann_cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMagic[8] = {'C', 'A', 'N', 'N', 'C', 'P', 'U', '1'};

// What a root info holds; the strings end with a zero.
struct RootInfo {
  char magic[sizeof(kMagic)];
  char token[40];
  char host[256];
  char address[64];
  uint16_t port;
};
static_assert(sizeof(RootInfo) <= HCCL_ROOT_INFO_BYTES);

template <size_t size>
void store_text(char (&to)[size], const std::string& text) {
  std::strncpy(to, text.c_str(), size - 1);
}

[[noreturn]] void throw_errno(HcclResult code, const std::string& what) {
  throw CollectiveFailure(code, what + ": " + std::strerror(errno));
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string link_target(const char* path) {
  char target[128] = {};
  return readlink(path, target, sizeof(target) - 1) < 0 ? "" : target;
}

// The same for processes that can reach each other over the loopback interface and see each other's process ids.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot + " " + link_target("/proc/self/ns/net") + " " + link_target("/proc/self/ns/pid");
}

// The address at which other machines reach this one: HCCL_IF_IP, else that of an interface whose name begins as
// HCCL_SOCKET_IFNAME says, else of the first that is up; loopback where there is no other.
std::string reachable_address() {
  if (const char* given = std::getenv("HCCL_IF_IP"); given != nullptr && *given != '\0') return given;
  const char* wanted = std::getenv("HCCL_SOCKET_IFNAME");
  const std::string prefix = wanted == nullptr ? "" : wanted;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) throw_errno(HCCL_E_SYSCALL, "getifaddrs");
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP)) continue;
    if (prefix.empty() ? (one->ifa_flags & IFF_LOOPBACK) != 0 : std::string(one->ifa_name).rfind(prefix, 0) != 0) {
      continue;
    }
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr, text, sizeof(text));
    found = text;
  }
  freeifaddrs(all);
  if (found.empty() && !prefix.empty()) {
    throw CollectiveFailure(
        HCCL_E_NOT_FOUND, "HCCL_SOCKET_IFNAME is " + prefix + ", and no interface with an IPv4 address has that name");
  }
  return found.empty() ? "127.0.0.1" : found;
}

std::string random_token() {
  std::random_device random;
  char text[33];
  std::snprintf(text, sizeof(text), "%08x%08x%08x%08x", random(), random(), random(), random());
  return text;
}

struct OpenMeetings {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<void>> servers;  // by token
};

OpenMeetings& open_meetings() {
  static auto* meetings = new OpenMeetings;
  return *meetings;
}

// Closes the socket unless it was released.
class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }
  int release() noexcept { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

void wait_for(int descriptor, short events, Clock::time_point deadline, const std::string& what) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) throw CollectiveFailure(HCCL_E_TIMEOUT, what + " took too long");
    pollfd wait{descriptor, events, 0};
    const int count = poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, INT_MAX)));
    if (count > 0) return;
    if (count < 0 && errno != EINTR) throw_errno(HCCL_E_SYSCALL, "poll");
  }
}

void send_all(int descriptor, const void* data, size_t bytes, Clock::time_point deadline, const std::string& what) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    wait_for(descriptor, POLLOUT, deadline, what);
    const ssize_t count = send(descriptor, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) throw_errno(HCCL_E_TCP_CONNECT, what);
    from += count;
    bytes -= static_cast<size_t>(count);
  }
}

void receive_all(int descriptor, void* data, size_t bytes, Clock::time_point deadline, const std::string& what) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    wait_for(descriptor, POLLIN, deadline, what);
    const ssize_t count = recv(descriptor, to, bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count == 0) errno = ECONNRESET;
    if (count <= 0) throw_errno(HCCL_E_TCP_CONNECT, what);
    to += count;
    bytes -= static_cast<size_t>(count);
  }
}

// On a port, or any where it is 0.
Socket listen_on(uint16_t& port) {
  Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  socklen_t length = sizeof(address);
  auto* general = reinterpret_cast<sockaddr*>(&address);
  const int on = 1;  // a process that has ended leaves its port closing for a while
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (listener.get() < 0 || bind(listener.get(), general, length) != 0 || listen(listener.get(), SOMAXCONN) != 0 ||
      getsockname(listener.get(), general, &length) != 0) {
    throw_errno(HCCL_E_TCP_CONNECT, "cannot listen for the other ranks");
  }
  port = ntohs(address.sin_port);
  return listener;
}

Socket connect_to(const std::string& host, uint16_t port, const std::string& what) {
  Socket connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (connection.get() < 0 || inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1 ||
      connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    throw_errno(HCCL_E_TCP_CONNECT, what + " at " + host + ":" + std::to_string(port));
  }
  return connection;
}

// What a rank tells all others of itself.
struct Card {
  uint32_t size;  // of the communicator, as the rank was told
  int32_t process;
  uint64_t probe_address;  // of probe_value
  uint64_t probe_value;
  uint16_t port;
  char address[64];
  char host[256];
  char host_name[HOST_NAME_MAX + 1];
};

// What other processes read to learn that they can.
const uint64_t& probe() {
  static const uint64_t value = [] {
    std::random_device random;
    return (static_cast<uint64_t>(random()) << 32) | random();
  }();
  return value;
}

bool wants_direct() {
  const char* transport = std::getenv("CANN_CPU_HCCL_TRANSPORT");
  const std::string value = transport == nullptr ? "auto" : transport;
  if (value != "auto" && value != "tcp") {
    throw CollectiveFailure(HCCL_E_PARA, "CANN_CPU_HCCL_TRANSPORT is " + value + "; auto or tcp");
  }
  return value == "auto";
}

bool can_read(const Card& card) {
  uint64_t found = 0;
  iovec local{&found, sizeof(found)};
  iovec remote{reinterpret_cast<void*>(card.probe_address), sizeof(found)};
  return process_vm_readv(card.process, &local, 1, &remote, 1, 0) == sizeof(found) && found == card.probe_value;
}

Card own_card(uint32_t size, uint16_t port) {
  Card card{};
  card.size = size;
  card.process = getpid();
  card.probe_address = reinterpret_cast<uint64_t>(&probe());
  card.probe_value = probe();
  card.port = port;
  store_text(card.address, reachable_address());
  store_text(card.host, host_identity());
  store_text(card.host_name, host_name());
  return card;
}

// On a socket of IPv4: c10d asks for the name of each rank that connects, one after the other. Of an address of IPv4 in
// IPv6 no /etc/hosts knows it, and a DNS that does not answer takes 5 s for each.
c10::intrusive_ptr<c10d::TCPStore> serve(uint16_t port) {
  Socket listener = listen_on(port);
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener.release();
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

c10::intrusive_ptr<c10d::TCPStore> connect_to(const Meeting& meeting, std::chrono::seconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = meeting.port;
  options.waitWorkers = false;
  options.timeout = timeout;
  const std::string address = meeting.host == host_identity() ? "127.0.0.1" : meeting.address;
  try {
    return c10::make_intrusive<c10d::TCPStore>(address, options);
  } catch (const std::exception& exception) {
    throw CollectiveFailure(HCCL_E_TCP_CONNECT, "the process of rank 0 serves no store at " + address + ":" +
                                                    std::to_string(meeting.port) + ": " + exception.what());
  }
}

// One for all tables; it stays, so that ranks that come late find no store that goes.
std::shared_ptr<void> serve_tables(uint16_t port) {
  static std::mutex mutex;
  static auto* servers = new std::map<uint16_t, std::shared_ptr<void>>;
  std::lock_guard lock(mutex);
  std::shared_ptr<void>& server = (*servers)[port];
  if (server) return server;
  try {
    server = std::make_shared<c10::intrusive_ptr<c10d::TCPStore>>(serve(port));
  } catch (const std::exception& exception) {
    throw CollectiveFailure(HCCL_E_TCP_CONNECT, "rank 0 cannot serve the others on port " + std::to_string(port) +
                                                    " (HCCL_IF_BASE_PORT): " + exception.what());
  }
  return server;
}

std::string ranks_without(c10d::Store& store, const std::string& group, uint32_t size) {
  std::string missing;
  for (uint32_t rank = 0; rank < size; ++rank) {
    if (store.check({group + "/card/" + std::to_string(rank)})) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  return missing;
}

std::vector<Card> exchange_cards(const Meeting& meeting, const std::string& group, uint32_t rank, const Card& own,
                                 std::chrono::seconds timeout) {
  const auto store = connect_to(meeting, timeout);
  if (store->add(group + "/count/" + std::to_string(rank), 1) != 1) {
    throw CollectiveFailure(HCCL_E_PARA, "rank " + std::to_string(rank) + " was given to two callers");
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(&own);
  store->set(group + "/card/" + std::to_string(rank), std::vector<uint8_t>(bytes, bytes + sizeof(own)));
  std::vector<std::string> keys;
  for (uint32_t other = 0; other < own.size; ++other) keys.push_back(group + "/card/" + std::to_string(other));
  try {
    store->wait(keys, std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  } catch (const std::exception& exception) {
    const std::string missing = ranks_without(*store, group, own.size);
    if (missing.empty()) throw;
    throw CollectiveFailure(HCCL_E_TIMEOUT, "of " + std::to_string(own.size) + " ranks, " + missing +
                                                " did not come within " + std::to_string(timeout.count()) +
                                                " s (HCCL_CONNECT_TIMEOUT)");
  }
  std::vector<Card> cards;
  for (uint32_t other = 0; other < own.size; ++other) {
    const std::vector<uint8_t> found = store->get(keys[other]);
    Card card{};
    std::memcpy(&card, found.data(), std::min(found.size(), sizeof(card)));
    if (card.size != own.size) {
      throw CollectiveFailure(HCCL_E_PARA, "the ranks disagree in the number of ranks: " + std::to_string(own.size) +
                                               " on rank " + std::to_string(rank) + ", " + std::to_string(card.size) +
                                               " on rank " + std::to_string(other));
    }
    cards.push_back(card);
  }
  return cards;
}

struct Hello {
  char token[40];
  uint32_t rank;
};

// Both sides of a connection say whether they can read the other's memory.
bool agree_on_direct(int descriptor, const Card& own, const Card& other, Clock::time_point deadline,
                     const std::string& what) {
  char mine = wants_direct() && std::strcmp(own.host, other.host) == 0 && can_read(other) ? 1 : 0;
  char theirs = 0;
  send_all(descriptor, &mine, 1, deadline, what);
  receive_all(descriptor, &theirs, 1, deadline, what);
  return mine == 1 && theirs == 1;
}

// A copy of another process's descriptor, which who may read its memory may take; -1 where the kernel refuses.
int take_descriptor(int process, int descriptor) {
  constexpr long kOpenProcess = 434, kGetDescriptor = 438;  // on all architectures; old headers have no names for them
  const Socket handle(static_cast<int>(syscall(kOpenProcess, process, 0)));
  return handle.get() < 0 ? -1 : static_cast<int>(syscall(kGetDescriptor, handle.get(), descriptor, 0));
}

// In place of a TCP connection a pair of Unix sockets, which is quicker: one side makes it, the other takes its end.
// Stays with TCP where that does not work.
Socket on_one_machine(Socket connection, bool makes, int process, Clock::time_point deadline, const std::string& what) {
  int ends[2] = {-1, -1};
  if (makes && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) ends[0] = ends[1] = -1;
  Socket mine(ends[0]);
  const Socket theirs(ends[1]);
  char works = 0;
  if (makes) {
    send_all(connection.get(), &ends[1], sizeof(ends[1]), deadline, what);
    receive_all(connection.get(), &works, 1, deadline, what);
  } else {
    int descriptor = -1;
    receive_all(connection.get(), &descriptor, sizeof(descriptor), deadline, what);
    if (descriptor >= 0) mine = Socket(take_descriptor(process, descriptor));
    works = mine.get() >= 0 ? 1 : 0;
    send_all(connection.get(), &works, 1, deadline, what);
  }
  return works == 1 ? std::move(mine) : std::move(connection);
}

}  // namespace

void open_meeting(HcclRootInfo& root_info) {
  const auto store = serve(0);
  RootInfo info{};
  std::memcpy(info.magic, kMagic, sizeof(kMagic));
  store_text(info.token, random_token());
  store_text(info.host, host_identity());
  store_text(info.address, reachable_address());
  info.port = store->getPort();
  std::memset(&root_info, 0, sizeof(root_info));
  std::memcpy(root_info.internal, &info, sizeof(info));
  std::lock_guard lock(open_meetings().mutex);
  open_meetings().servers[info.token] = std::make_shared<c10::intrusive_ptr<c10d::TCPStore>>(store);
}

Meeting find_meeting(const HcclRootInfo& root_info) {
  RootInfo info{};
  std::memcpy(&info, root_info.internal, sizeof(info));
  if (std::memcmp(info.magic, kMagic, sizeof(kMagic)) != 0) {
    throw CollectiveFailure(HCCL_E_PARA, "rootInfo was not made by HcclGetRootInfo of this library");
  }
  Meeting meeting{info.token, info.host, info.address, info.port, nullptr};
  std::lock_guard lock(open_meetings().mutex);
  auto found = open_meetings().servers.find(meeting.token);
  if (found != open_meetings().servers.end()) meeting.server = found->second;
  return meeting;
}

void forget_meeting(const Meeting& meeting) {
  std::lock_guard lock(open_meetings().mutex);
  open_meetings().servers.erase(meeting.token);
}

std::chrono::seconds connect_timeout() {
  return std::chrono::seconds(number_in("HCCL_CONNECT_TIMEOUT", 120, 1, INT_MAX));
}

Meeting join_meeting(const RankTable& table, uint32_t rank, std::chrono::seconds timeout, std::string& group) {
  const auto port = static_cast<uint16_t>(number_in("HCCL_IF_BASE_PORT", 60000, 1024, 65535));
  Meeting meeting{"", "", table.root_address, port, nullptr};
  if (table.root_address.empty()) meeting.host = host_identity();
  if (rank == 0) meeting.server = serve_tables(port);
  const auto store = connect_to(meeting, timeout);
  if (rank == 0) static_cast<c10d::Store&>(*store).compareSet("token", "", random_token());
  meeting.token = store->get_to_str("token");
  const std::string ranks = std::to_string(table.devices.size());
  const int64_t number = store->add("joined_" + ranks + "_" + std::to_string(rank), 1);
  group = "table_" + ranks + "_" + std::to_string(number);
  return meeting;
}

std::unique_ptr<Mesh> meet(const Meeting& meeting, const std::string& group, uint32_t rank, uint32_t size,
                           std::chrono::seconds timeout) {
  const auto deadline = Clock::now() + timeout;
  // Yama lets a process be read by its parents alone unless it says otherwise.
  if (wants_direct()) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  uint16_t port = 0;
  Socket listener = listen_on(port);
  const Card own = own_card(size, port);
  const std::vector<Card> cards = exchange_cards(meeting, group, rank, own, timeout);

  Hello hello{};
  store_text(hello.token, meeting.token);
  hello.rank = rank;
  std::vector<Socket> sockets;
  std::vector<Peer> peers(size);
  for (uint32_t other = 0; other < size; ++other) {
    sockets.emplace_back(-1);
    peers[other].process = cards[other].process;
    peers[other].place = "process " + std::to_string(cards[other].process) + " on " + cards[other].host_name;
  }
  auto keep = [&](uint32_t other, Socket connection) {
    const int on = 1;
    setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const std::string what = "the connection with rank " + std::to_string(other);
    peers[other].is_direct = agree_on_direct(connection.get(), own, cards[other], deadline, what);
    if (peers[other].is_direct) {
      connection = on_one_machine(std::move(connection), rank < other, cards[other].process, deadline, what);
    }
    sockets[other] = std::move(connection);
  };
  // All connections are asked for before any is awaited: the kernel accepts them for a rank that has not come so far.
  std::vector<Socket> asked;
  for (uint32_t other = 0; other < rank; ++other) {
    const bool is_local = std::strcmp(cards[other].host, own.host) == 0;
    const std::string what = "cannot connect to rank " + std::to_string(other);
    asked.push_back(connect_to(is_local ? "127.0.0.1" : cards[other].address, cards[other].port, what));
    send_all(asked.back().get(), &hello, sizeof(hello), deadline, what);
  }
  for (uint32_t other = 0; other < rank; ++other) keep(other, std::move(asked[other]));
  for (uint32_t awaited = rank + 1; awaited < size;) {
    const std::string what = "waiting for connections of the ranks above " + std::to_string(rank);
    wait_for(listener.get(), POLLIN, deadline, what);
    Socket connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() < 0) throw_errno(HCCL_E_TCP_CONNECT, what);
    Hello said{};
    receive_all(connection.get(), &said, sizeof(said), deadline, what);
    const bool is_ours = std::strcmp(said.token, hello.token) == 0 && said.rank > rank && said.rank < size;
    if (!is_ours || sockets[said.rank].get() >= 0) continue;  // a stranger
    keep(said.rank, std::move(connection));
    ++awaited;
  }
  for (uint32_t other = 0; other < size; ++other) peers[other].socket = sockets[other].release();
  return std::make_unique<Mesh>(rank, std::move(peers));
}

}  // namespace cann_cpu
