// SPDX-License-Identifier: Apache-2.0
// Parses JSON by recursive descent.
#include "json.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "cann_cpu/read_number.h"

namespace cann_cpu {
namespace {

constexpr const char* kSpace = " \t\r\n";

bool is_literal(const std::string& text) {
  return text == "null" || text == "true" || text == "false" ||
         (text.find_first_not_of("+-.0123456789eE") == std::string::npos && read_number<double>(text));
}

void append_utf8(std::string& text, uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  int rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  text += static_cast<char>((0xFF00 >> (rest + 1)) | (code >> (6 * rest)));
  while (rest-- > 0) text += static_cast<char>(0x80 | ((code >> (6 * rest)) & 0x3F));
}

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Json parse() {
    Json json = value(0);
    skip_space();
    if (at_ != text_.size()) fail("the end of the text");
    return json;
  }

 private:
  static constexpr int kMaxDepth = 32;

  [[noreturn]] void fail(const std::string& expected) const {
    const size_t at = std::min(at_, text_.size());
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const size_t begin = at == 0 ? 0 : text_.rfind('\n', at - 1) + 1;
    throw JsonError("line " + std::to_string(line) + ", column " + std::to_string(at - begin + 1) +
                    " is no JSON: expected " + expected);
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }

  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Json value(int depth) {
    if (depth == kMaxDepth) fail("fewer levels");
    if (accept('{')) return {object(depth)};
    if (accept('[')) return {array(depth)};
    if (accept('"')) return {string()};
    const size_t end = std::min(text_.find_first_of(" \t\r\n,:{}[]\"", at_), text_.size());
    Json::Literal literal{text_.substr(at_, end - at_)};
    if (!is_literal(literal.text)) fail("a value");
    at_ = end;
    return {std::move(literal)};
  }

  Json::Object object(int depth) {
    Json::Object members;
    if (accept('}')) return members;
    do {
      if (!accept('"')) fail("a key");
      std::string key = string();
      if (!accept(':')) fail(":");
      if (!members.emplace(std::move(key), value(depth + 1)).second) fail("each key once");
    } while (accept(','));
    if (!accept('}')) fail(", or }");
    return members;
  }

  Json::Array array(int depth) {
    Json::Array elements;
    if (accept(']')) return elements;
    do {
      elements.push_back(value(depth + 1));
    } while (accept(','));
    if (!accept(']')) fail(", or ]");
    return elements;
  }

  // Behind its first quote.
  std::string string() {
    std::string read;
    for (;;) {
      const size_t end = std::min(text_.find_first_of("\"\\", at_), text_.size());
      read.append(text_, at_, end - at_);
      at_ = end;
      if (at_ == text_.size()) fail("the end of a string");
      if (text_[at_++] == '"') return read;
      escape(read);
    }
  }

  void escape(std::string& read) {
    static const std::map<char, char> kMeant{{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'b', '\b'},
                                             {'f', '\f'}, {'n', '\n'},  {'r', '\r'}, {'t', '\t'}};
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (const auto found = kMeant.find(c); found != kMeant.end()) {
      ++at_;
      read += found->second;
    } else if (c == 'u') {
      append_utf8(read, code_point());
    } else {
      fail("a character that may follow a backslash");
    }
  }

  // Of \uXXXX, or of two of them; at the first u.
  uint32_t code_point() {
    const uint32_t first = hexadecimal();
    if (first < 0xD800 || first > 0xDFFF) return first;
    if (first > 0xDBFF || text_.compare(at_, 2, "\\u") != 0) fail("both halves of a surrogate pair");
    ++at_;
    const uint32_t second = hexadecimal();
    if (second < 0xDC00 || second > 0xDFFF) fail("both halves of a surrogate pair");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  uint32_t hexadecimal() {
    uint32_t code = 0;
    const char* const digits = text_.data() + at_ + 1;
    const bool is_long_enough = text_.size() - at_ >= 5;
    if (!is_long_enough || std::from_chars(digits, digits + 4, code, 16).ptr != digits + 4) {
      fail("four hexadecimal digits");
    }
    at_ += 5;
    return code;
  }

  const std::string& text_;
  size_t at_ = 0;
};

template <class T>
const T& get(const Json& json, const char* kind) {
  if (const auto* value = std::get_if<T>(&json.value)) return *value;
  throw JsonError(std::string("expected ") + kind);
}

}  // namespace

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

const Json* Json::find(const std::string& name) const {
  const auto found = object().find(name);
  return found == object().end() ? nullptr : &found->second;
}

const Json& Json::member(const std::string& name) const {
  const Json* const found = find(name);
  if (found == nullptr) throw JsonError("no member \"" + name + "\"");
  return *found;
}

Json parse_json(const std::string& text) { return Parser(text).parse(); }

}  // namespace cann_cpu
