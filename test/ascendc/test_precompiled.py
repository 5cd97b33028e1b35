# SPDX-License-Identifier: Apache-2.0
"""Kernels compile from precompiled headers, and to the same without them."""

import os
import time

import numpy as np
import pytest
from cann_cpu.ascendc import precompiled
from cann_cpu.kernel import KernelError, KernelFile

SOURCE = """#include "kernel_operator.h"
#ifndef UNIT
#define UNIT 1
#endif
extern "C" __global__ __aicore__ void fill(GM_ADDR y) {
  AscendC::GlobalTensor<int32_t> out;
  out.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y));
  out.SetValue(0, UNIT * __CCE_AICORE__);
  AscendC::DataCacheCleanAndInvalid<int32_t, AscendC::CacheLine::SINGLE_CACHE_LINE>(out);
}
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "fill.cpp"
    path.write_text(SOURCE)
    return path


def filled(source, *options):
    y = np.zeros(16, np.int32)
    KernelFile(source, options)["fill"](y)
    return y[0]


def headers(cache):
    return list(cache.rglob("*.gch"))


def test_headers_are_compiled_once_for_all_macros_of_kernels(source, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert filled(source) == 220
    (made,) = headers(tmp_path)
    stamp = made.stat().st_mtime_ns
    assert filled(source, "-DUNIT=2") == 440
    assert filled(source, "-D__CCE_AICORE__=7") == 7, "the precompiled headers know another value"
    assert filled(source, "-Wall", "-Wextra", "-Wno-unused-variable") == 220
    assert [file.stat().st_mtime_ns for file in headers(tmp_path)] == [stamp]


def test_a_cache_that_cannot_be_written_is_done_without(source, tmp_path, monkeypatch):
    occupied = tmp_path / "occupied"
    occupied.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    assert filled(source) == 220


def test_a_machine_without_a_home_has_no_cache(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(precompiled.Path, "home", home)
    assert precompiled.include(["g++"]) == []


COMPILER = """#!/bin/bash
cat > {folder}/text.$$
echo "$*" >> {folder}/calls
if [[ "$*" == *c++-cpp-output* ]] && grep -q pch_preprocess {folder}/text.$$; then
  echo "cc1plus: fatal error: had to relocate PCH" >&2
  exit 1
fi
exec g++ "$@" < {folder}/text.$$
"""


def test_headers_that_cannot_be_mapped_are_done_without(source, tmp_path, monkeypatch, capfd):
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(folder=tmp_path))
    compiler.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(compiler))
    assert filled(source) == 220
    assert capfd.readouterr() == ("", "")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("c++-cpp-output" in call for call in calls) == 2
    source.write_text(SOURCE.replace("GM_ADDR y", "GM_ADDR z"))
    (tmp_path / "calls").unlink()
    with pytest.raises(KernelError, match="was not declared"):
        filled(source)
    assert sum("c++-cpp-output" in call for call in (tmp_path / "calls").read_text().splitlines()) == 2


def test_the_key_is_of_the_compiler_its_options_and_the_headers(tmp_path, monkeypatch):
    header = tmp_path / "include" / "a.h"
    header.parent.mkdir()
    header.write_text("")
    monkeypatch.setattr(precompiled, "HOME", str(tmp_path))
    first, *others = (precompiled._key(command) for command in (["g++", "-O2"], ["g++", "-O0"], ["cc", "-O2"]))
    os.utime(header, (0, 0))
    assert precompiled._key(["g++", "-O2"]) == first, "installed anew"
    header.write_text(" ")
    assert len({first, *others, precompiled._key(["g++", "-O2"])}) == 4


def test_headers_that_nobody_used_for_long_are_removed(source, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    old, recent = tmp_path / "cann_cpu" / "old", tmp_path / "cann_cpu" / "recent"
    for place, days in ((old, 31), (recent, 29)):
        place.mkdir(parents=True)
        os.utime(place, (time.time() - days * 86400,) * 2)
    precompiled._remove_unused()
    assert (old.exists(), recent.exists()) == (False, True)
