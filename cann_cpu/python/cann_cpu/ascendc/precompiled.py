# SPDX-License-Identifier: Apache-2.0
"""Ascend C's headers, precompiled: g++ reads them for more than half of the time that a kernel takes to compile.

They lie in the user's cache, for each compiler and installed version of the headers. g++ takes them only where they
give what the headers themselves would give, and else reads those; so does a machine without a cache that it may write.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from ..activation import HOME

HEADER = "ascendc/entry.h"
UNUSED_DAYS = 30


def include(command: list[str]) -> list[str]:
    """The option by which the compiler that is called by this command finds the precompiled headers.

    Of the options for the preprocessor the command has those alone that the headers depend on. They depend on none that
    chooses warnings.
    """
    command = [option for option in command if not re.match("-W(?![alp],)", option)]
    try:
        place = _cache() / _key(command)
        if not (place / f"{HEADER}.gch").exists():
            _remove_unused()
            _compile(command, place)
        os.utime(place)
    except (OSError, RuntimeError):  # RuntimeError: Path.home() found no home
        return []
    return [f"-I{place}"]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cann_cpu"


def _key(command: list[str]) -> str:
    """What the precompiled headers depend on: the compiler, its options and the headers."""
    compiler = Path(shutil.which(command[0]) or command[0]).resolve()
    state = compiler.stat()
    key = hashlib.sha256("\n".join([*command, f"{compiler} {state.st_size} {state.st_mtime_ns}"]).encode())
    for file in sorted(Path(HOME, "include").rglob("*.h")):  # by what it says: an installation dates it anew
        key.update(f"\n{file}\n".encode() + file.read_bytes())
    return key.hexdigest()[:16]


def _compile(command: list[str], place: Path) -> None:
    precompiled = place / f"{HEADER}.gch"
    precompiled.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        made = Path(folder, precompiled.name)
        # -w: a header says "#pragma once" though it is a main file here.
        options = [f"-I{HOME}/include", "-w", "-x", "c++-header", f"{HOME}/include/{HEADER}", "-o", made]
        subprocess.run([*command, *options], capture_output=True)
        made.rename(precompiled)


def _remove_unused() -> None:
    for place in _cache().glob("*"):
        if place.stat().st_mtime < time.time() - UNUSED_DAYS * 86400:
            shutil.rmtree(place, ignore_errors=True)
