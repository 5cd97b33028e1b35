# SPDX-License-Identifier: Apache-2.0
"""Creates a project of operators in its own namespace: ``python -m custom_pypto new_project my_ops``.

The project, folder ``my_ops``, has an operator, softcap, and builds and passes its tests as it is. It is laid out as
custom_pypto's own sources: ``python -m custom_pypto new`` and ``python -m custom_pypto check`` work in it.
"""

import argparse
import keyword
import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch

TEMPLATE = Path(__file__).parent / "templates" / "project"


def make(name: str, folder: Path) -> list[Path]:
    """Writes the project NAME to a folder that does not exist yet; gives the files, in the folder.

    Raises:
        ValueError: the name is none for a Python package, or taken; the folder exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        rule = "use small letters, digits and single underscores"
        raise ValueError(f"'{name}' is not a valid name for a package: {rule}")
    if any(operator.startswith(f"{name}::") for operator in torch._C._dispatch_get_all_op_names()):
        raise ValueError(f"torch.ops.{name} is the name of other operators")
    if folder.exists():
        raise ValueError(f"{folder} exists already")
    if find_spec(name) is not None:
        raise ValueError(f"'{name}' is the name of another package, {find_spec(name).origin}")
    sources = sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files = [Path(str(source.relative_to(TEMPLATE)).replace("my_ops", name)) for source in sources]
    for source, file in zip(sources, files, strict=True):
        text = source.read_text().replace("my_ops", name)
        if file.name == "CMakeLists.txt":  # which custom_pypto has itself
            text = text.replace("custom_pypto", name)
        if file.name == "pyproject.toml":  # written for this version, whatever torch it is built for
            text = text.replace('"custom_pypto"', f'"custom_pypto=={version("custom_pypto").partition("+")[0]}"')
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return files


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m custom_pypto new_project", description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the package and of its namespace, torch.ops.NAME")
    parser.add_argument("folder", nargs="?", type=Path, help="where to write it; default: ./NAME")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(options.name)
    try:
        files = make(options.name, folder)
    except ValueError as error:
        parser.error(str(error))
    print(*(folder / file for file in files), sep="\n")
    print(f"\nBuild and test it:\n  cd {folder}\n  pip install --no-build-isolation '.[test]'\n  pytest")
    return 0
