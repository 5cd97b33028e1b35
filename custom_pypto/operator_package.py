# SPDX-License-Identifier: Apache-2.0
"""Builds an operator package's wheel, from its setup.py: the extension and opp/.

    setup(
        packages=find_packages(include=["my_ops", "my_ops.*"]),
        install_requires=[built_with()],
        ext_modules=[operator_extension("my_ops")],
        cmdclass={"build_ext": BuildOperatorPackage},
    )

The project's folders are those of custom_pypto's own: my_ops/csrc, opp, test.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import torch
from setuptools import Extension
from torch.utils.cpp_extension import BuildExtension
from torch_npu.utils.cpp_extension import PYTORCH_NPU_INSTALL_PATH, NpuExtension

try:
    from .authoring import sources
    from .graph import codegen
except ImportError:  # for custom_pypto's own build, which imports this before there is a package
    import codegen
    from authoring import sources

HERE = Path(__file__).parent.resolve()  # its installed folder, or for its own build that of its sources
LIBRARY = "custom_pypto_lib" + sysconfig.get_config_var("EXT_SUFFIX")
CURRENT_VERSION = "V{}R{}".format(*torch.__version__.split("."))


def operator_extension(package: str, extra_compile_args: tuple[str, ...] = ()) -> Extension:
    """The extension PACKAGE.PACKAGE_lib, of PACKAGE/csrc/**/*.cpp, on custom_pypto's headers and library."""
    third_party = Path(PYTORCH_NPU_INSTALL_PATH, "include", "third_party")
    extension = NpuExtension(
        f"{package}.{package}_lib",
        sorted(str(source) for source in Path(package, "csrc").rglob("*.cpp")),
        include_dirs=[str(third_party / part) for part in ("acl/inc", "op-plugin")],
        # CURRENT_VERSION is for torch_npu's headers; the other makes ATen's a quarter faster to compile.
        define_macros=[("CURRENT_VERSION", CURRENT_VERSION), ("AT_PER_OPERATOR_HEADERS", None)],
        extra_compile_args=["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", *extra_compile_args],
    )
    # Warnings are for our own files only.
    others = (*extension.include_dirs, sysconfig.get_path("include"))
    extension.extra_compile_args += [f"-isystem{path}" for path in others]
    extension.include_dirs.append(str(Path(package, "csrc").resolve()))
    if package != HERE.name:
        extension.include_dirs.append(str(HERE / "csrc"))
        extension.library_dirs.append(str(HERE))
        extension.extra_link_args.append(f"-l:{LIBRARY}")
    return extension


def built_with() -> str:
    """The requirement on custom_pypto of a wheel that is built now: its extension is linked against one version."""
    return f"custom_pypto=={version('custom_pypto')}"


@contextlib.contextmanager
def first_error_last() -> Iterator[None]:
    """Ends a build that fails with the first error that a compiler, CMake or a check has printed meanwhile."""
    read, write = os.pipe()
    streams = {number: os.dup(number) for number in (1, 2)}
    errors = []

    def copy() -> None:
        with open(read, "rb") as lines:
            for line in lines:
                os.write(streams[1], line)
                if re.search(rb"\berror: |^CMake Error", line):
                    errors.append(line.decode(errors="replace").strip().removeprefix("error: "))

    def redirect(targets: dict[int, int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, target in targets.items():
            os.dup2(target, number)

    redirect(dict.fromkeys(streams, write))
    os.close(write)
    copying = threading.Thread(target=copy)
    copying.start()
    failed = False
    try:
        yield
    except (Exception, SystemExit):
        failed = True
        raise
    finally:
        redirect(streams)
        copying.join()
        if failed and errors:
            raise SystemExit(f"setup.py: {errors[0]}")


class BuildOperatorPackage(BuildExtension):
    """Builds the extension on the headers of the aclnn functions, and beside it in the package the operator package."""

    def run(self):
        with first_error_last():
            self.build()

    def build(self):
        require_tools()
        extension = self.extensions[0]
        self.vendor = extension.name.partition(".")[0]
        self.folder = Path(self.get_ext_fullpath(extension.name)).parent.resolve()
        self.opp = Path(self.build_temp, "opp").resolve()
        made_of = sources.hashes(self.vendor, Path.cwd())  # before the build: what changes meanwhile may not be in it
        self.configure("-S", "opp", "-B", self.opp, *self.options())
        made_of |= self.write_graph()
        aclnn = (self.opp / "autogen", Path(cann_home(), "include"))
        extension.extra_compile_args += [f"-isystem{path}" for path in aclnn]
        # A library that was linked against another version of this one does not find it by its name, and is not loaded.
        extension.extra_link_args.append(f"-Wl,-soname,{self.vendor}_lib-{self.distribution.get_version()}.so")
        # Beside each other: either has steps that one core works at alone.
        with self.in_background("ninja", "-C", self.opp, "binary", "package"):
            super().run()
        self.install()
        (self.folder / "_version.py").write_text(f'__version__ = "{self.distribution.get_version()}"\n')
        sources.record(made_of, self.folder)
        self.check()

    def build_extension(self, extension):
        self.precompile(extension)
        super().build_extension(extension)

    def precompile(self, extension) -> None:
        """Compiles operator.h, which takes longer than what includes it, into a header that g++ only maps."""
        folder = Path(self.build_temp, "precompiled").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        header, source = folder / "csrc.h", folder / "csrc.cpp"
        for file, included in ((header, "operator.h"), (source, header.name)):
            text = f'#include "{included}"\n'
            if not file.exists() or file.read_text() != text:
                file.write_text(text)
        (precompiled,) = self.compiler.compile(
            [str(source)],
            output_dir=str(folder),
            macros=extension.define_macros,
            include_dirs=extension.include_dirs,
            debug=self.debug,
            extra_preargs=["-x", "c++-header"],
            extra_postargs=list(extension.extra_compile_args),
        )
        gch = header.with_suffix(".h.gch")
        gch.unlink(missing_ok=True)
        gch.symlink_to(precompiled)
        extension.extra_compile_args += ["-include", str(header), "-Winvalid-pch"]

    def options(self) -> list:
        # Found from where they are installed: site-packages/PACKAGE/opp/vendors/PACKAGE/op_api/lib, and beside it.
        site_packages, torch_folder = "$ORIGIN" + "/.." * 6, Path(torch.__file__).parent
        libraries = (
            f"{site_packages}/{os.path.relpath(path, sysconfig.get_path('purelib'))}"
            for path in (Path(cann_home(), "lib64"), torch_folder / "lib")
        )
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_COMPILE_WARNING_AS_ERROR": "ON" if "-Werror" in self.extensions[0].extra_compile_args else "OFF",
            "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
            "CMAKE_INSTALL_RPATH": ";".join(libraries),
            "ASCEND_CANN_PACKAGE_PATH": cann_home(),
            "ASCEND_AUTOGEN_PATH": self.opp / "autogen",
        }
        return ["-G", "Ninja", "--no-warn-unused-cli", *(f"-D{name}={value}" for name, value in options.items())]

    def install(self) -> None:
        """Installs the package as users of CANN do, but for the script that names where it was installed."""
        (installer,) = self.opp.glob("custom_opp_*.run")
        subprocess.check_call([installer, f"--install-path={self.folder / 'opp'}", "--quiet"])
        shutil.rmtree(self.folder / "opp" / "vendors" / self.vendor / "bin", ignore_errors=True)

    def write_graph(self) -> dict[str, str]:
        """Writes the prototypes to the sources, and the Graph Engine API, which converters call, to the package; gives
        the hash of the former."""
        header = Path("graph", "custom_reg_op.h")
        header.parent.mkdir(exist_ok=True)
        self.generate("header", self.opp / "autogen" / "op_proto.h", Path("opp", "op_host"), header)
        self.generate("api", header, self.folder / "converter" / "auto_generated_ge_raw_custom_ops.py")
        return {header.as_posix(): sources.digest(header)}

    @staticmethod
    def generate(*arguments) -> None:
        if codegen.main([*map(str, arguments)]):
            raise SystemExit("setup.py: the operators' prototypes are not understood")

    def check(self) -> None:
        """Fails when schema, prototype, functions, converter or test of an operator do not agree or are not there."""
        command = [sys.executable, "-m", "custom_pypto.graph.agreement", self.vendor, Path.cwd()]
        if subprocess.call(command, cwd=self.folder.parent):
            raise SystemExit("setup.py: the operators' definitions do not agree")

    def configure(self, *arguments) -> None:
        """Configures opp/, which compiles all definitions, again only if their sources have changed."""
        last, now = self.opp / "configured", "\n".join(map(str, arguments))
        if last.exists() and last.read_text() == now:
            self.cmake("--build", self.opp, "--target", "build.ninja")
            return
        last.unlink(missing_ok=True)  # until this has succeeded
        self.cmake(*arguments)
        last.write_text(now)

    @staticmethod
    @contextlib.contextmanager
    def in_background(*command) -> Iterator[None]:
        """Runs a command during a block, and raises its failure at the end; a failure of the block ends the command."""
        running = subprocess.Popen(command)
        try:
            yield
        except BaseException:
            running.terminate()
            running.wait()
            raise
        if running.wait():
            raise subprocess.CalledProcessError(running.returncode, command)

    @staticmethod
    def cmake(*arguments) -> None:
        subprocess.check_call(["cmake", *arguments])


def require_tools() -> None:
    """Says what the end of a build would fail for before it compiles anything."""
    missing = [f"{tool}: pip install {tool}" for tool in ("cmake", "ninja") if shutil.which(tool) is None]
    try:
        import torchair

        torchair.CompilerConfig  # noqa: B018  (torch_npu imports it no earlier)
    except ImportError as error:
        top = (getattr(error, "name", None) or "").partition(".")[0]
        package = {"google": "protobuf", "yaml": "pyyaml"}.get(top, top)
        missing.append(
            f"torchair, which converters are generated for ({error})" + f": pip install {package}" * bool(package)
        )
    if missing:
        raise SystemExit(f"setup.py: the build needs {'; '.join(missing)}")


def cann_home() -> str:
    """The home of the CANN to build against: the one that torch_npu has found, or $ASCEND_HOME_PATH."""
    if home := os.environ.get("ASCEND_HOME_PATH"):
        return home
    raise SystemExit("setup.py: no CANN found. Set ASCEND_HOME_PATH to where it is installed.")
