// SPDX-License-Identifier: Apache-2.0
// The instructions that chips do not have. An instruction is listed here if two sources agree: CANN's documentation of
// its function (the products and dtypes of asc-devkit, docs/zh/api), and the list of intrinsics in the chip's platform
// file, where it has the instruction (AICoreintrinsicDtypeMap).
#include <cstring>

#include "ascendc/block.h"
#include "running_block.h"

namespace AscendC::cpu {
namespace {

enum Chips : uint8_t { k910 = 1, k310P = 2, k310B = 4 };

uint8_t chips_of(uint32_t npu_arch) {
  return npu_arch == 1001 ? k910 : npu_arch == 2002 ? k310P : npu_arch == 3002 ? k310B : 0;
}

constexpr uint16_t kAny = 0xffff;
constexpr uint16_t kBfloat16 = dtype_bit<bfloat16_t>();
constexpr uint16_t kFloat = dtype_bit<float>();
constexpr uint16_t kInt16 = dtype_bit<int16_t>();
constexpr uint16_t kInt32 = dtype_bit<int32_t>();
constexpr uint16_t kInt64 = dtype_bit<int64_t>();

struct Lack {
  const char* name;
  uint8_t chips;
  uint16_t to = kAny, from = kAny;  // dtypes of the result and of the operands
};

constexpr Lack kLacks[] = {
    {"AddRelu", k910},
    {"AddRelu", k310B, kInt16},
    {"AddReluCast", k910},
    {"Adds", k910, kInt16 | kInt32},
    {"Add", k910, kInt16},
    {"BlockReduceMax", k910, kFloat},
    {"BlockReduceMin", k910, kFloat},
    {"BlockReduceSum", k910, kFloat},
    {"Brcb", k910},
    {"Cast", k910 | k310P, kAny, kBfloat16},
    {"Cast", k910 | k310P, kBfloat16},
    {"Cast", k910 | k310P, kFloat, kFloat},
    {"Cast", k910 | k310P, kAny, kInt64},
    {"Cast", k910 | k310P, kInt64, kInt32},
    {"Cast", k910, kInt16},
    {"Cast", k910, kFloat, kInt16},
    {"Compare", k910 | k310P, kInt32},
    {"CompareScalar", k910},
    {"Copy", k910 | k310P},
    {"CreateVecIndex", k910},
    {"CrossCoreSetFlag", k910 | k310P | k310B},
    {"CrossCoreWaitFlag", k910 | k310P | k310B},
    {"DataCopyPad", k910 | k310P},
    {"Fixpipe", k910 | k310P},
    {"Gather", k910},
    {"GatherMask", k910},
    {"Gatherb", k910 | k310P},
    {"LeakyRelu", k910},
    {"LoadDataWithTranspose", k910 | k310P},
    {"Max", k910, kInt16},
    {"Maxs", k910},
    {"Min", k910, kInt16},
    {"Mins", k910},
    {"MrgSort", k910 | k310P},
    {"Mul", k910, kInt16},
    {"Muls", k910, kInt16 | kInt32},
    {"PairReduceSum", k910, kFloat},
    {"Relu", k910, kFloat | kInt32},
    {"SetAtomicMax", k910 | k310P | k310B},
    {"SetAtomicMin", k910 | k310P | k310B},
    {"ShiftLeft", k910},
    {"ShiftRight", k910},
    {"Sort32", k910 | k310P},
    {"Sub", k910, kInt16},
    {"SubRelu", k910},
    {"SubRelu", k310B, kInt16},
    {"SubReluCast", k910},
    {"WholeReduceMax", k910, kFloat},
    {"WholeReduceMin", k910, kFloat},
};

const char* type_names(uint16_t bits) {
  switch (bits) {
    case kBfloat16:
      return "bfloat16_t";
    case kFloat:
      return "float";
    case kInt16:
      return "int16_t";
    case kInt32:
      return "int32_t";
    case kInt64:
      return "int64_t";
    case dtype_bit<half>():
      return "half";
    default:
      return "another dtype";
  }
}

}  // namespace

void check_chip_has(const char* name, Where where, uint16_t to, uint16_t from) {
  const cann_cpu::Soc& chip = block(where).chip;
  const uint8_t bit = chips_of(chip.npu_arch);
  if (bit == 0) return;
  if (from == 0) from = to;
  for (const Lack& lack : kLacks) {
    if ((lack.chips & bit) == 0 || std::strcmp(lack.name, name) != 0) continue;
    if (lack.to == kAny && lack.from == kAny) {
      fail(where, "%s: %s does not have it; choose the code by __NPU_ARCH__, or leave %s out of AddConfig", name,
           chip.name, chip.family);
    }
    if ((to & lack.to) == 0 || (from & lack.from) == 0) continue;
    fail(where, "%s: %s does not have it for %s%s%s; cast before, or leave %s out of AddConfig", name, chip.name,
         type_names(from), from == to ? "" : " to ", from == to ? "" : type_names(to), chip.family);
  }
}

void check_scratch(const char* name, Where where) {
  const RunningBlock& block = running_block(where);
  const cann_cpu::Architecture& core = block.chip.architecture();
  const uint32_t free_until = core.unified_buffer - core.scratch;
  if (block.bytes_used <= free_until) return;
  fail(where,
       "%s: on %s it writes to the last %u bytes of the unified buffer, and the kernel has taken %llu of %u bytes; "
       "leave them free (CANN's documentation of %s, restrictions)",
       name, block.chip.name, core.scratch, static_cast<unsigned long long>(block.bytes_used), core.unified_buffer,
       name);
}

}  // namespace AscendC::cpu
