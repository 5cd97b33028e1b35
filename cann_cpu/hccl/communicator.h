// SPDX-License-Identifier: Apache-2.0
// A communicator: the ranks' connections, the order of its calls, their agreement, and the first failure.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "acl/acl_base.h"
#include "call.h"
#include "cann_cpu/accesses.h"
#include "failure.h"
#include "mesh.h"
#include "rendezvous.h"
#include "windows.h"

namespace cann_cpu {

struct PointToPoint {
  HcclSendRecvType direction;
  char* data;
  uint64_t count;
  HcclDataType type;
  uint32_t peer;
};

struct CommunicatorOptions {
  std::string name;              // empty: one is made
  std::chrono::seconds timeout;  // of a call; 0: none
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(Rendezvous rendezvous, const std::string& group, uint32_t rank, const CommunicatorOptions& options);
  ~Communicator();

  const std::string& name() const { return name_; }
  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  std::chrono::seconds timeout() const { return timeout_; }

  // Append a call to the stream. They run in the order in which they are enqueued, whatever their streams; replays of
  // captured ones, and those of graphs, as their streams come to them.
  using Body = std::function<void(Mesh&, const Deadline&)>;
  aclError enqueue(aclrtStream stream, Call call, const Accesses& accesses, Body body);
  aclError enqueue(aclrtStream stream, std::vector<PointToPoint> items);
  // Runs a call in this thread, out of turn.
  aclError run(Call call, Body body);
  // Sends bytes to each of these ranks and receives as many from each, in this thread.
  aclError exchange(const char* name, const std::vector<uint32_t>& peers, std::string mine,
                    std::map<uint32_t, std::string>& theirs);
  Windows& windows() { return windows_; }
  // What enqueue() appends to the stream runs in the place of one call.
  aclError enqueue_ordered(aclrtStream stream, const std::function<aclError()>& enqueue);

  // Creates the communicator of some of the ranks. The calling rank becomes `rank` there. All of these ranks call this.
  std::shared_ptr<Communicator> make_part(const std::vector<uint32_t>& ranks, uint64_t id, uint32_t rank,
                                          const CommunicatorOptions& options);

  struct Broken {
    HcclResult code;
    std::string reason;
  };
  std::optional<Broken> broken() const;
  // Ends the call that runs, and all later calls until resume(). All ranks call resume(), which connects them anew.
  void suspend();
  void resume();
  // Ends the running call and those after it. The other ranks receive the reason.
  void give_up(const std::string& reason);
  // Lets the calls that wait in streams end, but not for long, and disconnects.
  void destroy();

 private:
  class Ticket;
  using Run = std::function<void(const Deadline&, std::string& what)>;
  std::shared_ptr<Ticket> take_ticket(aclrtStream stream);
  aclError launch_run(aclrtStream stream, const char* name, const Accesses& accesses, Run run);
  Run agreed(Call call, Body body);
  aclError perform(const char* name, const Run& run);
  void run_items(const std::vector<PointToPoint>& items, std::string& what, const Deadline& deadline);
  void end_turn(uint64_t number);

  const Rendezvous rendezvous_;
  const std::string group_;
  const uint32_t rank_;
  const uint32_t size_;
  const std::chrono::seconds timeout_;
  std::string name_;
  Windows windows_;

  std::mutex run_mutex_;  // one call at a time; guards what follows
  std::unique_ptr<Mesh> mesh_;
  uint64_t calls_ = 0;              // collectives begun
  uint64_t current_ = 0;            // the number of the call that runs; for messages, that of the next collective
  std::vector<uint64_t> sent_;      // messages to each rank
  std::vector<uint64_t> received_;  // messages from each rank
  uint64_t resumed_ = 0;

  mutable std::mutex state_mutex_;  // guards what follows
  std::condition_variable ticket_ended_;
  uint64_t tickets_ = 0;
  std::set<uint64_t> open_tickets_;
  std::optional<Broken> broken_;
  std::map<std::pair<uint64_t, std::vector<uint32_t>>, uint64_t> parts_;  // created from each id and ranks so far
};

}  // namespace cann_cpu
