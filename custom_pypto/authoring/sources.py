# SPDX-License-Identifier: Apache-2.0
"""Records the hashes of a package's sources in its build, to detect a build from other sources."""

import hashlib
import json
from pathlib import Path

RECORD = "_sources.json"


def hashes(package: str, folder: Path) -> dict[str, str]:
    """The source files of a build, in C++, CMake and Python, and the hash of each."""
    files = [file.relative_to(folder) for part in (package, "graph", "opp") for file in (folder / part).rglob("*")]
    kept = [file for file in files if file.suffix in (".cpp", ".h", ".py") or file.name == "CMakeLists.txt"]
    return {file.as_posix(): digest(folder / file) for file in sorted(kept) if "build" not in file.parts}


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def record(made_of: dict[str, str], built: Path) -> None:
    """Stores the hashes of its sources in a built package."""
    (built / RECORD).write_text(json.dumps(made_of, indent=1))


def changed_since_build(package: str, folder: Path, installed: Path) -> list[str]:
    """The files that are not as they were when the installed package was built, and those that are new or gone."""
    kept = installed / RECORD
    if not kept.exists():
        return []
    then, now = json.loads(kept.read_text()), hashes(package, folder)
    return sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))
