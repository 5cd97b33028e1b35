// SPDX-License-Identifier: Apache-2.0
#include "checks.h"

void cann_cpu::check_values(const char* name, at::IntArrayRef list, int64_t first, int64_t last) {
  for (size_t i = 0; i < list.size(); ++i) {
    TORCH_CHECK(list[i] >= first && list[i] <= last, name, "[", i, "] is ", list[i], "; expected ", first, " to ",
                last);
  }
}

void cann_cpu::check_values(const char* name, const at::Tensor& tensor, int64_t first, int64_t last,
                            std::optional<int64_t> absent) {
  const at::Tensor all = tensor.to(at::kLong).contiguous();
  const int64_t* values = all.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < all.numel(); ++i) {
    if ((values[i] >= first && values[i] <= last) || (absent.has_value() && values[i] == *absent)) continue;
    std::string place;
    for (int64_t dim = all.dim() - 1, rest = i; dim >= 0; --dim) {
      place = std::to_string(rest % all.size(dim)) + (place.empty() ? "" : ", ") + place;
      rest /= all.size(dim);
    }
    const std::string or_absent = absent.has_value() ? c10::str(", or ", *absent) : "";
    TORCH_CHECK(false, name, "[", place, "] is ", values[i], "; expected ", first, " to ", last, or_absent);
  }
}
