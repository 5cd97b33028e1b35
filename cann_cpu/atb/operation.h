// SPDX-License-Identifier: Apache-2.0
// Operations of libatb: a row (cann_cpu/op.h) whose arguments come from a parameter struct and lists of tensors, or,
// for the functions AtbX, from the parameters of a C function.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "abi.h"
#include "acl/acl_rt.h"
#include "cann_cpu/op.h"
#include "opapi/checks.h"

namespace atb {

// The elements of a tensor of int32 or int64 in the host's memory, which the caller may free after phase one; empty for
// null.
struct HostInts : at::IntArrayRef {
  using at::IntArrayRef::IntArrayRef;
};

// The arguments of a row, as C objects.
class Arguments {
 public:
  void add(const Tensor& tensor);  // null for a tensor that is left out
  void add_host(const Tensor& tensor);
  void add(int64_t value) { list_.emplace_back(value); }
  void add(int32_t value) { list_.emplace_back(static_cast<int64_t>(value)); }
  void add(float value) { list_.emplace_back(static_cast<double>(value)); }
  void add(std::nullptr_t) { list_.emplace_back(static_cast<const void*>(nullptr)); }
  template <class... T>
  Arguments& operator()(const T&... each) {
    (add(each), ...);
    return *this;
  }

  const std::vector<cann_cpu::OperatorArgument>& list() const { return list_; }

 private:
  aclTensor& described(const Tensor& tensor);

  std::deque<aclTensor> tensors_;
  std::vector<cann_cpu::OperatorArgument> list_;
};

using PhaseOne = aclnnStatus (*)(const cann_cpu::OperatorArgument*, uint64_t*, aclOpExecutor**);
using Arrange = std::function<void(const VariantPack& tensors, Arguments& arguments)>;

// The operation of a parameter struct; throws std::invalid_argument where it asks for what is not implemented.
Operation* make(const infer::LinearParam& param);
Operation* make(const infer::ElewiseParam& param);
Operation* make(const infer::RmsNormParam& param);
Operation* make(const infer::GroupTopkParam& param);
Operation* make(const infer::SelfAttentionParam& param);
Operation* make(const infer::PagedAttentionParam& param);
Operation* make(const infer::ReshapeAndCacheParam& param);
Operation* make(const infer::RopeParam& param);

// Runs body; what it throws becomes a status and the text of aclGetRecentErrMsg.
Status guarded(const char* name, const std::function<void()>& body);

Operation* new_operation(const char* name, uint32_t inputs, uint32_t outputs, PhaseOne phase_one, Arrange arrange);

// Of a call of a function AtbX that has passed phase one.
Operation* new_operation(const char* name, aclOpExecutor* executor);
Status execute(Operation* operation, Context* context);

// Rejects what a parameter struct asks for: "PagedAttentionOperation: calcType is 4; ..."
template <class T, class... Text>
void require(bool is_right, const char* member, const T& value, const Text&... expected) {
  if (!is_right) throw std::invalid_argument(c10::str(member, " is ", value, "; expected ", expected...));
}

template <class Definition, class Row>
struct AtbPhaseOne;

// The C function of phase one of AtbX.
template <class Definition, bool has_phase, class... Params>
struct AtbPhaseOne<Definition, cann_cpu::detail::TypedRow<has_phase, Params...>> {
  static int call(typename cann_cpu::Argument<Params>::CType... arguments, uint64_t* workspace_size,
                  Operation** operation, Context*) {
    const cann_cpu::OperatorArgument passed[] = {cann_cpu::detail::passed(arguments)..., nullptr};
    aclOpExecutor* executor = nullptr;
    const auto status = cann_cpu::detail::phase_one(Definition::row, passed, workspace_size, &executor);
    if (status != ACLNN_SUCCESS) return status;
    return guarded(Definition::row.name, [&] {
      TORCH_CHECK(operation != nullptr, "operation is null");
      delete *operation;  // torch_npu keeps the operation of an equal call, and replaces it
      *operation = new_operation(Definition::row.name, executor);
    });
  }
};

}  // namespace atb

template <>
struct cann_cpu::Argument<atb::HostInts> {
  using CType = const aclTensor*;
  using Bound = atb::HostInts;
  static constexpr bool is_copied = true;
  static StoredArgument store(CType argument, Operands& operands);
  static Bound bind(const StoredArgument& stored, AddressCursor&) {
    const auto& values = detail::stored_as<aclIntArray>(stored).values;
    return Bound(values.data(), values.size());
  }
};

// ATB_ROW(Name, dtypes, kernel): NamePhaseOne::call_with, for new_operation(). The kernel's first parameter is a Phase.
#define ATB_ROW(op, dtypes, ...) CANN_CPU_PHASE_ONE(op, #op "Operation", dtypes, nullptr, __VA_ARGS__)

// ATB_FUNCTION(AtbX, dtypes, kernel): the C functions AtbXGetWorkspaceSize and AtbX.
#define ATB_FUNCTION(op, dtypes, ...)                                                                    \
  CANN_CPU_PHASE_ONE(op, #op, dtypes, nullptr, __VA_ARGS__)                                              \
  namespace {                                                                                            \
  using op##Call = atb::AtbPhaseOne<op##Definition, std::remove_const_t<decltype(op##Definition::row)>>; \
  }                                                                                                      \
  extern "C" {                                                                                           \
  [[gnu::used]] static auto op##Resolve() { return &op##Call::call; }                                    \
  CANN_EXPORT decltype(op##Call::call) op##GetWorkspaceSize [[gnu::ifunc(#op "Resolve")]];               \
  CANN_EXPORT int op(void*, uint64_t, atb::Operation* operation, atb::Context* context) {                \
    return atb::execute(operation, context);                                                             \
  }                                                                                                      \
  }                                                                                                      \
  static_assert(true)
