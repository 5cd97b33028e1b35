"""Reads the header of prototypes with an eye of its own, and runs the generator on a header."""

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

GRAPH = Path(__file__).resolve().parents[2] / "graph"
HEADER = GRAPH / "custom_reg_op.h"


@dataclass
class Prototype:
    """A prototype as its text says: (kind, name, what else the macro was given) per input, attribute and output."""

    inputs: list = field(default_factory=list)
    attributes: list = field(default_factory=list)
    outputs: list = field(default_factory=list)


_LIST_OF_MACRO = {"INPUT": "inputs", "OUTPUT": "outputs", "ATTR": "attributes"}


def read_prototypes(header: Path = HEADER) -> dict[str, Prototype]:
    text = re.sub(r"//.*", "", header.read_text())
    found = {}
    for operator, chain in re.findall(r"REG_OP\((\w+)\)(.*?)\.OP_END_FACTORY_REG", text, re.DOTALL):
        prototype = found[operator] = Prototype()
        for macro, name, rest in re.findall(r"\.(\w+)\((\w+),\s*(.*?)\)(?=\s*\.|\s*$)", chain, re.DOTALL):
            if macro != "DATATYPE":
                kind = macro.rpartition("_")[0].lower()
                getattr(prototype, _LIST_OF_MACRO[macro.rpartition("_")[2]]).append((kind, name, rest))
    return found


def build_generator(header: Path, directory: Path) -> subprocess.CompletedProcess:
    """Compiles the generator with a header, as graph/CMakeLists.txt does, to directory/print_python."""
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", "-fmax-errors=1"]
    command += [f"-I{GRAPH}/codegen", f"-I{GRAPH}/codegen/include", f'-DPROTOTYPES="{header}"']
    command += [f"{GRAPH}/codegen/print_python.cpp", "-o", f"{directory}/print_python"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def generate(header: Path, directory: Path) -> subprocess.CompletedProcess:
    """Compiles and runs the generator; the module is directory/ge_api.py."""
    build = build_generator(header, directory)
    assert build.returncode == 0, build.stderr
    command = [f"{directory}/print_python", f"{directory}/ge_api.py"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="session")
def header() -> Path:
    return HEADER


@pytest.fixture(scope="session")
def prototypes() -> dict[str, Prototype]:
    return read_prototypes(HEADER)


@pytest.fixture(scope="session")
def generator() -> SimpleNamespace:
    return SimpleNamespace(build=build_generator, run=generate)
