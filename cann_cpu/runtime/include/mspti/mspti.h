// SPDX-License-Identifier: Apache-2.0
// MSPTI: hands records of what the streams do to a tool, in the tool's buffers. torch_npu uses it for torch.profiler.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  MSPTI_SUCCESS = 0,
  MSPTI_ERROR_INVALID_PARAMETER = 1,
  MSPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 2,
  MSPTI_ERROR_MAX_LIMIT_REACHED = 3,
  MSPTI_ERROR_QUEUE_EMPTY = 5,
  MSPTI_ERROR_INNER = 999,
  MSPTI_ERROR_FORCE_INT = 0x7fffffff,
} msptiResult;

typedef enum {
  MSPTI_ACTIVITY_KIND_INVALID = 0,
  MSPTI_ACTIVITY_KIND_MARKER = 1,
  MSPTI_ACTIVITY_KIND_KERNEL = 2,
  MSPTI_ACTIVITY_KIND_API = 3,
  MSPTI_ACTIVITY_KIND_HCCL = 4,
  MSPTI_ACTIVITY_KIND_MEMORY = 5,
  MSPTI_ACTIVITY_KIND_MEMSET = 6,
  MSPTI_ACTIVITY_KIND_MEMCPY = 7,
  MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION = 8,
  MSPTI_ACTIVITY_KIND_COMMUNICATION = 9,
  MSPTI_ACTIVITY_KIND_ACL_API = 10,
  MSPTI_ACTIVITY_KIND_NODE_API = 11,
  MSPTI_ACTIVITY_KIND_RUNTIME_API = 12,
  MSPTI_ACTIVITY_KIND_COUNT,
  MSPTI_ACTIVITY_KIND_FORCE_INT = 0x7fffffff,
} msptiActivityKind;

typedef enum {
  MSPTI_EXTERNAL_CORRELATION_KIND_INVALID = 0,
  MSPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN = 1,
  MSPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 = 2,
  MSPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1 = 3,
  MSPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2 = 4,
  MSPTI_EXTERNAL_CORRELATION_KIND_SIZE,
  MSPTI_EXTERNAL_CORRELATION_KIND_FORCE_INT = 0x7fffffff,
} msptiExternalCorrelationKind;

#define MSPTI_RECORD __attribute__((__packed__)) __attribute__((aligned(8)))

typedef struct MSPTI_RECORD {
  msptiActivityKind kind;
} msptiActivity;

// Times are nanoseconds since 1970.
typedef struct MSPTI_RECORD {
  msptiActivityKind kind;
  uint64_t start;
  uint64_t end;
  struct {
    uint32_t deviceId;
    uint32_t streamId;
  } ds;
  uint64_t correlationId;
  const char* type;
  const char* name;
} msptiActivityKernel;

typedef struct MSPTI_RECORD {
  msptiActivityKind kind;
  msptiExternalCorrelationKind externalKind;
  uint64_t externalId;
  uint64_t correlationId;
} msptiActivityExternalCorrelation;

typedef void (*msptiBuffersCallbackRequestFunc)(uint8_t** buffer, size_t* size, size_t* maxNumRecords);
typedef void (*msptiBuffersCallbackCompleteFunc)(uint8_t* buffer, size_t size, size_t validSize);

typedef void* msptiSubscriberHandle;
typedef enum { MSPTI_CB_DOMAIN_INVALID = 0, MSPTI_CB_DOMAIN_RUNTIME = 1, MSPTI_CB_DOMAIN_HCCL = 2 } msptiCallbackDomain;
typedef uint32_t msptiCallbackId;
typedef void (*msptiCallbackFunc)(void* userdata, msptiCallbackDomain domain, msptiCallbackId cbid, const void* cbdata);

// A callback is never called: no function enables one.
msptiResult msptiSubscribe(msptiSubscriberHandle* subscriber, msptiCallbackFunc callback, void* userdata);
msptiResult msptiUnsubscribe(msptiSubscriberHandle subscriber);
msptiResult msptiActivityRegisterCallbacks(msptiBuffersCallbackRequestFunc funcBufferRequested,
                                           msptiBuffersCallbackCompleteFunc funcBufferCompleted);
// Kernels, copies and fills are records of kernels, and so are collectives. One of them being enabled, all are
// recorded.
msptiResult msptiActivityEnable(msptiActivityKind kind);
msptiResult msptiActivityDisable(msptiActivityKind kind);
bool msptiActivityIsEnabled(msptiActivityKind kind);
msptiResult msptiActivityFlushAll(uint32_t flag);
// *record is null for the first one of the buffer.
msptiResult msptiActivityGetNextRecord(uint8_t* buffer, size_t validBufferSizeBytes, msptiActivity** record);
// What the thread calls from now on belongs to that of the tool's.
msptiResult msptiActivityPushExternalCorrelationId(msptiExternalCorrelationKind kind, uint64_t id);
msptiResult msptiActivityPopExternalCorrelationId(msptiExternalCorrelationKind kind, uint64_t* lastId);

#ifdef __cplusplus
}  // extern "C"
#endif
