# SPDX-License-Identifier: Apache-2.0
"""What the versions of torch and torch_npu that the tests may run with do not have."""

from importlib.metadata import version

import torch
from packaging.version import Version

TORCH, TORCH_NPU = Version(version("torch")), Version(version("torch_npu"))

UNTRACED = () if Version("2.13") <= TORCH else (torch.bfloat16, torch.float16)
"""The dtypes without torch.trace on the CPU: 2.10 has no kernel for them."""

FAILED_CAPTURE_IS_CLEARED = Version("2.10.0.post4") < TORCH_NPU
"""2.10.0.post4 goes on as if a capture that failed were underway: no memory is returned any more."""

EXPORT_WRITES_OPTIONS = Version("2.13") <= TORCH_NPU
"""The torchair of 2.10 saves the graph of dynamo_export, not the options that it was made with."""

DECOMPOSITIONS_CAN_BE_TURNED_OFF = Version("2.13") <= TORCH
"""2.10's Dynamo always decomposes what Adam calls, which then rounds otherwise than eagerly."""

OPCHECK_COMPARES_STRIDES = Version("2.13") <= TORCH

PRINTS_WEIGHTS_IN_BLOCKS = Version("2.13") <= TORCH_NPU
"""2.10 asks for the aclop MaskedSelect where the tensor is in FRACTAL_NZ."""

UNCALLED = (
    set()
    if Version("2.13") <= TORCH_NPU
    else {"aclnnFusedSgd", "aclnnInplaceCeil", "aclnnRepeatInterleaveTensor", "aclnnScatterReduce"}
)
"""The aclnn functions that no operator of this torch_npu calls."""

DECLARES_NEWEST_FUNCTIONS = Version("2.13") <= TORCH_NPU < Version("2.14")
"""The torch_npu whose headers docs/cann_functions.md is generated from."""

CASTS_THE_DESTINATION = Version("2.13") <= TORCH_NPU
"""Whether a copy from ND to FRACTAL_NZ leaves the source out, with CANN 9.1 and newer: npu_format_cast_(self, src) of
torch_npu calls aclnnNpuFormatCast with self as its source."""
