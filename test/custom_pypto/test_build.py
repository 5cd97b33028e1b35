# SPDX-License-Identifier: Apache-2.0
"""How setup.py builds an operator package; test_packages.py builds whole wheels."""

import subprocess

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


def test_a_configuration_that_failed_is_made_again(configured, tmp_path):
    definitions = tmp_path / "definitions"
    assert configured(1) == ["first 1"]
    definitions.unlink()
    with pytest.raises(subprocess.CalledProcessError):
        configured(2)
    definitions.write_text("there")
    assert configured(1)[-1] == "there 1"
