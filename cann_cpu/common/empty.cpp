// SPDX-License-Identifier: Apache-2.0
// A library that defines no functions: another one that it links has them, or nothing asks for them.
