// SPDX-License-Identifier: Apache-2.0
// A reader of protobuf's wire format that never reads past its bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "model.h"

namespace cann_cpu::graph {

// One field of a message: its number and, by wire type, its number or its bytes.
struct Field {
  uint32_t number = 0;
  uint32_t wire_type = 0;
  uint64_t value = 0;      // varint, fixed64, fixed32
  std::string_view bytes;  // length-delimited

  static constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

  int64_t integer() const { return static_cast<int64_t>(expect(kVarint).value); }
  bool boolean() const { return integer() != 0; }
  float real() const {
    const auto bits = static_cast<uint32_t>(expect(kFixed32).value);
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
  }
  std::string_view message() const { return expect(kBytes).bytes; }
  std::string text() const { return std::string(expect(kBytes).bytes); }

 private:
  const Field& expect(uint32_t type) const {
    if (wire_type != type) {
      throw GraphError("not a GE model: field " + std::to_string(number) + " has wire type " +
                       std::to_string(wire_type) + ", expected " + std::to_string(type));
    }
    return *this;
  }
};

// Walks over the fields of one message.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}

  // Reads the next field; false at the end.
  bool next(Field& field) {
    if (rest_.empty()) {
      return false;
    }
    const uint64_t key = varint();
    field.number = static_cast<uint32_t>(key >> 3);
    field.wire_type = static_cast<uint32_t>(key & 7);
    if (key >> 32 != 0 || field.number == 0) {
      throw GraphError("not a GE model: a field number is out of range");
    }
    switch (field.wire_type) {
      case Field::kVarint:
        field.value = varint();
        break;
      case Field::kFixed64:
        field.value = fixed(8);
        break;
      case Field::kFixed32:
        field.value = fixed(4);
        break;
      case Field::kBytes:
        field.bytes = take(varint());
        break;
      default:
        throw GraphError("not a GE model: unknown wire type " + std::to_string(field.wire_type));
    }
    return true;
  }

  bool empty() const { return rest_.empty(); }

  uint64_t varint() {
    uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      result |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) {
        return result;
      }
    }
    throw GraphError("not a GE model: a number has too many bytes");
  }

  uint64_t fixed(size_t bytes) {
    uint64_t result = 0;
    std::memcpy(&result, take(bytes).data(), bytes);  // protobuf and our machines are little-endian
    return result;
  }

 private:
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) {
      throw GraphError("not a GE model: it ends in the middle of a field");
    }
    const auto taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

}  // namespace cann_cpu::graph
