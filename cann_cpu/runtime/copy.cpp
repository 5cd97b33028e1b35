// SPDX-License-Identifier: Apache-2.0
// Copies, fills and prefetches, at once or in a stream, with their bounds checked where the allocation is known.
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

#if defined(__x86_64__)
// Copies past the caches.
void stream_bytes(char* to, const char* from, size_t size) {
  constexpr size_t kLine = 64;
  constexpr size_t kAhead = 1024;  // that far ahead the source is prefetched
  const size_t head = -reinterpret_cast<uintptr_t>(to) % kLine;
  std::memcpy(to, from, head);
  size_t done = head;
  for (; done + kLine <= size; done += kLine) {
    _mm_prefetch(from + done + kAhead, _MM_HINT_T0);
    __m128i line[kLine / sizeof(__m128i)];
    std::memcpy(line, from + done, kLine);
    for (size_t i = 0; i < std::size(line); ++i) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + done) + i, line[i]);
    }
  }
  _mm_sfence();
  std::memcpy(to + done, from + done, size - done);
}

// Whether glibc's copy is slow: it copies many bytes from four pages in turns, and where the target lies a little
// after the source by its offset in a page, their loads wait for stores of the same offset. On AMD EPYC of family 25
// (Zen 3) that takes three times as long. PyTorch's large tensors on the host lie 64 bytes into a page, those on the
// device at its beginning.
bool loads_wait_for_stores(const void* to, const void* from, size_t size) {
  constexpr size_t kMany = 32 << 20, kPage = 4096, kLittle = 1024;
  const size_t distance = reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from);
  const bool target_begins_in_source = distance < size;
  return size >= kMany && distance % kPage > 0 && distance % kPage < kLittle && !target_begins_in_source;
}
#endif

// As std::memmove.
void copy_bytes(void* to, const void* from, size_t size) {
#if defined(__x86_64__)
  if (loads_wait_for_stores(to, from, size)) {
    return stream_bytes(static_cast<char*>(to), static_cast<const char*>(from), size);
  }
#endif
  std::memmove(to, from, size);
}

struct Copy {
  void* to;
  const void* from;
  size_t size;
  Range target;
  Range source;
  bool staged = false;  // the host's memory may be released when the call returns
};

void check_sizes(const void* dst, size_t destMax, const void* src, size_t count) {
  if (count > destMax) fail(ACL_ERROR_INVALID_PARAM, "count %zu is more than destMax %zu", count, destMax);
  require_pointer(dst, "dst");
  require_pointer(src, "src");
}

// Where `kind` has no effect, it still says of an address that the runtime does not know, as one of freed memory, that
// it should be the device's.
enum class KindIs { kRequired, kWithoutEffect };

Copy check_copy(void* dst, const void* src, size_t count, aclrtMemcpyKind kind, KindIs kind_is) {
  const Space target_space = find_range(dst).space, source_space = find_range(src).space;
  bool to_device = target_space == Space::kDevice;
  bool from_device = source_space == Space::kDevice;
  switch (kind) {
    case ACL_MEMCPY_HOST_TO_HOST:
      to_device = from_device = false;
      break;
    case ACL_MEMCPY_HOST_TO_DEVICE:
    case ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE:
      to_device = true, from_device = false;
      break;
    case ACL_MEMCPY_DEVICE_TO_HOST:
      to_device = false, from_device = true;
      break;
    case ACL_MEMCPY_DEVICE_TO_DEVICE:
    case ACL_MEMCPY_INNER_DEVICE_TO_DEVICE:
    case ACL_MEMCPY_INTER_DEVICE_TO_DEVICE:
      to_device = from_device = true;
      break;
    case ACL_MEMCPY_DEFAULT:
      break;
    default:
      fail(ACL_ERROR_INVALID_PARAM, "kind %d is unknown", kind);
  }
  if (kind_is == KindIs::kWithoutEffect) {
    if (target_space != Space::kPageable) to_device = target_space == Space::kDevice;
    if (source_space != Space::kPageable) from_device = source_space == Space::kDevice;
  }
  Range target = check_range("dst", dst, count, to_device);
  Range source = check_range("src", src, count, from_device);
  if (to_device && from_device && target.device != source.device && !have_peer_access(target.device, source.device)) {
    fail(ACL_ERROR_RT_PARAM_INVALID,
         "dst is of device %d and src of device %d, which lack access to each other; call aclrtDeviceEnablePeerAccess",
         target.device, source.device);
  }
  return {dst, src, count, target, source, kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE};
}

// Arguments are counted as aclrtMemcpy and aclrtMemset have them.
Accesses accesses_of(const Copy& copy) {
  if (!accesses_are_checked()) return {};
  const auto to = reinterpret_cast<uintptr_t>(copy.to), from = reinterpret_cast<uintptr_t>(copy.from);
  return {{to, to + copy.size, true, 1}, {from, from + copy.size, false, 3}};
}

Accesses accesses_of_fill(void* address, size_t size) {
  if (!accesses_are_checked()) return {};
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return {{begin, begin + size, true, 1}};
}

void copy_now(const char* name, const Copy& copy) {
  current_context();
  const Accesses accesses = accesses_of(copy);
  notify(&Observer::on_copy, copy.size, copy.target.space, copy.source.space);
  const Scope wait = scope_of(&Observer::on_wait, /*is_for_copy=*/true);
  const Scope access = scope_of(&Observer::on_host_access, name, accesses);
  copy_bytes(copy.to, copy.from, copy.size);
}

// Waits for a copy with pageable memory. A failure of the stream stays until it is synchronised: torch_npu makes the
// call in the thread of its task queue, which silently drops all later work after an error.
void copy_in_stream(const char* name, const Copy& copy, aclrtStream stream) {
  if (copy.source.space != Space::kDevice && copy.target.space != Space::kDevice) {
    fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "dst %p and src %p are host memory, within which no stream copies", copy.to,
         copy.from);
  }
  bool from_pageable = copy.source.space == Space::kPageable;
  bool to_pageable = copy.target.space == Space::kPageable;
  if (from_pageable || to_pageable) {
    if (task_recorder->reject_pageable(stream)) return;
    if (!copy.staged) task_recorder->forbid_unsafe(ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC);
  }
  if (!is_worker()) notify(&Observer::on_copy, copy.size, copy.target.space, copy.source.space);
  if (copy.staged) {
    const char* begin = static_cast<const char*>(copy.from);
    append(
        stream, name,
        [to = copy.to, staged = std::string(begin, begin + copy.size)] {
          std::memcpy(to, staged.data(), staged.size());
          return ACL_SUCCESS;
        },
        accesses_of(copy));
    return;
  }
  uint64_t number = append(
      stream, name,
      [to = copy.to, from = copy.from, size = copy.size] {
        copy_bytes(to, from, size);
        return ACL_SUCCESS;
      },
      accesses_of(copy));
  if ((from_pageable || to_pageable) && number > 0) {
    const std::shared_ptr<Stream> on = find_stream(stream);
    const Scope wait = scope_of(&Observer::on_wait, /*is_for_copy=*/true);
    on->wait(number);
    notify(&Observer::on_stream_waited, *on);
  }
}

aclError copy_async(const char* name, void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                    aclrtStream stream) {
  return call(name, [&] {
    if (count == 0) return;
    check_sizes(dst, destMax, src, count);
    copy_in_stream(name, check_copy(dst, src, count, kind, KindIs::kRequired), stream);
  });
}

void check_batch(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                 aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs, size_t* failIndex) {
  require_pointer(failIndex, "failIndex");
  *failIndex = SIZE_MAX;
  require_pointer(dsts, "dsts");
  require_pointer(destMaxs, "destMaxs");
  require_pointer(srcs, "srcs");
  require_pointer(sizes, "sizes");
  require_pointer(attrs, "attrs");
  require_pointer(attrsIndexes, "attrsIndexes");
  if (numBatches == 0) fail(ACL_ERROR_INVALID_PARAM, "numBatches is 0");
  if (numAttrs == 0 || numAttrs > numBatches) {
    fail(ACL_ERROR_INVALID_PARAM, "numAttrs is %zu; expected 1 to numBatches %zu", numAttrs, numBatches);
  }
  for (size_t i = 0; i < numAttrs; ++i) {
    const bool follows = i == 0 ? attrsIndexes[0] == 0 : attrsIndexes[i] > attrsIndexes[i - 1];
    if (follows && attrsIndexes[i] < numBatches) continue;
    fail(ACL_ERROR_RT_PARAM_INVALID, "attrsIndexes[%zu] is %zu; the first is 0, and they rise up to numBatches - 1", i,
         attrsIndexes[i]);
  }
}

aclrtMemcpyKind kind_of(const aclrtMemcpyBatchAttr& attribute) {
  const aclrtMemLocationType to = attribute.dstLoc.type, from = attribute.srcLoc.type;
  if (to == ACL_MEM_LOCATION_TYPE_DEVICE && from == ACL_MEM_LOCATION_TYPE_HOST) return ACL_MEMCPY_HOST_TO_DEVICE;
  if (to == ACL_MEM_LOCATION_TYPE_HOST && from == ACL_MEM_LOCATION_TYPE_DEVICE) return ACL_MEMCPY_DEVICE_TO_HOST;
  fail(ACL_ERROR_RT_PARAM_INVALID,
       "the location's type is %d of dst and %d of src; a batch copies from the host (0) to a device (1) or back", to,
       from);
}

bool is_of(const aclrtMemLocation& location, const Range& range) {
  return location.type != ACL_MEM_LOCATION_TYPE_DEVICE || static_cast<int32_t>(location.id) == range.device;
}

// The copies of a batch, all checked before the first is made; failIndex names the one with a wrong attribute.
std::vector<Copy> check_copies(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                               aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs, size_t* failIndex) {
  for (size_t i = 0; i < numBatches; ++i) check_sizes(dsts[i], destMaxs[i], srcs[i], sizes[i]);
  std::vector<Copy> copies;
  size_t attribute = 0;
  std::optional<aclrtMemcpyKind> direction;
  for (size_t i = 0; i < numBatches; ++i) {
    if (attribute + 1 < numAttrs && attrsIndexes[attribute + 1] <= i) ++attribute;
    *failIndex = i;
    const aclrtMemcpyKind kind = kind_of(attrs[attribute]);
    if (kind != direction.value_or(kind))
      fail(ACL_ERROR_RT_PARAM_INVALID, "a batch copies in one direction, and copy %zu in another", i);
    direction = kind;
    copies.push_back(check_copy(dsts[i], srcs[i], sizes[i], kind, KindIs::kRequired));
    if (!is_of(attrs[attribute].dstLoc, copies.back().target) ||
        !is_of(attrs[attribute].srcLoc, copies.back().source)) {
      fail(ACL_ERROR_RT_PARAM_INVALID, "attrs[%zu] has another device than the memory of copy %zu", attribute, i);
    }
  }
  *failIndex = SIZE_MAX;
  return copies;
}

void check_fill(void* address, size_t maxCount, size_t count) {
  if (count > maxCount) fail(ACL_ERROR_INVALID_PARAM, "count %zu is more than maxCount %zu", count, maxCount);
  require_pointer(address, "devPtr");
  check_range("devPtr", address, count, find_range(address).space == Space::kDevice);
}

}  // namespace
}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  return call(__func__, [&] {
    repeat_unread_failure();
    if (count == 0) return;
    task_recorder->forbid_unsafe();
    check_sizes(dst, destMax, src, count);
    copy_now("aclrtMemcpy", check_copy(dst, src, count, kind, KindIs::kWithoutEffect));
  });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  return copy_async(__func__, dst, destMax, src, count, kind, stream);
}

aclError aclrtMemcpyAsyncWithCondition(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                                       aclrtStream stream) {
  return copy_async(__func__, dst, destMax, src, count, kind, stream);
}

aclError aclrtMemcpyBatch(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                          aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs, size_t* failIndex) {
  return call(__func__, [&] {
    check_batch(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, failIndex);
    task_recorder->forbid_unsafe();
    for (const Copy& copy :
         check_copies(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, failIndex)) {
      copy_now("aclrtMemcpyBatch", copy);
    }
  });
}

aclError aclrtMemcpyBatchAsync(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                               aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs, size_t* failIndex,
                               aclrtStream stream) {
  return call(__func__, [&] {
    check_batch(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, failIndex);
    for (const Copy& copy :
         check_copies(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, failIndex)) {
      copy_in_stream("aclrtMemcpyBatchAsync", copy, stream);
    }
  });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return call(__func__, [&] {
    if (count == 0) return;
    check_fill(devPtr, maxCount, count);
    current_context();
    task_recorder->forbid_unsafe();
    const Accesses accesses = accesses_of_fill(devPtr, count);
    const Scope access = scope_of(&Observer::on_host_access, "aclrtMemset", accesses);
    std::memset(devPtr, value, count);
  });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  return call(__func__, [&] {
    if (count == 0) return;
    check_fill(devPtr, maxCount, count);
    append(
        stream, "aclrtMemsetAsync",
        [=] {
          std::memset(devPtr, value, count);
          return ACL_SUCCESS;
        },
        accesses_of_fill(devPtr, count));
  });
}

aclError aclrtCmoAsync(void* src, size_t size, aclrtCmoType cmoType, aclrtStream stream) {
  return call(__func__, [&] {
    if (cmoType != ACL_RT_CMO_TYPE_PREFETCH) {
      fail(ACL_ERROR_INVALID_PARAM, "cmoType is %d; expected 0, ACL_RT_CMO_TYPE_PREFETCH", cmoType);
    }
    require_pointer(src, "src");
    if (size == 0) fail(ACL_ERROR_INVALID_PARAM, "size is 0; expected at least 1");
    const Range range = check_range("src", src, size, /*on_device=*/true);
    if (range.device != current_device()) {
      fail(ACL_ERROR_RT_PARAM_INVALID, "src is of device %d; expected the current device, %d", range.device,
           current_device());
    }
    append(stream, "aclrtCmoAsync", [] { return ACL_SUCCESS; });  // a hint: no byte changes
  });
}
