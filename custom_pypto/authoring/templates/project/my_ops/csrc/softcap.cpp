// softcap: keeps values within a limit, smoothly.
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <torch/library.h>

#include <cmath>

#include "aclnn_softcap.h"
#include "checks.h"
#include "ops_common.h"

namespace my_ops {
namespace {

using at::Tensor;
using custom_pypto::Checks;

// Checks the arguments, under eager and on Meta alike, and allocates the result.
Tensor softcap_meta(const Tensor& x, double cap) {
  const Checks checks("my_ops::softcap");
  checks.one_device({{"x", &x}});
  checks.dtype("x", x, {at::kHalf, at::kBFloat16, at::kFloat});
  if (!(std::isfinite(cap) && cap > 0)) {
    checks.reject("cap", "be a finite number above 0", c10::str("is ", cap));
  }
  return at::empty_symint(x.sym_sizes(), x.options());
}

Tensor softcap_npu(const Tensor& x, double cap) {
  const Tensor out = softcap_meta(x, cap);
  if (out.numel() != 0) {
    EXEC_NPU_CMD(aclnnSoftcap, x, cap, out);
  }
  return out;
}

TORCH_LIBRARY_IMPL(my_ops, PrivateUse1, m) { m.impl("softcap", &softcap_npu); }
TORCH_LIBRARY_IMPL(my_ops, Meta, m) { m.impl("softcap", &softcap_meta); }

}  // namespace
}  // namespace my_ops
