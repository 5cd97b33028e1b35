// SPDX-License-Identifier: Apache-2.0
#include "windows.h"

#include <array>
#include <cstring>
#include <utility>

#include "acl/acl_rt.h"
#include "cann_cpu/device_memory.h"
#include "failure.h"

namespace cann_cpu {
namespace {

constexpr size_t kKeySize = 65;  // of aclrtIpcMemGetExportKey

// A window, as its rank describes it to others.
struct Description {
  std::array<char, kKeySize> key;
  uint64_t offset;
  uint64_t size;
};

void require(aclError code, const std::string& what) {
  if (code == ACL_SUCCESS) return;
  const char* const reason = aclGetRecentErrMsg();
  throw CollectiveFailure(HCCL_E_RUNTIME, what + ": " + (reason == nullptr ? "it failed" : reason));
}

}  // namespace

const Windows::Own& Windows::own(const void* handle) {
  const auto found = own_.find(handle);
  if (found == own_.end()) throw CollectiveFailure(HCCL_E_PARA, "the handle was not returned by HcclCommRegister");
  return found->second;
}

void* Windows::add(void* address, uint64_t size) {
  if (address == nullptr) throw CollectiveFailure(HCCL_E_PTR, "addr is null");
  if (size == 0) throw CollectiveFailure(HCCL_E_PARA, "size is 0");
  DeviceMemory whole{};
  require(find_device_memory("addr", address, size, whole), "addr");
  std::array<char, kKeySize> key{};
  require(aclrtIpcMemGetExportKey(whole.begin, whole.size, key.data(), key.size(),
                                  ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION),
          "addr");
  auto* const data = static_cast<char*>(address);
  const std::lock_guard lock(mutex_);
  const auto [added, is_new] = own_.try_emplace(
      address, Own{{data, size}, key.data(), static_cast<uint64_t>(data - static_cast<char*>(whole.begin))});
  if (!is_new) throw CollectiveFailure(HCCL_E_PARA, "addr is the address of another window of this rank");
  return address;
}

void Windows::remove(const void* handle) {
  std::vector<Exchanged> removed;
  const std::lock_guard lock(mutex_);
  own(handle);
  std::erase_if(exchanged_, [&](auto& entry) {
    if (entry.second.handle != handle) return false;
    removed.push_back(std::move(entry.second));
    return true;
  });
  own_.erase(handle);
}

void Windows::exchange(uint32_t rank, const void* handle, const Exchange& with_peers) {
  Own mine{};
  {
    const std::lock_guard lock(mutex_);
    mine = own(handle);
  }
  Description description{{}, mine.offset, mine.window.size};
  mine.key.copy(description.key.data(), kKeySize - 1);
  std::string sent(sizeof(description), '\0');
  std::memcpy(sent.data(), &description, sizeof(description));
  std::map<uint32_t, Exchanged> found{{rank, {mine.window, nullptr, handle}}};
  for (const auto& [peer, bytes] : with_peers(sent)) {
    std::memcpy(&description, bytes.data(), sizeof(description));
    void* address = nullptr;
    require(aclrtIpcMemImportByKey(&address, description.key.data(), 0),
            "the window of rank " + std::to_string(peer) + " cannot be mapped; the ranks must be on one host");
    const auto close = [key = std::string(description.key.data())](void*) { aclrtIpcMemClose(key.c_str()); };
    char* const data = static_cast<char*>(address) + description.offset;
    found[peer] = {{data, description.size}, std::shared_ptr<void>(address, close), handle};
  }
  const std::lock_guard lock(mutex_);
  for (auto& [peer, window] : found) std::swap(exchanged_[peer], window);
}

Window Windows::of(uint32_t rank) {
  const std::lock_guard lock(mutex_);
  const auto found = exchanged_.find(rank);
  if (found != exchanged_.end()) return found->second.window;
  throw CollectiveFailure(HCCL_E_NOT_FOUND,
                          "this rank has no window of rank " + std::to_string(rank) +
                              "; HcclCommRegister and HcclCommExchangeMem make one, which torch_npu's "
                              "_window_register_and_exchange calls on both ranks");
}

}  // namespace cann_cpu
