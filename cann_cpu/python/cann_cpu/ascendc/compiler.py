# SPDX-License-Identifier: Apache-2.0
"""Compiles files of Ascend C kernels with g++: what KernelFile, `ascendc_library` and the language ASC have in common.

    python -m cann_cpu.ascendc.compiler [OPTION...] -c FILE -o FILE.o      (in the toolkit: bin/bisheng)

behaves as the device's compiler, and takes g++'s options and its own. A file may have host functions beside its
kernels: `kernel<<<blocks, l2ctrl, stream>>>(arguments...)` becomes a call, and each kernel X gets the functions
`ascendc_cpu_call_X`, by which other languages call it, and `aclrtlaunch_X`, which launches it on a stream.

    python -m cann_cpu.ascendc.compiler --launch-headers=FOLDER [OPTION...] -c FILE...

writes the headers that declare these, `aclrtlaunch_X.h`.
"""

import ctypes
import functools
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path

from ..activation import HOME, LIBRARIES
from ..chips import DEFAULT_ARCHITECTURE, architecture_of_environment
from . import device_rules, precompiled
from .api_names import missing_in
from .kernel_text import CompileError, Kernel, Parameter, kernels_of, namespace_of, structs_of

READ_BY = "ascendc/read_by_compiler.h"
_FOR_CORES = re.compile(rb"__DAV_(?:C220_|C310_)?(?:CUBE|VEC)__|\bg_coreType\b")
"""By these a file has other code for cube cores than for vector cores."""
_TEMPLATES = "ascendc_templates"  # what ASCENDC_TPL_SEL defines
ARCHITECTURES = {
    **dict.fromkeys(("dav-2201", "dav-c220", "dav-c220-vec", "dav-c220-cube"), 2201),
    **dict.fromkeys(("dav-1001", "dav-c100"), 1001),
    **dict.fromkeys(("dav-2002", "dav-m200", "dav-m200-vec"), 2002),
    **dict.fromkeys(("dav-3002", "dav-m300"), 3002),
    **dict.fromkeys(("dav-3510", "dav-c310", "dav-c310-vec", "dav-c310-cube"), 3510),
}
"""What `--npu-arch` and `--cce-aicore-arch` may be, and `__NPU_ARCH__` then; by default it is that of CANN_CPU_SOC."""
_CORES_OF_KINDS = (2201, 3510)
"""Architectures with cube cores and vector cores. The device's compiler compiles a file of both kinds twice."""


# ---- the text that g++ compiles


_CHANGED_MEANING = "changes meaning of"
"""g++'s error for a member with a name that its class has used before. The device's compiler accepts it."""

_ATTRIBUTE = re.compile(r"\[\s*(?:host\s*,\s*)?aicore\s*\](?!\s*\()")
"""`__aicore__` as the device's compiler writes it itself; `[aicore](...)` is a lambda's."""


_LIBRARIES_OF_C = ctypes.CDLL("libm.so.6")  # and libc, which it needs


@functools.cache
def symbol_of(kernel: str) -> str:
    """What a kernel is called for g++: by its name, if no function of C has it, as asinh and div do on the host."""
    return f"{kernel}_kernel" if hasattr(_LIBRARIES_OF_C, kernel) else kernel


def _with_symbols(text: str, kernels: Collection[str]) -> str:
    """The kernels' declarations by their symbols."""
    for name in kernels:
        if (symbol := symbol_of(name)) != name:
            text = re.sub(rf"(__global__[^;{{}}]*?\b){name}(?=\s*\()", rf"\1{symbol}", text)
    return text


def _with_launches(text: str, kernels: Collection[str], by_core: bool) -> str:
    """kernel<<<blocks, ...>>>(...) is a call of launch_from_host."""
    parts, done = [], 0
    for launch in re.finditer(r"<<<((?:(?!<<<|>>>)[^;])*)>>>\s*\(", text):
        before = text[max(done, launch.start() - 200) : launch.start()]
        if kernel := re.search(r"((?:\w+\s*::\s*)*)(\w+)((?:\s*<[^;(){}]*>)?)\s*$", before):
            scope, name, template = kernel.groups()
            function = scope + (symbol_of(name) if name in kernels else name) + template
            function = f"{_of_cores(name)}({function})" if by_core and name in kernels else function
            parts += [text[done : launch.start() - len(before) + kernel.start()]]
            parts += [f'AscendC::cpu::launch_from_host("{scope}{name}{template}", {function}, {launch[1]})(']
            done = launch.end()
    return "".join([*parts, text[done:]])


def _code(text: str, kernels: Collection[str], by_core: bool = False) -> str:
    """A file's text as g++ compiles it."""
    return _with_launches(device_rules.without_words(_with_symbols(text, kernels)), kernels, by_core)


_EXPORTED = 'extern "C" __attribute__((visibility("default")))'


def _function(kernel: Kernel) -> str:
    namespaces, scope, name = kernel.full_name.rpartition("::")
    return namespaces + scope + symbol_of(name)


def _cube_function(name: str) -> str:
    """The variable with the function that a kernel is on cube cores."""
    return f"ascendc_cpu_cube_{name}"


def _of_cores(name: str) -> str:
    return f"ascendc_cpu_cores_{name}"


def _entries(name: str, kernel: Kernel, function: str) -> str:
    names = ",".join(parameter.name for parameter in kernel.parameters)
    return f"""
{_EXPORTED} const AscendC::cpu::KernelEntry* ascendc_cpu_kernel_{name}() {{
  static constexpr auto entry = AscendC::cpu::Entry<{function}>::entry("{name}", "{names}");
  return &entry;
}}
{_EXPORTED} bool ascendc_cpu_call_{name}(const AscendC::cpu::Call* call, char* error, size_t error_size) {{
  return AscendC::cpu::Entry<{function}>::call("{name}", *call, error, error_size);
}}
"""


def _launch_function(name: str, kernel: Kernel, function: str) -> str:
    places = range(len(kernel.parameters))
    declared = "".join(f", AscendC::cpu::HostParameter<{function}, {i}> a{i}" for i in places)
    given = "".join(f", a{i}" for i in places)
    return f"""
{_EXPORTED} uint32_t aclrtlaunch_{name}(uint32_t blocks, void* stream{declared}) {{
  return AscendC::cpu::Launcher<{function}>::launch(*ascendc_cpu_kernel_{name}(), blocks, stream{given});
}}
"""


_C_LINKAGE = re.compile(r'extern\s*"C"\s+(?=[^;{}"]*?\b__global__\b[^;{}"]*?\b(\w+)\s*\()')
"""What gives a kernel's declaration C linkage; the group is the kernel's name."""


def _host_function(name: str, kernel: Kernel, function: str, is_c: bool) -> str:
    """The host's function of the kernel's name, which the device's compiler makes: other files call it to launch."""
    types = [parameter.type for parameter in kernel.parameters]
    if kernel.full_name != name or symbol_of(name) != name or any(re.search(r"[\[(&=]", type_) for type_ in types):
        return ""
    declared = "".join(f", {type_} a{i}" for i, type_ in enumerate(types))
    given = ", ".join(f"a{i}" for i in range(len(types)))
    linkage = 'extern "C" ' if is_c else ""
    return f"""
static constexpr auto ascendc_cpu_launched_{name} = {function};
{linkage}__attribute__((visibility("default"))) void {name}(uint32_t blocks, void* l2, void* stream{declared}) {{
  AscendC::cpu::launch_from_host("{name}", ascendc_cpu_launched_{name}, blocks, l2, stream)({given});
}}
"""


def _template_entries(name: str, kernel: Kernel, templates: str) -> str:
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
  static constexpr auto kernel = &{_function(kernel)}<{arguments}>;
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
    """The name of a kernel's instances in the code after its file."""
    return f"ascendc_cpu_instances_of_{name}"


def launch_header(name: str, parameters: tuple[Parameter, ...], preprocessed: str) -> str:
    """aclrtlaunch_X.h. Addresses are void*, and what a kernel takes as a struct is given by its address."""

    def declared(parameter: Parameter, position: int) -> str:
        type_ = re.sub(r"\b(?:const|volatile|struct)\b", "", parameter.type).strip()
        by_address = re.search(r"[*\[]", type_) or type_.partition("<")[0].rpartition("::")[2].strip() in structs
        name = parameter.name if parameter.name.isidentifier() else f"argument{position}"
        name += "_" * (name in ("blockDim", "stream"))  # which the launch has itself
        return f"void* {name}" if by_address else f"{type_} {name}"

    structs = structs_of(preprocessed)
    listed = "".join(f", {declared(parameter, i)}" for i, parameter in enumerate(parameters, 1))
    guard = f"ACLRTLAUNCH_{name}_H"
    return f"""// Generated from the kernel {name}: launches it on a stream.
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


def _architecture(options: list[str]) -> int:
    architecture = None
    for option in options:
        if named := _ARCHITECTURE.fullmatch(option):
            if named[1] not in ARCHITECTURES:
                raise CompileError(f"{option}: there is {', '.join(ARCHITECTURES)}")
            architecture = ARCHITECTURES[named[1]]
    return architecture or architecture_of_environment()


def _for_host(options: list[str]) -> list[str]:
    """The options that g++ takes, in C++20 at least: the headers ask for it."""
    architecture = _architecture(options)
    taken = [device_rules.compiler_option(option) for option in options]
    taken = [_OLDER_STANDARD.sub(r"-std=\1++20", option) for option in taken if not _NOT_TAKEN.fullmatch(option)]
    if architecture != DEFAULT_ARCHITECTURE:
        taken.append(f"-D__NPU_ARCH__={architecture}")
    return ["-std=c++20", *taken]


# ---- a file


def _names_cores(preprocessed: str) -> bool:
    """Whether the author's files choose code by the kind of cores that it is compiled for."""
    files = set(re.findall(r'^# \d+ "([^"<]+)"', preprocessed, flags=re.MULTILINE))
    authors = [Path(file) for file in files if not file.startswith((HOME, "/usr/"))]
    return any(_FOR_CORES.search(path.read_bytes()) for path in authors if path.is_file())


def _lines_of_authors(preprocessed: str) -> Iterator[tuple[str, int, str]]:
    """The lines of code in the author's files: file, number, text."""
    file, number = "", 0
    for line in preprocessed.splitlines():
        if marker := re.match(r'# (\d+) "([^"]*)"', line):
            number, file = int(marker[1]) - 1, marker[2]
            continue
        number += 1
        if line.strip() and not file.startswith((HOME, "/usr/", "<")):
            yield file, number, line.strip()


# What g++ ends with where the addresses at which precompiled headers were made are taken: as the system lays them out.
_NOT_MAPPED = re.compile(r"fatal error: .*\bPCH\b")


class Source:
    """A file of kernels: preprocessed, read, and compiled.

    `options` are passed to the compiler. With `launches` the file is compiled as for a device: the macros that mark the
    host's compiler (`__CCE_KT_TEST__`, `ASCENDC_CPU_DEBUG`) are not defined, and each kernel has its aclrtlaunch_X.
    """

    def __init__(self, path: str | os.PathLike, options: list[str], launches: bool = False):
        self.path, self._launches = Path(path), launches
        given = _joined(options)
        if launches and not any(option.startswith("--cce-auto-sync") for option in given):
            given.append("--cce-auto-sync")  # the device's compiler has it on where hosts launch kernels
        taken = _for_host(given)
        self._has_cores_of_kinds = _architecture(given) in _CORES_OF_KINDS
        self._dependencies = [option for option in taken if _FOR_DEPENDENCIES.match(option)]
        taken = [option for option in taken if option not in self._dependencies]
        self._preprocessor = [option for option in taken if _FOR_PREPROCESSOR.match(option)]
        # A product and a sum are rounded one by one, on every processor.
        self._compiler = [os.environ.get("CXX", "g++")]
        self._compiler += _words([option for option in taken if option not in self._preprocessor])
        self._compiler += ["-fPIC", "-ffp-contract=off"]
        # Static members are each library's own, as on a device: two that are loaded may differ in what they call alike.
        self._compiler += ["-fno-gnu-unique"]
        of_headers = re.compile(r"-D ?(?:ASCENDC_CPU_|_GLIBCXX_|__NPU_ARCH__)")
        key = [option for option in self._preprocessor if of_headers.match(option)]
        self._precompiled = precompiled.include([*self._compiler, *_words(key)])

    @property
    def text(self) -> str:
        """As the preprocessor gives it, for vector cores where cube cores have another; with the words of kernels, and
        comments."""
        return self.texts[0]

    @cached_property
    def texts(self) -> list[str]:
        """`text`, and that of cube cores if the file may have other code for them.

        A kernel that is a template has one code for both, and the file must have no other.
        """
        text = self._preprocessed(self._dependencies)
        if not self._has_cores_of_kinds or not _names_cores(text):
            return [text]
        texts = [self._preprocessed([f"-DASCENDC_CPU_CORE=ASCENDC_CPU_{core}"]) for core in ("AIV", "AIC")]
        templates = [name for name, kernel in kernels_of(text).items() if kernel.template is not None]
        if not templates:
            return texts
        for lines in itertools.zip_longest(*map(_lines_of_authors, texts)):
            if lines[0] != lines[1]:
                path, number, _ = min(filter(None, lines), key=lambda line: line[1])
                raise CompileError(
                    f"{path}:{number}: here begins code that cube cores and vector cores do not have in common, and"
                    f" {templates[0]} is a template, which is compiled once for both; choose by ASCEND_IS_AIC and"
                    " ASCEND_IS_AIV, or launch a kernel that is no template"
                )
        return [text]

    def _preprocessed(self, more: list[str]) -> str:
        options = ["-E", "-CC", "-fpch-preprocess", *self._precompiled]
        options += ["-include", precompiled.HEADER, "-include", READ_BY]
        options += ["-DASCENDC_CPU_LAUNCHES"] if self._launches else []
        options += [*_words(self._preprocessor), *_words(more)]
        # Ours last: where torch_npu's headers are given, ACL is theirs.
        system = any(option.startswith("-isystem") for option in self._preprocessor)
        ours = ["-isystem" if system else "-I", f"{HOME}/include"]
        text = self._run([*options, *ours, "-x", "c++", str(self.path)])
        self._without_cache(self._precompiled if more is self._dependencies else [])
        return _ATTRIBUTE.sub("__aicore__ ", text)

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels that the file has instances of, by name; a template has the names of its instances."""
        plain = {name: each for name, each in kernels_of(self.text).items() if each.template is None}
        return plain | self.templates

    @property
    def templates(self) -> dict[str, Kernel]:
        """The kernels among them whose instances ASCENDC_TPL_SEL selects, by tiling key: a launch has none."""
        if self._launches or _TEMPLATES not in self.text:
            return {}
        return {name: each for name, each in kernels_of(self.text).items() if each.template is not None}

    def check(self) -> None:
        """Raises what the device's compiler would say."""
        if self.kernels and not re.search(r'^# \d+ "[^"]*/kernel_operator\.h"', self.text, flags=re.MULTILINE):
            raise CompileError(f'{self.path}: does not include "kernel_operator.h"')  # its names are there even so
        if broken := device_rules.broken(self.text):
            raise CompileError("\n".join([f"{self.path}: the device's compiler would not take it", *broken]))

    def compile(self, options: list[str], more: str = "") -> str:
        """Compiles the file, followed by `more`, with these options. Returns the compiler's warnings."""
        try:
            return self._compile(options, more)
        except CompileError as error:
            if not self._precompiled or not _NOT_MAPPED.search(str(error)):
                raise
            self._precompiled = []
            del self.texts
            return self._compile(options, more)

    def _compile(self, options: list[str], more: str) -> str:
        self.warnings = ""
        if len(self.texts) == 1:
            self._run(["-x", "c++-cpp-output", "-", *options], self._translated(self.text) + more)
            return self.warnings
        with tempfile.TemporaryDirectory() as folder:
            cube = self._compiled_for_cube(folder)
            text = self._translated(self.text, by_core=True) + more
            vectors = ["-x", "c++-cpp-output", "-", "-Wno-unused", "-Wno-unused-parameter"]  # cube cores may use it
            if "-c" not in options:
                self._run([*vectors, "-x", "none", cube, *options], text)
                return self.warnings
            vector = os.path.join(folder, "vector.o")
            self._run([*vectors, "-c", "-o", vector], text)
            warnings = self.warnings
            self._run(["-r", vector, cube, *(option for option in options if option != "-c")])
            return warnings

    def _translated(self, text: str, by_core: bool = False) -> str:
        """The C++ for one kind of cores, or for both: with the functions by which others call the kernels."""
        kernels = kernels_of(text)
        of_c = {each[1] for each in _C_LINKAGE.finditer(text)} if self._launches else set()
        # A launch's host function has the kernel's name.
        code = _code(_C_LINKAGE.sub("", text) if self._launches else text, kernels, by_core)
        host_functions = ""
        if by_core:
            declared = "".join(f"template <class K> K* {_of_cores(name)}(K*);\n" for name in kernels)
            code = re.sub(rf'(^# 1 "[^"]*{READ_BY}"[^\n]*\n)', rf"\g<1>{declared}", code, count=1, flags=re.MULTILINE)
        for name, kernel in kernels.items():
            if name in self.templates:
                code += _template_entries(name, kernel, namespace_of(text, _TEMPLATES) + _TEMPLATES)
            if kernel.template is not None:
                continue
            function = f"&{_function(kernel)}"
            if by_core:
                code += f'extern "C" const decltype({function}) {_cube_function(name)};\n'
                function = f"AscendC::cpu::OfCores<{function}, {_cube_function(name)}>::run"
                code += f"template <class K> K* {_of_cores(name)}(K*) {{ return {function}; }}\n"
            code += _entries(name, kernel, function)
            if self._launches:
                code += _launch_function(name, kernel, function)
                host_functions += _host_function(name, kernel, function, name in of_c)
        return code + host_functions  # after all code that refers to the kernels by name

    def _compiled_for_cube(self, folder: str) -> str:
        """The object of the code for cube cores.

        What it has in common with that for vector cores has other symbols there, as the two may differ in it, and
        nothing of it runs when it is loaded.
        """
        kernels = kernels_of(self.texts[1])
        text = _code(self.texts[1], kernels)
        variables = {_cube_function(name): f"&{_function(kernel)}" for name, kernel in kernels.items()}
        for variable, function in variables.items():
            text += f'extern "C" {{ extern constinit const decltype({function}) {variable} = {function}; }}\n'
        whole, renamed, names = (os.path.join(folder, name) for name in ("whole.o", "cube.o", "names"))
        self._run(["-x", "c++-cpp-output", "-", "-c", "-w", "-o", whole], text)
        listed = self._run_tool("nm", ["--defined-only", "--extern-only", "--format=posix", whole])
        symbols = {line.split()[0] for line in listed.splitlines()} - set(variables)
        Path(names).write_text("".join(f"{symbol} {symbol}.cube\n" for symbol in sorted(symbols)))
        # Without groups, which the linker would take for those of the other object.
        changes = [f"--redefine-syms={names}", "--remove-section=.group", "--remove-section=.init_array*"]
        self._run_tool("objcopy", [*changes, whole, renamed])
        return renamed

    def _run_tool(self, name: str, arguments: list[str]) -> str:
        found = subprocess.run([self._compiler[0], f"-print-prog-name={name}"], text=True, capture_output=True)
        done = subprocess.run([found.stdout.strip() or name, *arguments], text=True, capture_output=True)
        if done.returncode != 0:
            raise CompileError(f"{self.path}: {name} fails: {done.stderr}")
        return done.stdout

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
_OF_KERNELS = re.compile(r"-x ?(?:asc|cce)")
"""Says that a file is one of kernels whatever its name is, as vLLM-MindSpore's adv_step_flash.c."""
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
            for name, kernel in file.kernels.items():
                headers[f"aclrtlaunch_{name}.h"] = launch_header(name, kernel.parameters, file.text)
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
    of_kernels = any(_OF_KERNELS.fullmatch(option) for option in options)
    sources = [option for option in options if _SOURCE.fullmatch(option) or (of_kernels and option[0] != "-")]
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
