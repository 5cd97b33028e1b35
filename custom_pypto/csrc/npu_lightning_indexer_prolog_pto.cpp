// SPDX-License-Identifier: Apache-2.0
// npu_lightning_indexer_prolog_pto: int8 queries, int8 keys in the cache and head weights of the lightning indexer.
#include "aclnn_lightning_indexer_prolog_pto.h"
#include "arguments/lightning_indexer_prolog_pto.h"
#include "operator.h"

namespace custom_pypto {

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement<check_lightning_indexer_prolog_pto>(
      m, "custom_pypto::npu_lightning_indexer_prolog_pto",
      [](const auto&... arguments) { EXEC_NPU_CMD(aclnnLightningIndexerPrologPto, arguments...); });
}

}  // namespace custom_pypto
