// SPDX-License-Identifier: Apache-2.0
// How the ranks of a communicator find and connect each other: through a TCPStore that the root's process serves.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "hccl/hccl_types.h"
#include "mesh.h"
#include "rank_table.h"

namespace cann_cpu {

// The store of one root, from the process that serves it or another. Copies share the server.
struct Meeting {
  std::string token;  // tells one root from another
  std::string host;   // identity of the machine and network of the server
  std::string address;
  uint16_t port = 0;
  std::shared_ptr<void> server;  // in the root's process
};

// Starts a store, and describes it for the other ranks.
void open_meeting(HcclRootInfo& root_info);
// The meeting of a root info; throws CollectiveFailure when it is none.
Meeting find_meeting(const HcclRootInfo& root_info);
// The root's process keeps the server for communicators that were not made yet; the first of them takes it over.
void forget_meeting(const Meeting& meeting);

// Of the ranks of a table, without a root info: rank 0's process serves the store on the port HCCL_IF_BASE_PORT, as
// long as it lives. `group` tells this meeting from those before by a table of so many ranks.
Meeting join_meeting(const RankTable& table, uint32_t rank, std::chrono::seconds timeout, std::string& group);

// HCCL_CONNECT_TIMEOUT.
std::chrono::seconds connect_timeout();

// Connects `size` ranks, which give the same meeting and the same group; throws CollectiveFailure naming the ranks that
// did not come in time.
std::unique_ptr<Mesh> meet(const Meeting& meeting, const std::string& group, uint32_t rank, uint32_t size,
                           std::chrono::seconds timeout);

}  // namespace cann_cpu
