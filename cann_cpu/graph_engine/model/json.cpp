// SPDX-License-Identifier: Apache-2.0
// Parses JSON by recursive descent.
#include "model/json.h"

#include <cctype>
#include <cstdlib>
#include <utility>

#include "model/model.h"

namespace cann_cpu::graph {
namespace {

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Json parse() {
    Json json = value(0);
    space();
    if (at_ != text_.size()) {
      fail("unexpected text behind the value");
    }
    return json;
  }

 private:
  static constexpr int kMaxDepth = 32;

  [[noreturn]] void fail(const char* what) const {
    throw GraphError("invalid JSON at byte " + std::to_string(at_) + ": " + what);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void space() {
    while (std::isspace(static_cast<unsigned char>(peek())) != 0) {
      ++at_;
    }
  }

  bool accept(char c) {
    space();
    if (peek() != c) {
      return false;
    }
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) {
      fail((std::string("expected ") + c).c_str());
    }
  }

  bool accept_word(const std::string& word) {
    if (text_.compare(at_, word.size(), word) != 0) {
      return false;
    }
    at_ += word.size();
    return true;
  }

  Json value(int depth) {
    if (depth > kMaxDepth) {
      fail("nested too deeply");
    }
    space();
    if (peek() == '{') {
      return {object(depth)};
    }
    if (peek() == '[') {
      return {array(depth)};
    }
    if (peek() == '"') {
      return {string()};
    }
    if (accept_word("null")) {
      return {};
    }
    if (accept_word("true")) {
      return {true};
    }
    if (accept_word("false")) {
      return {false};
    }
    return {number()};
  }

  Json::Object object(int depth) {
    Json::Object result;
    expect('{');
    if (accept('}')) {
      return result;
    }
    do {
      space();
      std::string name = string();
      expect(':');
      result[std::move(name)] = value(depth + 1);
    } while (accept(','));
    expect('}');
    return result;
  }

  Json::Array array(int depth) {
    Json::Array result;
    expect('[');
    if (accept(']')) {
      return result;
    }
    do {
      result.push_back(value(depth + 1));
    } while (accept(','));
    expect(']');
    return result;
  }

  std::string string() {
    std::string result;
    if (peek() != '"') {
      fail("expected a string");
    }
    for (++at_; peek() != '"'; ++at_) {
      if (at_ >= text_.size()) {
        fail("the string has no end");
      }
      if (peek() == '\\') {
        fail("escapes are not supported");
      }
      result += peek();
    }
    ++at_;
    return result;
  }

  double number() {
    const char* begin = text_.c_str() + at_;
    char* end = nullptr;
    const double result = std::strtod(begin, &end);
    if (end == begin) {
      fail("expected a value");
    }
    at_ += static_cast<size_t>(end - begin);
    return result;
  }

  const std::string& text_;
  size_t at_ = 0;
};

template <class T>
const T& get(const Json& json, const char* kind) {
  if (const auto* value = std::get_if<T>(&json.value)) {
    return *value;
  }
  throw GraphError(std::string("invalid JSON: expected ") + kind);
}

}  // namespace

double Json::number() const { return get<double>(*this, "a number"); }
const std::string& Json::text() const { return get<std::string>(*this, "a string"); }
const Json::Array& Json::array() const { return get<Array>(*this, "an array"); }
const Json& Json::member(const std::string& name) const {
  const auto& object = get<Object>(*this, "an object");
  const auto found = object.find(name);
  if (found == object.end()) {
    throw GraphError("invalid JSON: no member \"" + name + "\"");
  }
  return found->second;
}

Json parse_json(const std::string& text) { return Parser(text).parse(); }

}  // namespace cann_cpu::graph
