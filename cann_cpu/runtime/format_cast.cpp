// Casts formats, on the stream's worker thread.
#include "format_cast.h"

#include <cstring>

#include "call.h"
#include "cann_cpu/fractal_nz.h"

namespace cann_cpu {
namespace {

aclFormat format_of(const aclTensorDesc& desc) {
  return desc.storage_format == ACL_FORMAT_UNDEFINED ? desc.format : desc.storage_format;
}

bool is_fractal_nz(const aclTensorDesc& desc) { return format_of(desc) == ACL_FORMAT_FRACTAL_NZ; }

bool is_stored_by_rows(const aclTensorDesc& desc) {
  switch (format_of(desc)) {
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
  size_t bytes = aclDataTypeSize(desc.type);
  for (int64_t size : is_fractal_nz(desc) ? desc.storage_dims : desc.dims) bytes *= size;
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

bool is_format_cast(const Operand& from, const Operand& to) {
  const auto is_served = [](const aclTensorDesc& desc) {
    return (is_fractal_nz(desc) || is_stored_by_rows(desc)) && desc.placement == ACL_MEMTYPE_DEVICE &&
           aclDataTypeSize(desc.type) != 0;
  };
  return is_served(from.desc) && is_served(to.desc) && from.desc.type == to.desc.type &&
         from.desc.dims == to.desc.dims &&
         (is_fractal_nz(from.desc) != is_fractal_nz(to.desc) || from.desc.storage_dims == to.desc.storage_dims);
}

void cast_format(const Operand& from, const Operand& to) {
  check_size(from, "input");
  check_size(to, "output");
  const size_t itemsize = aclDataTypeSize(from.desc.type);
  if (is_fractal_nz(from.desc) == is_fractal_nz(to.desc)) {
    std::memcpy(to.buffer.data, from.buffer.data, bytes_of(from.desc));
  } else if (is_fractal_nz(to.desc)) {
    FractalNz(to.desc.dims, to.desc.storage_dims, itemsize).to_blocks(from.buffer.data, to.buffer.data);
  } else {
    FractalNz(from.desc.dims, from.desc.storage_dims, itemsize).to_rows(from.buffer.data, to.buffer.data);
  }
}

}  // namespace cann_cpu
