# SPDX-License-Identifier: Apache-2.0
"""Finds code in kernels that g++ compiles and the device's compiler rejects.

g++ knows no address spaces, and gives kernels the host's library. So the text of kernels is read: functions that are
marked `__global__` or `__aicore__`, and classes that have such. It is the preprocessor's text, in which these words
still stand, by OPTIONS; without_words takes them out for the compiler.
"""

import functools
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from ..activation import HOME

WORDS = ("__global__", "__aicore__", "__gm__")
OPTIONS = ("-E", "-CC", *(f"-D{word}={word}" for word in WORDS))
HEADERS = Path(HOME, "include")

_AUTO_SYNC = "--cce-auto-sync"

_HOST_TYPES = """any basic_string bitset deque forward_list function list map multimap multiset mutex optional
    priority_queue queue set shared_ptr stack string stringstream thread unique_ptr unordered_map unordered_set
    variant vector"""
_HOST = (rf"\bstd::(?:{'|'.join(_HOST_TYPES.split())})\b", "is the host's; use an array, a TBuf or a tensor")
_DOUBLE = (
    r"(?<!constexpr )(?<!constexpr const )(?<!constexpr static )\bdouble\b(?=\s+\w|\s*[(){*&]|>\s*\()",
    "the device has none; use float",
)
_STATIC = (
    r"(?<!constexpr )(?<!const )\bstatic\b(?!\s+(?:inline\s+)?const(?:expr)?\b)",
    "of a function; use a member or constexpr",
)
_VIRTUAL = (r"\bvirtual\b", "the device calls no function by its address; use a template parameter")

# Casts to, and initialized, plain pointers: the pointer, and what is made to be one.
_QUALIFIERS = r"(?:(?:const|volatile)\s+)*"
_PLAIN = rf"{_QUALIFIERS}(?!__gm__|__ubuf__)[\w:]+(?:\s*<[^<>;]*>)?(?:\s+(?:const|int|char|long))*\s*\*+(?:\s*const)?"
_NO_MEMBER = r"(\w+)\b(?!\s*(?:\.|->|\(|\[|::))"
_TO_PLAIN = (
    rf"\b(?:reinterpret|static|const)_cast\s*<\s*({_PLAIN})\s*>\s*\(\s*{_NO_MEMBER}",
    rf"\(\s*({_PLAIN})\s*\)\s*\(?\s*{_NO_MEMBER}",
    rf"(?<![\w>:])({_PLAIN})\s*\w+\s*=\s*{_NO_MEMBER}\s*[;+]",
)


def without_words(preprocessed: str) -> str:
    """As the compiler takes it."""
    return re.sub("|".join(WORDS), "", preprocessed)


def compiler_option(option: str) -> str:
    """An option of the device's compiler as g++ takes it, or the option itself."""
    name, _, value = option.partition("=")
    return f"-DASCENDC_CPU_AUTO_SYNC={'Off' if value == 'off' else 'On'}" if name == _AUTO_SYNC else option


def broken(preprocessed: str) -> list[str]:
    """A line for each thing that the device's compiler would reject."""
    text = _read(preprocessed)
    found = set()

    def report(position: int, what: str) -> None:
        found.add((*text.place(position), " ".join(what.split())))

    def match(scope: "_Scope", *rules: tuple[str, str]) -> None:
        for pattern, why in rules:
            for hit in re.finditer(pattern, text.code[scope.begin : scope.end]):
                inner = text.innermost(scope.begin + hit.start())
                if inner is scope or (not scope.is_class and not (inner.is_class and pattern == _STATIC[0])):
                    report(scope.begin + hit.start(), f"{hit[0]}: {why}")

    for scope in text.scopes:
        if scope.is_class and any(inner.is_device for inner in scope.inner):
            match(scope, _HOST, _DOUBLE, _VIRTUAL)
            for inner in scope.inner:
                for hit in re.finditer(*_VIRTUAL[:1], text.code[inner.header : inner.begin]):
                    report(inner.header + hit.start(), f"{hit[0]}: {_VIRTUAL[1]}")
        if not scope.is_device:
            continue
        match(scope, _HOST, _DOUBLE, _STATIC)
        known = text.code[scope.header : scope.end] + (text.own_code(scope.outer) if scope.outer.is_class else "")
        addresses = set(re.findall(r"__gm__\b[^;,(){}=]*?\*+\s*(?:const\s+|__restrict\w*\s+)*(\w+)", known))
        for pattern in _TO_PLAIN:
            for hit in re.finditer(pattern, text.code[scope.begin : scope.end]):
                start = scope.begin + hit.start()
                qualified = re.search(rf"__(?:gm|ubuf)__\s+{_QUALIFIERS}$", text.code[max(0, start - 60) : start])
                if hit[2] in addresses and not qualified and not re.match(r"(?:const\s+)?auto\b", hit[1]):
                    cure = f"write __gm__ {hit[1]}, or use a GlobalTensor"
                    report(start, f"{hit[1]}: {hit[2]} lies in device memory; {cure}")
        if scope.is_kernel:
            for begin, parameter in text.parameters(scope):
                if "*" in parameter and "__gm__" not in parameter:
                    report(begin, f"{parameter}: a kernel's addresses are of device memory; write __gm__ {parameter}")
    return [f"{file}:{line}: {what}" for file, line, what in sorted(found)]


@dataclass(eq=False)
class _Scope:
    """What stands between braces, and where what is before them begins."""

    header: int
    begin: int
    outer: "_Scope | None"
    is_class: bool = False
    is_device: bool = False
    is_kernel: bool = False
    end: int = 0
    inner: "list[_Scope]" = field(default_factory=list)


class _Text:
    """The author's part of preprocessed text: no headers of the system, nor ours; comments and literals are blanks."""

    def __init__(self, preprocessed: str):
        parts, self._starts, self._places, length = [], [], [], 0
        markers = [*re.finditer(r'^# (\d+) "([^"]*)"([ \d]*)\n', preprocessed, flags=re.MULTILINE)]
        for marker, following in zip(markers, [*markers[1:], None], strict=True):
            line, file, flags = marker.groups()
            if "3" in flags or file.startswith(("<", str(HEADERS))):
                continue
            parts.append(preprocessed[marker.end() : following.start() if following else None])
            self._starts.append(length)
            self._places.append((file, int(line)))
            length += len(parts[-1])
        blanks = r"//[^\n]*|/\*.*?\*/|^#[^\n]*|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"
        blank = lambda hit: re.sub(r"[^\n]", " ", hit[0])  # noqa: E731
        self.code = re.sub(blanks, blank, "".join(parts), flags=re.DOTALL | re.MULTILINE)
        self.scopes: list[_Scope] = []
        self._file = _Scope(0, 0, None, end=len(self.code))
        self._find_scopes()

    def place(self, position: int) -> tuple[str, int]:
        part = bisect_right(self._starts, position) - 1
        file, line = self._places[part]
        return file, line + self.code.count("\n", self._starts[part], position)

    def own_code(self, scope: _Scope) -> str:
        """The code in it, without that of nested scopes."""
        parts, begin = [], scope.begin
        for inner in scope.inner:
            parts.append(self.code[begin : inner.begin])
            begin = inner.end
        return "".join([*parts, self.code[begin : scope.end]])

    def innermost(self, position: int) -> _Scope:
        scope = self._file
        while deeper := next((inner for inner in scope.inner if inner.begin <= position < inner.end), None):
            scope = deeper
        return scope

    def parameters(self, kernel: _Scope):
        """Where the parameters of a kernel begin, and they."""
        found = re.search(r"\bvoid\s+\w+\s*\(", self.code[kernel.header : kernel.begin])
        begin = i = kernel.header + found.end() if found else kernel.begin
        depth = 0
        while i < kernel.begin and depth >= 0:
            depth += (self.code[i] in "([{<") - (self.code[i] in ")]}>")
            if depth < 0 or (depth == 0 and self.code[i] == ","):
                blank = len(self.code[begin:i]) - len(self.code[begin:i].lstrip())
                yield begin + blank, self.code[begin:i].strip()
                begin = i + 1
            i += 1

    def _find_scopes(self) -> None:
        scope, header = self._file, 0
        for brace in re.finditer(r"[{};]", self.code):
            if brace[0] == "{":
                before = self.code[header : brace.start()]
                last = scope.inner[-1] if scope.inner else None
                if last and last.is_device and last.end + 1 == header and re.match(r"\s*(?:,|$)", before):
                    # What was taken for the body initializes a member.
                    header, before = last.header, self.code[last.header : brace.start()]
                    last.is_device = last.is_kernel = False
                scope = self._begin(scope, header, brace.start(), before)
            elif brace[0] == "}" and scope.outer:
                scope.end = brace.start()
                scope = scope.outer
            header = brace.end()

    def _begin(self, outer: _Scope, header: int, brace: int, before: str) -> _Scope:
        scope = _Scope(header, brace + 1, outer, end=len(self.code))
        skipped = r"(?:\s|(?:public|private|protected)\s*:|template\s*<[^{};]*>\s*(?=class|struct|union)|typedef\s)*"
        is_type = re.match(rf"{skipped}(?:class|struct|union)\b", before) is not None
        scope.is_class = is_type and not before.rstrip().endswith(")")
        scope.is_device = not scope.is_class and not outer.is_device and "__aicore__" in before
        scope.is_kernel = not scope.is_class and "__global__" in before
        scope.is_device |= scope.is_kernel
        outer.inner.append(scope)
        self.scopes.append(scope)
        return scope


@functools.lru_cache(maxsize=1)
def _read(preprocessed: str) -> _Text:
    return _Text(preprocessed)
