# SPDX-License-Identifier: Apache-2.0
"""Device memory: its account, its limit, what is known of an address; pinned memory; virtual memory."""

import ctypes
import os
import subprocess
import sys

import pytest

MIB = 1 << 20
GRANULE = 2 * MIB


class Location(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint32), ("type", ctypes.c_int)]


class PointerAttributes(ctypes.Structure):
    _fields_ = [("location", Location), ("page_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32 * 4)]


class PhysicalMemory(ctypes.Structure):
    _fields_ = [
        ("handle_type", ctypes.c_int),
        ("allocation_type", ctypes.c_int),
        ("memory_attribute", ctypes.c_int),
        ("location", Location),
        ("reserve", ctypes.c_uint64),
    ]


HOST, DEVICE, UNREGISTERED = 0, 1, 2


def attributes(acl, address):
    found = PointerAttributes()
    acl.call("aclrtPointerGetAttributes", address, ctypes.byref(found))
    return found.location.type, found.location.id


GUARDED = pytest.mark.unchecked("memory", reason="under it buffers end at a page's end")


@GUARDED
@pytest.mark.parametrize("size", [1, 511, 512, 513, 1 << 20, (1 << 20) + 7])
def test_memory_is_aligned_counted_and_given_back(acl, size):
    free, total = acl.memory_info()
    with acl.device_memory(size) as address:
        assert address % 512 == 0
        taken = free - acl.memory_info()[0]
        assert size <= taken < size + 512
    assert acl.memory_info() == (free, total)


@GUARDED
@pytest.mark.skipif(not os.path.exists("/sys/kernel/mm/transparent_hugepage"), reason="the kernel has no huge pages")
@pytest.mark.parametrize("size", [4096, 2 * MIB, 5 * MIB + 512])
def test_memory_that_fills_huge_pages_asks_for_them(acl, size):
    with acl.device_memory(size) as address, open("/proc/self/smaps") as maps:
        flags = []
        for line in maps:
            first, _, last = line.partition(" ")[0].partition("-")
            if last:
                inside = int(first, 16) <= address < int(last, 16)
            elif inside and line.startswith("VmFlags:"):
                flags = line.split()[1:]
    if size >= 2 * MIB:
        assert address % (2 * MIB) == 0
    assert ("hg" in flags) == (size >= 2 * MIB)


def test_devices_have_accounts_of_their_own(acl):
    acl.call("aclrtSetDevice", 1)
    before = acl.memory_info()
    acl.call("aclrtSetDevice", 0)
    with acl.device_memory(MIB):
        acl.call("aclrtSetDevice", 1)
        assert acl.memory_info() == before
        acl.call("aclrtSetDevice", 0)


def test_past_the_limit_an_allocation_fails_and_takes_nothing(acl):
    free, total = acl.memory_info()
    with (
        acl.device_memory(free - MIB),
        pytest.raises(acl.AclError, match="Failed to allocate 2097152 bytes") as failure,
    ):
        acl.make("aclrtMallocAlign32", 2 * MIB, 0)
    assert failure.value.code == acl.RT_MEMORY_ALLOCATION
    assert "CANN_CPU_MEMORY" in failure.value.message
    assert acl.memory_info() == (free, total)


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**64 - 512])
def test_absurd_sizes_fail_as_out_of_memory(acl, size):
    with pytest.raises(acl.AclError) as failure:
        acl.make("aclrtMalloc", ctypes.c_uint64(size), 0)
    assert failure.value.code == acl.RT_MEMORY_ALLOCATION


@pytest.mark.parametrize(
    "setting, expected",
    [("1048576", 1 << 20), ("64K", 64 << 10), ("3M", 3 << 20), ("2G", 2 << 30), ("1T", 1 << 40)],
)
def test_the_limit_is_what_the_variable_says(setting, expected):
    program = (
        "import importlib.util, sys; "
        f"s = importlib.util.spec_from_file_location('acl', {acl_path()!r}); acl = importlib.util.module_from_spec(s); "
        "s.loader.exec_module(acl); acl.call('aclrtSetDevice', 0); print(acl.memory_info())"
    )
    result = run(program, CANN_CPU_MEMORY=setting)
    assert result.stdout.strip() == f"({expected}, {expected})", result.stderr


@pytest.mark.parametrize("setting", ["0", "-1", "1X", "G", "1 G", "1GG"])
def test_a_limit_that_is_none_is_rejected_with_its_name(setting):
    program = (
        "import importlib.util, sys; "
        f"s = importlib.util.spec_from_file_location('acl', {acl_path()!r}); acl = importlib.util.module_from_spec(s); "
        "s.loader.exec_module(acl); acl.call('aclrtSetDevice', 0); acl.memory_info()"
    )
    result = run(program, CANN_CPU_MEMORY=setting)
    assert result.returncode != 0 and f'CANN_CPU_MEMORY is "{setting}"' in result.stderr


def acl_path():
    return os.path.join(os.path.dirname(__file__), "acl.py")


def run(program, **variables):
    return subprocess.run(
        [sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("name", ["aclrtMalloc", "aclrtMallocAlign32"])
def test_size_zero_and_a_null_result_are_rejected(acl, name):
    for arguments in [(ctypes.byref(ctypes.c_void_p()), 0, 0), (None, 16, 0)]:
        with pytest.raises(acl.AclError, match=name) as failure:
            acl.call(name, *arguments)
        assert failure.value.code == acl.INVALID_PARAM


@pytest.mark.unchecked("memory", reason="frees what it must not")
def test_what_was_not_allocated_or_freed_already_is_not_freed(acl):
    with acl.device_memory(64) as address:
        with pytest.raises(acl.AclError, match="was given back already"):
            acl.call("aclrtFree", address + 32)
        with pytest.raises(acl.AclError):
            acl.call("aclrtFreeHost", address)
        acl.call("aclrtFree", address)
        with pytest.raises(acl.AclError):
            acl.call("aclrtFree", address)


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_freeing_waits_for_the_tasks_that_may_use_the_memory(acl, tasks):
    memory = acl.make("aclrtMallocAlign32", 8, 0)
    with acl.stream() as stream, acl.device_memory(8) as value:
        acl.call("aclrtMemset", value, 8, 0, 8)
        acl.check(acl.status(tasks.launch_rendezvous, stream, value, 1))
        acl.check(acl.status(tasks.launch_increment, stream, value))
        acl.call("aclrtFree", memory)
        assert acl.read(value, 8) == (2).to_bytes(8, "little")


def test_pinned_memory_is_known_as_host_memory(acl):
    with acl.pinned_memory(100) as pinned, acl.device_memory(100) as device:
        assert attributes(acl, pinned) == (HOST, 0) == attributes(acl, pinned + 99)
        assert attributes(acl, device) == (DEVICE, 0)
    pageable = ctypes.create_string_buffer(100)
    assert attributes(acl, ctypes.addressof(pageable))[0] == UNREGISTERED


def test_host_memory_can_be_registered_once_and_unregistered(acl):
    buffer = ctypes.create_string_buffer(4096)
    address = ctypes.addressof(buffer)
    acl.call("aclrtHostRegisterV2", address, 4096, 2)
    assert attributes(acl, address + 4095)[0] == HOST
    with pytest.raises(acl.AclError, match="overlap"):
        acl.call("aclrtHostRegisterV2", address + 4000, 4096, 2)
    acl.call("aclrtHostUnregister", address)
    assert attributes(acl, address)[0] == UNREGISTERED
    with pytest.raises(acl.AclError):
        acl.call("aclrtHostUnregister", address)


def test_peak_and_current_use_are_told(acl):
    info = (ctypes.c_uint64 * 64)()
    count = ctypes.c_size_t()
    with acl.device_memory(5 * MIB):
        acl.call("aclrtGetMemUsageInfo", 0, info, 1, ctypes.byref(count))
        used = info[4]
    acl.call("aclrtGetMemUsageInfo", 0, info, 1, ctypes.byref(count))
    assert count.value == 1
    assert info[4] == used - 5 * MIB
    assert info[5] >= used


class Reservation:
    """Reserved addresses, with granules of physical memory that can be mapped into them."""

    def __init__(self, acl, granules):
        self.acl = acl
        self.address = acl.make("aclrtReserveMemAddress", granules * GRANULE, 0, None, 1)
        self.handles, self.mapped = [], []

    def allocate(self, granules=1, device=0):
        properties = PhysicalMemory(location=Location(device, DEVICE))
        self.handles.append(self.acl.make("aclrtMallocPhysical", granules * GRANULE, ctypes.byref(properties), 0))
        return self.handles[-1]

    def map(self, index, handle, granules=1):
        address = self.address + index * GRANULE
        self.acl.call("aclrtMapMem", address, granules * GRANULE, 0, handle, 0)
        self.mapped.append(address)
        return address

    def unmap(self, address):
        self.acl.call("aclrtUnmapMem", address)
        self.mapped.remove(address)

    def close(self):
        for address in list(self.mapped):
            self.unmap(address)
        for handle in self.handles:
            self.acl.call("aclrtFreePhysical", handle)
        self.acl.call("aclrtReleaseMemAddress", self.address)


@pytest.fixture
def reservation(acl):
    made = Reservation(acl, granules=4)
    yield made
    made.close()


def test_mapped_memory_is_device_memory_across_neighbouring_mappings(acl, reservation):
    for index in range(3):
        reservation.map(index, reservation.allocate())
    assert attributes(acl, reservation.address + 3 * GRANULE - 1) == (DEVICE, 0)
    assert attributes(acl, reservation.address + 3 * GRANULE)[0] == UNREGISTERED
    acl.call("aclrtMemset", reservation.address, 3 * GRANULE, 7, 3 * GRANULE)
    with pytest.raises(acl.AclError, match="bytes left in its allocation"):
        acl.call("aclrtMemset", reservation.address + GRANULE, 3 * GRANULE, 7, 3 * GRANULE)
    assert acl.read(reservation.address + 3 * GRANULE - 2, 2) == b"\7\7"


def test_physical_memory_keeps_its_bytes_when_it_is_mapped_elsewhere(acl, reservation):
    handle = reservation.allocate()
    first = reservation.map(0, handle)
    acl.call("aclrtMemset", first, GRANULE, 42, GRANULE)
    reservation.unmap(first)
    assert acl.read(reservation.map(2, handle), 3) == b"***"


def test_physical_memory_is_counted_until_it_is_freed(acl, reservation):
    free, _ = acl.memory_info()
    handle = reservation.allocate(2)
    assert acl.memory_info()[0] == free - 2 * GRANULE
    reservation.handles.remove(handle)
    acl.call("aclrtFreePhysical", handle)
    assert acl.memory_info()[0] == free
    free_granules = free // GRANULE
    with pytest.raises(acl.AclError) as failure:
        reservation.allocate(free_granules + 1)
    assert failure.value.code == acl.RT_MEMORY_ALLOCATION


def test_wrong_mappings_are_rejected(acl, reservation):
    handle = reservation.allocate()
    reservation.map(0, handle)
    wrong = {
        "hold mapped memory already": lambda: reservation.map(0, handle),
        "are not reserved": lambda: reservation.map(4, handle),
        "the physical memory has": lambda: reservation.map(1, handle, granules=2),
        "no multiple": lambda: acl.call("aclrtMapMem", reservation.address + 512, GRANULE, 0, handle, 0),
        "nothing is mapped": lambda: acl.call("aclrtUnmapMem", reservation.address + GRANULE),
        "still holds mapped memory": lambda: acl.call("aclrtReleaseMemAddress", reservation.address),
        "was not reserved": lambda: acl.call("aclrtReleaseMemAddress", reservation.address + GRANULE),
    }
    for message, make_wrong in wrong.items():
        with pytest.raises(acl.AclError, match=message):
            make_wrong()
