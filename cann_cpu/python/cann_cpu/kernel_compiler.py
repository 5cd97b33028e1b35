# SPDX-License-Identifier: Apache-2.0
"""Compiles files of Ascend C kernels with g++: what KernelFile, `ascendc_library` and the language ASC have in common.

    python -m cann_cpu.kernel_compiler [OPTION...] -c FILE -o FILE.o      (in the toolkit: bin/bisheng)

behaves as the device's compiler, and takes g++'s options and its own. A file may have host functions beside its
kernels: `kernel<<<blocks, l2ctrl, stream>>>(arguments...)` becomes a call, and each kernel X gets the functions
`ascendc_cpu_call_X`, by which other languages call it, and `aclrtlaunch_X`, which launches it on a stream.

    python -m cann_cpu.kernel_compiler --launch-headers=FOLDER [OPTION...] -c FILE...

writes the headers that declare these, `aclrtlaunch_X.h`.
"""

import functools
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from . import device_rules, precompiled
from .activation import HOME, LIBRARIES
from .ascendc_names import missing_in

READ_BY = "ascendc/read_by_compiler.h"
_TEMPLATES = "ascendc_templates"  # what ASCENDC_TPL_SEL defines
ARCHITECTURES = ("dav-2201", "dav-c220", "dav-c220-vec", "dav-c220-cube")
"""What `--npu-arch` and `--cce-aicore-arch` may be: Atlas A2 and A3."""


class CompileError(RuntimeError):
    """A file of kernels does not compile."""


# ---- the kernels of a file

_NO_NAMES = {"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "const"}


@dataclass(frozen=True)
class Parameter:
    name: str
    type: str


def _without_comments(text: str) -> str:
    """Without comments and line markers, but with `/*name*/`, which is how a parameter without a name is called."""
    text = re.sub(r"//[^\n]*|^#.*$", " ", text, flags=re.MULTILINE)
    return re.sub(r"/\*\s*(\w*)\s*\*/|/\*.*?\*/", r" @\1 ", text, flags=re.DOTALL).replace("@ ", " ")


def _parameter(text: str, position: int) -> Parameter:
    """What `type name` or `type /*name*/` says."""
    code = re.sub(r"@\w+", "", text)
    named = re.search(r"[\w>*&]\s*[\s*&](\w+)\s*$", code)
    if named and named[1] not in _NO_NAMES and re.sub(r"\bconst\b|\W", "", code[: named.start(1)]):
        return Parameter(named[1], " ".join(code[: named.start(1)].split()))
    comment = re.search(r"@(\w+)", text)
    return Parameter(comment[1] if comment else f"argument {position}", " ".join(code.split()))


@dataclass(frozen=True)
class Kernel:
    parameters: tuple[Parameter, ...]
    template: tuple[str, ...] | None = None
    """The types of its template's parameters; `typename` of those that are types."""


def _template(before: str) -> tuple[str, ...] | None:
    """What `template <...>` says that ends a text."""
    found = re.search(r"\btemplate\s*<([^;{}]*)>\s*(?:inline\s+)?$", _without_comments(before))
    if found is None:
        return None
    parameters = [part.partition("=")[0].strip() for part in re.split(r",(?![^<]*>)", found[1])]
    return tuple(re.sub(r"\s*\b\w+$", "", each).replace("class", "typename") for each in parameters)


def all_kernels_of(preprocessed: str) -> dict[str, Kernel]:
    kernels = {}
    for begin in re.finditer(r"__global__\b", preprocessed):
        template = _template(preprocessed[max(0, begin.start() - 2000) : begin.start()])
        text = _without_comments(preprocessed[begin.end() : begin.end() + 10_000])
        if found := re.match(r"[\s\w\[\]]*?\bvoid\s+(\w+)\s*\(([^()]*)\)\s*\{", text):
            parts = [part for part in found[2].split(",") if part.strip() not in ("", "void")]
            kernels[found[1]] = Kernel(tuple(_parameter(part, i) for i, part in enumerate(parts, 1)), template)
    return kernels


def kernels_of(preprocessed: str) -> dict[str, tuple[Parameter, ...]]:
    """The kernels that a file defines, by macros, too, and their parameters. Of a template, what calls it is called."""
    return {name: each.parameters for name, each in all_kernels_of(preprocessed).items() if each.template is None}


# ---- the text that g++ compiles


_CHANGED_MEANING = "changes meaning of"
"""g++'s error where a member bears a name that its class has used before, which the device's compiler takes."""

_ATTRIBUTE = re.compile(r"\[\s*(?:host\s*,\s*)?aicore\s*\](?!\s*\()")
"""`__aicore__` as the device's compiler writes it itself; `[aicore](...)` is a lambda's."""


def _with_launches(text: str) -> str:
    """kernel<<<blocks, ...>>>(...) is a call of launch_from_host."""
    parts, done = [], 0
    for launch in re.finditer(r"<<<((?:(?!<<<|>>>)[^;])*)>>>\s*\(", text):
        before = text[max(done, launch.start() - 200) : launch.start()]
        if kernel := re.search(r"((?:\w+\s*::\s*)*\w+(?:\s*<[^;(){}]*>)?)\s*$", before):
            parts += [text[done : launch.start() - len(before) + kernel.start()]]
            parts += [f'AscendC::cpu::launch_from_host("{kernel[1]}", {kernel[1]}, {launch[1]})(']
            done = launch.end()
    return "".join([*parts, text[done:]])


_EXPORTED = 'extern "C" __attribute__((visibility("default")))'


def _entries(name: str, full_name: str, parameters: tuple[Parameter, ...]) -> str:
    names = ",".join(parameter.name for parameter in parameters)
    return f"""
{_EXPORTED} const AscendC::cpu::KernelEntry* ascendc_cpu_kernel_{name}() {{
  static constexpr auto entry = AscendC::cpu::Entry<&{full_name}>::entry("{name}", "{names}");
  return &entry;
}}
{_EXPORTED} bool ascendc_cpu_call_{name}(const AscendC::cpu::Call* call, char* error, size_t error_size) {{
  return AscendC::cpu::Entry<&{full_name}>::call("{name}", *call, error, error_size);
}}
"""


def _launch_function(name: str, full_name: str, parameters: tuple[Parameter, ...]) -> str:
    places = range(len(parameters))
    declared = "".join(f", AscendC::cpu::HostParameter<&{full_name}, {i}> a{i}" for i in places)
    given = "".join(f", a{i}" for i in places)
    return f"""
{_EXPORTED} uint32_t aclrtlaunch_{name}(uint32_t blocks, void* stream{declared}) {{
  return AscendC::cpu::Launcher<&{full_name}>::launch(*ascendc_cpu_kernel_{name}(), blocks, stream{given});
}}
"""


def _template_entries(name: str, full_name: str, kernel: Kernel, templates: str) -> str:
    """The functions of a kernel whose instances ASCENDC_TPL_SEL selects, one for all of them."""
    names = ",".join(parameter.name for parameter in kernel.parameters)
    values = [f"instances[i].values[{position}]" for position in range(len(kernel.template))]
    arguments = ", ".join(
        f"AscendC::tpl::TypeOf<{value}>" if kind == "typename" else f"static_cast<{kind}>({value})"
        for kind, value in zip(kernel.template, values, strict=True)
    )
    return f"""
struct {instances_of(name)} {{
  static constexpr const auto& templates = {templates};
  static_assert(templates.declared_count == {len(kernel.template)},
                "ASCENDC_TPL_ARGS_DECL declares another number of parameters than the template of {name} has");
  static constexpr auto instances = AscendC::tpl::instances_of<AscendC::tpl::count_of(templates)>(templates);
  template <size_t i>
  static constexpr auto kernel = &{full_name}<{arguments}>;
}};
{_EXPORTED} const AscendC::cpu::KernelEntry* ascendc_cpu_kernel_{name}() {{
  static constexpr auto entry = AscendC::cpu::Entry<{instances_of(name)}::kernel<0>>::entry("{name}", "{names}");
  return &entry;
}}
{_EXPORTED} bool ascendc_cpu_call_{name}(const AscendC::cpu::Call* call, char* error, size_t error_size) {{
  return AscendC::tpl::call<{instances_of(name)}>("{name}", *call, error, error_size);
}}
"""


def instances_of(name: str) -> str:
    """What the instances of a kernel are called behind its file."""
    return f"ascendc_cpu_instances_of_{name}"


def launch_header(name: str, parameters: tuple[Parameter, ...], preprocessed: str) -> str:
    """aclrtlaunch_X.h. Addresses are void*, and what a kernel takes as a struct is given by its address."""

    def declared(parameter: Parameter, position: int) -> str:
        type_ = re.sub(r"__gm__|\b(?:const|volatile|struct)\b", "", parameter.type).strip()
        word = re.escape(re.split(r"::|<", type_)[-1 if "<" not in type_ else 0].strip() or type_)
        defined = rf"\b(?:struct|class|union)\b[^;(){{}}=]*\b{word}\b[^;(){{}}=]*\{{|\}}\s*{word}\s*;"
        by_address = "*" in type_ or re.search(defined, preprocessed)
        name = parameter.name if parameter.name.isidentifier() else f"argument{position}"
        name += "_" * (name in ("blockDim", "stream"))  # which the launch has itself
        return f"void* {name}" if by_address else f"{type_} {name}"

    listed = "".join(f", {declared(parameter, i)}" for i, parameter in enumerate(parameters, 1))
    guard = f"ACLRTLAUNCH_{name}_H"
    return f"""// Made of the kernel {name}: launches it on a stream.
#ifndef {guard}
#define {guard}

#include <cstddef>
#include <cstdint>

#include "acl/acl_base.h"

#ifndef ACLRT_LAUNCH_KERNEL
#define ACLRT_LAUNCH_KERNEL(kernel) aclrtlaunch_##kernel
#endif

extern "C" uint32_t aclrtlaunch_{name}(uint32_t blockDim, aclrtStream stream{listed});

#endif
"""


# ---- options

_WITH_VALUE = re.compile(
    r"-(?:[IDULlxoTuz]|isystem|iquote|idirafter|include|imacros|isysroot|M[FTQ]"
    r"|Xlinker|Xpreprocessor|Xassembler|mllvm)|--param"
)
_FOR_PREPROCESSOR = re.compile(r"-(?:[IDU]|isystem|iquote|idirafter|include|imacros)")
_FOR_DEPENDENCIES = re.compile(r"-M")
_OLDER_STANDARD = re.compile(r"-std=(c|gnu)\+\+(?:98|03|0x|11|1y|14|1z|17)")
# What the device's compiler knows and g++ does not, what has no meaning where host and device are one, and the old
# std::string, which torch's libraries and these no longer have.
_NOT_TAKEN = re.compile(
    r"--cce-.*|--npu-arch=.*|-dc|-Xaicore-.*|-Xhost-.*|-xcce|-xasc|-x (?:cce|asc)|-mllvm .*"
    r"|-D ?_GLIBCXX_USE_CXX11_ABI=0"
)
_ARCHITECTURE = re.compile(r"--(?:npu-arch|cce-aicore-arch)=(.*)")


def _joined(arguments: list[str]) -> list[str]:
    """An option and its value in one word, separated by a blank as they were."""
    joined, rest = [], iter(arguments)
    for argument in rest:
        value = next(rest, None) if _WITH_VALUE.fullmatch(argument) else None
        joined.append(argument if value is None else f"{argument} {value}")
    return joined


def _words(options: list[str]) -> list[str]:
    return [word for option in options for word in (option.split(" ", 1) if _is_pair(option) else [option])]


def _is_pair(option: str) -> bool:
    return bool(_WITH_VALUE.fullmatch(option.partition(" ")[0])) and " " in option


def _for_host(options: list[str]) -> list[str]:
    """The options that g++ takes, in C++20 at least: the headers ask for it."""
    for option in options:
        if (named := _ARCHITECTURE.fullmatch(option)) and named[1] not in ARCHITECTURES:
            raise CompileError(f"{option}: there is {', '.join(ARCHITECTURES)}")
    taken = [device_rules.compiler_option(option) for option in options]
    taken = [_OLDER_STANDARD.sub(r"-std=\1++20", option) for option in taken if not _NOT_TAKEN.fullmatch(option)]
    return ["-std=c++20", *taken]


# ---- a file

# What g++ ends with where the addresses at which precompiled headers were made are taken: as the system lays them out.
_NOT_MAPPED = re.compile(r"fatal error: .*\bPCH\b")


class Source:
    """A file of kernels: preprocessed, read, and compiled.

    `options` are the compiler's. With `launches` it is compiled as for a device: the macros by which files tell that
    the host's compiler is at work (`__CCE_KT_TEST__`, `ASCENDC_CPU_DEBUG`) are not defined, and each kernel has its
    aclrtlaunch_X.
    """

    def __init__(self, path: str | os.PathLike, options: list[str], launches: bool = False):
        self.path, self._launches = Path(path), launches
        taken = _for_host(_joined(options))
        self._dependencies = [option for option in taken if _FOR_DEPENDENCIES.match(option)]
        taken = [option for option in taken if option not in self._dependencies]
        self._preprocessor = [option for option in taken if _FOR_PREPROCESSOR.match(option)]
        # A product and a sum are rounded one by one, on every processor.
        self._compiler = [os.environ.get("CXX", "g++")]
        self._compiler += _words([option for option in taken if option not in self._preprocessor])
        self._compiler += ["-fPIC", "-ffp-contract=off"]
        key = [option for option in self._preprocessor if re.match(r"-D ?(?:ASCENDC_CPU_|_GLIBCXX_)", option)]
        self._precompiled = precompiled.include([*self._compiler, *_words(key)])

    @cached_property
    def text(self) -> str:
        """As the preprocessor gives it; with the words of kernels, and comments."""
        options = ["-E", "-CC", "-fpch-preprocess", *self._precompiled]
        options += ["-include", precompiled.HEADER, "-include", READ_BY]
        options += ["-DASCENDC_CPU_LAUNCHES"] if self._launches else []
        options += [*_words(self._preprocessor), *_words(self._dependencies)]
        # Ours last: where torch_npu's headers are given, ACL is theirs.
        system = any(option.startswith("-isystem") for option in self._preprocessor)
        ours = ["-isystem" if system else "-I", f"{HOME}/include"]
        text = self._run([*options, *ours, "-x", "c++", str(self.path)])
        self._without_cache(self._precompiled)
        return _ATTRIBUTE.sub("__aicore__ ", text)

    @cached_property
    def kernels(self) -> dict[str, tuple[Parameter, ...]]:
        return kernels_of(self.text) | {name: each.parameters for name, each in self.templates.items()}

    @cached_property
    def templates(self) -> dict[str, Kernel]:
        """The kernels among them whose instances ASCENDC_TPL_SEL selects, by tiling key: a launch has none."""
        if self._launches or _TEMPLATES not in self.text:
            return {}
        return {name: each for name, each in all_kernels_of(self.text).items() if each.template is not None}

    def check(self) -> None:
        """Raises what the device's compiler would say."""
        if self.kernels and not re.search(r'^# \d+ "[^"]*/kernel_operator\.h"', self.text, flags=re.MULTILINE):
            raise CompileError(f'{self.path}: does not include "kernel_operator.h"')  # its names are there even so
        if broken := device_rules.broken(self.text):
            raise CompileError("\n".join([f"{self.path}: the device's compiler would not take it", *broken]))

    def compile(self, options: list[str], more: str = "") -> str:
        """Compiles it, and `more` behind it, by these options; what the compiler warned of."""
        try:
            return self._compile(options, more)
        except CompileError as error:
            if not self._precompiled or not _NOT_MAPPED.search(str(error)):
                raise
            self._precompiled = []
            del self.text
            return self._compile(options, more)

    def _compile(self, options: list[str], more: str) -> str:
        text = _with_launches(device_rules.without_words(self.text))
        full_names = device_rules.full_names(self.text) if self.kernels else {}
        for name, parameters in self.kernels.items():
            full_name = full_names.get(name, name)
            if name in self.templates:
                templates = full_names.get(_TEMPLATES, _TEMPLATES)
                text += _template_entries(name, full_name, self.templates[name], templates)
                continue
            text += _entries(name, full_name, parameters)
            text += _launch_function(name, full_name, parameters) if self._launches else ""
        self.warnings = ""
        self._run(["-x", "c++-cpp-output", "-", *options], text + more)
        return self.warnings

    def _run(self, options: list[str], source: str | None = None) -> str:
        run = functools.partial(subprocess.run, input=source, text=True, capture_output=True)
        done = run([*self._compiler, *options])
        if done.returncode != 0 and _CHANGED_MEANING in done.stderr:
            permitted = run([*self._compiler, *options, "-fpermissive"])
            others = [line for line in permitted.stderr.splitlines() if "[-fpermissive]" in line]
            done = permitted if all(_CHANGED_MEANING in line for line in others) else done
        if done.returncode != 0:
            missing = "".join(f"{line}\n" for line in missing_in(done.stderr))
            raise CompileError(f"{missing}{self.path} does not compile:\n{done.stderr}")
        self.warnings = done.stderr
        return done.stdout

    def _without_cache(self, found: list[str]) -> None:
        """Takes the precompiled headers out of the list of files that the object depends on: they come and go."""
        files = [option[4:] for option in self._dependencies if option.startswith("-MF ")]
        for file in files if found else ():
            cache = re.escape(found[0].removeprefix("-I"))
            listed = Path(file).read_text()
            Path(file).write_text(re.sub(rf"[ \t]{cache}\S*", " ", listed))


# ---- the command

_SOURCE = re.compile(r"[^-].*\.(?:asc|cce|cpp|cc|cxx|c\+\+|C)")
LINKED = (f"-L{LIBRARIES}", "-lascendc_cpu", "-lascendcl")


def _compile_object(source: str, options: list[str], output: str) -> None:
    if not any(option.startswith("-MF ") for option in options):
        dependencies = [option for option in options if option in ("-MD", "-MMD")]
        options = [*options, *(f"-MF {Path(output).with_suffix('.d')}" for _ in dependencies)]
    if any(option in ("-MD", "-MMD") for option in options) and not any(re.match("-M[TQ] ", o) for o in options):
        options = [*options, f"-MQ {output}"]
    file = Source(source, _words(options), launches=True)
    file.check()
    print(file.compile(["-c", "-o", output]), end="", file=sys.stderr)


def _write_launch_headers(folder: str, sources: list[str], options: list[str]) -> None:
    """The headers of all files, and no others; those that stay the same stay untouched."""
    headers, dependencies = {}, []
    written = [option[4:] for option in options if option.startswith("-MF ")]
    options = [option for option in options if not option.startswith("-MF ")]
    with tempfile.TemporaryDirectory() as temporary:
        for source in sources:
            listed = Path(temporary, "listed")
            file = Source(source, _words([*options, *(f"-MF {listed}" for _ in written)]), launches=True)
            for name, parameters in file.kernels.items():
                headers[f"aclrtlaunch_{name}.h"] = launch_header(name, parameters, file.text)
            dependencies += [listed.read_text() for _ in written]
    for path in written:
        Path(path).write_text("".join(dependencies))
    Path(folder).mkdir(parents=True, exist_ok=True)
    for old in Path(folder).glob("aclrtlaunch_*.h"):
        if old.name not in headers:
            old.unlink()
    for name, text in headers.items():
        header = Path(folder, name)
        if not header.exists() or header.read_text() != text:
            header.write_text(text)


def _run(arguments: list[str]) -> int:
    options = _joined(arguments)
    sources = [option for option in options if _SOURCE.fullmatch(option)]
    outputs = [option[3:] for option in options if option.startswith("-o ")]
    folders = [option.partition("=")[2] for option in options if option.startswith("--launch-headers=")]
    rest = [
        option for option in options if option not in sources and not option.startswith(("-o ", "--launch-headers="))
    ]
    if folders:
        _write_launch_headers(folders[0], sources, [option for option in rest if option != "-c"])
        return 0
    if not sources or any(option in ("-E", "-S", "-M", "-MM") for option in rest):
        linked = [] if {"-E", "-S", "-M", "-MM", "-c", "--version", "-v"} & set(rest) or not rest else LINKED
        return subprocess.run([os.environ.get("CXX", "g++"), *_words(_for_host(options)), *linked]).returncode
    if "-c" in rest:
        rest.remove("-c")
        if len(sources) > 1 and outputs:
            raise CompileError("-o with -c takes one source")
        for source in sources:
            _compile_object(source, rest, outputs[0] if outputs else f"{Path(source).stem}.o")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for i, source in enumerate(sources):
            objects.append(os.path.join(folder, f"{i}.o"))
            _compile_object(
                source, [option for option in rest if not option.startswith(("-l", "-L", "-Wl,"))], objects[-1]
            )
        linked = [*objects, *_words(_for_host([option for option in options if option not in sources])), *LINKED]
        return subprocess.run([os.environ.get("CXX", "g++"), *linked]).returncode


def main() -> int:
    try:
        return _run(sys.argv[1:])
    except CompileError as error:
        print(str(error).rstrip("\n"), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
