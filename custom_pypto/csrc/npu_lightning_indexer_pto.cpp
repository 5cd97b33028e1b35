// SPDX-License-Identifier: Apache-2.0
// npu_lightning_indexer_pto: for every query the positions of the keys with the highest index scores.
#include "aclnn_lightning_indexer_pto.h"
#include "arguments/lightning_indexer_pto.h"
#include "operator.h"

namespace custom_pypto {

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement_optional_result<check_lightning_indexer_pto>(
      m, "custom_pypto::npu_lightning_indexer_pto",
      [](const auto&... arguments) { EXEC_NPU_CMD(aclnnLightningIndexerPto, arguments...); }, "return_value");
}

}  // namespace custom_pypto
