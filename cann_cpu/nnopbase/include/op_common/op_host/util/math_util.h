// SPDX-License-Identifier: Apache-2.0
// Division of whole numbers, rounded down or up, as functions of operators need it; a divisor of 0 leaves the number.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

namespace Ops::Base {

template <class T>
constexpr T FloorDiv(T number, T divisor) {
  static_assert(std::is_integral_v<T>);
  if (divisor == 0) return number;
  const T quotient = static_cast<T>(number / divisor);
  return number % divisor != 0 && (number < 0) != (divisor < 0) ? static_cast<T>(quotient - 1) : quotient;
}
template <class T>
constexpr T CeilDiv(T number, T divisor) {
  static_assert(std::is_integral_v<T>);
  if (divisor == 0) return number;
  const T quotient = static_cast<T>(number / divisor);
  return number % divisor != 0 && (number < 0) == (divisor < 0) ? static_cast<T>(quotient + 1) : quotient;
}
template <class T>
constexpr T FloorAlign(T number, T align) {
  return align == 0 ? number : static_cast<T>(FloorDiv(number, align) * align);
}
template <class T>
constexpr T CeilAlign(T number, T align) {
  return align == 0 ? number : static_cast<T>(CeilDiv(number, align) * align);
}

template <class T>
bool IsFloatEqual(T a, T b) {
  static_assert(std::is_floating_point_v<T>);
  return std::fabs(a - b) <= std::numeric_limits<T>::epsilon();
}

}  // namespace Ops::Base
