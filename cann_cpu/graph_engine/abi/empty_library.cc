// SPDX-License-Identifier: Apache-2.0
// An empty library: what CANN has in it is in libge_runner.so, or nothing asks for it.
