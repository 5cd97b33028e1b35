// SPDX-License-Identifier: Apache-2.0
// libhccl.so: checks what it is given, and enqueues it.
#include "hccl/hccl.h"

#include <regex.h>  // <regex> takes ten seconds to compile

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "acl/acl_rt.h"
#include "algorithms.h"
#include "cann_cpu/collectives.h"
#include "cann_cpu/fault.h"
#include "cann_cpu/kernel_communicator.h"
#include "cann_cpu/runtime.h"
#include "cann_cpu/soc.h"
#include "communicator.h"
#include "environment.h"
#include "hccl/hcom.h"
#include "kernel_collectives.h"

namespace cann_cpu {
namespace {

std::atomic<int32_t> deterministic{0};

struct Entry {
  std::shared_ptr<Communicator> communicator;
  int32_t device;  // that it was made on; kNoDevice
};

struct Communicators {
  std::mutex mutex;
  std::map<const void*, Entry> entries;
};

Communicators& communicators() {
  static auto* const all = [] {
    auto* const made = new Communicators;
    count_living("communicators", [made] {
      const std::lock_guard lock(made->mutex);
      return made->entries.size();
    });
    return made;
  }();
  return *all;
}

std::shared_ptr<Communicator> find(HcclComm comm) {
  std::lock_guard lock(communicators().mutex);
  auto found = communicators().entries.find(comm);
  if (found == communicators().entries.end()) {
    throw CollectiveFailure(comm == nullptr ? HCCL_E_PTR : HCCL_E_PARA,
                            comm == nullptr ? "comm is null" : "comm is not a valid communicator");
  }
  return found->second.communicator;
}

constexpr int32_t kNoDevice = -1;

int32_t current_device() {
  int32_t device = kNoDevice;
  return aclrtGetDevice(&device) == ACL_SUCCESS ? device : kNoDevice;
}

HcclComm keep(std::shared_ptr<Communicator> communicator, int32_t device = current_device()) {
  std::lock_guard lock(communicators().mutex);
  const HcclComm handle = communicator.get();
  communicators().entries[handle] = {std::move(communicator), device};
  return handle;
}

HcclComm find(const std::string& name) {
  const int32_t device = current_device();
  std::lock_guard lock(communicators().mutex);
  HcclComm found = nullptr;
  for (const auto& [handle, one] : communicators().entries) {
    if (one.communicator->name() != name) continue;
    if (found == nullptr || one.device == device) found = const_cast<void*>(handle);
  }
  if (found != nullptr) return found;
  throw CollectiveFailure(HCCL_E_NOT_FOUND,
                          "the process has no communicator named '" + name + "'; make its process group first");
}

// A failure of the runtime, which has left its message.
struct RuntimeFailure {};

void require_success(aclError code) {
  if (code != ACL_SUCCESS) throw RuntimeFailure{};
}

template <class Body>
HcclResult guarded(const char* function, Body&& body) noexcept {
  try {
    if (const int code = fault_of(function, HCCL_E_INTERNAL)) return static_cast<HcclResult>(code);
    body();
    return HCCL_SUCCESS;
  } catch (const CollectiveFailure& failure) {
    error(ACL_ERROR_INVALID_PARAM, "%s: %s", function, failure.what());
    return failure.code;
  } catch (const RuntimeFailure&) {
    return HCCL_E_RUNTIME;
  } catch (const std::bad_alloc&) {
    error(ACL_ERROR_BAD_ALLOC, "%s: out of host memory", function);
    return HCCL_E_MEMORY;
  } catch (const std::exception& exception) {
    error(ACL_ERROR_INTERNAL_ERROR, "%s: %s", function, exception.what());
    return HCCL_E_INTERNAL;
  }
}

template <class T>
T* required(T* pointer, const char* name) {
  if (pointer == nullptr) throw CollectiveFailure(HCCL_E_PTR, std::string(name) + " is null");
  return pointer;
}

// A buffer that is used when there are elements.
char* buffer(const void* pointer, const char* name, uint64_t count) {
  if (count > 0) required(pointer, name);
  return static_cast<char*>(const_cast<void*>(pointer));
}

void require_apart(const void* send, const void* receive) {
  if (send == receive && send != nullptr) {
    throw CollectiveFailure(HCCL_E_PARA, "sendBuf and recvBuf are one buffer; this function takes two");
  }
}

void require_count(uint64_t receive, uint64_t send, const char* name) {
  if (receive == send) return;
  throw CollectiveFailure(HCCL_E_PARA, "recvCount is " + std::to_string(receive) + ", " + name + " is " +
                                           std::to_string(send) + "; they must be the same");
}

void require_rank(uint32_t rank, const char* name, uint32_t size) {
  if (rank >= size) {
    throw CollectiveFailure(HCCL_E_PARA, std::string(name) + " is " + std::to_string(rank) + "; the communicator has " +
                                             std::to_string(size) + " ranks");
  }
}

void require_same(HcclDataType send, HcclDataType receive) {
  if (send == receive) return;
  throw CollectiveFailure(HCCL_E_PARA, std::string("sendType is ") + name_of(send) + ", recvType is " +
                                           name_of(receive) + "; they must be the same");
}

// Throws here, before anything is enqueued, when there is no such reduction.
Reduced reduced(HcclDataType type, HcclReduceOp op) {
  Reduction::make(type, op);
  return {type, op};
}

// HcclReduceScatterV reduces less: no products, and no int64 on Atlas A2.
Reduced reduced_unevenly(HcclDataType type, HcclReduceOp op) {
  const bool is_a2 = std::string_view(soc().family) == "ascend910b";
  if (op == HCCL_REDUCE_PROD || (is_a2 && type == HCCL_DATA_TYPE_INT64)) throw not_reduced(type, op);
  return reduced(type, op);
}

std::vector<uint64_t> numbers(const void* array, const char* name, size_t count) {
  const auto* first = static_cast<const uint64_t*>(required(array, name));
  return {first, first + count};
}

uint64_t total(const std::vector<uint64_t>& counts) {
  uint64_t sum = 0;
  for (const uint64_t count : counts) sum += count;
  return sum;
}

// What a call does to its buffers, for the checks of whole programs; they are numbered as its function has them.
class Uses {
 public:
  Uses& reads(uint32_t argument, const char* data, const Parts& parts) { return add(false, argument, data, parts); }
  Uses& writes(uint32_t argument, const char* data, const Parts& parts) { return add(true, argument, data, parts); }
  Uses& reads(uint32_t argument, const char* data, size_t bytes) { return reads(argument, data, {{bytes}, {0}}); }
  Uses& writes(uint32_t argument, const char* data, size_t bytes) { return writes(argument, data, {{bytes}, {0}}); }

  operator Accesses() const { return accesses_; }

 private:
  Uses& add(bool is_write, uint32_t argument, const char* data, const Parts& parts) {
    if (!accesses_are_checked()) return *this;
    const size_t others = accesses_.size();
    for (size_t i = 0; i < parts.bytes.size(); ++i) {
      const uintptr_t begin = reinterpret_cast<uintptr_t>(data) + parts.offsets[i], end = begin + parts.bytes[i];
      if (begin == end) continue;
      if (accesses_.size() > others && accesses_.back().end == begin) {
        accesses_.back().end = end;
      } else {
        accesses_.push_back({begin, end, is_write, argument});
      }
    }
    return *this;
  }

  Accesses accesses_;
};

// What a thread has called between HcclGroupStart and HcclGroupEnd.
struct Grouped {
  std::shared_ptr<Communicator> communicator;
  aclrtStream stream;
  std::vector<PointToPoint> items;  // or
  std::function<aclError(Communicator& communicator, aclrtStream)> enqueue;
};
struct Group {
  int depth = 0;
  std::vector<Grouped> calls;
};
thread_local Group group;

void run(HcclComm comm, aclrtStream stream, Call call, Accesses accesses, Communicator::Body body) {
  const std::shared_ptr<Communicator> communicator = find(comm);
  if (group.depth == 0) {
    require_success(communicator->enqueue(stream, std::move(call), accesses, std::move(body)));
    return;
  }
  group.calls.push_back({communicator, stream, {}, [call, accesses, body](Communicator& found, aclrtStream on) {
                           return found.enqueue(on, call, accesses, body);
                         }});
}

void run(HcclComm comm, aclrtStream stream, std::vector<PointToPoint> items) {
  const std::shared_ptr<Communicator> communicator = find(comm);
  for (const PointToPoint& item : items) {
    require_rank(item.peer, "the other rank", communicator->size());
    size_of(item.type);
    buffer(item.data, item.direction == HCCL_SEND ? "sendBuf" : "recvBuf", item.count);
  }
  if (group.depth == 0) {
    require_success(communicator->enqueue(stream, std::move(items)));
    return;
  }
  for (Grouped& grouped : group.calls) {
    if (grouped.communicator != communicator || grouped.stream != stream || grouped.items.empty()) continue;
    grouped.items.insert(grouped.items.end(), items.begin(), items.end());
    return;
  }
  group.calls.push_back({communicator, stream, std::move(items), nullptr});
}

// 0: no limit.
std::chrono::seconds default_timeout() {
  return std::chrono::seconds(number_in("HCCL_EXEC_TIMEOUT", 1836, 0, INT_MAX));
}

// As HCCL reads it: "level0:NA;level1:ring", or the same for operators, "allreduce=level0:NA;level1:ring/reduce=...".
void require_algorithms(const std::string& text) {
  static const regex_t* const form = [] {
    auto* compiled = new regex_t;
    const char* const pattern = "^([a-z]+=)?level[0-9]:[[:alnum:]_-]+(;level[0-9]:[[:alnum:]_-]+)*$";
    return regcomp(compiled, pattern, REG_EXTENDED | REG_NOSUB) == 0 ? compiled : nullptr;
  }();
  size_t from = 0;
  while (from < text.size()) {
    const size_t end = std::min(text.find('/', from), text.size());
    const std::string one = text.substr(from, std::min<size_t>(end - from, 80));
    if (form == nullptr || regexec(form, one.c_str(), 0, nullptr, 0) != 0) {
      throw CollectiveFailure(HCCL_E_PARA, "hcclAlgo has '" + one +
                                               "'; expected level0:NA;level1:ring, or of operators "
                                               "allreduce=level0:NA;level1:ring/allgather=level0:NA;level1:ring");
    }
    from = end + 1;
  }
}

// On a CPU, only the name and the timeout of a configuration matter. The other fields choose buffers, networks and
// algorithms of the NPU, which do not change a result.
CommunicatorOptions options_of(const HcclCommConfig* config) {
  CommunicatorOptions options{"", default_timeout()};
  if (config == nullptr) return options;
  size_t size = 0;
  uint32_t magic = 0;
  std::memcpy(&size, config->reserved, sizeof(size));
  std::memcpy(&magic, config->reserved + sizeof(size), sizeof(magic));
  if (magic != HCCL_COMM_CONFIG_MAGIC_WORD) {
    throw CollectiveFailure(HCCL_E_PARA, "config was not initialised by HcclCommConfigInit");
  }
  if (size >= offsetof(HcclCommConfig, hcclUdi)) {
    options.name.assign(config->hcclCommName, strnlen(config->hcclCommName, COMM_NAME_MAX_LENGTH - 1));
  }
  if (size >= offsetof(HcclCommConfig, hcclAlgo) && config->hcclExecTimeOut != HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET) {
    if (config->hcclExecTimeOut < 0) {
      throw CollectiveFailure(HCCL_E_PARA, "hcclExecTimeOut is " + std::to_string(config->hcclExecTimeOut) +
                                               "; expected seconds, or 0 for none");
    }
    options.timeout = std::chrono::seconds(config->hcclExecTimeOut);
  }
  if (size >= offsetof(HcclCommConfig, hcclRetryEnable)) {
    require_algorithms({config->hcclAlgo, strnlen(config->hcclAlgo, HCCL_COMM_ALGO_MAX_LENGTH)});
  }
  return options;
}

void init_root_info(uint32_t ranks, const HcclRootInfo* root_info, uint32_t rank, const HcclCommConfig* config,
                    HcclComm* comm, int32_t device) {
  required(comm, "comm");
  if (ranks == 0) throw CollectiveFailure(HCCL_E_PARA, "nRanks is 0");
  require_rank(rank, "rank", ranks);
  const CommunicatorOptions options = options_of(config);
  Rendezvous rendezvous = gather(find_root(*required(root_info, "rootInfo")), rank, ranks, connect_timeout());
  *comm = keep(std::make_shared<Communicator>(std::move(rendezvous), "", rank, options), device);
}

void init_cluster_info(const char* path, uint32_t rank, const HcclCommConfig* config, HcclComm* comm) {
  required(comm, "comm");
  const RankTable table = read_rank_table(required(path, "clusterInfo"));
  const auto ranks = static_cast<uint32_t>(table.devices.size());
  require_rank(rank, "rank", ranks);
  // Among devices that ASCEND_RT_VISIBLE_DEVICES has chosen, numbers are others than on the machine.
  const int32_t device = current_device();
  if (device != table.devices[rank] && std::getenv("ASCEND_RT_VISIBLE_DEVICES") == nullptr) {
    throw CollectiveFailure(HCCL_E_PARA, std::string("rank table '") + path + "' has rank " + std::to_string(rank) +
                                             " on device " + std::to_string(table.devices[rank]) +
                                             "; the current device is " + std::to_string(device));
  }
  const CommunicatorOptions options = options_of(config);
  Rendezvous rendezvous = gather(root_of_table(table, rank), rank, ranks, connect_timeout());
  *comm = keep(std::make_shared<Communicator>(std::move(rendezvous), "", rank, options), device);
}

const bool kernels_find_communicators =
    (provide_kernel_communicators([](const std::string& group) { return for_kernels(find(find(group))); }), true);

}  // namespace

HcclResult find_window(HcclComm comm, uint32_t rank, Window& window) {
  return guarded("group", [&] { window = find(comm)->windows().of(rank); });
}

HcclResult find_timeout(HcclComm comm, std::chrono::seconds& timeout) {
  return guarded("group", [&] { timeout = find(comm)->timeout(); });
}

aclError enqueue_ordered(HcclComm comm, aclrtStream stream, const std::function<aclError()>& enqueue) {
  aclError code = ACL_SUCCESS;
  const HcclResult found = guarded(__func__, [&] { code = find(comm)->enqueue_ordered(stream, enqueue); });
  return found == HCCL_SUCCESS ? code : ACL_ERROR_INVALID_PARAM;
}

}  // namespace cann_cpu

using namespace cann_cpu;

HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo) {
  return guarded(__func__, [&] { open_root(*required(rootInfo, "rootInfo")); });
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, HcclComm* comm) {
  return guarded(__func__, [&] { init_root_info(nRanks, rootInfo, rank, nullptr, comm, current_device()); });
}

HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                      const HcclCommConfig* config, HcclComm* comm) {
  return guarded(__func__,
                 [&] { init_root_info(nRanks, rootInfo, rank, required(config, "config"), comm, current_device()); });
}

HcclResult HcclGetRootInfoScalable(HcclRootInfo* rootInfo) {
  return guarded(__func__, [&] { open_root(*required(rootInfo, "rootInfo")); });
}

HcclResult HcclCommInitRootInfoScalable(uint32_t nRanks, uint32_t nRoot, const HcclRootInfo* rootInfoList,
                                        uint32_t rank, uint32_t /* nExtRoot: of uneven groups */,
                                        const HcclCommConfig* config, HcclComm* comm) {
  return guarded(__func__, [&] {
    required(rootInfoList, "rootInfoList");
    if (nRoot == 0 || nRoot > nRanks) {
      throw CollectiveFailure(
          HCCL_E_PARA, "nRoot is " + std::to_string(nRoot) + "; expected 1 to " + std::to_string(nRanks) + " (nRanks)");
    }
    init_root_info(nRanks, rootInfoList, rank, required(config, "config"), comm, current_device());
    for (uint32_t root = 1; root < nRoot; ++root) find_root(rootInfoList[root]);
  });
}

HcclResult HcclCommInitClusterInfo(const char* clusterInfo, uint32_t rank, HcclComm* comm) {
  return guarded(__func__, [&] { init_cluster_info(clusterInfo, rank, nullptr, comm); });
}

HcclResult HcclCommInitClusterInfoConfig(const char* clusterInfo, uint32_t rank, HcclCommConfig* config,
                                         HcclComm* comm) {
  return guarded(__func__, [&] { init_cluster_info(clusterInfo, rank, required(config, "config"), comm); });
}

HcclResult HcclCommInitAll(uint32_t ndev, int32_t* devices, HcclComm* comms) {
  return guarded(__func__, [&] {
    required(devices, "devices");
    required(comms, "comms");
    if (ndev == 0) throw CollectiveFailure(HCCL_E_PARA, "ndev is 0");
    HcclRootInfo root_info;
    open_root(root_info);
    std::vector<std::exception_ptr> failures(ndev);
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < ndev; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          init_root_info(ndev, &root_info, rank, nullptr, &comms[rank], devices[rank]);
        } catch (...) {
          failures[rank] = std::current_exception();
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const std::exception_ptr& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
  });
}

HcclResult HcclCreateSubCommConfig(HcclComm* comm, uint32_t rankNum, uint32_t* rankIds, uint64_t subCommId,
                                   uint32_t subCommRankId, HcclCommConfig* config, HcclComm* subComm) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Communicator> whole = find(*required(comm, "comm"));
    required(subComm, "subComm");
    if (rankIds == nullptr && rankNum == 0) {  // a rank that is not part of it
      *subComm = nullptr;
      return;
    }
    const std::vector<uint32_t> ranks(required(rankIds, "rankIds"), rankIds + rankNum);
    for (const uint32_t rank : ranks) require_rank(rank, "an element of rankIds", whole->size());
    require_rank(subCommRankId, "subCommRankId", rankNum);
    if (ranks[subCommRankId] != whole->rank()) {
      throw CollectiveFailure(HCCL_E_PARA, "rankIds[" + std::to_string(subCommRankId) + "] is " +
                                               std::to_string(ranks[subCommRankId]) + "; this is rank " +
                                               std::to_string(whole->rank()));
    }
    *subComm = keep(whole->make_part(ranks, subCommId, subCommRankId, options_of(config)));
  });
}

HcclResult HcclCommSuspend(HcclComm comm) {
  return guarded(__func__, [&] { find(comm)->suspend(); });
}

HcclResult HcclCommResume(HcclComm comm) {
  return guarded(__func__, [&] { find(comm)->resume(); });
}

HcclResult HcclCommDestroy(HcclComm comm) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Communicator> communicator = find(comm);
    {
      std::lock_guard lock(communicators().mutex);
      communicators().entries.erase(comm);
    }
    communicator->destroy();
  });
}

HcclResult HcclCommRegister(HcclComm comm, void* addr, uint64_t size, void** handle, uint32_t flag) {
  return guarded(__func__, [&] {
    if (flag != 0) throw CollectiveFailure(HCCL_E_PARA, "flag is " + std::to_string(flag) + "; expected 0");
    *required(handle, "handle") = find(comm)->windows().add(addr, size);
  });
}

HcclResult HcclCommDeregister(HcclComm comm, void* handle) {
  return guarded(__func__, [&] { find(comm)->windows().remove(handle); });
}

HcclResult HcclCommExchangeMem(HcclComm comm, void* windowHandle, uint32_t* peerRanks, uint32_t peerRankNum) {
  return guarded(__func__, [&, name = __func__] {
    const std::shared_ptr<Communicator> communicator = find(comm);
    const std::vector<uint32_t> peers(required(peerRanks, "peerRanks"), peerRanks + peerRankNum);
    for (const uint32_t peer : peers) {
      require_rank(peer, "an element of peerRanks", communicator->size());
      if (peer == communicator->rank()) throw CollectiveFailure(HCCL_E_PARA, "peerRanks has the calling rank");
    }
    communicator->windows().exchange(communicator->rank(), windowHandle, [&](const std::string& mine) {
      std::map<uint32_t, std::string> theirs;
      require_success(communicator->exchange(name, peers, mine, theirs));
      return theirs;
    });
  });
}

HcclResult HcclGetCommName(HcclComm comm, char* commName) {
  return guarded(__func__, [&] {
    required(commName, "commName");
    std::strncpy(commName, find(comm)->name().c_str(), COMM_NAME_MAX_LENGTH - 1);
    commName[COMM_NAME_MAX_LENGTH - 1] = '\0';
  });
}

HcclResult HcomGetCommHandleByGroup(const char* group, HcclComm* commHandle) {
  return guarded(__func__, [&] { *required(commHandle, "commHandle") = find(std::string(required(group, "group"))); });
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize) {
  return guarded(__func__, [&] { *required(rankSize, "rankSize") = find(comm)->size(); });
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank) {
  return guarded(__func__, [&] { *required(rank, "rank") = find(comm)->rank(); });
}

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError) {
  return guarded(__func__, [&] {
    required(asyncError, "asyncError");
    const auto broken = find(comm)->broken();
    *asyncError = broken ? broken->code : HCCL_SUCCESS;
    // torch_npu reports the code together with the thread's latest message.
    if (broken) error(ACL_ERROR_INTERNAL_ERROR, "%s", broken->reason.c_str());
  });
}

const char* HcclGetErrorString(HcclResult code) {
  static const char* const texts[] = {
      "success",        "wrong parameter",     "null pointer",     "out of memory",      "internal error",
      "not supported",  "not found",           "not available",    "system call failed", "timeout",
      "cannot open",    "cannot connect",      "cannot connect",   "transfer failed",    "transfer failed",
      "runtime failed", "driver failed",       "profiling failed", "cce failed",         "network failed",
      "try again",      "another rank failed", "suspending",       "retry failed",       "out of device memory"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(texts) ? texts[index] : "unknown HcclResult";
}

// All up to the timeout of calls; algorithms, retries and buffer names are those of NPUs.
uint32_t HcclGetCommConfigCapability() { return HCCL_COMM_CONFIG_EXEC_TIMEOUT + 1; }

// Sums are in the order of the ranks at every level: 0, 1 or 2 (strict).
HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue) {
  return guarded(__func__, [&] {
    if (config != HCCL_DETERMINISTIC || configValue.value < 0 || configValue.value > 2) {
      throw CollectiveFailure(HCCL_E_PARA, "config " + std::to_string(config) + " with value " +
                                               std::to_string(configValue.value) + " is unknown");
    }
    deterministic = configValue.value;
  });
}

HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue* configValue) {
  return guarded(__func__, [&] {
    if (config != HCCL_DETERMINISTIC) {
      throw CollectiveFailure(HCCL_E_PARA, "config " + std::to_string(config) + " is unknown");
    }
    required(configValue, "configValue")->value = deterministic;
  });
}

HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                         HcclComm comm, aclrtStream stream) {
  return guarded(__func__, [&] {
    const Reduced how = reduced(dataType, op);
    const size_t bytes = count * size_of(dataType);
    char* send = buffer(sendBuf, "sendBuf", count);
    char* receive = buffer(recvBuf, "recvBuf", count);
    run(comm, stream, {CallKind::kAllReduce, dataType, op, {}, count, {}, {}},
        Uses().reads(1, send, bytes).writes(2, receive, bytes),
        [=](Mesh& mesh, const Deadline& deadline) { all_reduce(mesh, send, receive, count, how, deadline); });
  });
}

HcclResult HcclReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                      uint32_t root, HcclComm comm, aclrtStream stream) {
  return guarded(__func__, [&] {
    const Reduced how = reduced(dataType, op);
    const auto communicator = find(comm);
    require_rank(root, "root", communicator->size());
    const bool is_root = communicator->rank() == root;
    const size_t bytes = count * size_of(dataType);
    char* send = buffer(sendBuf, "sendBuf", count);
    char* receive = buffer(recvBuf, "recvBuf", is_root ? count : 0);
    run(comm, stream, {CallKind::kReduce, dataType, op, root, count, {}, {}},
        Uses().reads(1, send, bytes).writes(2, receive, is_root ? bytes : 0),
        [=](Mesh& mesh, const Deadline& deadline) { reduce(mesh, send, receive, count, how, root, deadline); });
  });
}

HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm,
                         aclrtStream stream) {
  return guarded(__func__, [&] {
    const size_t bytes = count * size_of(dataType);
    const auto communicator = find(comm);
    require_rank(root, "root", communicator->size());
    const bool is_root = communicator->rank() == root;
    char* data = buffer(buf, "buf", count);
    run(comm, stream, {CallKind::kBroadcast, dataType, {}, root, count, {}, {}},
        is_root ? Uses().reads(1, data, bytes) : Uses().writes(1, data, bytes),
        [=](Mesh& mesh, const Deadline& deadline) { broadcast(mesh, data, bytes, root, deadline); });
  });
}

HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType, HcclComm comm,
                         aclrtStream stream) {
  return guarded(__func__, [&] {
    char* send = buffer(sendBuf, "sendBuf", sendCount);
    char* receive = buffer(recvBuf, "recvBuf", sendCount);
    const Parts parts = packed(std::vector<uint64_t>(find(comm)->size(), sendCount), size_of(dataType));
    run(comm, stream, {CallKind::kAllGather, dataType, {}, {}, sendCount, {}, {}},
        Uses().reads(1, send, sendCount * size_of(dataType)).writes(2, receive, parts),
        [=](Mesh& mesh, const Deadline& deadline) { all_gather(mesh, send, receive, parts, deadline); });
  });
}

HcclResult HcclAllGatherV(void* sendBuf, uint64_t sendCount, void* recvBuf, const void* recvCounts,
                          const void* recvDispls, HcclDataType dataType, HcclComm comm, aclrtStream stream) {
  return guarded(__func__, [&] {
    const uint32_t size = find(comm)->size();
    const std::vector<uint64_t> counts = numbers(recvCounts, "recvCounts", size);
    const Parts parts = parts_of(counts, numbers(recvDispls, "recvDispls", size), size_of(dataType));
    char* send = buffer(sendBuf, "sendBuf", sendCount);
    char* receive = buffer(recvBuf, "recvBuf", total(counts));
    run(comm, stream, {CallKind::kAllGatherV, dataType, {}, {}, {}, std::vector<uint64_t>(size, sendCount), counts},
        Uses().reads(1, send, sendCount * size_of(dataType)).writes(3, receive, parts),
        [=](Mesh& mesh, const Deadline& deadline) { all_gather(mesh, send, receive, parts, deadline); });
  });
}

HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, HcclReduceOp op,
                             HcclComm comm, aclrtStream stream) {
  return guarded(__func__, [&] {
    const Reduced how = reduced(dataType, op);
    char* send = buffer(sendBuf, "sendBuf", recvCount);
    char* receive = buffer(recvBuf, "recvBuf", recvCount);
    const Parts parts = packed(std::vector<uint64_t>(find(comm)->size(), recvCount), size_of(dataType));
    run(comm, stream, {CallKind::kReduceScatter, dataType, op, {}, recvCount, {}, {}},
        Uses().reads(1, send, parts).writes(2, receive, recvCount * size_of(dataType)),
        [=](Mesh& mesh, const Deadline& deadline) { reduce_scatter(mesh, send, parts, receive, how, deadline); });
  });
}

HcclResult HcclReduceScatterV(void* sendBuf, const void* sendCounts, const void* sendDispls, void* recvBuf,
                              uint64_t recvCount, HcclDataType dataType, HcclReduceOp op, HcclComm comm,
                              aclrtStream stream) {
  return guarded(__func__, [&] {
    const Reduced how = reduced_unevenly(dataType, op);
    const auto communicator = find(comm);
    const uint32_t size = communicator->size();
    const std::vector<uint64_t> counts = numbers(sendCounts, "sendCounts", size);
    require_count(recvCount, counts[communicator->rank()], "sendCounts of this rank");
    const Parts parts = parts_of(counts, numbers(sendDispls, "sendDispls", size), size_of(dataType));
    char* send = buffer(sendBuf, "sendBuf", total(counts));
    char* receive = buffer(recvBuf, "recvBuf", recvCount);
    require_apart(send, receive);
    run(comm, stream, {CallKind::kReduceScatterV, dataType, op, {}, {}, counts, std::vector<uint64_t>(size, recvCount)},
        Uses().reads(1, send, parts).writes(4, receive, recvCount * size_of(dataType)),
        [=](Mesh& mesh, const Deadline& deadline) { reduce_scatter(mesh, send, parts, receive, how, deadline); });
  });
}

HcclResult HcclScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, uint32_t root,
                       HcclComm comm, aclrtStream stream) {
  return guarded(__func__, [&] {
    const auto communicator = find(comm);
    require_rank(root, "root", communicator->size());
    const bool is_root = communicator->rank() == root;
    const size_t bytes = recvCount * size_of(dataType);
    char* send = buffer(sendBuf, "sendBuf", is_root ? recvCount : 0);
    char* receive = buffer(recvBuf, "recvBuf", recvCount);
    run(comm, stream, {CallKind::kScatter, dataType, {}, root, recvCount, {}, {}},
        Uses().reads(1, send, is_root ? communicator->size() * bytes : 0).writes(2, receive, bytes),
        [=](Mesh& mesh, const Deadline& deadline) { scatter(mesh, send, receive, bytes, root, deadline); });
  });
}

HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType, const void* recvBuf,
                        uint64_t recvCount, HcclDataType recvType, HcclComm comm, aclrtStream stream) {
  return guarded(__func__, [&] {
    require_same(sendType, recvType);
    require_count(recvCount, sendCount, "sendCount");
    const uint32_t size = find(comm)->size();
    const std::vector<uint64_t> sent(size, sendCount);
    const std::vector<uint64_t> received(size, recvCount);
    const Parts sends = packed(sent, size_of(sendType));
    const Parts receives = packed(received, size_of(recvType));
    char* send = buffer(sendBuf, "sendBuf", sendCount);
    char* receive = buffer(recvBuf, "recvBuf", recvCount);
    require_apart(send, receive);
    run(comm, stream, {CallKind::kAlltoAll, sendType, {}, {}, {}, sent, received},
        Uses().reads(1, send, sends).writes(4, receive, receives),
        [=](Mesh& mesh, const Deadline& deadline) { all_to_all(mesh, send, sends, receive, receives, deadline); });
  });
}

HcclResult HcclAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls, HcclDataType sendType,
                         const void* recvBuf, const void* recvCounts, const void* rdispls, HcclDataType recvType,
                         HcclComm comm, aclrtStream stream) {
  return guarded(__func__, [&] {
    require_same(sendType, recvType);
    const uint32_t size = find(comm)->size();
    const std::vector<uint64_t> sent = numbers(sendCounts, "sendCounts", size);
    const std::vector<uint64_t> received = numbers(recvCounts, "recvCounts", size);
    const Parts sends = parts_of(sent, numbers(sdispls, "sdispls", size), size_of(sendType));
    const Parts receives = parts_of(received, numbers(rdispls, "rdispls", size), size_of(recvType));
    char* send = buffer(sendBuf, "sendBuf", total(sent));
    char* receive = buffer(recvBuf, "recvBuf", total(received));
    require_apart(send, receive);
    run(comm, stream, {CallKind::kAlltoAllV, sendType, {}, {}, {}, sent, received},
        Uses().reads(1, send, sends).writes(5, receive, receives),
        [=](Mesh& mesh, const Deadline& deadline) { all_to_all(mesh, send, sends, receive, receives, deadline); });
  });
}

HcclResult HcclAlltoAllVC(const void* sendBuf, const void* sendCountMatrix, HcclDataType sendType, const void* recvBuf,
                          HcclDataType recvType, HcclComm comm, aclrtStream stream) {
  return guarded(__func__, [&] {
    require_same(sendType, recvType);
    const auto communicator = find(comm);
    const uint32_t size = communicator->size();
    const uint32_t own = communicator->rank();
    const std::vector<uint64_t> matrix = numbers(sendCountMatrix, "sendCountMatrix", size_t{size} * size);
    std::vector<uint64_t> sent;
    std::vector<uint64_t> received;
    for (uint32_t rank = 0; rank < size; ++rank) {
      sent.push_back(matrix[size_t{own} * size + rank]);
      received.push_back(matrix[size_t{rank} * size + own]);
    }
    const Parts sends = packed(sent, size_of(sendType));
    const Parts receives = packed(received, size_of(recvType));
    char* send = buffer(sendBuf, "sendBuf", total(sent));
    char* receive = buffer(recvBuf, "recvBuf", total(received));
    require_apart(send, receive);
    run(comm, stream, {CallKind::kAlltoAllVC, sendType, {}, {}, {}, sent, received},
        Uses().reads(1, send, sends).writes(4, receive, receives),
        [=](Mesh& mesh, const Deadline& deadline) { all_to_all(mesh, send, sends, receive, receives, deadline); });
  });
}

HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  return guarded(__func__, [&] {
    run(comm, stream, {CallKind::kBarrier, {}, {}, {}, {}, {}, {}}, {},
        [](Mesh&, const Deadline&) {});  // agreeing is it
  });
}

HcclResult HcclSend(void* sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank, HcclComm comm,
                    aclrtStream stream) {
  return guarded(__func__,
                 [&] { run(comm, stream, {{HCCL_SEND, static_cast<char*>(sendBuf), count, dataType, destRank}}); });
}

HcclResult HcclRecv(void* recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank, HcclComm comm,
                    aclrtStream stream) {
  return guarded(__func__,
                 [&] { run(comm, stream, {{HCCL_RECV, static_cast<char*>(recvBuf), count, dataType, srcRank}}); });
}

HcclResult HcclBatchSendRecv(HcclSendRecvItem* sendRecvInfo, uint32_t itemNum, HcclComm comm, aclrtStream stream) {
  return guarded(__func__, [&] {
    required(sendRecvInfo, "sendRecvInfo");
    if (itemNum == 0) throw CollectiveFailure(HCCL_E_PARA, "itemNum is 0");
    std::vector<PointToPoint> items;
    for (uint32_t i = 0; i < itemNum; ++i) {
      const HcclSendRecvItem& item = sendRecvInfo[i];
      if (item.sendRecvType != HCCL_SEND && item.sendRecvType != HCCL_RECV) {
        throw CollectiveFailure(HCCL_E_PARA,
                                "sendRecvType is " + std::to_string(item.sendRecvType) + "; expected 0 or 1");
      }
      items.push_back({item.sendRecvType, static_cast<char*>(item.buf), item.count, item.dataType, item.remoteRank});
    }
    run(comm, stream, std::move(items));
  });
}

HcclResult HcclGroupStart() {
  ++group.depth;
  return HCCL_SUCCESS;
}

HcclResult HcclGroupEnd() {
  return guarded(__func__, [&] {
    if (group.depth == 0) throw CollectiveFailure(HCCL_E_PARA, "HcclGroupStart was not called in this thread");
    if (--group.depth > 0) return;
    for (Grouped& grouped : std::exchange(group.calls, {})) {
      Communicator& communicator = *grouped.communicator;
      require_success(grouped.enqueue ? grouped.enqueue(communicator, grouped.stream)
                                      : communicator.enqueue(grouped.stream, std::move(grouped.items)));
    }
  });
}
