"""Builds the custom_pypto wheel: the extension, the operator package (opp/) and what follows from graph/."""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension
from torch_npu.utils import cpp_extension as npu

ROOT = Path(__file__).parent.resolve()
TORCH_NPU_INCLUDE = Path(npu.PYTORCH_NPU_INSTALL_PATH, "include")


def cann_home() -> str:
    """Where the CANN to build the operator package against is installed: a real one, or CANN on the CPU."""
    if home := os.environ.get("ASCEND_HOME_PATH"):
        return home
    if found := importlib.util.find_spec("cann_cpu"):
        return found.submodule_search_locations[0]
    raise SystemExit("setup.py: no CANN found. Set ASCEND_HOME_PATH, or install the wheel of CANN on the CPU first.")


class Build(BuildExtension):
    """Builds the extension on the headers of the aclnn functions, and beside it in the package the operator package."""

    def run(self):
        self.folder = Path(self.get_ext_fullpath("custom_pypto.custom_pypto_lib")).parent.resolve()
        self.opp = Path(self.build_temp, "opp").resolve()
        self.configure()
        self.cmake("--build", self.opp, "--target", "aclnn_headers")
        aclnn = [str(self.opp / "graph/aclnn"), str(Path(cann_home(), "include"))]
        self.extensions[0].extra_compile_args += [f"-isystem{path}" for path in aclnn]
        super().run()
        self.cmake("--build", self.opp, "--parallel", str(os.cpu_count()))
        self.cmake("--install", self.opp)
        self.check()

    def configure(self) -> None:
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_INSTALL_PREFIX": self.folder / "opp",
            "CANN_CPU_HOME": cann_home(),
            "Python_EXECUTABLE": sys.executable,
        }
        defines = [f"-D{name}={value}" for name, value in options.items()]
        self.cmake("-S", ROOT / "opp", "-B", self.opp, "-G", "Ninja", *defines)

    def check(self) -> None:
        """Fails when schema, prototype, functions, converter or test of an operator do not agree or are not there."""
        path = [str(self.folder.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-P", "-m", "custom_pypto.definition", "custom_pypto", ROOT]
        if subprocess.call(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(path)}):
            raise SystemExit("setup.py: the operators' definitions do not agree")

    @staticmethod
    def cmake(*arguments) -> None:
        subprocess.check_call(["cmake", *arguments])


extension = npu.NpuExtension(
    "custom_pypto.custom_pypto_lib",
    sorted(str(source.relative_to(ROOT)) for source in Path(ROOT, "custom_pypto", "csrc").glob("*.cpp")),
    include_dirs=[str(TORCH_NPU_INCLUDE / "third_party" / part) for part in ("acl/inc", "op-plugin")],
    # CURRENT_VERSION is for torch_npu's headers; the other makes ATen's a quarter faster to compile.
    define_macros=[("CURRENT_VERSION", "V2R13"), ("AT_PER_OPERATOR_HEADERS", None)],
    extra_compile_args=["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"],
)
# Warnings are errors in our own files only.
extension.extra_compile_args += [f"-isystem{path}" for path in (*extension.include_dirs, sysconfig.get_path("include"))]

setup(
    packages=find_packages(include=["custom_pypto", "custom_pypto.*"]),
    include_package_data=False,  # the sources of the extension stay out of the wheel
    ext_modules=[extension],
    cmdclass={"build_ext": Build.with_options(use_ninja=True)},
)
