// SPDX-License-Identifier: Apache-2.0
// npu_lightning_indexer_quant_pto: npu_lightning_indexer_pto on int8 queries and keys with their scales.
#include "aclnn_lightning_indexer_quant_pto.h"
#include "arguments/lightning_indexer_quant_pto.h"
#include "operator.h"

namespace custom_pypto {

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement_optional_result<check_lightning_indexer_quant_pto>(
      m, "custom_pypto::npu_lightning_indexer_quant_pto",
      [](const auto&... arguments) { EXEC_NPU_CMD(aclnnLightningIndexerQuantPto, arguments...); }, "return_value");
}

}  // namespace custom_pypto
