// SPDX-License-Identifier: Apache-2.0
// A library without a function of its own: those asked of it are found in libascendcl.so, which it needs.
