# SPDX-License-Identifier: Apache-2.0
"""Builds an operator package of two files of C++ for a test."""

import platform
import subprocess
import sysconfig
from pathlib import Path

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
TORCH, CANN = SITE_PACKAGES / "torch", SITE_PACKAGES / "cann_cpu"


def build(sources: Path, package: Path) -> Path:
    """Compiles op_proto.cpp, if there is one, and op_api.cpp to a package, an entry of ASCEND_CUSTOM_OPP_PATH."""
    libraries = {
        "op_proto.cpp": package / "op_proto/lib/linux" / platform.machine() / "libcust_opsproto_rt2.0.so",
        "op_api.cpp": package / "op_api/lib/libcust_opapi.so",
    }
    linked = [f"-L{TORCH / 'lib'}", f"-L{CANN / 'lib64'}", "-ltorch_cpu", "-lc10", "-lnnopbase", "-lascendcl"]
    for source, library in libraries.items():
        if (sources / source).exists():
            library.parent.mkdir(parents=True)
            command = ["g++", "-std=c++20", "-O0", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
            command += ["-DAT_PER_OPERATOR_HEADERS"]  # ATen's headers of all operators take ten seconds
            command += ["-isystem", TORCH / "include", "-isystem", TORCH / "include/torch/csrc/api/include"]
            command += ["-isystem", CANN / "include", sources / source, "-o", library]
            command += linked if source == "op_api.cpp" else []
            result = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert result.returncode == 0, result.stderr[-4000:]
    return package
