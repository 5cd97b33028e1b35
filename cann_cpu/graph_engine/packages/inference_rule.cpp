// SPDX-License-Identifier: Apache-2.0
// Evaluates the attribute _inference_rule.
#include "inference_rule.h"

#include <cctype>
#include <limits>
#include <numeric>

#include "cann_cpu/json.h"
#include "graph_engine/model/dtypes.h"
#include "graph_engine/model/model.h"

namespace cann_cpu::graph {
namespace {

// An exact fraction; a result out of 64 bits is an error.
struct Rational {
  int64_t numerator = 0;
  int64_t denominator = 1;  // > 0, without common factors
};

using Wide = __int128;

Rational rational(Wide numerator, Wide denominator = 1) {
  if (denominator == 0) {
    throw GraphError("division by zero");
  }
  if (denominator < 0) {
    numerator = -numerator;
    denominator = -denominator;
  }
  Wide a = numerator < 0 ? -numerator : numerator;
  for (Wide b = denominator; b != 0;) {
    const Wide rest = a % b;
    a = b;
    b = rest;
  }
  numerator /= a;
  denominator /= a;
  constexpr Wide kLimit = std::numeric_limits<int64_t>::max();
  if (numerator > kLimit || numerator < -kLimit || denominator > kLimit) {
    throw GraphError("a value is out of 64 bits");
  }
  return {static_cast<int64_t>(numerator), static_cast<int64_t>(denominator)};
}

Rational add(Rational a, Rational b) {
  return rational(Wide(a.numerator) * b.denominator + Wide(b.numerator) * a.denominator,
                  Wide(a.denominator) * b.denominator);
}
Rational negate(Rational a) { return {-a.numerator, a.denominator}; }
Rational multiply(Rational a, Rational b) {
  return rational(Wide(a.numerator) * b.numerator, Wide(a.denominator) * b.denominator);
}
Rational divide(Rational a, Rational b) {
  return rational(Wide(a.numerator) * b.denominator, Wide(a.denominator) * b.numerator);
}
Rational floor(Rational a) {
  const int64_t quotient = a.numerator / a.denominator;
  return {quotient - (a.numerator % a.denominator < 0 ? 1 : 0), 1};
}
Rational ceil(Rational a) { return negate(floor(negate(a))); }
// Python's: the result has the divisor's sign.
Rational modulo(Rational a, Rational b) { return add(a, negate(multiply(b, floor(divide(a, b))))); }
bool less(Rational a, Rational b) { return Wide(a.numerator) * b.denominator < Wide(b.numerator) * a.denominator; }
Rational minimum(Rational a, Rational b) { return less(b, a) ? b : a; }
Rational maximum(Rational a, Rational b) { return less(a, b) ? b : a; }
Rational absolute(Rational a) { return a.numerator < 0 ? negate(a) : a; }
Rational power(Rational base, Rational exponent) {
  if (exponent.denominator != 1) {
    throw GraphError("a power's exponent is not an integer");
  }
  if (exponent.numerator < 0) {
    return divide({1, 1}, power(base, negate(exponent)));
  }
  if (base.denominator == 1 && (base.numerator == 0 || base.numerator == 1 || base.numerator == -1)) {
    return {exponent.numerator == 0       ? 1
            : exponent.numerator % 2 == 0 ? base.numerator * base.numerator
                                          : base.numerator,
            1};
  }
  Rational result{1, 1};
  for (int64_t i = 0; i < exponent.numerator; ++i) {  // overflows long before it is slow
    result = multiply(result, base);
  }
  return result;
}

struct Function {
  const char* name;
  Rational (*unary)(Rational);
  Rational (*binary)(Rational, Rational);  // folded over all arguments
  bool variadic;
};

constexpr Function kFunctions[] = {
    {"Floor", floor, nullptr, false},
    {"floor", floor, nullptr, false},
    {"Ceil", ceil, nullptr, false},
    {"ceiling", ceil, nullptr, false},
    {"Abs", absolute, nullptr, false},
    {"Add", nullptr, add, true},
    {"Mul", nullptr, multiply, true},
    {"Div", nullptr, divide, false},
    {"Mod", nullptr, modulo, false},
    {"PythonMod", nullptr, modulo, false},
    {"Pow", nullptr, power, false},
    {"PowByNatural", nullptr, power, false},
    {"Max", nullptr, maximum, true},
    {"Min", nullptr, minimum, true},
    {"CleanDiv", nullptr, divide, false},
    {"FloorDiv", nullptr, [](Rational a, Rational b) { return floor(divide(a, b)); }, false},
};

// Python's grammar of arithmetic expressions.
class Evaluator {
 public:
  Evaluator(const std::string& text, const std::map<std::string, int64_t>& symbols) : text_(text), symbols_(symbols) {}

  Rational evaluate() {
    const Rational result = sum();
    space();
    if (at_ != text_.size()) {
      throw GraphError("unexpected '" + text_.substr(at_) + "'");
    }
    return result;
  }

 private:
  static constexpr int kMaxDepth = 200;

  void space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
      ++at_;
    }
  }

  bool accept(const char* token) {
    space();
    const std::string word(token);
    if (text_.compare(at_, word.size(), word) != 0) {
      return false;
    }
    at_ += word.size();
    return true;
  }

  Rational sum() {
    Rational left = product();
    for (;;) {
      if (accept("+")) {
        left = add(left, product());
      } else if (accept("-")) {
        left = add(left, negate(product()));
      } else {
        return left;
      }
    }
  }

  Rational product() {
    Rational left = signed_power();
    for (;;) {
      if (accept("//")) {
        left = floor(divide(left, signed_power()));
      } else if (accept("/")) {
        left = divide(left, signed_power());
      } else if (accept("%")) {
        left = modulo(left, signed_power());
      } else if (accept("*")) {  // never the first half of **: signed_power has taken that
        left = multiply(left, signed_power());
      } else {
        return left;
      }
    }
  }

  Rational signed_power() {
    if (++depth_ > kMaxDepth) {
      throw GraphError("nested too deeply");
    }
    Rational result;
    if (accept("-")) {
      result = negate(signed_power());
    } else if (accept("+")) {
      result = signed_power();
    } else {
      result = primary();
      if (accept("**")) {
        result = power(result, signed_power());
      }
    }
    --depth_;
    return result;
  }

  Rational primary() {
    if (accept("(")) {
      const Rational result = sum();
      close();
      return result;
    }
    space();
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      return number();
    }
    if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') {
      const std::string name = identifier();
      return accept("(") ? call(name) : symbol(name);
    }
    throw GraphError(c == '\0' ? "it ends early" : std::string("unexpected '") + c + "'");
  }

  void close() {
    if (!accept(")")) {
      throw GraphError("expected ')'");
    }
  }

  Rational number() {
    Wide value = 0;
    Wide scale = 1;
    for (bool fraction = false; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '.' && !fraction) {
        fraction = true;
        continue;
      }
      if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
        break;
      }
      value = value * 10 + (c - '0');
      scale = fraction ? scale * 10 : scale;
      rational(value);  // both stay within 64 bits
      rational(scale);
    }
    return rational(value, scale);
  }

  std::string identifier() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  Rational symbol(const std::string& name) const {
    const auto found = symbols_.find(name);
    if (found == symbols_.end()) {
      throw GraphError("symbol '" + name + "' is not among the inputs' dimensions");
    }
    return rational(found->second);
  }

  Rational call(const std::string& name) {
    std::vector<Rational> arguments;
    do {
      arguments.push_back(sum());
    } while (accept(","));
    close();
    for (const Function& function : kFunctions) {
      if (function.name == name) {
        return apply(function, arguments);
      }
    }
    throw GraphError("function '" + name + "' is unknown");
  }

  static Rational apply(const Function& function, const std::vector<Rational>& arguments) {
    const size_t expected = function.unary != nullptr ? 1 : 2;
    if (function.variadic ? arguments.empty() : arguments.size() != expected) {
      throw GraphError(std::string("function '") + function.name + "' has " + std::to_string(arguments.size()) +
                       " arguments");
    }
    if (function.unary != nullptr) {
      return function.unary(arguments[0]);
    }
    return std::accumulate(arguments.begin() + 1, arguments.end(), arguments[0], function.binary);
  }

  const std::string& text_;
  const std::map<std::string, int64_t>& symbols_;
  size_t at_ = 0;
  int depth_ = 0;
};

bool is_symbol(const std::string& text) {
  return !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '_');
}

// torchair writes an input's dimensions as symbols s0, u1, ... and a list of integers as symbols v0, v1, ...
bool stands_for_values(const Json::Array& entries) {
  for (const Json& entry : entries) {
    if (is_symbol(entry.text()) && entry.text()[0] == 'v') {
      return true;
    }
  }
  return false;
}

void bind_symbols(const Json::Array& entries, const std::vector<int64_t>& numbers, size_t input,
                  std::map<std::string, int64_t>& symbols) {
  if (entries.size() != numbers.size()) {
    throw GraphError("_inference_rule expects " + std::to_string(entries.size()) + " dimensions or values of input " +
                     std::to_string(input) + ", got " + std::to_string(numbers.size()));
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (is_symbol(entries[i].text())) {
      symbols[entries[i].text()] = numbers[i];
    }
  }
}

}  // namespace

int64_t evaluate_expression(const std::string& expression, const std::map<std::string, int64_t>& symbols) {
  try {
    const Rational result = Evaluator(expression, symbols).evaluate();
    if (result.denominator != 1) {
      throw GraphError("the result is not an integer");
    }
    return result.numerator;
  } catch (const GraphError& error) {
    const std::string shown = expression.size() > 100 ? expression.substr(0, 100) + "..." : expression;
    throw GraphError("expression '" + shown + "': " + error.what());
  }
}

std::vector<InferredOutput> apply_inference_rule(const std::string& rule, const RuleInputs& inputs) {
  const Json json = parse_json(rule);
  std::map<std::string, int64_t> symbols;
  const auto& entries = json.member("shape").member("inputs").array();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].is_null()) {
      continue;
    }
    const auto numbers = stands_for_values(entries[i].array()) ? inputs.values(i) : inputs.shape(i);
    if (!numbers) {
      throw GraphError("_inference_rule needs input " + std::to_string(i) + ", which is absent");
    }
    bind_symbols(entries[i].array(), *numbers, i, symbols);
  }
  const auto& shapes = json.member("shape").member("outputs").array();
  const auto& dtypes = json.member("dtype").array();
  if (shapes.size() != dtypes.size()) {
    throw GraphError("_inference_rule has " + std::to_string(shapes.size()) + " shapes and " +
                     std::to_string(dtypes.size()) + " dtypes");
  }
  std::vector<InferredOutput> outputs(shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const double number = dtypes[i].number();
    outputs[i].dtype =
        number >= 0 && number < int{ge::DT_MAX} ? dtype_of_number(static_cast<int64_t>(number)) : ge::DT_UNDEFINED;
    for (const Json& dimension : shapes[i].array()) {
      outputs[i].shape.push_back(evaluate_expression(dimension.text(), symbols));
      if (outputs[i].shape.back() < 0) {
        throw GraphError("_inference_rule gives output " + std::to_string(i) + " the dimension " +
                         std::to_string(outputs[i].shape.back()));
      }
    }
  }
  return outputs;
}

}  // namespace cann_cpu::graph
