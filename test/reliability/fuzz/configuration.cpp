// SPDX-License-Identifier: Apache-2.0
// aclInit's file, acl.json, and rank tables.
#include "runtime/configuration.h"
#include "cann_cpu/call.h"
#include "hccl/failure.h"
#include "hccl/rank_table.h"
#include "reader.h"

bool is_valid(const std::string& contents) {
  int valid = 0;
  try {
    cann_cpu::read_configuration(contents);
    ++valid;
  } catch (const cann_cpu::Failure&) {
  }
  try {
    cann_cpu::parse_rank_table(contents);
    ++valid;
  } catch (const cann_cpu::CollectiveFailure&) {
  }
  return valid > 0;
}
