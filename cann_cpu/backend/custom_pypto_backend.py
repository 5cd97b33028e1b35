# SPDX-License-Identifier: Apache-2.0
"""Builds the custom_pypto wheel with setuptools, for the torch that `versions` says, on the CANN that is there.

Where none is named, that is the cann_cpu of these sources: a wheel in a folder of PIP_FIND_LINKS, or built for this.
"""

import os
from pathlib import Path

import versions
from setuptools.build_meta import *  # noqa: F403

CANN_CPU = Path(__file__).resolve().parents[1]


def get_requires_for_build_sdist(config_settings=None):
    return []


def get_requires_for_build_wheel(config_settings=None):
    cann = [] if os.environ.get("ASCEND_HOME_PATH") else [f"cann_cpu @ {_cann_cpu().as_uri()}"]
    return [*versions.build_requirements(), "cmake>=3.25", "ninja", *cann]


def _cann_cpu() -> Path:
    name = f"cann_cpu-{versions.VERSION}+torch{versions.wanted_torch()}-*.whl"
    folders = map(Path, os.environ.get("PIP_FIND_LINKS", "").split())
    return next((wheel.resolve() for folder in folders for wheel in folder.glob(name)), CANN_CPU)
