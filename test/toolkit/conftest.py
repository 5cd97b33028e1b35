# SPDX-License-Identifier: Apache-2.0
"""Projects in the layouts of CANN's toolkit, each built once, and the runtime as test/cann_cpu/runtime calls it."""

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cann_cpu import activation
from operator_project import OPP, PROJECT, run

HERE = Path(__file__).parent
VARIABLES = ("ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH", "LD_LIBRARY_PATH", "CMAKE_PREFIX_PATH", "CXXFLAGS")


def environment(**variables):
    """The environment of a user who has set ASCEND_HOME_PATH and these variables."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return kept | {"ASCEND_HOME_PATH": activation.HOME} | variables


def command(*words, **variables):
    """Runs it; its output of both kinds, which it must have ended well for."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": 300}
    done = subprocess.run([str(word) for word in words], env=environment(**variables), **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """project("launch", RUN_MODE="cpu") is the folder of a build, whose program has been run."""

    @functools.cache
    def built(name, generator="Ninja", prefixes="", **definitions):
        folder = tmp_path_factory.mktemp(name)
        defined = [f"-D{key}={value}" for key, value in definitions.items()]
        command("cmake", "-S", HERE / name, "-B", folder, "-G", generator, *defined, CMAKE_PREFIX_PATH=prefixes)
        command("cmake", "--build", folder, "-j", "2")
        return folder

    return built


def _runtime():
    path = HERE.parent / "cann_cpu" / "runtime" / "acl.py"
    spec = importlib.util.spec_from_file_location("acl", path)
    sys.modules["acl"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def acl():
    """The runtime with device 0 set in this thread."""
    module = _runtime()
    module.call("aclrtSetDevice", 0)
    return module


@pytest.fixture
def toolkit():
    return SimpleNamespace(home=Path(activation.HOME), command=command, environment=environment)


# ---- projects of operators


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The folder in which the project was built."""
    folder = tmp_path_factory.mktemp("toolkit") / "build"
    run("cmake", "-S", PROJECT, "-B", folder, "-G", "Ninja")
    assert "warning:" not in run("cmake", "--build", folder, "--target", "binary", "package")
    return folder


@pytest.fixture(scope="session")
def installed(built):
    """The package, an entry of ASCEND_CUSTOM_OPP_PATH."""
    (installer,) = built.glob("custom_opp_*.run")
    run(installer, f"--install-path={built.parent / 'opp'}", "--quiet")
    return built.parent / "opp/vendors/tested"


@pytest.fixture(scope="session")
def device_package(tmp_path_factory):
    """The operator package of custom_pypto as it is built for NPUs: without kernels for the CPU. For a debugger, which
    takes half of the compiler's time."""
    folder = tmp_path_factory.mktemp("device")
    defined = ["ASCEND_COMPUTE_UNIT=ascend910b", "CMAKE_BUILD_TYPE=Debug", "CMAKE_DISABLE_FIND_PACKAGE_cann_cpu=ON"]
    run("cmake", "-S", OPP, "-B", folder / "build", "-G", "Ninja", *(f"-D{each}" for each in defined))
    assert "warning:" not in run("cmake", "--build", folder / "build", "--target", "binary", "package")
    (installer,) = folder.glob("build/custom_opp_*.run")
    run(installer, f"--install-path={folder}", "--quiet")
    return folder / "vendors/custom_pypto"
