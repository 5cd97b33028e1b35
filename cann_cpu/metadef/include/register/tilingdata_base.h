// SPDX-License-Identifier: Apache-2.0
// Tiling data by its fields: a struct of natural layout, with CANN's set_x, get_x and SaveToBuffer. A line needs no
// semicolon, as with CANN's macros. On the host its fields are registered, for the struct that the kernel is compiled
// with. After kernel_operator.h it is that struct (for a kernel file that does not include it: -include
// op_host/NAME_tiling.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cann_cpu/export.h"

#ifdef TILING_KEY_IS  // a kernel

#define BEGIN_TILING_DATA_DEF(Struct) struct Struct {
#define TILING_DATA_FIELD_DEF(type, name) type name = 0;
#define TILING_DATA_FIELD_DEF_ARR(type, count, name) type name[count] = {};
#define TILING_DATA_FIELD_DEF_STRUCT(Struct, name) Struct name;
#define END_TILING_DATA_DEF \
  }                         \
  ;

// Stands in namespace optiling, which kernels do not name.
#define REGISTER_TILING_DATA_CLASS(Operator, Struct) \
  using AscendCTilingData = Struct;                  \
  }                                                  \
  using namespace optiling;                          \
  namespace optiling {

#else

// CANN's headers bring these, and tiling functions use them without including them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

#include "securec.h"

namespace optiling {

// While one is set, it gets the type, name and count (0: no array) of every field that is initialised in this thread.
struct TilingFields {
  void* to;
  void (*add)(void* to, const char* type, const char* name, size_t count, bool is_struct);
};
CANN_EXPORT const TilingFields*& tiling_fields();

inline void add_field(const char* type, const char* name, size_t count, bool is_struct) {
  if (const TilingFields* fields = tiling_fields()) fields->add(fields->to, type, name, count, is_struct);
}
template <class T>
T tiling_field(const char* type, const char* name, size_t count) {
  add_field(type, name, count, false);
  return T();
}
template <class Struct>
Struct tiling_struct(const char* type, const char* name) {
  add_field(type, name, 0, true);
  const TilingFields* outer = tiling_fields();
  tiling_fields() = nullptr;
  Struct made;
  tiling_fields() = outer;
  return made;
}

// Any struct of tiling data, for functions that take one by TilingDef&.
class TilingDef {
 public:
  TilingDef() = default;
  TilingDef(const void* data, size_t bytes) : data_(data), bytes_(bytes) {}

  void SaveToBuffer(void* to, size_t capacity) const {
    if (to != nullptr && bytes_ <= capacity) std::memcpy(to, data_, bytes_);
  }
  size_t GetDataSize() const { return bytes_; }

 private:
  const void* data_ = nullptr;
  size_t bytes_ = 0;
};

// What the structs of tiling data derive from; it has no data.
template <class Struct>
struct TilingDataOf {
  // Valid until another of the same struct is passed in this thread.
  operator TilingDef&() const {
    static thread_local TilingDef passed;
    return passed = {static_cast<const Struct*>(this), sizeof(Struct)};
  }
  void SaveToBuffer(void* to, size_t capacity) const {
    TilingDef(static_cast<const Struct*>(this), sizeof(Struct)).SaveToBuffer(to, capacity);
  }
  size_t GetDataSize() const { return sizeof(Struct); }
};

// Operator: "AddCustom", or the name of a struct that others hold. `describe` makes a struct.
struct CANN_EXPORT TilingDataRegistration {
  TilingDataRegistration(const char* type, const char* struct_name, size_t bytes, void (*describe)());
};
template <class Struct>
void describe_tiling() {
  const Struct made;
  (void)made;
}

}  // namespace optiling

#define BEGIN_TILING_DATA_DEF(Struct) struct Struct : ::optiling::TilingDataOf<Struct> {
#define TILING_DATA_FIELD_DEF(type, name)                      \
  type name = ::optiling::tiling_field<type>(#type, #name, 0); \
  void set_##name(type value) { name = value; }                \
  type get_##name() const { return name; }                     \
  static_assert(alignof(type) <= 8, #name ": fields are aligned to 8 bytes at most");
#define TILING_DATA_FIELD_DEF_ARR(type, count, name)                               \
  type name[count] = {::optiling::tiling_field<type>(#type, #name, count)};        \
  void set_##name(const type* values) { std::memcpy(name, values, sizeof(name)); } \
  type* get_##name() { return name; }                                              \
  static_assert(alignof(type) <= 8, #name ": fields are aligned to 8 bytes at most");
#define TILING_DATA_FIELD_DEF_STRUCT(Struct, name)                 \
  Struct name = ::optiling::tiling_struct<Struct>(#Struct, #name); \
  static_assert(alignof(Struct) <= 8, #name ": fields are aligned to 8 bytes at most");
#define END_TILING_DATA_DEF \
  }                         \
  ;

#define CANN_CPU_JOIN_(a, b) a##b
#define CANN_CPU_JOIN(a, b) CANN_CPU_JOIN_(a, b)
#define REGISTER_TILING_DATA_CLASS(Operator, Struct)                                       \
  static const ::optiling::TilingDataRegistration CANN_CPU_JOIN(g_tiling_data_, Operator)( \
      #Operator, #Struct, sizeof(Struct), &::optiling::describe_tiling<Struct>);

#endif
