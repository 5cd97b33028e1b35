// SPDX-License-Identifier: Apache-2.0
// The rows of all ranks times a matrix, on cube cores: a rank's own rows first, while the others' are gathered.
#include "gather_matmul_tiling.h"
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
using Matrix = MatmulType<TPosition::GM, CubeFormat::ND, half>;
using Product = MatmulImpl<Matrix, Matrix, Matrix>;

__aicore__ inline void Multiply(Product& product, const TCubeTiling& tiling, GM_ADDR a, GM_ADDR b, GM_ADDR c) {
  if (GetBlockIdx() != 0) return;
  GlobalTensor<half> left, right, out;
  left.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(a), tiling.M * tiling.Ka);
  right.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(b), tiling.Ka * tiling.N);
  out.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(c), tiling.M * tiling.N);
  product.SetTensorA(left);
  product.SetTensorB(right);
  product.IterateAll(out);
}

extern "C" __global__ __aicore__ void gather_matmul(GM_ADDR a, GM_ADDR b, GM_ADDR gathered, GM_ADDR c,
                                                    GM_ADDR workspace, GM_ADDR tiling) {
  if ASCEND_IS_AIV {
    return;
  }
  REGISTER_TILING_DEFAULT(GatherMatmulTilingData);
  GET_TILING_DATA(data, tiling);
  TPipe pipe;
  Hccl hccl;
  hccl.InitV2(GetHcclContext<HCCL_GROUP_ID_0>(), &data);
  hccl.SetCcTilingV2(offsetof(GatherMatmulTilingData, cc));
  const uint64_t count = uint64_t{data.rows} * data.depth;
  const HcclHandle handle = hccl.AllGather<true>(a, gathered, count, HcclDataType::HCCL_DATA_TYPE_FP16, 0);
  Product product;
  product.SetSubBlockIdx(0);
  product.Init(&data.matmul, &pipe);
  const uint64_t bytes = uint64_t{data.rows} * data.columns * sizeof(half);
  Multiply(product, data.matmul, a, b, c + hccl.GetRankId() * bytes);
  hccl.Wait(handle);
  for (uint32_t rank = 0; rank < hccl.GetRankDim(); ++rank) {
    if (rank == hccl.GetRankId()) continue;
    Multiply(product, data.matmul, gathered + rank * count * sizeof(half), b, c + rank * bytes);
  }
  product.End();
  hccl.Finalize();
}
