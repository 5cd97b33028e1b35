"""Builds the custom_pypto wheel with setuptools, for the torch that `versions` says, on the CANN that is there."""

import os
from pathlib import Path

import versions
from setuptools.build_meta import *  # noqa: F403

CANN_CPU = Path(__file__).resolve().parents[1]


def get_requires_for_build_sdist(config_settings=None):
    return []


def get_requires_for_build_wheel(config_settings=None):
    cann = [] if os.environ.get("ASCEND_HOME_PATH") else [f"cann_cpu @ {CANN_CPU.as_uri()}"]
    return [*versions.build_requirements(), "cmake>=3.25", "ninja", *cann]
