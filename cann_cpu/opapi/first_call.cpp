// SPDX-License-Identifier: Apache-2.0
// Calls a function of MKL's vector math before threads do. The first such call in a process chooses the code for the
// processor; in 2024.2, which torch 2.13 has, other threads that call meanwhile may get code of low accuracy, and their
// part of the first exp(), sin() or cos() in a process is off by 1e-4 (pytorch/pytorch#188792).
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>

namespace {

[[maybe_unused]] const bool called = at::exp(at::full({1}, 0.5)).defined();

}  // namespace
