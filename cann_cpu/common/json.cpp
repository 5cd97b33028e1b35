// SPDX-License-Identifier: Apache-2.0
// Behind nlohmann's library, whose header no other file includes: it takes seconds to compile.
#include "cann_cpu/json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "cann_cpu/read_number.h"

namespace cann_cpu {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 32;

// Takes the parser's events; what this rejects, JSON permits.
class Builder {
 public:
  Json result;

  bool null() { return add(Json()); }
  bool boolean(bool truth) { return add(truth); }
  bool number_integer(int64_t number) { return add(number); }
  bool number_unsigned(uint64_t number) { return add(number); }
  bool number_float(double, const std::string& written) { return add(Json::Literal{written}); }
  bool string(std::string& text) { return add(std::move(text)); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(size_t) { return begin(Json::Object()); }
  bool start_array(size_t) { return begin(Json::Array()); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& name) {
    if (!open_.back().keys.insert(name).second) throw JsonError("the key '" + name + "' is there twice");
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const json::exception& error) {
    const std::string message = error.what();  // [json.exception.parse_error.101] parse error at line 1, column 2: ...
    const size_t place = message.find("line ");
    throw JsonError("it is not JSON: " + (place == std::string::npos ? message : message.substr(place)));
  }

 private:
  struct Open {
    Json json;
    std::set<std::string> keys;
    std::string key;
  };

  bool begin(Json json) {
    if (open_.size() == kMaxDepth) {
      throw JsonError("it is nested in more than " + std::to_string(kMaxDepth) + " levels");
    }
    open_.push_back({std::move(json), {}, {}});
    return true;
  }
  bool end() {
    Json json = std::move(open_.back().json);
    open_.pop_back();
    return add(std::move(json));
  }
  bool add(Json json) {
    if (open_.empty()) {
      result = std::move(json);
    } else if (auto* object = std::get_if<Json::Object>(&open_.back().json.value)) {
      object->emplace_back(std::move(open_.back().key), std::move(json));
    } else {
      std::get<Json::Array>(open_.back().json.value).push_back(std::move(json));
    }
    return true;
  }

  std::vector<Open> open_;
};

template <class T>
const T& get(const Json& json, const char* kind) {
  if (const auto* value = std::get_if<T>(&json.value)) return *value;
  throw JsonError(std::string("expected ") + kind);
}

std::string quoted(const std::string& text) { return json(text).dump(-1, ' ', false, json::error_handler_t::replace); }

void append(std::string& text, const Json& json) {
  if (const std::string* scalar = std::get_if<std::string>(&json.value)) {
    text += quoted(*scalar);
  } else if (const auto* literal = std::get_if<Json::Literal>(&json.value)) {
    text += literal->text;
  } else if (const auto* array = std::get_if<Json::Array>(&json.value)) {
    text += '[';
    for (const Json& each : *array) {
      if (&each != array->data()) text += ", ";
      append(text, each);
    }
    text += ']';
  } else {
    const auto& object = json.object();
    text += '{';
    for (const auto& each : object) {
      if (&each != object.data()) text += ", ";
      text += quoted(each.first) + ": ";
      append(text, each.second);
    }
    text += '}';
  }
}

}  // namespace

Json Json::rounded(double number, int digits) {
  const double scale = std::pow(10.0, digits);
  return Literal{json(std::isfinite(number * scale) ? std::round(number * scale) / scale : number).dump()};
}

bool Json::is_null() const {
  const auto* literal = std::get_if<Literal>(&value);
  return literal != nullptr && literal->text == "null";
}

const std::string* Json::scalar() const {
  if (const auto* literal = std::get_if<Literal>(&value)) return &literal->text;
  return std::get_if<std::string>(&value);
}

std::optional<int32_t> Json::index() const {
  const std::string* const written = scalar();
  const auto read = written == nullptr ? std::nullopt : read_number<int32_t>(*written);
  return read && *read >= 0 ? read : std::nullopt;
}

double Json::number() const {
  const auto read = read_number<double>(get<Literal>(*this, "a number").text);
  if (!read) throw JsonError("expected a number");
  return *read;
}

const std::string& Json::text() const { return get<std::string>(*this, "a string"); }
const Json::Array& Json::array() const { return get<Array>(*this, "an array"); }
const Json::Object& Json::object() const { return get<Object>(*this, "an object"); }

const Json* Json::find(std::string_view name) const {
  for (const auto& [key, found] : object()) {
    if (key == name) return &found;
  }
  return nullptr;
}

const Json& Json::member(std::string_view name) const {
  const Json* const found = find(name);
  if (found == nullptr) throw JsonError("no member \"" + std::string(name) + "\"");
  return *found;
}

Json parse_json(const std::string& text) {
  Builder builder;
  json::sax_parse(text, &builder);
  return std::move(builder.result);
}

std::string to_text(const Json& json) {
  std::string text;
  append(text, json);
  return text;
}

}  // namespace cann_cpu
