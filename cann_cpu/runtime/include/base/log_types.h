// SPDX-License-Identifier: Apache-2.0
// Levels and modules of CANN's log. Projects ask by LOG_TYPES_H_ whether they are there.
#ifndef LOG_TYPES_H_
#define LOG_TYPES_H_

#define DLOG_DEBUG 0x0
#define DLOG_INFO 0x1
#define DLOG_WARN 0x2
#define DLOG_ERROR 0x3
#define DLOG_EVENT 0x10  // it is logged as DLOG_INFO

#define DLOG_TYPE_DEBUG 0x0

enum { OP = 63 };  // the module of operators

#endif
