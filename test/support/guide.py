# SPDX-License-Identifier: Apache-2.0
"""Follows a page of the docs literally: runs the commands of its blocks in a folder, and makes its edits there.

A block marked ``console`` holds commands, after "$ ", and what they print on stdout; "..." stands for any text in a
line, or for any lines. One marked with a language and a file, as ``cpp opp/op_kernel/x.cpp``, shows that file after the
change. Each part of it, a function or a table, replaces the part of the same name. A new part comes before the part
that follows it in the block.
"""

import os
import re
import shlex
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Block:
    """A block of code: what follows ``` and what is in it."""

    info: str
    text: str

    @property
    def file(self) -> str | None:
        return self.info.partition(" ")[2] or None


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w[^\n]*)\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [Block(info, text) for info, text in found]


@dataclass
class Part:
    """A function, a table or a single line of a file: what begins at the left, with the comment or decorator directly
    above it, with what is indented under it, and with the bracket that closes it."""

    start: int
    """The first line of its comment."""
    first: int
    end: int


def parts(lines: list[str]) -> list[Part]:
    found: list[Part] = []
    comment, closed = None, True
    for i, line in enumerate(lines):
        if line.startswith(("//", "@")):
            comment = i if comment is None else comment
        elif not line.strip():
            comment = None
        elif line[0] not in " \t)}]":
            found.append(Part(i if comment is None else comment, i, i + 1))
            comment, closed = None, False
        elif found and not (closed and line[0] in ")}]"):
            found[-1].end = i + 1
            closed = line[0] in ")}]"
    return found


def edited(text: str, block: str) -> str:
    """The text of a file with the parts of a block in it."""
    new, start = block.splitlines(), 0
    for part in parts(new):
        lines = text.splitlines()
        name = new[part.first].partition("(")[0]
        old = [candidate for candidate in parts(lines) if lines[candidate.first].partition("(")[0] == name]
        if old:
            assert len(old) == 1, f"'{name}' is there {len(old)} times"
            replaced = old[0].start if start < part.first else old[0].first
            lines[replaced : old[0].end] = new[start : part.end]
            text = "\n".join(lines) + "\n"
            start = next((i for i in range(part.end, len(new)) if new[i].strip()), len(new))
    assert start == len(new), f"nothing in the file begins with '{new[start]}'"
    return text


def pattern(expected: str) -> re.Pattern:
    """What matches an output as the page shows it."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else ".*".join(map(re.escape, line.split("..."))) + r"[^\S\n]*\n"
        for line in expected.splitlines()
    ]
    return re.compile("".join(lines))


class Follower:
    """Somebody who follows a page in a folder, with the commands of an environment."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self.folder, self.environment = folder, environment

    def follow(self, blocks: list[Block]) -> None:
        for block in blocks:
            if block.info == "console":
                self.run_commands(block)
            elif block.info == "python example":
                self.run_python(block)
            elif block.file and not block.info.startswith("console"):
                self.edit(block)

    def run_commands(self, block: Block) -> None:
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, flags=re.MULTILINE):
            self.run(command, expected)

    def run(self, command: str, expected: str) -> None:
        if command.startswith("cd "):
            self.folder /= command.removeprefix("cd ")
            return
        result = self.started(command)
        matches = result.returncode == 0 and pattern(expected).fullmatch(result.stdout)
        said = f"$ {command}\n{result.stdout}{result.stderr}\nexit code {result.returncode}"
        assert matches, f"{said}\nis not what the page shows:\n{expected}"

    def run_python(self, block: Block) -> None:
        result = self.started(["python", "-c", block.text])
        assert result.returncode == 0, result.stderr

    def edit(self, block: Block) -> int:
        """Returns the number of lines that are new and neither blank nor comments nor documentation."""
        file = self.folder / block.file
        before = file.read_text()
        file.write_text(edited(before, block.text))
        new = Counter(file.read_text().splitlines()) - Counter(before.splitlines())
        return sum(count for line, count in new.items() if re.match(r"\s*(//|\"\"\"|$)", line) is None)

    def started(self, command: str | list[str]) -> subprocess.CompletedProcess:
        arguments = shlex.split(command) if isinstance(command, str) else command
        start = time.monotonic()
        result = subprocess.run(
            arguments, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=1500
        )
        print(f"{time.monotonic() - start:6.1f} s  {arguments[:4]}")  # pytest -s shows it
        return result


def environment(folder: Path, site_packages: Path, python: str) -> dict[str, str]:
    """A Python environment in a folder, with the packages of another one; what is installed in it stays in it."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    mine = next(folder.glob("lib/python*/site-packages"))
    for entry in site_packages.iterdir():
        if entry.name.startswith("custom_pypto"):
            subprocess.run(["cp", "-r", entry, mine], check=True, timeout=60)
        elif entry.name != "__pycache__":
            (mine / entry.name).symlink_to(entry)
    return variables(folder, Path(python).parent)


def variables(environment: Path, *beside: Path) -> dict[str, str]:
    """The variables of a shell in which a virtual environment is active, with other folders behind its own in PATH."""
    # What the CANN of this environment has set names the operator packages here.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASCEND_", "PYTHONPATH"))}
    path = os.pathsep.join(map(str, [environment / "bin", *beside, os.environ["PATH"]]))
    return kept | {"PATH": path, "VIRTUAL_ENV": str(environment), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
