"""Builds the custom_pypto wheel."""

import sys

from setuptools import find_packages, setup

sys.path.insert(0, "custom_pypto")  # the package cannot be imported before it is built
from operator_package import BuildOperatorPackage, operator_extension

HEADERS = ["argument_table.h", "checks.h", "ops_common.h", "registration.h"]  # for the operators of others

setup(
    packages=find_packages(include=["custom_pypto", "custom_pypto.*"]),
    package_data={"custom_pypto": [*(f"csrc/{header}" for header in HEADERS), "templates/**", "templates/**/.*"]},
    include_package_data=False,  # the sources of the extension stay out of the wheel
    ext_modules=[operator_extension("custom_pypto", extra_compile_args=("-Werror",))],
    cmdclass={"build_ext": BuildOperatorPackage},
)
