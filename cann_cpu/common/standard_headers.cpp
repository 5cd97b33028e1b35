// SPDX-License-Identifier: Apache-2.0
// Owns the precompiled header of the libraries without torch.
