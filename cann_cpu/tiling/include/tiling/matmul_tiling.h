// SPDX-License-Identifier: Apache-2.0
// The tilings of the Matmul library: matmul_tiling::MatmulApiTiling for one core, MultiCoreMatmulTiling for several,
// BatchMatmulTiling for IterateBatch. What is set is honoured, or GetTiling returns -1 and the log says why.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cann_cpu/export.h"
#include "kernel_tiling/cube_tiling.h"
#include "tiling/platform/platform_ascendc.h"

namespace optiling {

// The struct as tiling data of an operator holds it, with its setters and getters.
class TCubeTiling : public AscendC::tiling::TCubeTiling {
 public:
#define CANN_CPU_FIELD(name)                             \
  void set_##name(int32_t value) { this->name = value; } \
  int32_t get_##name() const { return this->name; }
  CANN_CPU_CUBE_TILING_FIELDS(CANN_CPU_FIELD)
#undef CANN_CPU_FIELD

  size_t GetDataSize() const { return sizeof(AscendC::tiling::TCubeTiling); }
  // Nothing is written if the buffer is too small.
  void SaveToBuffer(void* buffer, size_t capacity) const {
    if (buffer != nullptr && capacity >= GetDataSize()) {
      memcpy(buffer, static_cast<const AscendC::tiling::TCubeTiling*>(this), GetDataSize());
    }
  }
};

}  // namespace optiling

namespace matmul_tiling {

enum class TPosition : int32_t {
  GM,
  A1,
  A2,
  B1,
  B2,
  C1,
  C2,
  CO1,
  CO2,
  VECIN,
  VECOUT,
  VECCALC,
  LCM = VECCALC,
  SPM,
  SHM = SPM,
  TSCM,
  MAX
};

enum class CubeFormat : int32_t { ND = 0, NZ, ZN, ZZ, NN, VECTOR, SCALAR, ND_ALIGN, COLUMN_MAJOR };

enum class DataType : int32_t {
  DT_FLOAT = 0,
  DT_FLOAT16 = 1,
  DT_INT8 = 2,
  DT_INT32 = 3,
  DT_UINT8 = 4,
  DT_INT16 = 6,
  DT_UINT16 = 7,
  DT_UINT32 = 8,
  DT_INT64 = 9,
  DT_UINT64 = 10,
  DT_DOUBLE = 11,
  DT_BOOL = 12,
  DT_BF16 = 27,
  DT_BFLOAT16 = DT_BF16,
  DT_INT4 = 29
};

enum class MatrixTraverse : int32_t { NOSET = 0, FIRSTM = 1, FIRSTN = 2 };
enum class MatrixMadType : int32_t { NORMAL = 0, HF32 = 1, MXMODE = 2 };
enum class DequantType { SCALAR = 0, TENSOR = 1 };
enum class ScheduleType { INNER_PRODUCT = 0, OUTER_PRODUCT = 1, N_BUFFER_33 = 2 };

struct PlatformInfo {
  platform_ascendc::SocVersion socVersion;
  uint64_t l1Size = 0;
  uint64_t l0CSize = 0;
  uint64_t ubSize = 0;
  uint64_t l0ASize = 0;
  uint64_t l0BSize = 0;
};

struct MatmulConfigParams {
  int32_t mmConfigType;
  bool enableL1CacheUB;
  ScheduleType scheduleType;
  MatrixTraverse traverse;
  bool enVecND2NZ;
  MatmulConfigParams(int32_t type = 1, bool l1_cache_ub = false, ScheduleType schedule = ScheduleType::INNER_PRODUCT,
                     MatrixTraverse order = MatrixTraverse::NOSET, bool vector_nd2nz = false)
      : mmConfigType(type),
        enableL1CacheUB(l1_cache_ub),
        scheduleType(schedule),
        traverse(order),
        enVecND2NZ(vector_nd2nz) {}
};

// What the tiling takes of a core's memories, in bytes.
struct SysTilingTempBufSize {
  int32_t ubSize = 0;
  int32_t l1Size = 0;
  int32_t l0cSize = 0;
};

// One number for each of M, N and K; -1 is not set.
struct Extents {
  int32_t m = -1;
  int32_t n = -1;
  int32_t k = -1;
};

// A, B, C or bias, as a kernel's MatmulType has it.
struct MatrixDescription {
  TPosition position = TPosition::GM;
  CubeFormat format = CubeFormat::ND;
  DataType type = DataType::DT_FLOAT16;
  bool transposed = false;
};

class CANN_EXPORT MatmulApiTilingBase {
 public:
  MatmulApiTilingBase();
  explicit MatmulApiTilingBase(const platform_ascendc::PlatformAscendC& platform);
  explicit MatmulApiTilingBase(const PlatformInfo& platform);
  virtual ~MatmulApiTilingBase() {}

  // The setters give 0, or -1 for what no tiling can have.
  int32_t SetAType(TPosition position, CubeFormat format, DataType type, bool isTrans = false);
  int32_t SetBType(TPosition position, CubeFormat format, DataType type, bool isTrans = false);
  int32_t SetCType(TPosition position, CubeFormat format, DataType type);
  int32_t SetBiasType(TPosition position, CubeFormat format, DataType type);
  int32_t SetDequantType(DequantType type);
  int32_t SetShape(int32_t m, int32_t n, int32_t k);
  int32_t SetOrgShape(int32_t m, int32_t n, int32_t k) { return SetOrgShape(m, n, k, k); }
  int32_t SetOrgShape(int32_t m, int32_t n, int32_t ka, int32_t kb);
  int32_t SetSingleShape(int32_t m = -1, int32_t n = -1, int32_t k = -1);
  int32_t SetALayout(int32_t b, int32_t s, int32_t n, int32_t g, int32_t d);
  int32_t SetBLayout(int32_t b, int32_t s, int32_t n, int32_t g, int32_t d);
  int32_t SetCLayout(int32_t b, int32_t s, int32_t n, int32_t g, int32_t d);
  int32_t SetBatchInfoForNormal(int32_t batchA, int32_t batchB, int32_t m, int32_t n, int32_t k);
  int32_t SetBatchNum(int32_t batch);
  int32_t EnableBias(bool isBias = false);
  int32_t SetBias(bool isBias = false) { return EnableBias(isBias); }
  int32_t SetFixSplit(int32_t baseM = -1, int32_t baseN = -1, int32_t baseK = -1);
  int32_t SetBufferSpace(int32_t l1Size = -1, int32_t l0CSize = -1, int32_t ubSize = -1, int32_t btSize = -1);
  int32_t SetTraverse(MatrixTraverse traverse);
  int32_t SetMadType(MatrixMadType type);
  int32_t SetSplitRange(int32_t maxBaseM = -1, int32_t maxBaseN = -1, int32_t maxBaseK = -1, int32_t minBaseM = -1,
                        int32_t minBaseN = -1, int32_t minBaseK = -1);
  int32_t SetDoubleBuffer(bool a, bool b, bool c, bool bias, bool transND2NZ = true, bool transNZ2ND = true);
  int32_t SetSparse(bool isSparse = false);
  void SetMatmulConfigParams(int32_t type = 1, bool l1_cache_ub = false,
                             ScheduleType schedule = ScheduleType::INNER_PRODUCT,
                             MatrixTraverse order = MatrixTraverse::NOSET, bool vector_nd2nz = false) {
    SetMatmulConfigParams(MatmulConfigParams(type, l1_cache_ub, schedule, order, vector_nd2nz));
  }
  void SetMatmulConfigParams(const MatmulConfigParams& params);

  int32_t GetBaseM() const { return made_.baseM; }
  int32_t GetBaseN() const { return made_.baseN; }
  int32_t GetBaseK() const { return made_.baseK; }
  // Whether blocks of A and B may lie in separate halves of L1. It only affects the device's speed.
  bool EnableL1BankConflictOptimise() const;

  // 0; -1 if nothing fits, and the log says what.
  virtual int64_t GetTiling(AscendC::tiling::TCubeTiling& tiling);

 protected:
  // How the matrices are divided among cores: the part of each, and the numbers of parts.
  virtual bool divide(Extents& single, Extents& parts);

  // The shape that is computed; M, N and K as a whole.
  Extents whole() const;
  int32_t channel() const;  // C0, of the dtype of A
  bool is_possible(bool holds, const char* format, ...) const __attribute__((format(printf, 3, 4)));

  struct Memories {
    int64_t l1, l0a, l0b, l0c, ub, bias_table;
  };

  Memories memories_ = {};
  MatrixDescription a_, b_, c_, bias_;
  Extents shape_, single_, base_, max_base_, min_base_;
  Extents max_single_, min_single_, align_;
  int32_t m_ = -1, n_ = -1, ka_ = -1, kb_ = -1;
  int32_t cores_ = 1;
  bool has_bias_ = false, quantised_by_vector_ = false, splits_k_ = false, is_sparse_ = false;
  bool double_a_ = true, double_b_ = true, double_c_ = false, converts_ = true;
  MatrixTraverse traverse_ = MatrixTraverse::NOSET;
  MatrixMadType mad_type_ = MatrixMadType::NORMAL;
  MatmulConfigParams config_{0};
  int32_t a_layout_[5] = {}, b_layout_[5] = {}, c_layout_[5] = {};
  int32_t batch_ = 0;
  Extents parts_;
  AscendC::tiling::TCubeTiling made_;

 private:
  bool choose_base(const Extents& single, Extents& base, int32_t& buffers_l0) const;
  bool make(AscendC::tiling::TCubeTiling& tiling);
};

class CANN_EXPORT MatmulApiTiling : public MatmulApiTilingBase {
 public:
  MatmulApiTiling() {}
  explicit MatmulApiTiling(const platform_ascendc::PlatformAscendC& platform) : MatmulApiTilingBase(platform) {}
  explicit MatmulApiTiling(const PlatformInfo& platform) : MatmulApiTilingBase(platform) {}
};

class CANN_EXPORT MultiCoreMatmulTiling : public MatmulApiTilingBase {
 public:
  MultiCoreMatmulTiling() {}
  explicit MultiCoreMatmulTiling(const platform_ascendc::PlatformAscendC& platform) : MatmulApiTilingBase(platform) {}
  explicit MultiCoreMatmulTiling(const PlatformInfo& platform) : MatmulApiTilingBase(platform) {}

  int32_t SetDim(int32_t dim);
  int32_t SetSingleRange(int32_t maxM = -1, int32_t maxN = -1, int32_t maxK = -1, int32_t minM = -1, int32_t minN = -1,
                         int32_t minK = -1);
  int32_t SetAlignSplit(int32_t alignM, int32_t alignN, int32_t alignK);
  void EnableMultiCoreSplitK(bool flag) { splits_k_ = flag; }
  void SetSplitK(bool flag) { EnableMultiCoreSplitK(flag); }

  // The results of the last GetTiling; -1 if it has failed.
  int32_t GetSingleShape(int32_t& shapeM, int32_t& shapeN, int32_t& shapeK) const;
  int32_t GetCoreNum(int32_t& dim, int32_t& mDim, int32_t& nDim) const;

 protected:
  bool divide(Extents& single, Extents& parts) override;
};

class CANN_EXPORT BatchMatmulTiling : public MatmulApiTilingBase {
 public:
  BatchMatmulTiling() {}
  explicit BatchMatmulTiling(const platform_ascendc::PlatformAscendC& platform) : MatmulApiTilingBase(platform) {}

  // All batches of a call are computed by the core that makes it.
  int32_t GetCoreNum(int32_t& dim, int32_t& mDim, int32_t& nDim, int32_t& batchCoreM, int32_t& batchCoreN) const;
};

}  // namespace matmul_tiling

// What a tiling takes of a core's memories, by CANN's names for each class and each struct.
CANN_EXPORT int32_t MatmulGetTmpBufSizeV2(AscendC::tiling::TCubeTiling& tiling,
                                          matmul_tiling::SysTilingTempBufSize& size);
#define CANN_CPU_GET_BUFFER_SIZE(Name, Tiling)                                     \
  inline int32_t Name(Tiling& tiling, matmul_tiling::SysTilingTempBufSize& size) { \
    return MatmulGetTmpBufSizeV2(tiling, size);                                    \
  }
CANN_CPU_GET_BUFFER_SIZE(MatmulGetTmpBufSize, optiling::TCubeTiling)
CANN_CPU_GET_BUFFER_SIZE(MultiCoreMatmulGetTmpBufSize, optiling::TCubeTiling)
CANN_CPU_GET_BUFFER_SIZE(BatchMatmulGetTmpBufSize, optiling::TCubeTiling)
CANN_CPU_GET_BUFFER_SIZE(MultiCoreMatmulGetTmpBufSizeV2, AscendC::tiling::TCubeTiling)
CANN_CPU_GET_BUFFER_SIZE(BatchMatmulGetTmpBufSizeV2, AscendC::tiling::TCubeTiling)
#undef CANN_CPU_GET_BUFFER_SIZE
