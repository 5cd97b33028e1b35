# SPDX-License-Identifier: Apache-2.0
"""Writes projects of operators as their authors have them: msopgen's, filled in with y = x + a constant."""

import json
import re
from pathlib import Path

from operator_project import CANN, run

HOST = """
#include "@name@_tiling.h"

#include "register/op_def_registry.h"

namespace optiling {
static ge::graphStatus TilingFunc(gert::TilingContext* context) {
  @type@TilingData tiling;
  tiling.set_size(context->GetInputShape(0)->GetStorageShape().GetShapeSize());
  @tiling@
  context->SetBlockDim(1);
  tiling.SaveToBuffer(context->GetRawTilingData()->GetData(), context->GetRawTilingData()->GetCapacity());
  context->GetRawTilingData()->SetDataSize(tiling.GetDataSize());
  context->GetWorkspaceSizes(1)[0] = 0;
  return ge::GRAPH_SUCCESS;
}
}  // namespace optiling

namespace ge {
static graphStatus InferShape(gert::InferShapeContext* context) {
  const gert::Shape* x = context->GetInputShape(0);
  gert::Shape* y = context->GetOutputShape(0);
  *y = *x;
  return GRAPH_SUCCESS;
}
static graphStatus InferDataType(gert::InferDataTypeContext* context) {
  return context->SetOutputDataType(0, context->GetInputDataType(0));
}
}  // namespace ge

namespace ops {
class @type@ : public OpDef {
 public:
  explicit @type@(const char* name) : OpDef(name) {
    this->Input("x").ParamType(REQUIRED)@types@;
    @outputs@
    this->SetInferShape(ge::InferShape).SetInferDataType(ge::InferDataType);
    this->AICore().SetTiling(optiling::TilingFunc).AddConfig("ascend910b");
  }
};
OP_ADD(@type@);
}  // namespace ops
"""
TYPES = ".DataType({ge::DT_FLOAT16, ge::DT_FLOAT}).Format({ge::FORMAT_ND, ge::FORMAT_ND})"
OUTPUT = f'this->Output("y").ParamType(REQUIRED){TYPES};'
KERNEL = """
#include "kernel_operator.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void @name@(GM_ADDR x, @parameter@GM_ADDR workspace, GM_ADDR tiling) {
  GET_TILING_DATA(data, tiling);
  @kernel@
  GlobalTensor<DTYPE_X> from, to;
  from.SetGlobalBuffer(reinterpret_cast<__gm__ DTYPE_X*>(x), data.size);
  to.SetGlobalBuffer(reinterpret_cast<__gm__ DTYPE_X*>(@output@), data.size);
  TPipe pipe;
  TQue<TPosition::VECIN, 1> in;
  TQue<TPosition::VECOUT, 1> out;
  constexpr uint32_t kTile = 2048;
  pipe.InitBuffer(in, 2, kTile * sizeof(DTYPE_X));
  pipe.InitBuffer(out, 2, kTile * sizeof(DTYPE_X));
  for (uint32_t at = 0; at < data.size; at += kTile) {
    const uint32_t count = data.size - at < kTile ? data.size - at : kTile;
    const DataCopyExtParams all{1, static_cast<uint32_t>(count * sizeof(DTYPE_X)), 0, 0, 0};
    LocalTensor<DTYPE_X> read = in.AllocTensor<DTYPE_X>();
    DataCopyPad(read, from[at], all, DataCopyPadExtParams<DTYPE_X>{});
    in.EnQue(read);
    read = in.DeQue<DTYPE_X>();
    LocalTensor<DTYPE_X> sum = out.AllocTensor<DTYPE_X>();
    Adds(sum, read, static_cast<DTYPE_X>(@adds@), count);
    out.EnQue(sum);
    in.FreeTensor(read);
    sum = out.DeQue<DTYPE_X>();
    DataCopyPad(to[at], sum, all);
    out.FreeTensor(sum);
  }
}
"""


def snake(type):
    return re.sub(r"(?<!^)([A-Z])", r"_\1", type).lower()


def fill(text, **values):
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def write_operator(folder, type, adds=1, tiling="", kernel="", outputs=OUTPUT):
    """Its files in op_host/ and op_kernel/; what its tiling and its kernel do before, and other outputs."""
    name = snake(type)
    written = bool(outputs)
    values = {"type": type, "name": name, "adds": adds, "tiling": tiling, "kernel": kernel}
    values = {"outputs": outputs} | values | {"types": TYPES}
    values |= {"parameter": "GM_ADDR y, " * written, "output": "y" if written else "x"}
    (folder / f"op_host/{name}.cpp").write_text(fill(HOST, **values))
    (folder / f"op_kernel/{name}.cpp").write_text(fill(KERNEL, **values))


def project(folder, vendor="customize", **operators):
    """msopgen's project with these operators; what write_operator is given of each."""
    tensor = {"param_type": "required", "format": ["ND", "ND"], "type": ["fp16", "float"]}
    described = [
        {"op": type, "input_desc": [{"name": "x"} | tensor], "output_desc": [{"name": "y"} | tensor]}
        for type in operators
    ]
    folder.parent.mkdir(parents=True, exist_ok=True)
    description = folder.with_suffix(".json")
    description.write_text(json.dumps(described))
    run(CANN / "bin/msopgen", "gen", "-i", description, "-c", "ai_core-Ascend910B3", "-lan", "cpp", "-out", folder)
    for type, given in operators.items():
        write_operator(folder, type, **given)
    presets = folder / "CMakePresets.json"
    presets.write_text(presets.read_text().replace('"customize"', f'"{vendor}"'))
    return folder


def install(folder, to):
    """Builds a project and installs its package: its folder, an entry of ASCEND_CUSTOM_OPP_PATH."""
    run("bash", folder / "build.sh")
    return unpack(folder, to)


def unpack(folder, to):
    """Installs the package that a project has built."""
    (installer,) = folder.glob("build_out/custom_opp_*.run")
    run(installer, f"--install-path={to}", "--quiet")
    (package,) = Path(to).glob("vendors/*")
    return package
