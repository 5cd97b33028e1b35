# SPDX-License-Identifier: Apache-2.0
"""How setup.py builds an operator package; test_packages.py builds whole wheels."""

import subprocess
import sys

import pytest
from setuptools import Distribution, Extension

from custom_pypto.operator_package import BuildOperatorPackage

PROJECT = """\
cmake_minimum_required(VERSION 3.16)
project(opp LANGUAGES NONE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS definitions)
file(READ definitions text)
file(APPEND configured "${text} ${OPTION}\\n")
"""


@pytest.fixture
def configured(tmp_path, capfd):
    """Configures the project with an option; returns what it was configured of, time after time."""
    build = BuildOperatorPackage(Distribution({"ext_modules": [Extension("package", [])]}))
    build.opp = tmp_path / "build"
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "definitions").write_text("first")

    def configure(option):
        build.configure("-S", tmp_path, "-B", build.opp, "-G", "Ninja", f"-DOPTION={option}")
        return (tmp_path / "configured").read_text().splitlines()

    return configure


def test_opp_is_configured_again_only_where_definitions_or_options_changed(configured, tmp_path):
    assert configured(1) == ["first 1"]
    assert configured(1) == ["first 1"]
    (tmp_path / "definitions").write_text("second")
    assert configured(1) == ["first 1", "second 1"]
    assert configured(2)[2:] == ["second 2"]
    assert configured(2)[3:] == []


def test_what_a_build_needs_is_said_before_it_compiles():
    program = """if True:
        import shutil, sys
        from custom_pypto import operator_package
        sys.modules["google.protobuf"] = None
        shutil.which = lambda tool: None
        operator_package.require_tools()
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    said = done.stderr.splitlines()[-1]
    assert said.startswith("setup.py: the build needs cmake: pip install cmake; ninja: pip install ninja; torchair, ")
    assert said.endswith("pip install protobuf")


def test_a_configuration_that_failed_is_made_again(configured, tmp_path):
    definitions = tmp_path / "definitions"
    assert configured(1) == ["first 1"]
    definitions.unlink()
    with pytest.raises(subprocess.CalledProcessError):
        configured(2)
    definitions.write_text("there")
    assert configured(1)[-1] == "there 1"
