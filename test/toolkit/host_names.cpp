// SPDX-License-Identifier: Apache-2.0
// What the host sides of vllm-ascend's operators use of CANN's headers: prints `name value` of each.
#include <cstdio>

#include "graph/operator_reg.h"
#include "log/error_code.h"
#include "log/log.h"
#include "register/op_def_registry.h"
#include "register/op_impl_registry.h"
#include "tiling/tiling_api.h"
#include "toolchain/slog.h"

#include "base/alog_pub.h"

namespace optiling {

BEGIN_TILING_DATA_DEF(RowsTiling)
TILING_DATA_FIELD_DEF(uint32_t, rows)
TILING_DATA_FIELD_DEF(uint32_t, columns)
END_TILING_DATA_DEF
REGISTER_TILING_DATA_CLASS(Rows, RowsTiling)

struct RowsInfo {
  int cores;
};

size_t save(TilingDef& tiling, void* to, size_t capacity) {
  tiling.SaveToBuffer(to, capacity);
  return tiling.GetDataSize();
}

ge::graphStatus parse(gert::TilingParseContext* context) {
  context->GetCompiledInfo<RowsInfo>()->cores = 3;
  return ge::GRAPH_SUCCESS;
}
IMPL_OP_OPTILING(Rows).TilingParse<RowsInfo>(parse);

}  // namespace optiling

namespace ops {

class Rows : public OpDef {
 public:
  explicit Rows(const char* name) : OpDef(name) {}
};
OP_ADD(Rows, optiling::RowsInfo);

}  // namespace ops

namespace ge {

REG_OP(Rows).INPUT(x, TensorType({DT_FP8_E5M2, DT_BFLOAT16})).OUTPUT(y, TensorType({DT_FLOAT})).OP_END_FACTORY_REG(Rows)

}  // namespace ge

int main() {
  optiling::RowsTiling tiling;
  tiling.set_rows(5);
  tiling.set_columns(7);
  uint32_t saved[3] = {0, 0, 9};
  std::printf("bytes %zu\n", optiling::save(tiling, saved, sizeof(saved)));
  std::printf("saved %u %u %u\n", saved[0], saved[1], saved[2]);
  saved[0] = 1;
  optiling::save(tiling, saved, 4);  // no room
  std::printf("kept %u\n", saved[0]);
  std::printf("format %d\n", ge::GetPrimaryFormat(ge::FORMAT_FRACTAL_NZ | 16 << 8) == ge::FORMAT_FRACTAL_NZ);
  std::printf("dimensions %ld %ld\n", ge::UNKNOWN_DIM, ge::UNKNOWN_DIM_NUM);
  std::printf("levels %d %d %d\n", CheckLogLevel(OP, DLOG_ERROR), AlogCheckDebugLevel(OP, DLOG_EVENT),
              CheckLogLevel(OP, 7));
  uint32_t max = 0, min = 0;
  AscendC::GetSwiGLUMaxMinTmpSize(ge::Shape({8}), 4, max, min, false);
  std::printf("buffer %d\n", max >= min && min > 0);
  std::printf("fractal %d\n", AscendC::BLOCK_CUBE);
  std::printf("architectures %u %u\n", static_cast<uint32_t>(NpuArch::DAV_5102),
              static_cast<uint32_t>(NpuArch::DAV_RESV));
  std::fflush(stdout);
  dlog_error(OP, "rows: %d", 1);
  dlog_info(OP, "rows: %d", 2);
  AlogRecord(OP, DLOG_TYPE_DEBUG, DLOG_ERROR, "rows: %d", 3);
  REPORT_INNER_ERR_MSG("E89999", "rows: %d", 4);
  OpLogSub(OP, DLOG_ERROR, "Rows", "rows: %d", 5);
}
