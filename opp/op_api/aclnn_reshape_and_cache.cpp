// SPDX-License-Identifier: Apache-2.0
// aclnnReshapeAndCache: binds the C function to the checks, the tiling and the kernel.
#include "aclnn_reshape_and_cache.h"

#include "cann_cpu/op.h"
#include "op_api/launch.h"
#include "op_host/reshape_and_cache.h"

extern "C" __global__ __aicore__ void reshape_and_cache(GM_ADDR key, GM_ADDR value, GM_ADDR key_cache_in,
                                                        GM_ADDR value_cache_in, GM_ADDR slot_mapping, GM_ADDR key_cache,
                                                        GM_ADDR value_cache, GM_ADDR workspace, GM_ADDR tiling);

namespace {

using at::Tensor;
using cann_cpu::InOut;
using opp::gm_address;
using OptionalTensor = std::optional<Tensor>;

void launch(const opp::ReshapeAndCache& call) {
  opp::ReshapeAndCacheTiling tiling = opp::tile(call, opp::cores());
  auto* const key_cache = gm_address(call.key_cache);
  auto* const value_cache = gm_address(call.value_cache);
  const opp::TensorMemory memory{{"key", call.key},
                                 {"value", call.value},
                                 {"key_cache", call.key_cache},
                                 {"value_cache", call.value_cache},
                                 {"slot_mapping", call.slot_mapping}};
  ICPU_RUN_KF(reshape_and_cache, tiling.blocks, gm_address(call.key), gm_address(call.value), key_cache, value_cache,
              gm_address(call.slot_mapping), key_cache, value_cache, nullptr, reinterpret_cast<GM_ADDR>(&tiling));
}

// The kernel takes tokens wherever they lie, but their rows, and the slots, only as a whole.
void run(const opp::ReshapeAndCache& call) {
  const auto whole_rows = [&](const Tensor& rows, const Tensor& cache) {
    return opp::has_dense_rows(rows, cache, call.nz()) ? rows : rows.contiguous();
  };
  launch({whole_rows(call.key, call.key_cache),
          call.value ? OptionalTensor(whole_rows(*call.value, *call.value_cache)) : std::nullopt, call.key_cache,
          call.value_cache, call.slot_mapping.contiguous(), call.cache_layout});
}

template <void (*function)(const opp::ReshapeAndCache&)>
void with_arguments(const Tensor& key, const OptionalTensor& value, InOut key_cache,
                    const std::optional<InOut>& value_cache, const Tensor& slot_mapping,
                    const std::string& cache_layout) {
  function({key, value, key_cache, value_cache, slot_mapping, cache_layout});
}

}  // namespace

ACLNN_CHECKED(ReshapeAndCache, with_arguments<opp::check>, with_arguments<run>);
