# SPDX-License-Identifier: Apache-2.0
"""The versions that the wheels of this project have and are built for: the one place that says them.

A wheel is built for the torch that is there when it is built. An environment gets one by TORCH=2.10.0, or keeps a
supported one, or gets the default. ``python cann_cpu/backend/versions.py`` prints what pip has yet to install for it.
"""

from __future__ import annotations  # older Pythons get as far as their error message

import os
import runpy
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

VERSION = "0.2.0"
PYTHON = ">=3.10,<3.15"
TORCH_NPU = {"2.10.0": "2.10.0.post4", "2.13.0": "2.13.0", "2.14.0": "2.14.0"}  # by torch
DEFAULT = "2.13.0"
UNDECLARED = ["numpy", "pyyaml", "packaging", "protobuf"]
"""What torch_npu and torchair import without requiring it."""
PARSER = ["tree-sitter>=0.23", "tree-sitter-cpp>=0.23"]
"""What reads the C++ of authors."""


def installed(package: str) -> str:
    """The release of a package, without post-release and label; empty where it is not installed."""
    try:
        return version(package).partition("+")[0].partition(".post")[0]
    except PackageNotFoundError:
        return ""


def wanted_torch() -> str:
    torch = os.environ.get("TORCH") or installed("torch")
    if os.environ.get("TORCH") and torch not in TORCH_NPU:
        raise SystemExit(f"TORCH={torch} is not supported; there are: {', '.join(TORCH_NPU)}")
    return torch if torch in TORCH_NPU else DEFAULT


def build_requirements() -> list[str]:
    torch = wanted_torch()
    return [f"torch=={torch}", f"torch_npu=={TORCH_NPU[torch]}", *UNDECLARED, *PARSER]


def requirements() -> list[str]:
    """The requirements of a wheel that is built now. Any post-release of torch_npu fits its torch."""
    torch, found = wanted_torch(), installed("torch")
    if found != torch:
        asked = f"TORCH={torch}" if os.environ.get("TORCH") else f"torch {', '.join(TORCH_NPU)} are supported"
        raise SystemExit(f"torch {found or 'is not installed'}, but {asked}: pip install torch=={torch}")
    return [f"torch=={torch}", f"torch_npu=={torch}.*", *UNDECLARED, *PARSER]


def wheel_version() -> str:
    """The version with a label for the torch, so that wheels for several torches can share a folder."""
    return f"{VERSION}+{requirements()[0].replace('==', '')}"


def missing() -> list[str]:
    """The packages that an environment lacks. torch_npu needs a torch without another accelerator."""
    torch = wanted_torch()
    found = []
    if installed("torch") != torch or _has_accelerator():
        found.append(f"torch=={torch}+cpu")
    if installed("torch_npu") != torch:
        found.append(build_requirements()[1])
    return found + [package for package in [*UNDECLARED, *PARSER] if not installed(package.partition(">")[0])]


def _has_accelerator() -> bool:
    built_for = runpy.run_path(os.path.join(find_spec("torch").submodule_search_locations[0], "version.py"))
    if not any(built_for.get(kind) for kind in ("cuda", "hip", "xpu")):
        return False
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch

    return torch._C._get_accelerator().type not in ("cpu", "npu")


if __name__ == "__main__":
    oldest, newest = (int(part.partition(".")[2]) for part in PYTHON.split(","))
    if not (3, oldest) <= sys.version_info[:2] < (3, newest):
        raise SystemExit(f"Python {PYTHON} is needed; {sys.executable} is {sys.version.split()[0]}")
    print(*missing())
