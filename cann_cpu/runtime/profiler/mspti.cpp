// SPDX-License-Identifier: Apache-2.0
// libmspti over the recorder of the profiler.
#include "mspti/mspti.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "recorder.h"
#include "runtime/device.h"

namespace cann_cpu::profiler {
namespace {

constexpr msptiActivityKind kKernels[] = {MSPTI_ACTIVITY_KIND_KERNEL, MSPTI_ACTIVITY_KIND_COMMUNICATION,
                                          MSPTI_ACTIVITY_KIND_MEMCPY, MSPTI_ACTIVITY_KIND_MEMSET};
constexpr msptiActivityKind kCalls[] = {MSPTI_ACTIVITY_KIND_ACL_API, MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

struct Tool {
  std::mutex mutex;
  bool is_subscribed = false;
  msptiBuffersCallbackRequestFunc request = nullptr;
  msptiBuffersCallbackCompleteFunc complete = nullptr;
  std::set<msptiActivityKind> enabled;
  bool is_recording = false;
  std::set<std::string> names;  // that records point to, for as long as the process lives
};

Tool& tool() {
  static auto* const only = new Tool;
  return *only;
}

thread_local std::vector<std::pair<msptiExternalCorrelationKind, uint64_t>> external_ids;

template <class Kinds>
bool has(const Kinds& kinds, msptiActivityKind kind) {
  return std::find(std::begin(kinds), std::end(kinds), kind) != std::end(kinds);
}

bool records_kernels(const Tool& tool) {
  return std::ranges::any_of(tool.enabled, [](msptiActivityKind kind) { return has(kKernels, kind); });
}

// Begins or ends to record, as what is enabled asks for. False when another profiler records.
bool follow(Tool& tool) {
  const bool wanted = records_kernels(tool);
  if (wanted == tool.is_recording) return true;
  if (wanted) {
    Selection selection;
    for (size_t id = 0; id < devices().size(); ++id) selection.devices.insert(static_cast<int32_t>(id));
    selection.calls = true;
    tool.is_recording = start(std::move(selection));
    return tool.is_recording;
  }
  tool.is_recording = false;
  end();
  return true;
}

// Buffers of the tool's, filled with records.
class Buffers {
 public:
  explicit Buffers(const Tool& tool) : request_(tool.request), complete_(tool.complete) {}
  ~Buffers() { hand_over(); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // False when the tool gives no buffer.
  template <class Record>
  bool add(const Record& record) {
    if (buffer_ == nullptr || used_ + sizeof(record) > size_ || (most_ != 0 && count_ == most_)) {
      hand_over();
      request_(&buffer_, &size_, &most_);
      if (buffer_ == nullptr || size_ < sizeof(record)) return false;
    }
    std::memcpy(buffer_ + used_, &record, sizeof(record));
    used_ += sizeof(record);
    ++count_;
    return true;
  }

 private:
  void hand_over() {
    if (buffer_ != nullptr) complete_(buffer_, size_, used_);
    buffer_ = nullptr;
    used_ = count_ = 0;
  }

  const msptiBuffersCallbackRequestFunc request_;
  const msptiBuffersCallbackCompleteFunc complete_;
  uint8_t* buffer_ = nullptr;
  size_t size_ = 0, most_ = 0, used_ = 0, count_ = 0;
};

const char* kept(Tool& tool, const std::string& name) { return tool.names.insert(name).first->c_str(); }

// The tool's functions are called without the lock: they may call these here.
msptiResult flush() {
  Tool& all = tool();
  std::unique_lock lock(all.mutex);
  if (all.request == nullptr) return MSPTI_ERROR_INVALID_PARAMETER;
  if (!all.is_recording) return MSPTI_SUCCESS;
  const Records records = take();
  const bool with_links = all.enabled.contains(MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  std::vector<msptiActivityKernel> kernels;
  for (const RowRecord& row : records.rows) {
    if (!row.is_kernel) continue;
    kernels.push_back({MSPTI_ACTIVITY_KIND_KERNEL,
                       row.begin,
                       row.end,
                       {static_cast<uint32_t>(row.of.device), static_cast<uint32_t>(row.of.stream)},
                       row.of.call,
                       kept(all, row.of.type.empty() ? row.of.name : row.of.type),
                       kept(all, row.of.name)});
  }
  Buffers buffers(all);
  lock.unlock();
  bool has_room = true;
  for (const CallRecord& call : records.calls) {
    if (!with_links || call.external == 0) continue;
    has_room = has_room && buffers.add(msptiActivityExternalCorrelation{
                               MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                               static_cast<msptiExternalCorrelationKind>(call.external_kind), call.external, call.id});
  }
  for (const msptiActivityKernel& kernel : kernels) has_room = has_room && buffers.add(kernel);
  return has_room ? MSPTI_SUCCESS : MSPTI_ERROR_MAX_LIMIT_REACHED;
}

size_t size_of(msptiActivityKind kind) {
  switch (kind) {
    case MSPTI_ACTIVITY_KIND_KERNEL:
      return sizeof(msptiActivityKernel);
    case MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(msptiActivityExternalCorrelation);
    default:
      return 0;
  }
}

bool is_kind(msptiExternalCorrelationKind kind) {
  return kind > MSPTI_EXTERNAL_CORRELATION_KIND_INVALID && kind < MSPTI_EXTERNAL_CORRELATION_KIND_SIZE;
}

// The latest id of any kind is that of the thread's calls.
void tell_recorder() {
  if (external_ids.empty()) return set_external(0, 0);
  set_external(external_ids.back().first, external_ids.back().second);
}

}  // namespace
}  // namespace cann_cpu::profiler

using namespace cann_cpu::profiler;

CANN_EXPORT msptiResult msptiSubscribe(msptiSubscriberHandle* subscriber, msptiCallbackFunc, void*) {
  if (subscriber == nullptr) return MSPTI_ERROR_INVALID_PARAMETER;
  Tool& all = tool();
  const std::lock_guard lock(all.mutex);
  if (all.is_subscribed) return MSPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  all.is_subscribed = true;
  *subscriber = &all;
  return MSPTI_SUCCESS;
}

CANN_EXPORT msptiResult msptiUnsubscribe(msptiSubscriberHandle subscriber) {
  Tool& all = tool();
  const std::lock_guard lock(all.mutex);
  if (subscriber != &all || !all.is_subscribed) return MSPTI_ERROR_INVALID_PARAMETER;
  all.is_subscribed = false;
  all.enabled.clear();
  follow(all);
  return MSPTI_SUCCESS;
}

CANN_EXPORT msptiResult msptiActivityRegisterCallbacks(msptiBuffersCallbackRequestFunc funcBufferRequested,
                                                       msptiBuffersCallbackCompleteFunc funcBufferCompleted) {
  if (funcBufferRequested == nullptr || funcBufferCompleted == nullptr) return MSPTI_ERROR_INVALID_PARAMETER;
  Tool& all = tool();
  const std::lock_guard lock(all.mutex);
  all.request = funcBufferRequested;
  all.complete = funcBufferCompleted;
  return MSPTI_SUCCESS;
}

CANN_EXPORT msptiResult msptiActivityEnable(msptiActivityKind kind) {
  if (!has(kKernels, kind) && !has(kCalls, kind)) return MSPTI_ERROR_INVALID_PARAMETER;
  Tool& all = tool();
  const std::lock_guard lock(all.mutex);
  all.enabled.insert(kind);
  if (follow(all)) return MSPTI_SUCCESS;
  all.enabled.erase(kind);
  return MSPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

CANN_EXPORT msptiResult msptiActivityDisable(msptiActivityKind kind) {
  Tool& all = tool();
  const std::lock_guard lock(all.mutex);
  all.enabled.erase(kind);
  follow(all);
  return MSPTI_SUCCESS;
}

CANN_EXPORT bool msptiActivityIsEnabled(msptiActivityKind kind) {
  Tool& all = tool();
  const std::lock_guard lock(all.mutex);
  return all.enabled.contains(kind);
}

CANN_EXPORT msptiResult msptiActivityFlushAll(uint32_t) { return flush(); }

CANN_EXPORT msptiResult msptiActivityGetNextRecord(uint8_t* buffer, size_t validBufferSizeBytes,
                                                   msptiActivity** record) {
  if (buffer == nullptr || record == nullptr) return MSPTI_ERROR_INVALID_PARAMETER;
  auto* next = buffer;
  if (*record != nullptr) {
    const size_t size = size_of((*record)->kind);
    if (size == 0) return MSPTI_ERROR_INVALID_PARAMETER;
    next = reinterpret_cast<uint8_t*>(*record) + size;
  }
  *record = nullptr;
  if (next >= buffer + validBufferSizeBytes) return MSPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<msptiActivity*>(next);
  return MSPTI_SUCCESS;
}

CANN_EXPORT msptiResult msptiActivityPushExternalCorrelationId(msptiExternalCorrelationKind kind, uint64_t id) {
  if (!is_kind(kind)) return MSPTI_ERROR_INVALID_PARAMETER;
  external_ids.emplace_back(kind, id);
  tell_recorder();
  return MSPTI_SUCCESS;
}

CANN_EXPORT msptiResult msptiActivityPopExternalCorrelationId(msptiExternalCorrelationKind kind, uint64_t* lastId) {
  if (!is_kind(kind)) return MSPTI_ERROR_INVALID_PARAMETER;
  const auto last =
      std::find_if(external_ids.rbegin(), external_ids.rend(), [&](const auto& each) { return each.first == kind; });
  if (last == external_ids.rend()) return MSPTI_ERROR_QUEUE_EMPTY;
  if (lastId != nullptr) *lastId = last->second;
  external_ids.erase(std::next(last).base());
  tell_recorder();
  return MSPTI_SUCCESS;
}
