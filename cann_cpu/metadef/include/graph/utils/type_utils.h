// SPDX-License-Identifier: Apache-2.0
// ge::TypeUtils: element types and formats by their names, and the bytes of an element. Its strings are of the caller's
// ABI, for everything that has one is inline.
#pragma once

#include <cstring>
#include <string>

#include "graph/ascend_string.h"
#include "graph/types.h"

namespace cann_cpu {

// "DT_FLOAT16"; "UNDEFINED" for a number that is no type's.
CANN_EXPORT const char* data_type_name(ge::DataType type);

}  // namespace cann_cpu

namespace ge {

class TypeUtils {
 public:
  static std::string DataTypeToSerialString(DataType type) { return cann_cpu::data_type_name(type); }
  static std::string FormatToSerialString(Format format) { return GetFormatName(format); }
  static AscendString DataTypeToAscendString(const DataType& type) { return cann_cpu::data_type_name(type); }
  static AscendString FormatToAscendString(const Format& format) { return GetFormatName(format); }

  // DT_UNDEFINED and FORMAT_RESERVED for what has no such name.
  static DataType SerialStringToDataType(const std::string& name) { return data_type(name.c_str()); }
  static Format SerialStringToFormat(const std::string& name) { return format(name.c_str()); }
  static Format DataFormatToFormat(const std::string& name) { return format(name.c_str()); }
  static DataType AscendStringToDataType(const AscendString& name) { return data_type(name.GetString()); }
  static Format AscendStringToFormat(const AscendString& name) { return format(name.GetString()); }
  static Format DataFormatToFormat(const AscendString& name) { return format(name.GetString()); }

  // What GetSizeByDataType says; false for a type without a size.
  static bool GetDataTypeLength(DataType type, uint32_t& length) {
    const int size = GetSizeByDataType(type);
    if (size > 0) length = static_cast<uint32_t>(size);
    return size > 0;
  }

 private:
  static DataType data_type(const char_t* name) {
    for (int number = 0; number < DT_MAX; ++number)
      if (std::strcmp(cann_cpu::data_type_name(static_cast<DataType>(number)), name) == 0)
        return static_cast<DataType>(number);
    return DT_UNDEFINED;
  }
  static Format format(const char_t* name) {
    for (int number = 0; number < FORMAT_END; ++number)
      if (std::strcmp(GetFormatName(static_cast<Format>(number)), name) == 0) return static_cast<Format>(number);
    return FORMAT_RESERVED;
  }
};

}  // namespace ge
