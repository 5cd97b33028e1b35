# SPDX-License-Identifier: Apache-2.0
# A package, so that fixtures of its scope end with its tests.
