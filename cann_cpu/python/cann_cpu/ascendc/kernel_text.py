# SPDX-License-Identifier: Apache-2.0
"""Finds the kernels in the preprocessed text of a file: their names, parameters, templates and namespaces.

tree-sitter parses it without the headers, in milliseconds. A `__global__` that begins no kernel is an error with its
line.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .device_rules import WORDS

GLOBAL = b"__global__"
_TEMPLATE_PARAMETERS = {
    "type_parameter_declaration": "typename",
    "optional_type_parameter_declaration": "typename",
    "parameter_declaration": None,
    "optional_parameter_declaration": None,
}


class CompileError(RuntimeError):
    """A file of kernels does not compile."""


@dataclass(frozen=True)
class Parameter:
    name: str
    type: str


@dataclass(frozen=True)
class Kernel:
    full_name: str
    """With its namespaces."""
    parameters: tuple[Parameter, ...]
    template: tuple[str, ...] | None = None
    """The types of its template's parameters; `typename` of those that are types."""


@functools.lru_cache(maxsize=2)  # a file's texts for vector cores and for cube cores
def kernels_of(preprocessed: str) -> dict[str, Kernel]:
    """The kernels that a file defines, by name, those that are templates among them."""
    text = preprocessed.encode()
    tree, found = parsed(text), {}
    for word in re.finditer(GLOBAL, text):
        node = tree.root_node.descendant_for_byte_range(*word.span())
        if node.type in ("comment", "string_content", "raw_string_content", "character"):
            continue
        while node is not None and node.type not in ("function_definition", "declaration", "ERROR"):
            node = node.parent
        try:
            if node is not None and node.type == "declaration":
                continue  # its definition stands elsewhere
            if (kernel := _kernel(node)) is not None:
                found[kernel.full_name.rpartition("::")[2]] = kernel
        except ValueError as error:
            raise CompileError(f"{place(text, word.start())}: __global__ begins no kernel: {error}") from None
    return found


def namespace_of(preprocessed: str, name: str) -> str:
    """The scope of the first variable with this name, as `a::b::`; empty at the top level."""
    text = preprocessed.encode()
    for word in re.finditer(rf"\b{name}\b".encode(), text):
        node = parsed(text).root_node.descendant_for_byte_range(*word.span())
        if node.type == "identifier":
            return _namespaces(node)
    return ""


def structs_of(preprocessed: str) -> set[str]:
    """The classes, structs and unions that are defined in it, by their last names."""
    names = set()
    for node in _all(parsed(preprocessed.encode()).root_node):
        if node.type in ("class_specifier", "struct_specifier", "union_specifier"):
            name = node.child_by_field_name("name")
            if node.child_by_field_name("body") is not None and name is not None:
                names.add(_text(name).partition("<")[0].rpartition("::")[2])
            if node.parent.type == "type_definition":
                names.update(_text(each) for each in node.parent.children_by_field_name("declarator"))
    return names


_OF_THE_SYSTEM = re.compile(
    rb'^(# \d+ "(?:/usr/(?:include|lib)/|[^"\n]*/include/c\+\+/)[^"\n]*"[^\n]*\n)(.*?)(?=^# \d+ "|\Z)',
    re.MULTILINE | re.DOTALL,
)
"""The text of headers of the compiler and the system: they have no kernels, and the parser rejects parts of them."""


@functools.lru_cache(maxsize=1)
def parsed(text: bytes):
    import tree_sitter
    import tree_sitter_cpp

    text = _OF_THE_SYSTEM.sub(lambda hit: hit[1] + re.sub(rb"[^\n]", b" ", hit[2]), text)
    # An attribute of the same length marks a kernel; lines and the other words are no C++.
    blank = rb"^#[^\n]*|" + "|".join(WORDS).encode()
    marked = {GLOBAL: b"[[global]]"}
    code = re.sub(blank, lambda hit: marked.get(hit[0], b" " * len(hit[0])), text, flags=re.MULTILINE)
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language())).parse(code)


def place(text: bytes, position: int) -> str:
    """FILE:LINE by the preprocessor's lines."""
    file, line, begin = "", 1, 0
    for marker in re.finditer(rb'^# (\d+) "([^"]*)"[ \d]*\n', text[:position], flags=re.MULTILINE):
        file, line, begin = marker[2].decode(errors="replace"), int(marker[1]), marker.end()
    line += text.count(b"\n", begin, position)
    return f"{file}:{line}"


def _kernel(node) -> Kernel | None:
    """The kernel that a node defines; None for a specialization of a template. Raises ValueError with the reason
    where the node defines no kernel."""
    if node is None or node.type == "ERROR":
        raise ValueError("write `__global__ __aicore__ void NAME(PARAMETERS) {...}`")
    declarator = node.child_by_field_name("declarator")
    returned = node.child_by_field_name("type")
    wrong = [each for each in (*node.children, *_all(declarator)) if each.type == "ERROR" or each.is_missing]
    if wrong:
        raise ValueError(f"`{' '.join(_text(wrong[0]).split())}` is not understood")
    if declarator.type != "function_declarator" or returned is None or _text(returned) != "void":
        raise ValueError("it is not a function that returns void")
    name = declarator.child_by_field_name("declarator")
    if name.type == "template_function":
        return None
    if name.type != "identifier" or any(each.type == "field_declaration_list" for each in _outer(node)):
        raise ValueError(f"{_text(name)} is a member of a class")
    parameters = _parameters(declarator.child_by_field_name("parameters"))
    return Kernel(_namespaces(node) + _text(name), tuple(parameters), _template(node.parent))


def _parameters(listed) -> Iterator[Parameter]:
    """What `type name` or `type /*name*/` says."""
    children = [each for each in listed.children if each.type not in ("(", ")")]
    declared = [each for each in children if each.type not in (",", "comment")]
    if [_text(each) for each in declared] == ["void"]:
        return
    for position, each in enumerate(declared, 1):
        if each.type not in ("parameter_declaration", "optional_parameter_declaration"):
            raise ValueError(f"its parameter `{_text(each)}` is not understood")
        inner = [node for node in _all(each) if node.type == "identifier" and _names(node, each)]
        name = inner[0] if inner else None
        code = each.text
        if each.type == "optional_parameter_declaration":
            code = code[: next(child for child in each.children if child.type == "=").start_byte - each.start_byte]
        if name is not None:
            code = code[: name.start_byte - each.start_byte] + code[name.end_byte - each.start_byte :]
            text = _text(name)
        else:
            i = children.index(each)
            comments = [_text(node) for node in (*_all(each), *children[i + 1 : i + 2]) if node.type == "comment"]
            named = [re.fullmatch(r"/\*\s*(\w+)\s*\*/", comment) for comment in comments]
            text = next((match[1] for match in named if match), f"argument {position}")
        type_ = " ".join(re.sub(rb"/\*.*?\*/|//[^\n]*", b" ", code, flags=re.DOTALL).decode().split())
        yield Parameter(text, type_)


def _names(identifier, parameter) -> bool:
    """Whether the identifier is the parameter's name: only declarators stand between the two."""
    node = identifier
    while node != parameter:
        outer = node.parent
        if outer == parameter:
            return outer.child_by_field_name("declarator") == node
        by_field = outer.child_by_field_name("declarator")
        if by_field is not None and by_field != node:
            return False
        if by_field is None and outer.type not in ("reference_declarator", "parenthesized_declarator"):
            return False
        node = outer
    return False


def _template(outer) -> tuple[str, ...] | None:
    if outer is None or outer.type != "template_declaration":
        return None
    kinds = []
    for each in outer.child_by_field_name("parameters").named_children:
        if each.type == "comment":
            continue
        if each.type not in _TEMPLATE_PARAMETERS:
            raise ValueError(f"the parameter `{_text(each)}` of its template is not understood")
        kinds.append(_TEMPLATE_PARAMETERS[each.type] or _text(each.child_by_field_name("type")))
    return tuple(kinds)


def _outer(node) -> Iterator:
    while (node := node.parent) is not None:
        yield node


def _namespaces(node) -> str:
    names = [each.child_by_field_name("name") for each in _outer(node) if each.type == "namespace_definition"]
    return "".join(f"{_text(name)}::" for name in reversed(names) if name is not None)


def _all(node) -> Iterator:
    rest = [node]
    while rest:
        rest += reversed((each := rest.pop()).children)
        yield each


def _text(node) -> str:
    return node.text.decode(errors="replace")
