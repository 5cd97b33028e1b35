// SPDX-License-Identifier: Apache-2.0
// Fixpipe: sums go from L0C to device memory or L1, in rows (ND) or in fractals (NZ), rounded, scaled to 8 or 16 bits,
// or with their negative numbers set to 0.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ascendc/instruction.h"
#include "ascendc/load_data.h"
#include "ascendc/tiling_structs.h"

// float to half or bfloat16_t; int32_t to half (DEQF16), float to 8 bits (QF322B8_PRE), int32_t to 8 bits (REQ8), each
// by one scale or, with V, by one for each column. The last four are of Ascend950 alone, and Fixpipe rejects them.
enum QuantMode_t : uint8_t {
  NoQuant,
  F322F16,
  F322BF16,
  DEQF16,
  VDEQF16,
  QF322B8_PRE,
  VQF322B8_PRE,
  REQ8,
  VREQ8,
  QF322F16_PRE,
  VQF322F16_PRE,
  QF322BF16_PRE,
  VQF322BF16_PRE
};

namespace AscendC {

using ::QuantMode_t;

enum class CO2Layout : uint8_t { NZ, ROW_MAJOR };
struct FixpipeConfig {
  CO2Layout format;
};
inline constexpr FixpipeConfig CFG_NZ = {CO2Layout::NZ};
inline constexpr FixpipeConfig CFG_ROW_MAJOR = {CO2Layout::ROW_MAJOR};

// mSize rows of nSize columns. srcStride: rows of a stripe of 16 columns in L0C. dstStride: in ND the elements of a
// row; in NZ from stripe to stripe, in 32 bytes. ndNum matrices lie srcNdStride fractals and dstNdStride elements
// apart.
struct FixpipeParamsV220 {
  constexpr FixpipeParamsV220() = default;
  constexpr FixpipeParamsV220(uint16_t n, uint16_t m, uint16_t src_stride, uint32_t dst_stride, bool relu)
      : nSize(n), mSize(m), srcStride(src_stride), dstStride(dst_stride), reluEn(relu) {}
  constexpr FixpipeParamsV220(uint16_t n, uint16_t m, uint16_t src_stride, uint32_t dst_stride, bool relu,
                              QuantMode_t quant, int64_t scale, uint16_t matrices, uint16_t src_matrix,
                              uint16_t dst_matrix, uint8_t unit_flag)
      : nSize(n),
        mSize(m),
        srcStride(src_stride),
        dstStride(dst_stride),
        quantPre(quant),
        deqScalar(static_cast<uint64_t>(scale)),
        ndNum(matrices),
        srcNdStride(src_matrix),
        dstNdStride(dst_matrix),
        reluEn(relu),
        unitFlag(unit_flag) {}

  uint16_t nSize = 0, mSize = 0, srcStride = 0;
  uint32_t dstStride = 0;
  QuantMode_t quantPre = NoQuant;
  uint64_t deqScalar = 0;
  uint16_t ndNum = 1, srcNdStride = 0, dstNdStride = 0;
  bool reluEn = false;
  uint8_t unitFlag = 0;
  bool isChannelSplit = false;
};

// The older form of the same: cburstNum stripes of burstLen * 32 bytes in L0C, with gaps of 16 rows between them; the
// gaps between the stripes of the result are in 32 bytes. Rows have originalNSize columns, and dstStride is that of
// V220.
struct QuantParams {
  QuantMode_t quantPre = NoQuant;
  uint64_t deqScalar = 0;
};
struct Nz2NdParams {
  bool nz2ndEn = false;
  uint16_t ndNum = 1, srcNdStride = 0, dstNdStride = 0, originalNSize = 0;
};
template <class T = int32_t>
struct FixpipeParams {
  constexpr FixpipeParams() = default;
  constexpr FixpipeParams(uint16_t count, uint16_t len, uint16_t src_stride, uint32_t dst_stride)
      : cburstNum(count), burstLen(len), dstStride(dst_stride), srcStride(src_stride) {}

  uint16_t cburstNum = 1, burstLen = 1;
  uint32_t dstStride = 0;
  uint16_t srcStride = 0;
  QuantParams quantParams;
  bool reluEn = false;
  Nz2NdParams nz2ndParams;
  uint8_t unitFlag = 0;
};

// The same for DataCopy, which takes the matrices, the scale and the scales as the Set functions have set them.
struct DataCopyCO12DstParams {
  constexpr DataCopyCO12DstParams() = default;
  constexpr DataCopyCO12DstParams(uint16_t n, uint16_t m, uint32_t dst_stride, uint16_t src_stride, QuantMode_t quant,
                                  uint8_t relu, bool split, bool to_nd)
      : nSize(n),
        mSize(m),
        dstStride(dst_stride),
        srcStride(src_stride),
        quantPre(quant),
        reluPre(relu),
        channelSplit(split),
        nz2ndEn(to_nd) {}

  uint8_t sid = 0;
  uint16_t nSize = 0, mSize = 0;
  uint32_t dstStride = 0;
  uint16_t srcStride = 0;
  uint8_t unitFlag = 0, clipReluPre = 0, eltWiseOp = 0;
  QuantMode_t quantPre = NoQuant;
  uint8_t reluPre = 0;
  bool channelSplit = false, nz2ndEn = false;
};

namespace cpu {

// A scale as an author packs it in 64 bits: a float with 10 significant bits after the point; from bit 32 on, the shift
// less one that is first applied to an int32_t, if bit 36 is set; and from bit 37 on an offset of 9 bits.
struct Scale {
  explicit Scale(uint64_t bits)
      : factor(std::bit_cast<float>(static_cast<uint32_t>(bits) & ~uint32_t{0x1fff})),
        shift(bits >> 36 & 1 ? static_cast<int>(bits >> 32 & 15) + 1 : 0),
        offset(static_cast<int>(bits >> 37 & 0x1ff)) {
    if (offset >= 256) offset -= 512;
  }

  template <class Sum>
  float scaled(Sum sum) const {
    if constexpr (std::is_integral_v<Sum>) sum >>= shift;
    return static_cast<float>(sum) * factor;
  }
  // A sum in half, or rounded to 9 bits, with the offset, to 8.
  template <class To, class Sum>
  To apply(Sum sum) const {
    const float scaled = this->scaled(sum);
    if constexpr (sizeof(To) == 1) {
      if (std::isnan(scaled)) return To{};
      constexpr float kMin = std::numeric_limits<To>::min(), kMax = std::numeric_limits<To>::max();
      const float rounded = std::clamp(std::nearbyint(scaled), -256.0f, 255.0f) + static_cast<float>(offset);
      return static_cast<To>(std::clamp(rounded, kMin, kMax));
    } else {
      return static_cast<To>(scaled);
    }
  }

  float factor;
  int shift;
  int offset;
};

struct FixpipeCall {
  const char* name;
  Where where;
  const LocalMemory& src;
  const GlobalMemory* global;  // where it goes, or
  const LocalMemory* local;
  const LocalMemory* scales;  // of columns, in L1 or the fixpipe buffer
  const FixpipeParamsV220& params;
  bool rows;  // ND
};

enum class Out : uint8_t { Float, Int32, Half, Bfloat16, Int8, Uint8 };
ASCENDC_CPU_EXPORT void fixpipe(Out out, bool from_float, const FixpipeCall& call);

template <class T, class U>
Out out_of(Where where) {
  needs<T>("Fixpipe", where);
  static_assert(OneOf<U, float, int32_t>, "Fixpipe: the sums in L0C are float or int32_t");
  static_assert(
      OneOf<T, half, int8_t, uint8_t, U> || (OneOf<T, bfloat16_t> && OneOf<U, float>),
      "Fixpipe: float goes out as float, half, bfloat16_t, int8_t or uint8_t; int32_t as int32_t, half, int8_t "
      "or uint8_t");
  if constexpr (std::is_same_v<T, float>) return Out::Float;
  if constexpr (std::is_same_v<T, int32_t>) return Out::Int32;
  if constexpr (std::is_same_v<T, half>) return Out::Half;
  if constexpr (std::is_same_v<T, bfloat16_t>) return Out::Bfloat16;
  return std::is_same_v<T, int8_t> ? Out::Int8 : Out::Uint8;
}

template <class T, class U>
void fixpipe_of_bursts(Where where, const LocalTensor<U>& src, const GlobalMemory* global, const LocalMemory* local,
                       const LocalMemory* scales, const FixpipeParams<U>& p) {
  constexpr uint16_t kRows = 16;
  const Nz2NdParams& nd = p.nz2ndParams;
  if (nd.nz2ndEn && local != nullptr) fail(where, "Fixpipe: nz2ndEn to L1; there are only fractals");
  const auto rows = static_cast<uint16_t>(p.burstLen * kBlockBytes / (kRows * sizeof(U)));
  const auto stride = static_cast<uint16_t>((rows + kRows - 1) / kRows * kRows + p.srcStride * kRows);
  const auto columns = static_cast<uint16_t>(p.cburstNum * kRows);
  const auto to_next = static_cast<uint32_t>(p.dstStride + p.burstLen * sizeof(T) / sizeof(U));
  const FixpipeParamsV220 all(nd.nz2ndEn ? nd.originalNSize : columns, rows, stride, nd.nz2ndEn ? p.dstStride : to_next,
                              p.reluEn, p.quantParams.quantPre, static_cast<int64_t>(p.quantParams.deqScalar), nd.ndNum,
                              nd.srcNdStride, nd.dstNdStride, p.unitFlag);
  fixpipe(out_of<T, U>(where), std::is_same_v<U, float>,
          {"Fixpipe", where, src.memory(), global, local, scales, all, nd.nz2ndEn});
}

}  // namespace cpu

template <class T, class U>
void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParams<U>& intriParams,
             cpu::Where where = cpu::Where::current()) {
  cpu::fixpipe_of_bursts<T, U>(where, src, &dst.memory(), nullptr, nullptr, intriParams);
}
template <class T, class U>
void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>& cbufWorkspace,
             const FixpipeParams<U>& intriParams, cpu::Where where = cpu::Where::current()) {
  cpu::fixpipe_of_bursts<T, U>(where, src, &dst.memory(), nullptr, &cbufWorkspace.memory(), intriParams);
}
template <class T, class U>
void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParams<U>& intriParams,
             cpu::Where where = cpu::Where::current()) {
  cpu::fixpipe_of_bursts<T, U>(where, src, nullptr, &dst.memory(), nullptr, intriParams);
}
template <class T, class U>
void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>& cbufWorkspace,
             const FixpipeParams<U>& intriParams, cpu::Where where = cpu::Where::current()) {
  cpu::fixpipe_of_bursts<T, U>(where, src, nullptr, &dst.memory(), &cbufWorkspace.memory(), intriParams);
}

template <class T, class U, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParamsV220& intriParams,
             cpu::Where where = cpu::Where::current()) {
  cpu::fixpipe(cpu::out_of<T, U>(where), std::is_same_v<U, float>,
               {"Fixpipe", where, src.memory(), &dst.memory(), nullptr, nullptr, intriParams,
                config.format == CO2Layout::ROW_MAJOR});
}
template <class T, class U, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>& cbufWorkspace,
             const FixpipeParamsV220& intriParams, cpu::Where where = cpu::Where::current()) {
  cpu::fixpipe(cpu::out_of<T, U>(where), std::is_same_v<U, float>,
               {"Fixpipe", where, src.memory(), &dst.memory(), nullptr, &cbufWorkspace.memory(), intriParams,
                config.format == CO2Layout::ROW_MAJOR});
}
// To L1, in fractals.
template <class T, class U, const FixpipeConfig& config = CFG_NZ>
void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParamsV220& intriParams,
             cpu::Where where = cpu::Where::current()) {
  static_assert(config.format == CO2Layout::NZ, "Fixpipe: to L1 it writes fractals, CFG_NZ");
  cpu::fixpipe(cpu::out_of<T, U>(where), std::is_same_v<U, float>,
               {"Fixpipe", where, src.memory(), nullptr, &dst.memory(), nullptr, intriParams, false});
}
template <class T, class U, const FixpipeConfig& config = CFG_NZ>
void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>& cbufWorkspace,
             const FixpipeParamsV220& intriParams, cpu::Where where = cpu::Where::current()) {
  static_assert(config.format == CO2Layout::NZ, "Fixpipe: to L1 it writes fractals, CFG_NZ");
  cpu::fixpipe(cpu::out_of<T, U>(where), std::is_same_v<U, float>,
               {"Fixpipe", where, src.memory(), nullptr, &dst.memory(), &cbufWorkspace.memory(), intriParams, false});
}

inline void SetFixpipeNz2ndFlag(uint16_t ndNum, uint16_t srcNdStride, uint16_t dstNdStride,
                                cpu::Where where = cpu::Where::current()) {
  cpu::block(where).matrix_unit.matrices = {ndNum, srcNdStride, dstNdStride};
}
inline void SetFixpipePreQuantFlag(uint64_t config, cpu::Where where = cpu::Where::current()) {
  cpu::block(where).matrix_unit.scale = config;
}
template <class T, bool setRelu = false>
void SetFixPipeConfig(const LocalTensor<T>& preData, bool isUnitFlag = false,
                      cpu::Where where = cpu::Where::current()) {
  static_assert(!setRelu, "SetFixPipeConfig: setRelu is not served; the device takes scales alone");
  if (!isUnitFlag) cpu::block(where).matrix_unit.scales = preData.memory();
}
template <class T>
void SetFixPipeConfig(const LocalTensor<T>& /*reluPre*/, const LocalTensor<T>& quantPre, bool isUnitFlag = false,
                      cpu::Where where = cpu::Where::current()) {
  SetFixPipeConfig<T>(quantPre, isUnitFlag, where);
}

namespace cpu {

inline FixpipeParamsV220 as_set(const char* name, Where where, const DataCopyCO12DstParams& p) {
  if (p.clipReluPre != 0 || p.eltWiseOp != 0)
    fail(where, "%s: clipReluPre and eltWiseOp do not exist on Atlas A2", name);
  const MatrixUnit& unit = block(where).matrix_unit;
  FixpipeParamsV220 all(p.nSize, p.mSize, p.srcStride, p.dstStride, p.reluPre != 0);
  all.quantPre = p.quantPre;
  all.deqScalar = unit.scale;
  all.unitFlag = p.unitFlag;
  all.isChannelSplit = p.channelSplit;
  if (p.nz2ndEn) {
    all.ndNum = unit.matrices.count;
    all.srcNdStride = unit.matrices.src_stride;
    all.dstNdStride = unit.matrices.dst_stride;
  }
  return all;
}

}  // namespace cpu

template <class T, class U>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const DataCopyCO12DstParams& intriParams,
              cpu::Where where = cpu::Where::current()) {
  const FixpipeParamsV220 params = cpu::as_set("DataCopy", where, intriParams);
  cpu::fixpipe(cpu::out_of<T, U>(where), std::is_same_v<U, float>,
               {"DataCopy", where, src.memory(), &dst.memory(), nullptr, &cpu::block(where).matrix_unit.scales, params,
                intriParams.nz2ndEn});
}
template <class T, class U>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const DataCopyCO12DstParams& intriParams,
              cpu::Where where = cpu::Where::current()) {
  if (intriParams.nz2ndEn) cpu::fail(where, "DataCopy: nz2ndEn to L1; there are only fractals");
  const FixpipeParamsV220 params = cpu::as_set("DataCopy", where, intriParams);
  cpu::fixpipe(
      cpu::out_of<T, U>(where), std::is_same_v<U, float>,
      {"DataCopy", where, src.memory(), nullptr, &dst.memory(), &cpu::block(where).matrix_unit.scales, params, false});
}

}  // namespace AscendC
