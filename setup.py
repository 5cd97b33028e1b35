# SPDX-License-Identifier: Apache-2.0
"""Builds the custom_pypto wheel; its sdist is of the sources alone, and needs no torch to be made."""

import sys

from setuptools import find_packages, setup

sys.path[:0] = ["custom_pypto", "graph", "cann_cpu/backend"]  # the package cannot be imported before it is built
import versions  # noqa: E402

TEMPLATE = "custom_pypto.authoring.templates.project.opp"
HEADERS = [
    f"csrc/{name}.h" for name in ("arguments/checks", "arguments/table", "operator", "ops_common", "registration")
]  # for others


def built() -> dict:
    from operator_package import BuildOperatorPackage, operator_extension

    return {
        "version": versions.wheel_version(),
        "install_requires": versions.requirements(),
        "ext_modules": [operator_extension("custom_pypto", extra_compile_args=("-Werror",))],
        "cmdclass": {"build_ext": BuildOperatorPackage},
    }


setup(
    python_requires=versions.PYTHON,
    packages=[*find_packages(include=["custom_pypto", "custom_pypto.*"]), "custom_pypto.graph", TEMPLATE],
    package_dir={"custom_pypto.graph": "graph", TEMPLATE: "opp"},
    package_data={
        "custom_pypto": [
            "py.typed",
            "*.pyi",
            *HEADERS,
            "authoring/templates/**",
            "authoring/templates/**/.*",
        ],
        TEMPLATE: ["CMakeLists.txt", "op_host/definition.h"],  # which new projects also have
    },
    include_package_data=False,  # the sources of the extension stay out of the wheel
    **({"version": versions.VERSION} if "sdist" in sys.argv else built()),
)
