# SPDX-License-Identifier: Apache-2.0
"""`python -m cann_cpu project FOLDER`: builds a project as its own scripts would, runs it, and prints a table.

Each part of it is built in a copy, against a private toolkit, in which only its package is installed.
"""

import json
import os
import platform
import re
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .. import activation, chips
from ..checks import repeated_runs
from ..names import snake_case
from . import msopgen
from .operator_calls import drawn, text_of

LINE = "  {:<26} {:<8} {}"
SKIPPED = {".git", "build_out", "__pycache__", ".venv", "node_modules"}
SCRIPTS = {".sh", ".txt", ".cmake", ".json", ".bash"}
INSTALLED = re.compile(r"/usr/local/Ascend(?:/ascend-toolkit)?/(?:latest|set_env\.sh(?=\b))")
SECONDS = 1800
DEPTH = 4

# What is read in the text of a step that failed, first to last: how a line looks that says why.
CAUSES = (
    r"^(?P<file>[^\s:]+):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<what>.*)",
    r"^(?P<file>[^\s:]+\.(?:cpp|h|cc|asc|hpp)):(?P<line>\d+): (?P<what>.* is not in Ascend C on the CPU.*)",
    r"(?P<what>undefined (?:reference to|symbol: ).*)",
    r"^(?P<what>\w+Error: .*)",  # of a script in Python
    r"^CMake Error at (?P<file>[^\s:]+):(?P<line>\d+).*?:\n\s*(?P<what>\S.*)",
    r"^CMake Error: (?P<what>.*)",
    r"(?P<what>op_build: .*)",
    r"^(?P<file>[^\s:]+): line (?P<line>\d+): (?P<what>.*)",
    r"^(?P<what>(?:[\w.]*Error|error|ERROR|\[ERROR\])\b:? ?.*)",
    r"(?P<what>.*(?:No such file|not found|cannot open|[Ff]ailed|FAILED).*)",
)
# What helps, by what the cause says.
REMEDIES = (
    (r"No such file or directory: '\S*(?:input|output)/", "git keeps no empty folders: make them, as its author has"),
    (r"aic-\w+-ops-info\.ini", "ASCEND_COMPUTE_UNIT, of the preset or build.sh, names a chip that no AddConfig names"),
    (
        r"No module named '(?:te|tbe)\b",
        "TBE, CANN's older language of operators, is not there; write the kernel in Ascend C",
    ),
    (r"aclnn_\w+\.h: No such file", "its package is not installed: the lines of its project say why"),
    (r"error: (\S+): No such file|(\S+\.h\S*): No such file", "docs/toolkit.md lists the headers that are there"),
    (r"is not in Ascend C on the CPU", "docs/ascendc_names.md lists what is there, and what to take in its place"),
    (r"undefined", "define it, or link the library that has it: register, exe_graph, platform, tiling_api, nnopbase"),
    (
        r"has no kernel for",
        "name the chip in AddConfig and ASCEND_COMPUTE_UNIT, or set CANN_CPU_SOC to another",
    ),
    (r"was not compiled", "give the kernel a branch TILING_KEY_IS of that key, or set one that it has"),
    (r"GetData\(\) is null", "give the input .ValueDepend(OPTIONAL), or do without its values in tiling"),
    (r"crashed \(", "look for null pointers, and for indices beyond the buffer; the checks name kernels' lines"),
    (r"wrote nothing", "the kernel is a stub, or copies its result nowhere: DataCopy from the queue's tensor to y"),
    (r"past the end", "copy the last elements with DataCopyPad: DataCopy writes whole blocks of 32 bytes"),
    (r"SetBlockDim|block dim", "call SetBlockDim in tiling"),
    (r"no tiling function", "add .SetTiling(optiling::TilingFunc) to AICore()"),
    (r"the kernel failed|CPU_CHECKS", "correct that line; docs/ascendc_kernels.md says what the checks find"),
)


@dataclass
class Failure(Exception):
    """The first cause, and what to do."""

    cause: str
    remedy: str = ""


@dataclass
class Part:
    """A folder that is built on its own: "operators", "launch" (kernel launch), or "test" (a program of aclnn)."""

    kind: str
    folder: Path  # below the project
    layout: str = ""


@dataclass
class Work:
    """Where a project is built and what has been found."""

    source: Path
    folder: Path
    lines: list[str] = field(default_factory=list)

    @property
    def copy(self) -> Path:
        return self.folder / "copy"

    @property
    def home(self) -> Path:
        """The private toolkit, in which the project's packages are installed."""
        return self.folder / "toolkit"

    @property
    def site(self) -> Path:
        """Python packages of the project's scripts."""
        return self.folder / "site"

    def environment(self) -> dict[str, str]:
        """The variables of a user who has installed the toolkit, without this process's ASCEND_*."""
        home, user = str(self.home), self.folder / "user"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASCEND_", "CUSTOM_OPP"))}
        names = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME_DIR", "ASCEND_INSTALL_PATH", "DDK_PATH")
        prefixes = [f"{home}/compiler/tikcpp/ascendc_kernel_cmake", f"{home}/tools/tikicpulib/lib/cmake"]
        libraries = [f"{home}/lib64", *(f"{each}/op_api/lib" for each in sorted(self.home.glob("opp/vendors/*/")))]
        return kept | dict.fromkeys(names, home) | {
            "CANN_CPU": "0",  # the variables say it all
            "HOME": str(user),  # scripts delete logs there
            "XDG_CACHE_HOME": kept.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),  # of precompiled headers
            **_pip_settings(),
            "PIP_TARGET": str(self.site),  # what scripts install, which is not the user's
            "PYTHONPATH": os.pathsep.join(filter(None, [str(self.site), kept.get("PYTHONPATH")])),
            "ASCEND_OPP_PATH": f"{home}/opp",
            "NPU_HOST_LIB": f"{home}/lib64",
            "PATH": f"{home}/bin:{kept.get('PATH', os.defpath)}",
            "LD_LIBRARY_PATH": ":".join([*libraries, *filter(None, [kept.get("LD_LIBRARY_PATH")])]),
            "CMAKE_PREFIX_PATH": ":".join([*prefixes, *filter(None, [kept.get("CMAKE_PREFIX_PATH")])]),
        }  # fmt: skip

    def run(
        self, name: str, command: list, folder: Path, input: str | None = None, **variables
    ) -> repeated_runs.Outcome:
        """Runs a command of the project; what it says is in logs/, in the terms of the user's own folder."""
        words = [str(word) for word in command]
        script = ["bash", "-c", 'cd "$0" && exec "$@"', str(folder), *words]
        if input is not None:
            file = self.folder / "input"
            file.write_text(input)
            script = ["bash", "-c", 'cd "$0" && exec "$@" < "$INPUT"', str(folder), *words]
            variables["INPUT"] = str(file)
        outcome = repeated_runs.run(script, self.environment() | variables, SECONDS)
        log = self.folder / "logs" / f"{name}.txt"
        log.parent.mkdir(exist_ok=True)
        log.write_text(self.readable(f"$ {' '.join(words)}\n{outcome.stdout}{outcome.stderr}"))
        return outcome

    def readable(self, text: str) -> str:
        """Paths of the copy as those of the project."""
        text = re.sub(r"build_out/op_kernel/binary/\w+/src/", "op_kernel/", text)  # where older scripts copy kernels
        text = text.replace(f"{self.copy}/", "").replace(str(self.copy), ".")
        return text.replace(str(self.home), "$ASCEND_HOME_PATH")


def _pip_settings() -> dict[str, str]:
    """The user's own, which pip would look for in HOME."""
    files = [Path.home() / each for each in (".config/pip/pip.conf", ".pip/pip.conf")]
    return next(({"PIP_CONFIG_FILE": str(file)} for file in files if file.exists()), {})


# ---- what there is

LAUNCHES = {
    r"ascendc_library": "ascendc_library",
    r"LANGUAGES[^)]*\bASC\b|find_package\(ASC\b": "the language ASC",
    r"LANGUAGES[^)]*\bCCE\b": "its own language CCE",
}


def find_parts(root: Path) -> list[Part]:
    """Projects of operators first, then programs: tests need the packages."""
    parts = list(_parts(root, Path(), DEPTH))
    order = {"operators": 0, "launch": 1, "test": 2}
    return sorted(parts, key=lambda part: (order[part.kind], str(part.folder)))


def _parts(root: Path, folder: Path, depth: int) -> Iterator[Part]:
    here = root / folder
    lists = here / "CMakeLists.txt"
    if not lists.exists():
        lists = here / "src/CMakeLists.txt"  # of the usual aclnn test program
    files = [lists, *here.glob("cmake/**/CMakeLists.txt"), *here.glob("cmake/**/*.cmake")] if lists.exists() else []
    text = "".join(each.read_text(errors="replace") for each in files)
    if any(here.glob("op_host/*.cpp")) and (here / "op_kernel").is_dir():
        yield Part("operators", folder, _layout(here, text))
        parts = [part for each in _folders(here, folder) for part in _parts(root, each, min(depth, 2) - 1)]
        yield from (part for part in parts if part.kind == "test")
        return
    for pattern, layout in LAUNCHES.items():
        if re.search(pattern, text):
            yield Part("launch", folder, layout)
            return
    if text and re.search(r"add_executable", text) and "ascendcl" in text:
        yield Part("test", folder)
        return
    if (here / "setup.py").exists() and any(here.glob("test*.py")):
        yield Part("test", folder, EXTENSION)
        return
    if depth > 0:
        for each in _folders(here, folder):
            yield from _parts(root, each, depth - 1)


def _folders(here: Path, folder: Path) -> list[Path]:
    kept = (each for each in sorted(here.iterdir()) if each.is_dir() and not each.is_symlink())
    return [folder / each.name for each in kept if each.name not in SKIPPED | {"cmake", "op_host", "op_kernel"}]


EXTENSION = "an extension of torch"
NO_BUILD = "op_host and op_kernel alone, with msopgen's build"


def _layout(folder: Path, text: str) -> str:
    if not (folder / "CMakeLists.txt").exists():
        return NO_BUILD
    texts = text + "".join(each.read_text(errors="replace") for each in folder.glob("op_*/CMakeLists.txt"))
    if "npu_op_package" in texts:
        return "msopgen's layout of CANN 8.2 and later, npu_op_package"
    if (folder / "cmake/func.cmake").exists():
        kind = "add_kernels_compile" if "add_kernels_compile" in texts else "add_ops_compile_options"
        return f"msopgen's layout of CANN 7 and 8, {kind}"
    return "another layout"


def described(parts: list[Part]) -> str:
    names = {"operators": "a project of operators", "launch": "a kernel launch project", "test": "a test program"}
    found = (
        f"{names[each.kind]}{f' ({each.layout})' * bool(each.layout)} in {each.folder if each.folder.parts else '.'}"
        for each in parts
    )
    return ", ".join(found)


# ---- where it is built


def prepare(work: Work) -> list[str]:
    """Copies the project, makes the toolkit, and says which paths it has set in the copy."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        """What a build has made: a CMake cache holds the paths of where it was made; and the copy's own folder."""
        made = {name for name in names if os.path.exists(f"{folder}/{name}/CMakeCache.txt")}
        return made | {name for name in names if name in SKIPPED or Path(folder, name) == work.folder}

    shutil.copytree(work.source, work.copy, symlinks=True, ignore=ignored)
    work.home.mkdir()
    for entry in Path(activation.HOME).iterdir():
        if entry.name != "opp" and entry.name != f"{platform.machine()}-linux":
            (work.home / entry.name).symlink_to(entry)
    (work.home / f"{platform.machine()}-linux").symlink_to(".")
    (work.home / "opp/vendors").mkdir(parents=True)
    for entry in Path(activation.HOME, "opp").iterdir():
        if entry.name != "vendors":
            (work.home / "opp" / entry.name).symlink_to(entry)
    of_user = work.folder / "user/Ascend/ascend-toolkit"
    of_user.mkdir(parents=True)
    (of_user / "latest").symlink_to(work.home)
    if Path("/usr/local/Ascend").exists():
        return []
    changed = []
    for file in sorted(work.copy.rglob("*")):
        if file.suffix in SCRIPTS and file.is_file() and not file.is_symlink() and file.stat().st_size < 1 << 20:
            text = file.read_text(errors="surrogateescape")
            by = INSTALLED.sub(lambda found: f"{work.home}{'/set_env.sh' * found[0].endswith('.sh')}", text)
            if by != text:
                file.write_text(by, errors="surrogateescape")
                changed.append(str(file.relative_to(work.copy)))
    return changed


# ---- what went wrong


def part_of(file: Path, line: int) -> str:
    """Definition, inference, tiling, kernel, test or build script: what an author calls the place."""
    if "op_kernel" in file.parts:
        return "kernel"
    if file.suffix in (".txt", ".cmake", ".json", ".sh"):
        return "build script"
    if "op_host" not in file.parts:
        return "program"
    if "tiling" in file.name:
        return "tiling"
    text = file.read_text(errors="replace").splitlines()[:line] if file.exists() else []
    names = {"optiling": "tiling", "ge": "inference", "ops": "definition"}
    for each in reversed(text):
        if found := re.match(r"\s*namespace (\w+)", each):
            return names.get(found[1], "definition or tiling")
    return "definition or tiling"


def first_cause(work: Work, text: str, folder: Path | None = None) -> Failure:
    """The first line that says why, of the kind that says most."""
    for pattern in CAUSES:
        found = re.search(pattern, text, re.MULTILINE)
        if found is None:
            continue
        groups = found.groupdict()
        cause = " ".join(groups["what"].split())
        if groups.get("file"):
            line = int(groups["line"])
            file = Path(groups["file"])
            file = _below(work.copy, folder or work.copy, file)
            cause = f"{part_of(file, line)} {work.readable(str(file))}:{line}: {cause}"
        return Failure(work.readable(cause)[:400], remedy(found[0]))
    last = [line for line in text.splitlines() if line.strip()]
    return Failure(work.readable(last[-1].strip())[:400] if last else "it said nothing")


def _below(copy: Path, folder: Path, file: Path) -> Path:
    """A path that a compiler gives from where it ran: that file, or the project's of this name, where there is one."""
    if not file.is_absolute():
        if (folder / file).is_file():
            return Path(os.path.normpath(folder / file))
        names = [part for part in file.parts if part not in ("..", ".")]
        found = [each for each in copy.rglob("/".join(names)) if each.is_file()] if names else []
        return found[0] if found else file
    return Path(os.path.normpath(file))


def place_of(work: Work, part: str, operator: dict) -> str:
    """Where an operator's kernel, tiling or inference begins, or its definition: file and line."""
    type = re.escape(operator["type"])
    folder = "op_kernel" if part == "kernel" else "op_host"
    files = sorted(each for each in work.copy.rglob(f"{folder}/**/*.cpp") if "build_out" not in each.parts)
    texts = {each: each.read_text(errors="replace") for each in files}
    patterns = [rf"\b{snake_case(operator['type'])}\s*\(\s*GM_ADDR"]
    if part != "kernel":
        texts = {each: text for each, text in texts.items() if re.search(rf"\bOP_ADD\(\s*{type}\b", text)}
        setter = {"tiling": "SetTiling", "inference": "SetInferShape"}.get(part)
        named = setter and next((re.search(rf"{setter}\([\w:]*?(\w+)\)", text) for text in texts.values()), None)
        patterns = [rf"\b{each[1]}\s*\(\s*gert::" for each in (named,) if each]
        patterns += [rf"\bclass\s+{type}\b", "OP_ADD"]
    for pattern in patterns:
        for file, text in texts.items():
            if found := re.search(pattern, text):
                line = text.count("\n", 0, found.start()) + 1
                return f"{part} {file.relative_to(work.copy)}:{line}:"
    return part


def remedy(text: str) -> str:
    return next((by for pattern, by in REMEDIES if re.search(pattern, text)), "")


# ---- the lines


def build(work: Work, part: Part) -> str:
    """Builds the package or the program by the project's own script."""
    folder = work.copy / part.folder
    name = part.folder.name or "project"
    presets = folder / "CMakePresets.json"
    if part.layout == NO_BUILD:
        _add_build(folder)
    if (folder / "build.sh").exists():
        steps = [["bash", "build.sh"]]
    elif presets.exists():
        preset = json.loads(presets.read_text())["configurePresets"][0]
        binary = preset.get("binaryDir", "build").replace("${sourceDir}", str(folder))
        steps = [["cmake", "--preset", preset["name"]]]
        steps.append(["cmake", "--build", binary, "--target", "binary", "package", "--parallel"])
    else:
        options = ["-DRUN_MODE=npu", f"-DSOC_VERSION={soc()}"] if part.kind == "launch" else []
        steps = [["cmake", "-S", ".", "-B", "build", *options], ["cmake", "--build", "build", "--parallel"]]
        if part.kind == "operators":
            steps[-1] += ["--target", "binary", "package"]
    seconds, text = 0.0, ""
    for number, step in enumerate(steps):
        outcome = work.run(f"{name}_build_{number}", step, folder)
        seconds += outcome.seconds
        text += outcome.stdout + outcome.stderr
        if outcome.code != 0:
            if outcome.code is None:
                raise Failure(f"{' '.join(step)} has not ended after {SECONDS} s")
            raise first_cause(work, text, folder)
    if part.kind == "operators" and not _packages(folder):
        raise first_cause(work, text, folder)  # many a build.sh ends well whatever came of it
    return f"{'; '.join(' '.join(step) for step in steps)}, {seconds:.0f} s".replace(str(work.copy), ".")


def _add_build(folder: Path) -> None:
    """What msopgen writes around an author's files, for the chip that is there, or for that of the definition."""
    shutil.copytree(msopgen.TEMPLATE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    sources = "".join(each.read_text(errors="replace") for each in folder.glob("op_host/*.cpp"))
    units = re.findall(r'AddConfig\("(\w+)"', sources)
    unit = family() if family() in units or not units else units[0]
    (folder / "CMakePresets.json").write_text(json.dumps(msopgen.presets(unit, "tensorflow")))


def _packages(folder: Path) -> list[Path]:
    libraries = (each.parents[2] for each in folder.rglob("op_api/lib/libcust_opapi.so"))
    found = [*folder.rglob("custom_opp_*.run"), *libraries]
    return [each for each in found if "_CPack_Packages" not in each.parts]


def soc() -> str:
    return os.environ.get("CANN_CPU_SOC") or "Ascend910B3"


def family() -> str:
    chip = chips.find(soc())
    return chip.family if chip else soc().lower()


def install(work: Work, part: Part) -> tuple[Path, list[dict]]:
    """Installs the package in the toolkit and loads its libraries: where it is, and its definitions."""
    installer = _packages(work.copy / part.folder)[0]
    name = part.folder.name or "project"
    before = set(work.home.glob("opp/vendors/*/"))
    if installer.suffix == ".run":
        outcome = work.run(f"{name}_install", ["bash", installer, "--quiet"], work.folder)
        if outcome.code != 0:
            raise first_cause(work, outcome.stdout + outcome.stderr)
        made = [each for each in work.home.glob("opp/vendors/*/") if (each / "op_api").exists()]
        package = max(made, key=lambda each: (each not in before, each.stat().st_mtime))
    else:
        package = installer
    outcome = work.run(f"{name}_load", _calls("describe", package), work.folder)
    if outcome.code != 0:
        raise _ended(work, outcome) or first_cause(work, outcome.stderr)
    return package, json.loads(outcome.stdout.splitlines()[-1])


def _calls(action: str, package: Path, *more: str) -> list:
    return [sys.executable, "-m", "cann_cpu.toolkit.operator_calls", action, package, *more]


def _ended(work: Work, outcome: repeated_runs.Outcome, operator: dict | None = None) -> Failure | None:
    """A crash, by the name that it has left."""
    if outcome.code is None:
        return Failure(f"it has not ended after {SECONDS} s")
    if outcome.code >= 0:
        return None
    named = [line for line in outcome.stderr.splitlines() if "crashed (" in line]
    cause = named[0] if named else f"it crashed: signal {-outcome.code}"
    place = "tiling" if "SetTiling" in cause else "inference" if "SetInfer" in cause else "kernel" if named else ""
    place = place_of(work, place, operator) if place and operator else place
    return Failure(f"{place} {work.readable(cause)}".strip(), remedy(cause))


def infers(work: Work, package: Path, operator: dict) -> tuple[str, list]:
    """Shapes of the outputs, for the calls; what inference does wrong fails none."""
    outcome = work.run(f"{operator['type']}_infer", _calls("infer", package, operator["type"], family()), work.folder)
    found = [json.loads(line) for line in outcome.stdout.splitlines()]
    shapes = [[shape or None for shape in each.get("shapes", [])] for each in found]
    rejected = [each for each in found if "rejected" in each]
    if failure := _ended(work, outcome, operator):
        raise failure
    if rejected:
        reason = work.readable(rejected[0]["rejected"])
        place = place_of(work, "inference", operator)
        raise Failure(f"{place} {reason} ({len(rejected)} of {len(found)} calls)")
    return f"{len(found)} calls", shapes


@dataclass
class Called:
    """What became of a drawn call: rejected, failed, or with this digest of its outputs."""

    call: str
    types: tuple
    rejected: str = ""
    failure: Failure | None = None
    digest: str = ""


def runs(work: Work, package: Path, operator: dict, shapes: list, checks: bool) -> list[Called]:
    """The drawn calls. One that crashes or fails ends its process, and the others are made in a new one."""
    calls = drawn(operator, family())
    given = []
    for index, call in enumerate(calls):
        known = shapes[index] if index < len(shapes) else []
        first = call["inputs"][0]["shape"] if call["inputs"] else [32]
        given.append([known[i] if i < len(known) and known[i] else first for i, _ in enumerate(call["outputs"])])
    variables = {"ASCENDC_CPU_CHECKS": "1"} if checks else {}
    variables["ASCEND_GLOBAL_LOG_LEVEL"] = "4"  # each message is read
    done: list[Called] = []
    while len(done) < len(calls):
        name = f"{operator['type']}_{'checks' if checks else 'run'}_{len(done)}"
        command = _calls("run", package, operator["type"], family(), str(len(done)))
        outcome = work.run(name, command, work.folder, input=json.dumps(given), **variables)
        before = len(done)
        for line in outcome.stdout.splitlines():
            if line.startswith("{"):
                done.append(_called(work, operator, calls[len(done)], json.loads(line)))
        if failure := _ended(work, outcome, operator):
            call = text_of(calls[len(done)])
            cause = failure.cause if " for " in failure.cause else f"{failure.cause} ({call})"
            done.append(Called(call, _types(calls[len(done)]), failure=Failure(cause, failure.remedy)))
        elif outcome.code != 0 or len(done) == before:
            raise first_cause(work, outcome.stderr)
    return done


def _types(call: dict) -> tuple:
    return tuple(each["type"] for each in (*call["inputs"], *call["outputs"]))


REJECTS = {161001, 161002, 561002}
WRITES = {
    "overrun": "it writes past the end of {}, whose shape SetInferShape gives",
    "untouched": "it wrote nothing to {}",
}


def _called(work: Work, operator: dict, call: dict, result: dict) -> Called:
    called = Called(text_of(call), _types(call), digest=result.get("digest", ""))
    code, message = result["code"], work.readable(result.get("message", ""))
    if code in REJECTS:
        called.rejected = message
    elif code:
        place = re.search(r"(\S+?):(\d+): ", message)
        parts = {"has no kernel for": "definition", "was not compiled": "tiling"}
        part = next((part for words, part in parts.items() if words in message), "kernel")
        named = part_of(Path(place[1]), int(place[2])) if place else place_of(work, part, operator)
        called.failure = Failure(f"{named} {code}: {message} ({called.call})", remedy(message))
    for kind, said in WRITES.items():
        if result.get(kind):
            cause = f"{place_of(work, 'kernel', operator)} {said.format(result[kind][0])} ({called.call})"
            called.failure = called.failure or Failure(cause, remedy(cause))
    return called


def judged(work: Work, operator: dict, done: list[Called]) -> str:
    """Says how many calls were right. One call of each combination of dtypes must be, as an operator may be written for
    one size or rank. Raises the first failure of a combination without one, and NotRun if all calls were rejected."""
    right = {each.types for each in done if not each.rejected and not each.failure}
    for each in done:
        if each.failure and each.types not in right:
            raise each.failure
    if not right:
        reason = done[0].rejected if done else "the formats are not ND formats, or the dtypes are not numeric"
        place = place_of(work, "tiling", operator)
        raise NotRun(f"no drawn call is accepted, and only its own test can say more: {place} {reason}")
    count = sum(not each.rejected and not each.failure for each in done)
    rejected = sum(bool(each.rejected) for each in done)
    failures = [each.failure for each in done if each.failure]
    said = f"{count} call{'s' * (count != 1)} drawn from its definition" + f", {rejected} more are rejected" * bool(
        rejected
    )
    return said + (f", {len(failures)} of other sizes fail: {failures[0].cause}" if failures else "")


class NotRun(Exception):
    """A line that says nothing."""


def own_test(work: Work, part: Part) -> str:
    """Runs the project's own test or program, by its script where it has one."""
    folder, name = work.copy / part.folder, part.folder.name or "project"
    if part.layout == EXTENSION:
        return _test_extension(work, folder, name)
    script = next((each for each in ("run.sh", "src/run.sh") if (folder / each).exists()), None)
    if script is None:
        build_folder = folder if (folder / "CMakeLists.txt").exists() else folder / "src"
        said = build(work, Part(part.kind, build_folder.relative_to(work.copy)))
        programs = _programs(folder)
        if not programs:
            raise NotRun("its build makes no program, and there is no run.sh")
        commands = [[each] for each in programs]
    else:
        text = (folder / script).read_text(errors="replace")
        options = ["-v", soc()] if re.search(r"soc|SOC", text) and re.search(r"\bv[:,]|-v\b", text) else []
        options = ["-r", "npu", *options] if re.search(r"RUN_MODE|run-mode", text) else options
        commands, said = [["bash", script, *options]], ""
    seconds = 0.0
    for checks in (False, True) if part.kind == "launch" else (False,):
        for command in commands:
            variables = {"ASCENDC_CPU_CHECKS": "1"} if checks else {}
            outcome = work.run(f"{name}_test{'_checks' * checks}", command, folder, **variables)
            seconds += outcome.seconds
            _judge_test(work, outcome, folder, checks)
    shown = " ".join(str(word) for word in commands[0]).replace(f"{work.copy}/", "")
    return f"{said + ', ' if said else ''}{shown}, {seconds:.0f} s"


def _test_extension(work: Work, folder: Path, name: str) -> str:
    """Builds the extension of setup.py and runs test*.py on it, once for each of its cases where it asks for one. Its
    run.sh would install the extension in the user's environment."""
    outcome = work.run(f"{name}_setup", ["python3", "setup.py", "build_ext", "--build-lib", work.site], folder)
    if outcome.code != 0:
        raise _ended(work, outcome) or first_cause(work, outcome.stdout + outcome.stderr, folder)
    seconds, count = outcome.seconds, 0
    for test in sorted(folder.glob("test*.py")):
        text = test.read_text(errors="replace")
        cases = sorted(set(re.findall(r"""['"]case_?(\d+)['"]""", text)), key=int) if "sys.argv" in text else []
        for words in [[case] for case in cases] or [[]]:
            log = "_".join([name, test.stem, *words])
            outcome = work.run(log, ["python3", test.name, *words], folder)
            seconds, count = seconds + outcome.seconds, count + 1
            try:
                _judge_test(work, outcome, folder, False)
            except Failure as failure:
                raise Failure(f"{' '.join([test.name, *words])}: {failure.cause}", failure.remedy) from failure
    return f"python3 setup.py build_ext, {count} cases, {seconds:.0f} s"


def _judge_test(work: Work, outcome: repeated_runs.Outcome, folder: Path, checks: bool) -> None:
    text = outcome.stdout + "\n" + outcome.stderr
    bad = re.search(
        r"^.*(?:\btest failed|result error|verify (?:result )?failed|verification failed|\bmismatch|AssertionError).*$",
        text,
        re.MULTILINE | re.IGNORECASE,
    )
    error = re.search(r"^\[ERROR\] (?P<what>(?!.*has no member).*)", outcome.stderr, re.MULTILINE)
    if failure := _ended(work, outcome):
        raise failure
    if outcome.code == 0 and bad is None and error is None:
        return
    suffix = " (ASCENDC_CPU_CHECKS=1)" if checks else ""
    if error is not None:
        message = work.readable(error["what"])
        raise Failure(f"{message}{suffix}", remedy(message))
    if bad is not None:
        raise Failure(
            f"test: {work.readable(bad[0].strip())}{suffix}", "the operator does not agree with the test's reference"
        )
    failure = first_cause(work, text, folder)
    raise Failure(f"{failure.cause}{suffix}; exit code {outcome.code}", failure.remedy)


def _programs(folder: Path) -> list[Path]:
    """What the build has linked."""
    found = []
    for each in sorted(folder.rglob("*")):
        is_file = each.is_file() and not each.is_symlink() and "CMakeFiles" not in each.parts
        is_linked = ".so" not in each.name and each.suffix != ".o"
        if is_file and is_linked and each.stat().st_mode & stat.S_IXUSR:
            with each.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    found.append(each)
    return found


def lines_of(work: Work, part: Part) -> Iterator[tuple[str, Callable[[], str]]]:
    """The table's lines of a part: a name, and what to run. Where a line has failed, what needs it is not run."""
    if part.kind != "operators":
        yield "test", lambda: own_test(work, part)
        return
    yield "builds", lambda: build(work, part)
    found: list = []

    def loads() -> str:
        package, operators = install(work, part)
        found.append((package, operators))
        return f"its libraries, {len(operators)} operator{'s' * (len(operators) != 1)}"

    yield "loads", loads
    if not found:
        return
    package, operators = found[0]
    for operator in operators:
        yield from _lines_of_operator(work, package, operator)


def _lines_of_operator(work: Work, package: Path, operator: dict) -> Iterator[tuple[str, Callable[[], str]]]:
    shapes: list = []
    type, results = operator["type"], {}

    def inferred() -> str:
        try:
            said, found = infers(work, package, operator)
        except Failure as failure:
            raise Note(failure.cause) from failure
        shapes.extend(found)
        return said

    def called(checks: bool) -> str:
        done = runs(work, package, operator, shapes, checks)
        said = judged(work, operator, done)
        results[checks] = {each.call: each.digest for each in done if each.digest}
        unlike = [
            call for call, digest in results[checks].items() if results.get(False, {}).get(call, digest) != digest
        ]
        if unlike:
            place = place_of(work, "kernel", operator)
            raise Failure(f"{place} checked, in another order of its parts, it gives something else ({unlike[0]})")
        return said

    yield f"{type} infers", inferred
    yield f"{type} runs", lambda: called(False)
    yield f"{type} checks", lambda: called(True)


class Note(Exception):
    """What is worth knowing and fails nothing."""


def check(work: Work, part: Part) -> Iterator[str]:
    """Prints the lines of a part; yields their verdicts."""
    broken, cause = False, ""
    for name, line in lines_of(work, part):
        helps = ""
        if broken:
            verdict, said = "not run", "the above comes first"
        else:
            try:
                verdict, said = "ok", line()
            except Note as note:
                verdict, said = "note", str(note)
            except NotRun as reason:
                verdict, said = "not run", str(reason)
            except Failure as failure:
                same = failure.cause == cause
                verdict, said, helps = "FAILED", "as above" if same else failure.cause, failure.remedy * (not same)
                cause = failure.cause
                broken = name in ("builds", "loads")
            except Exception as error:  # a project may be anything: the table has its failure, and the next one follows
                verdict, said = "FAILED", f"{type(error).__name__}: {error}"
        print(LINE.format(name, verdict, " ".join(said.split())), flush=True)
        if helps:
            print(LINE.format("", "", f"do: {helps}"), flush=True)
        yield verdict


def main(folder: str, keep: str | None) -> int:
    source = Path(folder).resolve()
    if not source.is_dir():
        print(f"cann_cpu: {folder} is not a folder", file=sys.stderr)
        return 2
    parts = find_parts(source)
    if not parts:
        print(
            f"cann_cpu: {folder}: no project of operators (CMakeLists.txt and op_host/), no kernel launch project "
            "(ascendc_library, or the language ASC in its CMakeLists.txt), and no program that links ascendcl",
            file=sys.stderr,
        )
        return 2
    place = Path(keep).resolve() if keep else Path(tempfile.mkdtemp(prefix="cann_cpu_project_"))
    if keep:
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()):
            print(f"cann_cpu: --keep {keep}: the folder is not empty", file=sys.stderr)
            return 2
    work = Work(source, place)
    print(f"{folder}: {described(parts)}")
    changed = prepare(work)
    print(f"built in a copy, {work.copy}; {folder} stays as it is")
    if changed:
        print(f"in the copy the toolkit's path is set in {', '.join(changed[:4])}{' ...' * (len(changed) > 4)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it ends what it has started
    verdicts = []
    try:
        for part in parts:
            print(part.folder if part.folder.parts else ".", flush=True)
            verdicts += check(work, part)
    except KeyboardInterrupt:
        print(f"interrupted; {place} has what was built", file=sys.stderr)
        return 130
    counted = [each for each in verdicts if each != "note"]
    passed = counted.count("ok")
    print(f"{passed} of {len(counted)} lines passed")
    if "FAILED" in verdicts or keep:
        print(f"all that was said is in {place / 'logs'}")
    else:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if "FAILED" in verdicts else 0
