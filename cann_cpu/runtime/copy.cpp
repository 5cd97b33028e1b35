// SPDX-License-Identifier: Apache-2.0
// Copies and fills, at once or in a stream, with their bounds checked where the allocation is known.
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "capture.h"
#include "checks/cost.h"
#include "checks/memory.h"
#include "checks/race.h"
#include "memory.h"
#include "stream.h"

namespace cann_cpu {
namespace {

// Pageable memory may be gone when the task runs: up to this size a copy from it is staged, beyond it is waited for.
constexpr size_t kStagingBytes = 64 << 10;

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
// behind the source by its offset in a page, their loads wait for stores of the same offset. On AMD EPYC of family 25
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
};

Copy check_copy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  if (count > destMax) fail(ACL_ERROR_INVALID_PARAM, "count %zu is more than destMax %zu", count, destMax);
  require_pointer(dst, "dst");
  require_pointer(src, "src");
  bool to_device = find_range(dst).space == Space::kDevice;
  bool from_device = find_range(src).space == Space::kDevice;
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
  Range target = check_range("dst", dst, count, to_device);
  Range source = check_range("src", src, count, from_device);
  return {dst, src, count, target, source};
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
  const Accesses accesses = accesses_of(copy);
  race::host(name, accesses);
  cost::copied(copy.size, copy.target.space, copy.source.space);
  const cost::Wait wait(cost::Wait::For::kCopy);
  const memory::HostAccess access(name, accesses);
  copy_bytes(copy.to, copy.from, copy.size);
}

void copy_in_stream(const char* name, const Copy& copy, aclrtStream stream) {
  bool from_pageable = copy.source.space == Space::kPageable;
  bool to_pageable = copy.target.space == Space::kPageable;
  if ((from_pageable || to_pageable) && reject_pageable(stream)) return;
  if (!is_worker()) cost::copied(copy.size, copy.target.space, copy.source.space);
  if (from_pageable && !to_pageable && copy.size <= kStagingBytes) {
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
    const cost::Wait wait(cost::Wait::For::kCopy);
    on->wait(number);
    race::host_waited(*on);
  }
}

void check_batch(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                 aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs) {
  require_pointer(dsts, "dsts");
  require_pointer(destMaxs, "destMaxs");
  require_pointer(srcs, "srcs");
  require_pointer(sizes, "sizes");
  require_pointer(attrs, "attrs");
  require_pointer(attrsIndexes, "attrsIndexes");
  if (numBatches == 0) fail(ACL_ERROR_INVALID_PARAM, "numBatches is 0");
  if (numAttrs == 0 || numAttrs > numBatches) {
    fail(ACL_ERROR_INVALID_PARAM, "numAttrs is %zu; 1 to numBatches %zu", numAttrs, numBatches);
  }
}

aclrtMemcpyKind kind_of(const aclrtMemcpyBatchAttr& attribute) {
  bool to_device = attribute.dstLoc.type == ACL_MEM_LOCATION_TYPE_DEVICE;
  bool from_device = attribute.srcLoc.type == ACL_MEM_LOCATION_TYPE_DEVICE;
  if (to_device) return from_device ? ACL_MEMCPY_DEVICE_TO_DEVICE : ACL_MEMCPY_HOST_TO_DEVICE;
  return from_device ? ACL_MEMCPY_DEVICE_TO_HOST : ACL_MEMCPY_HOST_TO_HOST;
}

// The copies of a batch, all checked before the first is made; failIndex names the wrong one.
std::vector<Copy> check_copies(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                               aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs, size_t* failIndex) {
  std::vector<Copy> copies;
  size_t attribute = 0;
  for (size_t i = 0; i < numBatches; ++i) {
    if (attribute + 1 < numAttrs && attrsIndexes[attribute + 1] <= i) ++attribute;
    if (failIndex != nullptr) *failIndex = i;
    copies.push_back(check_copy(dsts[i], destMaxs[i], srcs[i], sizes[i], kind_of(attrs[attribute])));
  }
  if (failIndex != nullptr) *failIndex = SIZE_MAX;
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
    forbid_unsafe_during_capture();
    copy_now("aclrtMemcpy", check_copy(dst, destMax, src, count, kind));
  });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  return call(__func__,
              [&, name = __func__] { copy_in_stream(name, check_copy(dst, destMax, src, count, kind), stream); });
}

aclError aclrtMemcpyAsyncWithCondition(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                                       aclrtStream stream) {
  return call(__func__,
              [&, name = __func__] { copy_in_stream(name, check_copy(dst, destMax, src, count, kind), stream); });
}

aclError aclrtMemcpyBatch(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                          aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs, size_t* failIndex) {
  return call(__func__, [&] {
    check_batch(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs);
    forbid_unsafe_during_capture();
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
    check_batch(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs);
    for (const Copy& copy :
         check_copies(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, failIndex)) {
      copy_in_stream("aclrtMemcpyBatchAsync", copy, stream);
    }
  });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return call(__func__, [&] {
    check_fill(devPtr, maxCount, count);
    forbid_unsafe_during_capture();
    const Accesses accesses = accesses_of_fill(devPtr, count);
    race::host("aclrtMemset", accesses);
    const memory::HostAccess access("aclrtMemset", accesses);
    std::memset(devPtr, value, count);
  });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  return call(__func__, [&] {
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
