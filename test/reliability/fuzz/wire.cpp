// SPDX-License-Identifier: Apache-2.0
// What a rank of two gets from the other. A file is a letter and bytes: a handshake, a reply, a root info, a call, or
// the messages of a connection over sockets or with the other's memory.
#include <sys/socket.h>

#include <cstring>

#include "hccl/algorithms.h"
#include "hccl/call.h"
#include "hccl/failure.h"
#include "hccl/rendezvous.h"
#include "reader.h"

using namespace cann_cpu;

namespace {

template <class T>
bool is_valid_struct(const std::string& bytes) {
  T value{};
  if (bytes.size() != sizeof(value)) return false;
  std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof(value));
  return value.is_valid();
}

// An AllReduce, then a message to the other whose end comes before or after what the other sends.
void run_calls(const std::string& stream, bool is_direct) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) abort();
  const Socket other(ends[1]);
  std::vector<Peer> peers(2);
  peers[1].socket = Socket(ends[0]);
  peers[1].process = getpid();
  peers[1].is_direct = is_direct;
  (void)!send(other.get(), stream.data(), stream.size(), MSG_NOSIGNAL);
  shutdown(other.get(), SHUT_WR);

  Mesh mesh(0, std::move(peers));
  const Deadline deadline = Clock::now() + std::chrono::seconds(10);
  const Call call{CallKind::kAllReduce, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, {}, 4, {}, {}};
  const std::string own = write(call, 1);
  std::vector<CallDescriptor> calls{read(own, 2), {}};
  mesh.open({own, [&](uint32_t peer, const std::string& text) { calls[peer] = read(text, 2); },
             [&] { require_agreement(calls); }});
  float values[4] = {1, 2, 3, 4};
  all_reduce(mesh, reinterpret_cast<char*>(values), reinterpret_cast<char*>(values), 4,
             {HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM}, deadline);
  mesh.finish(deadline);

  std::vector<Incoming> in{{1, MessageType::kDone}};
  mesh.exchange({}, in, deadline);
  in = {{1, MessageType::kBegin}, {1, MessageType::kData, values, 8}};
  in[0].begun = [](const std::string& text) {
    require_expected(read(text, 2), {CallKind::kSend, HCCL_DATA_TYPE_FP32, {}, {}, 2, {}, {}}, 1, 1, 0);
  };
  mesh.exchange({}, in, deadline);
  mesh.throw_if_remote_failed(1);
}

}  // namespace

bool is_valid(const std::string& contents) {
  const char kind = contents.empty() ? '\0' : contents[0];
  const std::string bytes = contents.substr(std::min<size_t>(contents.size(), 1));
  try {
    if (kind == 'h') return is_valid_struct<Handshake>(bytes);
    if (kind == 'r') return is_valid_struct<Reply>(bytes);
    if (kind == 'i') {
      HcclRootInfo info{};
      std::memcpy(info.internal, bytes.data(), std::min(bytes.size(), sizeof(info.internal)));
      find_root(info);
      return true;
    }
    if (kind == 'c') {
      require_agreement(
          {read(bytes, 2), read(write({CallKind::kAlltoAllV, HCCL_DATA_TYPE_FP32, {}, {}, {}, {5, 7}, {4, 7}}, 1), 2)});
      return true;
    }
    if (kind == 's' || kind == 'd') {
      run_calls(bytes, kind == 'd');
      return true;
    }
  } catch (const CollectiveFailure&) {
  }
  return false;
}
