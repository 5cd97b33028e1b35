// SPDX-License-Identifier: Apache-2.0
// A library whose name builds link with, and which needs nothing.
