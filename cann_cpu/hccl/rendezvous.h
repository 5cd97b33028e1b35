// SPDX-License-Identifier: Apache-2.0
// Connects the ranks of a communicator. All ranks first connect to a root, which is one of them, and learn where each
// rank listens. Then each pair connects by itself, also for sub-communicators and after a resume.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "handshake.h"
#include "mesh.h"
#include "rank_table.h"

namespace cann_cpu {

// Where the ranks meet.
struct Root {
  std::string secret;
  PeerInfo info{};
  std::unique_ptr<Listener> listener;  // in the root's process, for the first rank there
  bool awaited = false;                // it may come later than others
};

// Opens a root, and describes it for the other ranks.
void open_root(HcclRootInfo& root_info);
// Throws CollectiveFailure when it is none. Takes the listener.
Root find_root(const HcclRootInfo& root_info);
// Rank 0 of a table listens on the port HCCL_IF_BASE_PORT until all ranks have met.
Root root_of_table(const RankTable& table, uint32_t rank);

// HCCL_CONNECT_TIMEOUT.
std::chrono::seconds connect_timeout();

// The ranks that have met. Copies share the listener.
struct Rendezvous {
  std::string secret;
  std::string name;             // of their first communicator
  std::vector<PeerInfo> peers;  // of each rank
  std::shared_ptr<Listener> listener;

  Rendezvous part_of(const std::vector<uint32_t>& ranks) const;
};

// Both throw CollectiveFailure naming the ranks that did not come in time.
Rendezvous gather(Root root, uint32_t rank, uint32_t size, std::chrono::seconds timeout);
// Connects all ranks of a rendezvous, which give the same group.
std::unique_ptr<Mesh> connect_all(const Rendezvous& rendezvous, const std::string& group, uint32_t rank,
                                  std::chrono::seconds timeout);

}  // namespace cann_cpu
