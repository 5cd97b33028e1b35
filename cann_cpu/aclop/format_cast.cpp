// SPDX-License-Identifier: Apache-2.0
// Casts formats, on the stream's worker thread.
#include "format_cast.h"

#include <algorithm>
#include <cstring>

#include "cann_cpu/call.h"
#include "cann_cpu/dtypes.h"
#include "cann_cpu/fractal_nz.h"

namespace cann_cpu {
namespace {

bool is_stored_by_rows(const aclTensorDesc& desc) {
  switch (desc.storage_format == ACL_FORMAT_UNDEFINED ? desc.format : desc.storage_format) {
    case ACL_FORMAT_UNDEFINED:
    case ACL_FORMAT_ND:
    case ACL_FORMAT_NCL:
    case ACL_FORMAT_NCHW:
    case ACL_FORMAT_NCDHW:
      return true;
    default:
      return false;
  }
}

size_t bytes_of(const aclTensorDesc& desc) {
  size_t bytes = dtype_size(desc.type);
  for (int64_t size : desc.is_fractal_nz() ? desc.storage_dims : desc.dims) bytes *= size;
  return bytes;
}

void check_size(const Operand& operand, const char* name) {
  const size_t needed = bytes_of(operand.desc);
  if (operand.buffer.size < needed) {
    fail(ACL_ERROR_INVALID_PARAM, "the %s has %zu bytes of memory, its shape takes %zu", name, operand.buffer.size,
         needed);
  }
}

}  // namespace

bool has_known_formats(const SingleOperator& op) {
  const auto is_known = [](const Operand& operand) {
    return operand.desc.is_fractal_nz() || is_stored_by_rows(operand.desc);
  };
  return std::all_of(op.inputs.begin(), op.inputs.end(), is_known) &&
         std::all_of(op.outputs.begin(), op.outputs.end(), is_known);
}

bool is_format_cast(const SingleOperator& op) {
  if (op.inputs.size() != 1 || op.outputs.size() != 1) return false;
  const aclTensorDesc& from = op.inputs[0].desc;
  const aclTensorDesc& to = op.outputs[0].desc;
  return from.type == to.type && dtype_size(from.type) != 0 && from.dims == to.dims &&
         (from.is_fractal_nz() != to.is_fractal_nz() || from.storage_dims == to.storage_dims);
}

void cast_format(const Operand& from, const Operand& to) {
  check_size(from, "input");
  check_size(to, "output");
  const size_t itemsize = dtype_size(from.desc.type);
  if (from.desc.is_fractal_nz() == to.desc.is_fractal_nz()) {
    std::memcpy(to.buffer.data, from.buffer.data, bytes_of(from.desc));
  } else if (to.desc.is_fractal_nz()) {
    FractalNz(to.desc.dims, to.desc.storage_dims, itemsize).to_blocks(from.buffer.data, to.buffer.data);
  } else {
    FractalNz(from.desc.dims, from.desc.storage_dims, itemsize).to_rows(from.buffer.data, to.buffer.data);
  }
}

}  // namespace cann_cpu
