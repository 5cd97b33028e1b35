// SPDX-License-Identifier: Apache-2.0
// aclnnAdvanceStepFlashattn: binds the C function to the checks, the tiling and the kernel.
#include "aclnn_advance_step_flashattn.h"

#include "cann_cpu/op.h"
#include "op_api/launch.h"
#include "op_host/advance_step_flashattn.h"

extern "C" __global__ __aicore__ void advance_step_flashattn(GM_ADDR input_tokens_in, GM_ADDR sampled_token_ids,
                                                             GM_ADDR input_positions_in, GM_ADDR seq_lens_in,
                                                             GM_ADDR slot_mapping_in, GM_ADDR block_tables,
                                                             GM_ADDR input_tokens, GM_ADDR input_positions,
                                                             GM_ADDR seq_lens, GM_ADDR slot_mapping, GM_ADDR workspace,
                                                             GM_ADDR tiling);

namespace {

using at::Tensor;
using cann_cpu::InOut;
using opp::gm_address;

void launch(const opp::AdvanceStepFlashattn& call) {
  if (call.num_seqs == 0) return;
  opp::AdvanceStepFlashattnTiling tiling = opp::tile(call);
  auto* const tokens = gm_address(call.input_tokens);
  auto* const positions = gm_address(call.input_positions);
  auto* const lengths = gm_address(call.seq_lens);
  auto* const slots = gm_address(call.slot_mapping);
  const opp::TensorMemory memory{
      {"input_tokens", call.input_tokens},       {"sampled_token_ids", call.sampled_token_ids},
      {"input_positions", call.input_positions}, {"seq_lens", call.seq_lens},
      {"slot_mapping", call.slot_mapping},       {"block_tables", call.block_tables}};
  ICPU_RUN_KF(advance_step_flashattn, opp::AdvanceStepFlashattnTiling::kBlocks, tokens,
              gm_address(call.sampled_token_ids), positions, lengths, slots, gm_address(call.block_tables), tokens,
              positions, lengths, slots, nullptr, reinterpret_cast<GM_ADDR>(&tiling));
}

template <void (*function)(const opp::AdvanceStepFlashattn&)>
void with_arguments(InOut input_tokens, const Tensor& sampled_token_ids, InOut input_positions, InOut seq_lens,
                    InOut slot_mapping, const Tensor& block_tables, int64_t num_seqs, int64_t num_queries,
                    int64_t block_size) {
  function({input_tokens, sampled_token_ids, input_positions, seq_lens, slot_mapping, block_tables, num_seqs,
            num_queries, block_size});
}

}  // namespace

ACLNN_CHECKED(AdvanceStepFlashattn, with_arguments<opp::check>, with_arguments<launch>);
