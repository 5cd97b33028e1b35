# SPDX-License-Identifier: Apache-2.0
"""Includes and imports between folders go one way only: down in the order of layers."""

import ast
import re
from pathlib import Path

import pytest
from cann_cpu.activation import HOME

ROOT = Path(__file__).parents[1]
CANN = ROOT / "cann_cpu"
# A folder may include the folders in the lines before its own, and itself.
LAYERS = """
common
ascendc/include
ascendc
runtime
runtime/checks runtime/profiler metadef
tiling nnopbase hccl aclop
opapi graph_engine/include graph_engine/model
atb graph_engine/compiled_graph
graph_engine/packages
graph_engine/nodes
graph_engine/execution
graph_engine/abi
"""
# The same of what modules import when they are loaded.
MODULES = """
activation.py names.py chips.py python_task.py __init__.py
ascendc checks coverage.py profiler torch_operator.py triton vllm_operators.py
kernel.py vllm_plugin.py
kernel_command.py toolkit
__main__.py
"""
PACKAGES = [CANN / "python/cann_cpu", ROOT / "custom_pypto"]


def rank_of(file: Path, layers: str) -> tuple[int, str]:
    """The place of the file's layer in the order, and the layer."""
    place = file.as_posix() + "/"
    found = [
        (i, name) for i, line in enumerate(layers.split("\n")) for name in line.split() if place.startswith(name + "/")
    ]
    assert found, f"{file} belongs to no layer"
    return max(found, key=lambda each: len(each[1]))


def against(edges: dict[Path, list[Path]], layers: str) -> list[str]:
    """The edges to a layer that comes later, or to another one of the same line."""
    found = []
    for file, targets in edges.items():
        rank, layer = rank_of(file, layers)
        for target in targets:
            other, its = rank_of(target, layers)
            if layer != its and other >= rank:
                found.append(f"{file} -> {target}")
    return found


def circle(edges: dict[Path, list[Path]]) -> list[str]:
    """Files that lead to each other in a ring; empty if there is none."""
    done, path = set(), []

    def visit(file: Path) -> list[str]:
        if file in path:
            return [str(each) for each in [*path[path.index(file) :], file]]
        if file in done:
            return []
        path.append(file)
        for target in edges.get(file, ()):
            if found := visit(target):
                return found
        done.add(path.pop())
        return []

    return next((found for file in edges if (found := visit(file))), [])


# ---- C++


def quoted(file: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', file.read_text(), flags=re.MULTILINE)


def sources(folder: Path) -> list[Path]:
    endings = (".h", ".cpp", ".cpp.in")
    return [file for file in folder.rglob("*") if file.name.endswith(endings) and "build" not in file.parts]


@pytest.fixture(scope="module")
def includes() -> dict[Path, list[Path]]:
    """The files that each file of cann_cpu includes in quotes, from the folder of cann_cpu."""
    files = {file.relative_to(CANN) for file in sources(CANN)}
    roots = [Path("common"), Path(), *(folder.relative_to(CANN) for folder in CANN.glob("*/include"))]
    edges, wrong = {}, []
    for file in sorted(files):
        edges[file] = []
        for name in quoted(CANN / file):
            places = [place for place in [file.parent / name, *(root / name for root in roots)] if place in files]
            if len({*places}) != 1 or ".." in name:
                wrong.append(f'{file}: "{name}" is {" or ".join(map(str, places)) or "not there"}')
            edges[file] += places[:1]
    assert not wrong, "\n".join(wrong)
    return edges


def test_no_include_goes_against_the_order(includes):
    assert not against(includes, LAYERS)


def test_no_file_of_cann_cpu_includes_itself(includes):
    assert not circle(includes)


def test_no_file_of_the_runtime_needs_itself(includes):
    """A file is a header and the source of its name: together they include no file that includes them in turn."""

    def whole(file: Path) -> Path:
        return file.with_name(file.name.partition(".")[0])

    edges: dict[Path, list[Path]] = {}
    for file, targets in includes.items():
        if file.parts[0] == "runtime":
            edges.setdefault(whole(file), []).extend(whole(each) for each in targets if whole(each) != whole(file))
    assert not circle(edges)


def test_headers_of_a_library_include_no_file_that_is_not_one(includes):
    def is_header(file: Path) -> bool:
        return file.parts[1] == "include" or file.parts[0] == "common"

    inner = [
        f"{file} -> {each}" for file in includes if is_header(file) for each in includes[file] if not is_header(each)
    ]
    assert not inner


def test_the_installed_headers_include_installed_ones():
    home = Path(HOME, "include")
    wrong = []
    for file in sources(home):
        for name in quoted(file):
            if not (home / name).is_file() and not (file.parent / name).is_file():
                wrong.append(f'{file.relative_to(home)}: "{name}"')
    assert not wrong


@pytest.mark.parametrize("part", ["opp/op_host", "opp/op_kernel", "custom_pypto/csrc"])
def test_operators_include_no_source_of_another_part(part):
    top = ROOT / Path(part).parts[0]
    wrong = []
    for file in sources(ROOT / part):
        for name in quoted(file):
            inside = any((folder / name).is_file() for folder in (file.parent, ROOT / part, top))
            outside = [ROOT / name, CANN / name, ROOT / "custom_pypto/csrc" / name]
            leaves = not (file.parent / name).resolve().is_relative_to(top)
            cann_cpus = name.startswith("cann_cpu/")
            if leaves or cann_cpus or (not inside and any(each.is_file() for each in outside)):
                wrong.append(f'{file.relative_to(ROOT)}: "{name}"')
    assert not wrong


# ---- Python


def imports(package: Path) -> dict[Path, list[Path]]:
    """The modules of a package that each of them imports relatively when it is loaded, from the package's folder."""
    files = {*package.rglob("*.py")}
    edges = {file.relative_to(package): [] for file in sorted(files)}
    for file in files:
        for node in ast.parse(file.read_text()).body:
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            base = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for name in node.names:
                places = [base / f"{name.name}.py", base / name.name / "__init__.py"]
                places += [base.with_suffix(".py"), base / "__init__.py"] * bool(node.module)
                found = [place.relative_to(package) for place in places if place in files]
                edges[file.relative_to(package)] += found[:1]
    return edges


def test_no_import_of_cann_cpu_goes_against_the_order():
    assert not against(imports(PACKAGES[0]), MODULES)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_module_imports_itself(package):
    edges = imports(package)
    assert any(edges.values())
    assert not circle(edges)
