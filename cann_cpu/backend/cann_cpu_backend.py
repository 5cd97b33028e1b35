# SPDX-License-Identifier: Apache-2.0
"""Builds the cann_cpu wheel with scikit-build-core, for the torch that `versions` says."""

import versions
from scikit_build_core import build
from scikit_build_core.build import *  # noqa: F403


def get_requires_for_build_wheel(config_settings=None):
    return [*build.get_requires_for_build_wheel(config_settings), versions.build_requirements()[0]]


class Metadata:
    """What scikit-build-core takes for the dynamic fields of pyproject.toml. An sdist is built for no torch yet."""

    def build_state(self, state: str) -> None:
        self.sdist = state == "sdist"

    def dynamic_wheel(self, settings) -> dict[str, bool]:
        return {"dependencies": True}

    def dynamic_metadata(self, settings, project) -> dict:
        return {
            "version": versions.VERSION if self.sdist else versions.wheel_version(),
            "requires-python": versions.PYTHON,
            "dependencies": [] if self.sdist else [versions.requirements()[0], *versions.PARSER],
        }
