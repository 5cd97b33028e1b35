# SPDX-License-Identifier: Apache-2.0
"""What of a package's sources its build was made of, kept in the build, so that one of other sources is found out."""

import hashlib
import json
from pathlib import Path

RECORD = "_sources.json"


def _parts(package: str) -> dict[str, list[str]]:
    """The folders of sources, by the library that is made of them."""
    return {f"{package}_lib*.so": [f"{package}/csrc"], f"opp/vendors/{package}/op_api/lib/*.so": ["opp", "graph"]}


def _files(folder: Path, parts: list[str]) -> dict[str, str]:
    """Files of C++ and CMake, and the hash of each."""
    found = [file for part in parts for file in sorted((folder / part).rglob("*")) if "build" not in file.parts]
    kept = [file for file in found if file.suffix in (".cpp", ".h") or file.name == "CMakeLists.txt"]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in kept}


def record(package: str, folder: Path, built: Path) -> None:
    """Keeps in a built package what it was made of."""
    files = [_files(folder, parts) for parts in _parts(package).values()]
    (built / RECORD).write_text(json.dumps({name: digest for each in files for name, digest in each.items()}, indent=1))


def changed_since_build(package: str, folder: Path, installed: str | None) -> list[str]:
    """The sources that are newer than the installed library that is made of them, and not what it was made of."""
    if installed is None or not (kept := Path(installed, RECORD)).exists():
        return []
    recorded = json.loads(kept.read_text())
    changed = []
    for library, parts in _parts(package).items():
        built = max((file.stat().st_mtime for file in Path(installed).glob(library)), default=0.0)
        for name, digest in _files(folder, parts).items():
            if recorded.get(name) != digest and (folder / name).stat().st_mtime > built:
                changed.append(name)
    return changed
