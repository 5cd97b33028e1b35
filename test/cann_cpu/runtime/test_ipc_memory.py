# SPDX-License-Identifier: Apache-2.0
"""Device memory that processes share: aclrtIpcMem*, and tensors in the queues of torch.multiprocessing."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

SIZE = 4 << 20
FOR_ALL = 1


def export(acl, address, flags=FOR_ALL):
    key = ctypes.create_string_buffer(65)
    acl.call("aclrtIpcMemGetExportKey", address, SIZE, key, 65, flags)
    return key.value


def in_another_process(program):
    """Runs it with ACL; what it prints."""
    start = f"import ctypes, os, sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport acl\n"
    start += "acl.call('aclrtSetDevice', 0)\n"
    done = subprocess.run([sys.executable, "-c", start + program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


IMPORT = """
key = {key!r}
try:
    address = acl.make("aclrtIpcMemImportByKey", key, 1)
except acl.AclError as error:
    sys.exit(print(error))
"""
ADD_AND_READ = """
print(acl.read(address, 8), acl.memory_info()[0] == acl.memory_info()[1])
acl.call("aclrtMemset", address + 8, 8, 7, 8)
acl.call("aclrtSynchronizeDevice")
assert acl.make("aclrtIpcMemImportByKey", key, 1) == address
acl.call("aclrtIpcMemClose", key)
acl.read(address, 8)
acl.call("aclrtIpcMemClose", key)
try:
    acl.call("aclrtIpcMemClose", key)
except acl.AclError as error:
    print(error)
"""


def test_a_process_reads_and_writes_the_memory_of_another(acl):
    with acl.device_memory(SIZE) as address:
        acl.write(address, b"before..")
        key = export(acl, address)
        assert acl.read(address, 8) == b"before.."  # the pages have moved to a file
        acl.write(address, b"from one")
        said = in_another_process(IMPORT.format(key=key) + ADD_AND_READ)
        first, last = said.splitlines()
        assert first == "b'from one' True"
        assert "is not imported or exported by this process" in last
        assert acl.read(address + 8, 8) == b"\7" * 8
        acl.call("aclrtIpcMemClose", key)
        assert "is no longer exported" in in_another_process(IMPORT.format(key=key))


def test_what_is_exported_keeps_its_key(acl):
    with acl.device_memory(SIZE) as address:
        acl.write(address, b"from one")
        key = export(acl, address, flags=0)
        assert export(acl, address) == key  # and it is for all processes now
        assert "b'from one'" in in_another_process(IMPORT.format(key=key) + "print(acl.read(address, 8))")
        acl.call("aclrtIpcMemClose", key)
        assert export(acl, address) != key
        assert "is no longer exported" in in_another_process(IMPORT.format(key=key))


def test_who_has_imported_keeps_the_memory_when_it_is_freed(acl):
    address = acl.make("aclrtMallocAlign32", SIZE, 0)
    acl.write(address, b"is kept.")
    key = export(acl, address)
    program = IMPORT.format(key=key) + "print('ready', flush=True)\nsys.stdin.read(1)\nprint(acl.read(address, 8))"
    start = f"import ctypes, sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport acl\n"
    start += "acl.call('aclrtSetDevice', 0)\n"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", start + program], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        acl.call("aclrtFree", address)
        with acl.device_memory(SIZE) as other:  # may be the same pages
            acl.call("aclrtMemset", other, SIZE, 1, SIZE)
            assert process.communicate("x", timeout=60)[0] == "b'is kept.'\n"


def test_a_key_may_be_for_some_processes_only(acl):
    with acl.device_memory(SIZE) as address:
        acl.write(address, b"\0")
        key = export(acl, address, flags=0)
        program = IMPORT.format(key=key) + "print(acl.read(address, 1))"
        assert "aclrtIpcMemSetImportPid allows it" in in_another_process(program)
        allowing = "print(os.getpid(), flush=True); sys.stdin.readline()\n" + program
        start = f"import ctypes, os, sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport acl\n"
        start += "acl.call('aclrtSetDevice', 0)\n"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, "-c", start + allowing], **pipes) as process:
            pid = ctypes.c_int32(int(process.stdout.readline()))
            acl.call("aclrtIpcMemSetImportPid", key, ctypes.byref(pid), 1)
            assert process.communicate("\n", timeout=60)[0] == "b'\\x00'\n"


def test_what_cannot_be_shared_or_imported_is_said(acl):
    key = ctypes.create_string_buffer(65)
    out = ctypes.byref(ctypes.c_void_p())
    with acl.device_memory(SIZE) as address, acl.device_memory(512) as small:
        mine = export(acl, address)
        other = mine[:-1] + (b"0" if mine[-1:] != b"0" else b"1")
        for name, arguments, message in (
            ("aclrtIpcMemGetExportKey", (small, 512, key, 65, 1), "aclrtMalloc returned for 2 MiB or more"),
            ("aclrtIpcMemGetExportKey", (address + 512, 512, key, 65, 1), "has to be what aclrtMalloc returned"),
            ("aclrtIpcMemGetExportKey", (address, 2 * SIZE, key, 65, 1), "has 4194304 bytes left in its allocation"),
            ("aclrtIpcMemGetExportKey", (address, SIZE, key, 10, 1), "len is 10; a key has 65 bytes"),
            ("aclrtIpcMemGetExportKey", (address, SIZE, key, 65, 2), "flags is 0x2; expected 0 or 1"),
            ("aclrtIpcMemImportByKey", (out, b"cann_cpu:1:../../etc:00", 1), "is not a key of aclrtIpcMemGetExportKey"),
            ("aclrtIpcMemImportByKey", (out, b"cann_cpu:999999999:3:0123456789abcdef", 1), "does not share it"),
            ("aclrtIpcMemImportByKey", (out, other, 1), "is no longer exported"),
            ("aclrtIpcMemImportByKey", (out, mine, 4), "flags is 0x4; expected 0 or 1"),
            ("aclrtIpcMemClose", (other,), "is not imported or exported by this process"),
            ("aclrtIpcMemSetImportPid", (other, key, 1), "is not exported by this process"),
        ):  # fmt: skip
            with pytest.raises(acl.AclError, match=message):
                acl.call(name, *arguments)


QUEUES = """
import torch, torch_npu
import torch.multiprocessing as mp

def worker(received, answers):
    while (x := received.get()) is not None:
        answers.put((float(x.sum()), str(x.device), x.dtype))
        x += 1
        torch.npu.synchronize()
        answers.put("added")
        del x

if __name__ == "__main__":
    mp.set_start_method("spawn")
    received, answers = mp.Queue(), mp.Queue()
    process = mp.Process(target=worker, args=(received, answers))
    process.start()
    base = torch.arange(2048.0).npu()
    large, integers = torch.ones(3_000_000, dtype=torch.bfloat16).npu(), torch.ones(2, 3, dtype=torch.int64).npu()
    for x in (base, base[3:9], large, integers):
        expected = x.cpu() + 1
        before = float(x.sum())
        received.put(x)
        assert answers.get(timeout=100) == (before, "npu:0", x.dtype), x.dtype
        assert answers.get(timeout=100) == "added"
        assert torch.equal(x.cpu(), expected)
    received.put(None)
    process.join()
    assert process.exitcode == 0
    print("ended")
"""


def test_tensors_go_through_the_queues_of_torch_multiprocessing(tmp_path):
    (program := tmp_path / "program.py").write_text(QUEUES)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
