# SPDX-License-Identifier: Apache-2.0
"""What programs and kernels cost."""
