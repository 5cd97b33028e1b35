// softcap: keeps values within a limit, smoothly.
#include <c10/util/StringUtil.h>

#include <cmath>

#include "aclnn_softcap.h"
#include "operator.h"

namespace my_ops {
namespace {

using namespace custom_pypto;

// Checks the arguments, under eager and on Meta alike, and allocates the result.
at::Tensor check_softcap(const Checks& checks, const at::Tensor& x, double cap) {
  const ArgumentTable table(checks, {{"x", x, {at::kHalf, at::kBFloat16, at::kFloat}}});
  if (!(std::isfinite(cap) && cap > 0)) {
    checks.reject("cap", "be a finite number above 0", c10::str("is ", cap));
  }
  return at::empty_symint(x.sym_sizes(), x.options());
}

TORCH_LIBRARY_FRAGMENT(my_ops, m) {
  implement<check_softcap>(m, "my_ops::softcap",
                           [](const auto&... arguments) { EXEC_NPU_CMD(aclnnSoftcap, arguments...); });
}

}  // namespace
}  // namespace my_ops
