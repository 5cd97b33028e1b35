# SPDX-License-Identifier: Apache-2.0
"""A device binary as CANN's compiler writes them: an ELF file for NPUs, whose global functions are kernels."""

import struct

NPU = 0x1029
GLOBAL_FUNCTION = 0x12
PROGBITS, SYMTAB, STRTAB, NOTE = 1, 2, 3, 7


def device_binary(functions: list[str], meta: dict[str, list[tuple[int, bytes]]] | None = None) -> bytes:
    """`meta` has types and values for the sections .ascend.meta.FUNCTION."""
    of_functions = {
        f".ascend.meta.{name}": b"".join(struct.pack("<HH", kind, len(value)) + value for kind, value in values)
        for name, values in (meta or {}).items()
    }
    names, place = table_of(functions)
    symbols = bytes(24) + b"".join(struct.pack("<IBBHQQ", place[f], GLOBAL_FUNCTION, 0, 1, 0, 16) for f in functions)
    section_names, named = table_of([".text", ".symtab", ".strtab", ".shstrtab", *of_functions])
    sections = [
        (".text", PROGBITS, bytes(16), 0),
        (".symtab", SYMTAB, symbols, 3),
        (".strtab", STRTAB, names, 0),
        (".shstrtab", STRTAB, section_names, 0),
        *((name, NOTE, content, 0) for name, content in of_functions.items()),
    ]
    contents, headers = b"", bytes(64)
    for name, kind, content, link in sections:
        headers += struct.pack("<IIQQQQIIQQ", named[name], kind, 0, 0, 64 + len(contents), len(content), link, 0, 1, 0)
        contents += content
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, NPU, 1, 0, 0, 64 + len(contents), 0, 64, 0, 0, 64, 1 + len(sections), 4)
    return header + contents + headers


def table_of(names: list[str]) -> tuple[bytes, dict[str, int]]:
    """A table of strings, and where each begins."""
    table, places = b"\0", {}
    for name in names:
        places[name] = len(table)
        table += name.encode() + b"\0"
    return table, places
