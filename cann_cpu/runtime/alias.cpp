// SPDX-License-Identifier: Apache-2.0
// A library that defines no functions. It links libascendcl.so, in which its callers' symbols are found.
