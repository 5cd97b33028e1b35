# SPDX-License-Identifier: Apache-2.0
"""Reads the header of prototypes with an independent parser, and runs the generator on a header."""

import importlib.util
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cann_cpu.activation import operator_packages

CODEGEN = Path(__file__).resolve().parents[2] / "custom_pypto" / "codegen"
HEADER = Path(operator_packages()["custom_pypto"], "op_proto", "inc", "op_proto.h")


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


def compile_generator(source: str, output: Path, *options) -> subprocess.CompletedProcess:
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", "-fmax-errors=1"]
    command += [f"-I{CODEGEN}", f"-I{CODEGEN}/include", f"{CODEGEN}/{source}", "-o", str(output)]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)


class Generator:
    """The generator, compiled with a header as its CMakeLists.txt does."""

    def __init__(self, objects: Path):
        self.objects = [objects / f"{part}.o" for part in ("generate", "text", "print_python")]
        for part in self.objects:
            build = compile_generator(f"{part.stem}.cpp", part, "-c")
            assert build.returncode == 0, build.stderr

    def build(self, header: Path, directory: Path) -> subprocess.CompletedProcess:
        """Compiles it to directory/generate."""
        return compile_generator("op_proto.cpp", directory / "generate", f'-DPROTOTYPES="{header}"', *self.objects)

    def run(self, header: Path, directory: Path) -> subprocess.CompletedProcess:
        """Compiles and runs it; the module is directory/ge_api.py."""
        build = self.build(header, directory)
        assert build.returncode == 0, build.stderr
        command = [directory / "generate", directory / "ge_api.py"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)


def load(path: Path):
    """A generated Graph Engine API as a module."""
    import torch_npu  # noqa: F401  (has torchair)

    spec = importlib.util.spec_from_file_location("ge_api", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def header() -> Path:
    return HEADER


@pytest.fixture(scope="session")
def prototypes() -> dict[str, Prototype]:
    return read_prototypes(HEADER)


@pytest.fixture(scope="session")
def generator(tmp_path_factory) -> Generator:
    return Generator(tmp_path_factory.mktemp("generator"))


@pytest.fixture(scope="session")
def ge_api(generator):
    """ge_api(header, directory): the Graph Engine API that is generated of a header, as a module in the directory."""
    generated = {}  # by the header's text: to compile the generator takes seconds

    def made(header: Path, directory: Path):
        text, module = header.read_text(), directory / "ge_api.py"
        if text in generated:
            module.write_text(generated[text])
        else:
            result = generator.run(header, directory)
            assert result.returncode == 0, result.stderr
            generated[text] = module.read_text()
        return load(module)

    return made
