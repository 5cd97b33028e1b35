// SPDX-License-Identifier: Apache-2.0
// Tilings of the Matmul library. A block of baseM x baseN sums fits L0C, its operands of baseK columns fit L0A and L0B
// twice where they can, and as many of them along K as fit lie in L1, twice. Cores get parts of C of equal size.
#include "tiling/matmul_tiling.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "acl/acl_base.h"

namespace matmul_tiling {

namespace {

constexpr int32_t kFractal = 16;  // rows and columns of a fractal of C
constexpr int64_t kSumBytes = 4;  // of float and int32_t
// The base block that CANN's documentation recommends, at most: rows, columns and bytes along K.
constexpr struct {
  int32_t m, n, bytes;
} kBase = {128, 256, 128};

int32_t divided_up(int64_t number, int64_t by) { return static_cast<int32_t>((number + by - 1) / by); }
int32_t rounded_up(int64_t number, int64_t multiple) {
  return static_cast<int32_t>((number + multiple - 1) / multiple * multiple);
}

struct NamedType {
  DataType type;
  const char* name;
  int64_t bytes;
};
constexpr NamedType kTypes[] = {{DataType::DT_FLOAT, "DT_FLOAT", 4},
                                {DataType::DT_FLOAT16, "DT_FLOAT16", 2},
                                {DataType::DT_BF16, "DT_BFLOAT16", 2},
                                {DataType::DT_INT8, "DT_INT8", 1},
                                {DataType::DT_INT32, "DT_INT32", 4}};
const NamedType* find(DataType type) {
  for (const NamedType& known : kTypes) {
    if (known.type == type) return &known;
  }
  return nullptr;
}
int64_t bytes_of(DataType type) {
  const NamedType* known = find(type);
  return known == nullptr ? 0 : known->bytes;
}

bool is_input(DataType type) { return type != DataType::DT_INT32 && find(type) != nullptr; }

bool says(const char* format, va_list arguments) {
  char text[512];
  std::vsnprintf(text, sizeof(text), format, arguments);
  aclAppLog(ACL_ERROR, "GetTiling", __FILE__, __LINE__, "MatmulApi Tiling: %s", text);
  return false;
}

__attribute__((format(printf, 1, 2))) int32_t rejected(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  says(format, arguments);
  va_end(arguments);
  return -1;
}

// One of a core's extents, of all sizes in which a whole can be divided among so many cores.
struct Division {
  int32_t whole, fixed, granule, max, min;

  int32_t size(int32_t parts) const {
    if (fixed > 0) return fixed;
    return std::min(whole, std::max(rounded_up(divided_up(whole, parts), granule), min));
  }
  bool is_possible(int32_t size) const { return max <= 0 || size <= max; }
};

}  // namespace

MatmulApiTilingBase::MatmulApiTilingBase()
    : MatmulApiTilingBase(*platform_ascendc::PlatformAscendCManager::GetInstance()) {}

MatmulApiTilingBase::MatmulApiTilingBase(const platform_ascendc::PlatformAscendC& platform) {
  const auto bytes = [&](platform_ascendc::CoreMemType type) {
    uint64_t size = 0;
    platform.GetCoreMemSize(type, size);
    return static_cast<int64_t>(size);
  };
  using platform_ascendc::CoreMemType;
  memories_ = {bytes(CoreMemType::L1),   bytes(CoreMemType::L0_A), bytes(CoreMemType::L0_B),
               bytes(CoreMemType::L0_C), bytes(CoreMemType::UB),   bytes(CoreMemType::BT)};
}

MatmulApiTilingBase::MatmulApiTilingBase(const PlatformInfo& platform) : MatmulApiTilingBase() {
  memories_.l1 = static_cast<int64_t>(platform.l1Size);
  memories_.l0a = static_cast<int64_t>(platform.l0ASize);
  memories_.l0b = static_cast<int64_t>(platform.l0BSize);
  memories_.l0c = static_cast<int64_t>(platform.l0CSize);
  memories_.ub = static_cast<int64_t>(platform.ubSize);
}

bool MatmulApiTilingBase::is_possible(bool holds, const char* format, ...) const {
  if (holds) return true;
  va_list arguments;
  va_start(arguments, format);
  says(format, arguments);
  va_end(arguments);
  return false;
}

int32_t MatmulApiTilingBase::SetAType(TPosition position, CubeFormat format, DataType type, bool isTrans) {
  a_ = {position, format, type, isTrans};
  return is_input(type) ? 0
                        : rejected("A of dtype %d; it may be float, half, bfloat16 or int8", static_cast<int>(type));
}
int32_t MatmulApiTilingBase::SetBType(TPosition position, CubeFormat format, DataType type, bool isTrans) {
  b_ = {position, format, type, isTrans};
  return is_input(type) ? 0
                        : rejected("B of dtype %d; it may be float, half, bfloat16 or int8", static_cast<int>(type));
}
int32_t MatmulApiTilingBase::SetCType(TPosition position, CubeFormat format, DataType type) {
  c_ = {position, format, type, false};
  return find(type) != nullptr
             ? 0
             : rejected("C of dtype %d; it may be float, half, bfloat16, int32 or int8", static_cast<int>(type));
}
int32_t MatmulApiTilingBase::SetBiasType(TPosition position, CubeFormat format, DataType type) {
  bias_ = {position, format, type, false};
  if (format != CubeFormat::ND) return rejected("bias of CubeFormat %d; it is ND", static_cast<int>(format));
  return 0;  // its dtype counts if there is a bias
}

int32_t MatmulApiTilingBase::SetDequantType(DequantType type) {
  quantised_by_vector_ = type == DequantType::TENSOR;
  return 0;
}

int32_t MatmulApiTilingBase::SetShape(int32_t m, int32_t n, int32_t k) {
  shape_ = {m, n, k};
  return 0;
}
int32_t MatmulApiTilingBase::SetOrgShape(int32_t m, int32_t n, int32_t ka, int32_t kb) {
  if (m <= 0 || n <= 0 || ka <= 0 || kb <= 0) {
    return rejected("SetOrgShape(%d, %d, %d, %d): extents are positive", m, n, ka, kb);
  }
  m_ = m, n_ = n, ka_ = ka, kb_ = kb;
  return 0;
}
int32_t MatmulApiTilingBase::SetSingleShape(int32_t m, int32_t n, int32_t k) {
  single_ = {m, n, k};
  return 0;
}

namespace {

int32_t set_layout(int32_t (&layout)[5], int32_t b, int32_t s, int32_t n, int32_t g, int32_t d) {
  const int32_t axes[] = {b, s, n, g, d};
  for (int32_t axis : axes) {
    if (axis <= 0) return rejected("a layout of B %d, S %d, N %d, G %d, D %d: extents are positive", b, s, n, g, d);
  }
  std::copy(axes, axes + 5, layout);
  return 0;
}

}  // namespace

int32_t MatmulApiTilingBase::SetALayout(int32_t b, int32_t s, int32_t n, int32_t g, int32_t d) {
  return set_layout(a_layout_, b, s, n, g, d);
}
int32_t MatmulApiTilingBase::SetBLayout(int32_t b, int32_t s, int32_t n, int32_t g, int32_t d) {
  return set_layout(b_layout_, b, s, n, g, d);
}
int32_t MatmulApiTilingBase::SetCLayout(int32_t b, int32_t s, int32_t n, int32_t g, int32_t d) {
  return set_layout(c_layout_, b, s, n, g, d);
}
int32_t MatmulApiTilingBase::SetBatchInfoForNormal(int32_t batchA, int32_t batchB, int32_t m, int32_t n, int32_t k) {
  batch_ = std::max(batchA, batchB);
  return SetALayout(batchA, m, 1, 1, k) | SetBLayout(batchB, n, 1, 1, k) | SetCLayout(batch_, m, 1, 1, n);
}
int32_t MatmulApiTilingBase::SetBatchNum(int32_t batch) {
  if (batch <= 0) return rejected("SetBatchNum(%d): it is positive", batch);
  batch_ = batch;
  return 0;
}

int32_t MatmulApiTilingBase::EnableBias(bool isBias) {
  has_bias_ = isBias;
  return 0;
}
int32_t MatmulApiTilingBase::SetFixSplit(int32_t baseM, int32_t baseN, int32_t baseK) {
  base_ = {baseM, baseN, baseK};
  return 0;
}

int32_t MatmulApiTilingBase::SetBufferSpace(int32_t l1Size, int32_t l0CSize, int32_t ubSize, int32_t btSize) {
  const auto limit = [](int64_t& memory, int32_t bytes) {
    if (bytes >= 0) memory = std::min<int64_t>(memory, bytes);
  };
  limit(memories_.l1, l1Size);
  limit(memories_.l0c, l0CSize);
  limit(memories_.ub, ubSize);
  limit(memories_.bias_table, btSize);
  return 0;
}
int32_t MatmulApiTilingBase::SetTraverse(MatrixTraverse traverse) {
  traverse_ = traverse;
  return 0;
}
int32_t MatmulApiTilingBase::SetMadType(MatrixMadType type) {
  mad_type_ = type;
  return type == MatrixMadType::MXMODE ? rejected("MatrixMadType::MXMODE: these chips have no microscaling formats")
                                       : 0;
}
int32_t MatmulApiTilingBase::SetSplitRange(int32_t maxBaseM, int32_t maxBaseN, int32_t maxBaseK, int32_t minBaseM,
                                           int32_t minBaseN, int32_t minBaseK) {
  max_base_ = {maxBaseM, maxBaseN, maxBaseK};
  min_base_ = {minBaseM, minBaseN, minBaseK};
  return 0;
}
int32_t MatmulApiTilingBase::SetDoubleBuffer(bool a, bool b, bool c, bool /*bias*/, bool transND2NZ, bool transNZ2ND) {
  double_a_ = a, double_b_ = b, double_c_ = c;
  converts_ = transND2NZ && transNZ2ND;
  return converts_ ? 0 : rejected("SetDoubleBuffer: these chips convert ND and NZ as they copy; both are true");
}
int32_t MatmulApiTilingBase::SetSparse(bool isSparse) {
  is_sparse_ = isSparse;
  return isSparse ? rejected("SetSparse: sparse matrices are not supported on the CPU") : 0;
}
void MatmulApiTilingBase::SetMatmulConfigParams(const MatmulConfigParams& params) { config_ = params; }

bool MatmulApiTilingBase::EnableL1BankConflictOptimise() const {
  const int64_t half = memories_.l1 / 2, bytes = bytes_of(a_.type);
  return made_.baseM != 0 && int64_t{made_.depthA1} * made_.baseM * made_.baseK * bytes <= half &&
         int64_t{made_.depthB1} * made_.baseN * made_.baseK * bytes <= half;
}

Extents MatmulApiTilingBase::whole() const {
  return {shape_.m > 0 ? shape_.m : m_, shape_.n > 0 ? shape_.n : n_, shape_.k > 0 ? shape_.k : std::min(ka_, kb_)};
}

int32_t MatmulApiTilingBase::channel() const { return static_cast<int32_t>(32 / bytes_of(a_.type)); }

bool MatmulApiTilingBase::divide(Extents& single, Extents& parts) {
  const Extents all = whole();
  single = {single_.m > 0 ? single_.m : all.m, single_.n > 0 ? single_.n : all.n, single_.k > 0 ? single_.k : all.k};
  parts = {1, 1, 1};
  return true;
}

bool MatmulApiTilingBase::choose_base(const Extents& single, Extents& base, int32_t& buffers) const {
  const auto clamped = [](int32_t size, int32_t max, int32_t min, int32_t granule) {
    if (max > 0) size = std::min(size, std::max(max / granule * granule, granule));
    return min > 0 ? std::max(size, rounded_up(min, granule)) : size;
  };
  const Extents most = {rounded_up(single.m, kFractal), rounded_up(single.n, std::max(kFractal, channel())), 0};
  const bool fixed_m = base_.m > 0, fixed_n = base_.n > 0;
  // Blocks of equal size, so that the last is no smaller where that can be.
  const auto equal = [](int32_t extent, int32_t largest) {
    return rounded_up(divided_up(extent, divided_up(extent, largest)), kFractal);
  };
  base.m = fixed_m ? base_.m : clamped(equal(most.m, kBase.m), max_base_.m, min_base_.m, kFractal);
  base.n = fixed_n ? base_.n : clamped(equal(most.n, kBase.n), max_base_.n, min_base_.n, kFractal);
  if (!is_possible(base.m % kFractal == 0 && base.n % kFractal == 0, "baseM %d, baseN %d: multiples of 16", base.m,
                   base.n) ||
      !is_possible(base.m <= most.m && base.n <= most.n, "baseM %d, baseN %d: more than a core's %d x %d, rounded up",
                   base.m, base.n, single.m, single.n)) {
    return false;
  }

  // C: as sums in L0C, as results in the unified buffer, its columns in the table of biases.
  const int64_t sums = memories_.l0c / (kSumBytes * (double_c_ ? 2 : 1));
  const int64_t results = c_.position == TPosition::VECIN ? memories_.ub / bytes_of(c_.type) : sums;
  const int64_t elements = std::min(sums, results);
  const int64_t columns = has_bias_ ? memories_.bias_table / bytes_of(bias_.type) : INT32_MAX;
  const auto shrink = [](int32_t& extent) { extent = std::max(kFractal, extent / 2 / kFractal * kFractal); };
  while (!fixed_n && base.n > columns && base.n > kFractal) shrink(base.n);
  while (int64_t{base.m} * base.n > elements) {
    const bool can_m = !fixed_m && base.m > kFractal, can_n = !fixed_n && base.n > kFractal;
    if (!can_m && !can_n) break;
    shrink(can_n && (base.n > base.m || !can_m) ? base.n : base.m);
  }
  if (!is_possible(base.n <= columns, "baseN %d: a bias of as many numbers does not fit the bias table, %lld bytes",
                   base.n, static_cast<long long>(memories_.bias_table)) ||
      !is_possible(int64_t{base.m} * base.n <= elements,
                   "baseM %d x baseN %d: at most %lld elements fit L0C (and the unified buffer, for C in VECIN)",
                   base.m, base.n, static_cast<long long>(elements))) {
    return false;
  }

  // K: twice in L0A and L0B, or at least once.
  const int64_t bytes = bytes_of(a_.type);
  const int32_t granule = !a_.transposed && b_.transposed ? channel() : std::max(kFractal, channel());
  const int32_t most_k = std::min(rounded_up(single.k, granule), static_cast<int32_t>(kBase.bytes / bytes));
  const int32_t wanted = base_.k > 0 ? base_.k : clamped(most_k, max_base_.k, min_base_.k, granule);
  for (buffers = 2; buffers >= 1; --buffers) {
    const int64_t room = std::min(memories_.l0a / (bytes * base.m), memories_.l0b / (bytes * base.n)) / buffers;
    const int32_t fits = static_cast<int32_t>(std::min<int64_t>(room, INT32_MAX)) / granule * granule;
    base.k = base_.k > 0 || min_base_.k > 0 ? wanted : std::min(wanted, fits);
    if (base.k > 0 && base.k <= fits) break;
  }
  return is_possible(buffers >= 1 && base.k % granule == 0,
                     "baseM %d, baseN %d, baseK %d: its operands do not fit L0A and L0B, of %lld and %lld bytes; "
                     "baseK is a multiple of %d",
                     base.m, base.n, wanted, static_cast<long long>(memories_.l0a),
                     static_cast<long long>(memories_.l0b), granule);
}

bool MatmulApiTilingBase::make(AscendC::tiling::TCubeTiling& tiling) {
  const Extents all = whole();
  const bool is_int8 = a_.type == DataType::DT_INT8;
  Extents single, base;
  int32_t buffers = 0;
  if (!is_possible(all.m > 0 && all.n > 0 && all.k > 0, "M %d, N %d, K %d: call SetShape and SetOrgShape", all.m, all.n,
                   all.k) ||
      !is_possible(is_input(a_.type) && a_.type == b_.type,
                   "A and B of dtypes %d and %d; both have one of float, half, "
                   "bfloat16, int8",
                   static_cast<int>(a_.type), static_cast<int>(b_.type)) ||
      !is_possible(find(c_.type) != nullptr && (is_int8 || c_.type != DataType::DT_INT32),
                   "C of dtype %d, which A and B do not give", static_cast<int>(c_.type)) ||
      !is_possible(!has_bias_ || (bytes_of(bias_.type) != 0 && is_int8 == (bias_.type == DataType::DT_INT32)),
                   "bias of dtype %d: int32 for int8 matrices, half or float for others",
                   static_cast<int>(bias_.type)) ||
      !is_possible(!is_sparse_, "SetSparse: sparse matrices are not supported on the CPU") ||
      !is_possible(mad_type_ != MatrixMadType::MXMODE, "MatrixMadType::MXMODE: these chips do not have it") ||
      !is_possible(converts_, "SetDoubleBuffer: transND2NZ and transNZ2ND are true on these chips") ||
      !is_possible(config_.mmConfigType == 0 || config_.mmConfigType == 1,
                   "SetMatmulConfigParams: type %d; 0 is Norm, 1 is MDL", config_.mmConfigType) ||
      !is_possible(config_.scheduleType == ScheduleType::INNER_PRODUCT && !config_.enableL1CacheUB,
                   "SetMatmulConfigParams: only INNER_PRODUCT without enableL1CacheUB is supported on the CPU") ||
      !divide(single, parts_) || !choose_base(single, base, buffers)) {
    return false;
  }

  const int64_t bytes = bytes_of(a_.type);
  const int64_t reserved = (has_bias_ ? base.n * bytes_of(bias_.type) : 0) + (quantised_by_vector_ ? base.n * 8 : 0);
  const int64_t free_l1 = memories_.l1 - reserved;
  const int64_t block_a = int64_t{base.m} * base.k * bytes, block_b = int64_t{base.n} * base.k * bytes;
  const int32_t steps = blocks_in_l1(free_l1, block_a + block_b, divided_up(single.k, base.k));
  const bool twice = 2 * steps * (block_a + block_b) <= free_l1;
  tiling = {};
  tiling.depthA1 = steps * (twice && double_a_ ? 2 : 1);
  tiling.depthB1 = steps * (twice && double_b_ ? 2 : 1);
  const int64_t used_l1 = tiling.depthA1 * block_a + tiling.depthB1 * block_b + reserved;
  if (!is_possible(used_l1 <= memories_.l1, "baseM %d, baseN %d, baseK %d: they take %lld bytes of L1, which has %lld",
                   base.m, base.n, base.k, static_cast<long long>(used_l1), static_cast<long long>(memories_.l1))) {
    return false;
  }

  tiling.usedCoreNum = parts_.m * parts_.n * parts_.k;
  tiling.M = m_ > 0 ? m_ : all.m;
  tiling.N = n_ > 0 ? n_ : all.n;
  tiling.Ka = ka_ > 0 ? ka_ : all.k;
  tiling.Kb = kb_ > 0 ? kb_ : all.k;
  tiling.singleCoreM = single.m, tiling.singleCoreN = single.n, tiling.singleCoreK = single.k;
  tiling.baseM = base.m, tiling.baseN = base.n, tiling.baseK = base.k;
  tiling.stepM = tiling.stepN = 1;
  tiling.stepKa = tiling.stepKb = steps;
  tiling.isBias = has_bias_;
  const MatrixTraverse order = traverse_ != MatrixTraverse::NOSET ? traverse_ : config_.traverse;
  tiling.iterateOrder = order == MatrixTraverse::FIRSTN;
  tiling.shareL1Size = static_cast<int32_t>(used_l1);
  tiling.dbL0A = tiling.dbL0B = buffers;
  tiling.dbL0C = double_c_ ? 2 : 1;
  tiling.shareL0CSize = static_cast<int32_t>(base.m * base.n * kSumBytes * tiling.dbL0C);
  const auto lay = [](const int32_t (&layout)[5], int32_t& b, int32_t& s, int32_t& n, int32_t& g, int32_t& d) {
    b = layout[0], s = layout[1], n = layout[2], g = layout[3], d = layout[4];
  };
  lay(a_layout_, tiling.ALayoutInfoB, tiling.ALayoutInfoS, tiling.ALayoutInfoN, tiling.ALayoutInfoG,
      tiling.ALayoutInfoD);
  lay(b_layout_, tiling.BLayoutInfoB, tiling.BLayoutInfoS, tiling.BLayoutInfoN, tiling.BLayoutInfoG,
      tiling.BLayoutInfoD);
  lay(c_layout_, tiling.CLayoutInfoB, tiling.CLayoutInfoS1, tiling.CLayoutInfoN, tiling.CLayoutInfoG,
      tiling.CLayoutInfoS2);
  tiling.BatchNum = batch_;
  return true;
}

int64_t MatmulApiTilingBase::GetTiling(AscendC::tiling::TCubeTiling& tiling) {
  made_ = {};
  AscendC::tiling::TCubeTiling made;
  if (!make(made)) return -1;
  tiling = made_ = made;
  return 0;
}

int32_t MultiCoreMatmulTiling::SetDim(int32_t dim) {
  if (dim <= 0) return rejected("SetDim(%d): at least one core computes", dim);
  cores_ = dim;
  return 0;
}
int32_t MultiCoreMatmulTiling::SetSingleRange(int32_t maxM, int32_t maxN, int32_t maxK, int32_t minM, int32_t minN,
                                              int32_t minK) {
  max_single_ = {maxM, maxN, maxK};
  min_single_ = {minM, minN, minK};
  return 0;
}
int32_t MultiCoreMatmulTiling::SetAlignSplit(int32_t alignM, int32_t alignN, int32_t alignK) {
  align_ = {alignM, alignN, alignK};
  return 0;
}

// The largest part is as small as it can be; of such divisions, the one whose parts of A and B are smallest, and of
// these, the one with the fewest cores. Equal parts come before others that are not much smaller.
bool MultiCoreMatmulTiling::divide(Extents& single, Extents& parts) {
  if (!is_possible(!splits_k_ || !has_bias_, "EnableMultiCoreSplitK: every part of K would add the bias; have none")) {
    return false;
  }
  const Extents all = whole();
  const auto granule = [](int32_t align, int32_t base, int32_t fractal) {
    return align > 0 ? align : base > 0 ? base : fractal;
  };
  const int32_t fractal = std::max(kFractal, channel());
  const Division m{all.m, single_.m, granule(align_.m, base_.m, kFractal), max_single_.m, min_single_.m};
  const Division n{all.n, single_.n, granule(align_.n, base_.n, fractal), max_single_.n, min_single_.n};
  const Division k{all.k, single_.k, granule(align_.k, base_.k, fractal), max_single_.k, min_single_.k};
  struct Cost {
    int64_t work, traffic;
    int32_t cores;
    bool is_even;
    bool operator<(const Cost& other) const {
      // Kernels often copy whole blocks; parts that are all equal are worth half as much work again.
      const int64_t mine = is_even ? 2 * work : 3 * work, theirs = other.is_even ? 2 * other.work : 3 * other.work;
      if (mine != theirs) return mine < theirs;
      return traffic != other.traffic ? traffic < other.traffic : cores < other.cores;
    }
  };
  constexpr int64_t kNone = INT64_MAX / 4;
  Cost best{kNone, 0, 0, true};
  const int32_t most_k = splits_k_ ? cores_ : 1;
  for (int32_t i = 1; i <= cores_; ++i) {
    for (int32_t j = 1; i * j <= cores_; ++j) {
      for (int32_t l = 1; l <= most_k && i * j * l <= cores_; ++l) {
        const Extents size{m.size(i), n.size(j), k.size(l)};
        const Extents made{divided_up(all.m, size.m), divided_up(all.n, size.n), divided_up(all.k, size.k)};
        const int64_t used = int64_t{made.m} * made.n * made.k;
        if (used > cores_ || !m.is_possible(size.m) || !n.is_possible(size.n) || !k.is_possible(size.k)) continue;
        if (!splits_k_ && made.k != 1) continue;
        const Cost cost{int64_t{size.m} * size.n * size.k, int64_t{size.m} + size.n, static_cast<int32_t>(used),
                        all.m % size.m == 0 && all.n % size.n == 0 && all.k % size.k == 0};
        if (cost < best) best = cost, single = size, parts = made;
      }
    }
  }
  return is_possible(best.work != kNone,
                     "M %d, N %d, K %d cannot be divided among %d cores by what SetSingleShape (%d, %d, %d) and "
                     "SetSingleRange say",
                     all.m, all.n, all.k, cores_, single_.m, single_.n, single_.k);
}

int32_t MultiCoreMatmulTiling::GetSingleShape(int32_t& shapeM, int32_t& shapeN, int32_t& shapeK) const {
  shapeM = made_.singleCoreM, shapeN = made_.singleCoreN, shapeK = made_.singleCoreK;
  return made_.usedCoreNum > 0 ? 0 : -1;
}
int32_t MultiCoreMatmulTiling::GetCoreNum(int32_t& dim, int32_t& mDim, int32_t& nDim) const {
  if (made_.usedCoreNum <= 0) return -1;
  dim = made_.usedCoreNum, mDim = parts_.m, nDim = parts_.n;
  return 0;
}

int32_t BatchMatmulTiling::GetCoreNum(int32_t& dim, int32_t& mDim, int32_t& nDim, int32_t& batchCoreM,
                                      int32_t& batchCoreN) const {
  if (made_.usedCoreNum <= 0) return -1;
  dim = mDim = nDim = batchCoreM = batchCoreN = 1;
  return 0;
}

}  // namespace matmul_tiling

int32_t MatmulGetTmpBufSizeV2(AscendC::tiling::TCubeTiling& tiling, matmul_tiling::SysTilingTempBufSize& size) {
  if (tiling.usedCoreNum <= 0) return -1;
  size = {tiling.shareUbSize, tiling.shareL1Size, tiling.shareL0CSize};
  return 0;
}
