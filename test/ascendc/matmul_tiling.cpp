// SPDX-License-Identifier: Apache-2.0
// The tiling classes of the Matmul library for Python: a request in numbers, a tiling as its fields.
#include "lib/matmul/bmm_tiling.h"
#include "register/tilingdata_base.h"
#include "tiling/tiling_api.h"

namespace optiling {
BEGIN_TILING_DATA_DEF(Nested)
TILING_DATA_FIELD_DEF(uint64_t, size);
TILING_DATA_FIELD_DEF_STRUCT(TCubeTiling, cube);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(Nested, Nested)
}  // namespace optiling

// In the order in which matmul_tiling.py gives them.
struct Request {
  int32_t kind;  // 0: one core, 1: several, 2: batches
  int32_t shape[3], org[4], single[3], fixed[3];
  int32_t type, c_type, bias_type;
  int32_t trans_a, trans_b, c_in_ub, bias;
  int32_t dim, split_k, traverse;
  int32_t align[3], most[3], least[3], most_base[3], least_base[3], buffers[4];
  int32_t double_c, mad, sparse, schedule;
  int32_t batch[2];
};

namespace {

using namespace matmul_tiling;

template <class Tiling>
void set(Tiling& tiling, const Request& r) {
  const auto type = static_cast<DataType>(r.type);
  tiling.SetAType(TPosition::GM, CubeFormat::ND, type, r.trans_a != 0);
  tiling.SetBType(TPosition::GM, CubeFormat::ND, type, r.trans_b != 0);
  tiling.SetCType(r.c_in_ub ? TPosition::VECIN : TPosition::GM, CubeFormat::ND, static_cast<DataType>(r.c_type));
  tiling.SetBiasType(TPosition::GM, CubeFormat::ND, static_cast<DataType>(r.bias_type));
  tiling.SetShape(r.shape[0], r.shape[1], r.shape[2]);
  if (r.org[0] > 0) tiling.SetOrgShape(r.org[0], r.org[1], r.org[2], r.org[3]);
  tiling.SetSingleShape(r.single[0], r.single[1], r.single[2]);
  tiling.SetFixSplit(r.fixed[0], r.fixed[1], r.fixed[2]);
  tiling.EnableBias(r.bias != 0);
  tiling.SetTraverse(static_cast<MatrixTraverse>(r.traverse));
  tiling.SetSplitRange(r.most_base[0], r.most_base[1], r.most_base[2], r.least_base[0], r.least_base[1],
                       r.least_base[2]);
  tiling.SetBufferSpace(r.buffers[0], r.buffers[1], r.buffers[2], r.buffers[3]);
  tiling.SetDoubleBuffer(true, true, r.double_c != 0, false);
  tiling.SetMadType(static_cast<MatrixMadType>(r.mad));
  tiling.SetSparse(r.sparse != 0);
  tiling.SetMatmulConfigParams(0, false, static_cast<ScheduleType>(r.schedule));
  if (r.batch[0] > 0) tiling.SetBatchInfoForNormal(r.batch[0], r.batch[1], r.shape[0], r.shape[1], r.shape[2]);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* tiling_fields() {
#define CANN_CPU_FIELD(name) #name ","
  return CANN_CPU_CUBE_TILING_FIELDS(CANN_CPU_FIELD) "";
}

extern "C" __attribute__((visibility("default"))) int64_t make_tiling(const Request* r, void* to, int32_t* cores) {
  optiling::Nested made;
  int64_t status = -1;
  if (r->kind == 1) {
    MultiCoreMatmulTiling tiling(*platform_ascendc::PlatformAscendCManager::GetInstance());
    set(tiling, *r);
    tiling.SetDim(r->dim);
    tiling.EnableMultiCoreSplitK(r->split_k != 0);
    tiling.SetAlignSplit(r->align[0], r->align[1], r->align[2]);
    tiling.SetSingleRange(r->most[0], r->most[1], r->most[2], r->least[0], r->least[1], r->least[2]);
    status = tiling.GetTiling(made.cube);
    if (tiling.GetCoreNum(cores[0], cores[1], cores[2]) != status) return -2;
    int32_t single[3];
    if (tiling.GetSingleShape(single[0], single[1], single[2]) != status) return -3;
    if (status == 0 && single[0] != made.cube.get_singleCoreM()) return -4;
  } else if (r->kind == 2) {
    BatchMatmulTiling tiling;
    set(tiling, *r);
    status = tiling.GetTiling(made.cube);
  } else {
    MatmulApiTiling tiling;
    set(tiling, *r);
    status = tiling.GetTiling(made.cube);
    if (tiling.GetBaseM() != made.cube.baseM || tiling.GetBaseN() != made.cube.baseN) return -5;
  }
  SysTilingTempBufSize size;
  if (status == 0 && (MatmulGetTmpBufSize(made.cube, size) != 0 || size.l1Size != made.cube.shareL1Size)) return -6;
  if (made.GetDataSize() != 8 + made.cube.GetDataSize()) return -7;
  made.cube.SaveToBuffer(to, sizeof(AscendC::tiling::TCubeTiling));
  return status;
}
