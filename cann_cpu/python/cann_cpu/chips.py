# SPDX-License-Identifier: Apache-2.0
"""The chips that cann_cpu can be, read from data/platform_config, which is generated from ascendc/soc.cpp."""

import configparser
import functools
import os
from dataclasses import dataclass
from pathlib import Path

FILES = Path(__file__).with_name("data") / "platform_config"
DEFAULT_ARCHITECTURE = 2201


@dataclass(frozen=True)
class Chip:
    """A chip's name, its family in operator definitions, and the architecture that its kernels are compiled for."""

    name: str
    family: str
    npu_arch: int
    unified_buffer: int  # bytes of a vector core


@functools.cache
def chips() -> dict[str, Chip]:
    found = {}
    for file in sorted(FILES.glob("*.ini")):
        config = configparser.ConfigParser()
        config.read(file)
        version = config["version"]
        family, arch = version["Short_SoC_version"].lower(), int(version["NpuArch"])
        found[file.stem] = Chip(file.stem, family, arch, config["AICoreSpec"].getint("ub_size"))
    return found


def find(unit: str) -> Chip | None:
    """A chip by its name, or the first of a family, in any case of letters."""
    wanted = unit.lower()
    return next((chip for chip in chips().values() if wanted in (chip.family, chip.name.lower())), None)


def architecture_of(unit: str) -> int:
    """The architecture of a chip or a family of chips; the default one if it is unknown."""
    chip = find(unit)
    return chip.npu_arch if chip else DEFAULT_ARCHITECTURE


def architecture_of_environment() -> int:
    """The architecture of the chip that CANN_CPU_SOC names."""
    return architecture_of(os.environ.get("CANN_CPU_SOC", ""))
