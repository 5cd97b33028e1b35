// SPDX-License-Identifier: Apache-2.0
// advance_step_flashattn in PyNative mode: a kernel of this module, which PyboostRunner launches.
#include "advance_step_flashattn.h"

#include <memory>
#include <string>

#include "module.h"
#include "ms_extension/api.h"

namespace {

using mindspore::TypeError, mindspore::ValueError;

void check(const char* name, const ms::Tensor& tensor, size_t dims, int64_t rows) {
  if (tensor.data_type() != ms::TypeId::kNumberTypeInt32) {
    MS_EXCEPTION(TypeError) << "advance_step_flashattn: " << name << " must have dtype int32, but has "
                            << mindspore::TypeIdToString(tensor.data_type());
  }
  if (tensor.shape().size() != dims || tensor.shape()[0] < rows || !tensor.is_contiguous()) {
    MS_EXCEPTION(ValueError) << "advance_step_flashattn: " << name << " must be contiguous, with " << dims
                             << " dimensions and " << rows << " rows or more, but has shape " << tensor.shape();
  }
}

class AdvanceStep : public ms::pynative::PyboostRunner {
 public:
  using PyboostRunner::PyboostRunner;

  static void run(int32_t num_seqs, int32_t num_queries, int32_t block_size, const ms::Tensor& input_tokens,
                  const ms::Tensor& sampled_token_ids, const ms::Tensor& input_positions, const ms::Tensor& seq_lens,
                  const ms::Tensor& slot_mapping, const ms::Tensor& block_tables) {
    if (num_queries < 0 || num_queries > num_seqs || block_size < 1) {
      MS_EXCEPTION(ValueError) << "advance_step_flashattn: num_queries must be 0 to num_seqs, and block_size 1 or "
                                  "more, but they are "
                               << num_queries << ", " << num_seqs << " and " << block_size;
    }
    check("input_tokens", input_tokens, 1, num_seqs);
    check("sampled_token_ids", sampled_token_ids, sampled_token_ids.shape().size(), num_queries);
    check("input_positions", input_positions, 1, num_seqs);
    check("seq_lens", seq_lens, 1, num_seqs);
    check("slot_mapping", slot_mapping, 1, num_seqs);
    check("block_tables", block_tables, 2, num_seqs);
    const auto runner = std::make_shared<AdvanceStep>("AdvanceStepFlashattn");
    runner->num_seqs_ = num_seqs;
    runner->num_queries_ = num_queries;
    runner->block_size_ = block_size;
    // seq_lens is read and written. What is only written is an output, which is not copied to the device before.
    runner->Run({sampled_token_ids, block_tables, seq_lens}, {input_tokens, input_positions, slot_mapping});
  }

  void LaunchKernel() override {
    const auto address = [](const ms::Tensor& tensor) { return static_cast<uint8_t*>(tensor.GetDataPtr()); };
    launch_advance_step_flashattn(1, nullptr, stream(), address(inputs()[0]), address(inputs()[1]),
                                  address(outputs()[0]), address(outputs()[1]), address(inputs()[2]),
                                  address(outputs()[2]), num_seqs_, num_queries_, block_size_,
                                  static_cast<int32_t>(inputs()[1].shape()[1]));
  }

 private:
  int32_t num_seqs_ = 0;
  int32_t num_queries_ = 0;
  int32_t block_size_ = 0;
};

pybind11::object advance_step_flashattn(int32_t num_seqs, int32_t num_queries, int32_t block_size,
                                        const ms::Tensor& input_tokens, const ms::Tensor& sampled_token_ids,
                                        const ms::Tensor& input_positions, const ms::Tensor& seq_lens,
                                        const ms::Tensor& slot_mapping, const ms::Tensor& block_tables) {
  return ms::pynative::PyboostRunner::Call<0>(AdvanceStep::run, num_seqs, num_queries, block_size, input_tokens,
                                              sampled_token_ids, input_positions, seq_lens, slot_mapping, block_tables);
}

}  // namespace

void add_advance_step_flashattn(pybind11::module_& module) {
  using pybind11::arg;
  module.def("advance_step_flashattn", &advance_step_flashattn, arg("num_seqs"), arg("num_queries"), arg("block_size"),
             arg("input_tokens"), arg("sampled_token_ids"), arg("input_positions"), arg("seq_lens"),
             arg("slot_mapping"), arg("block_tables"));
}
