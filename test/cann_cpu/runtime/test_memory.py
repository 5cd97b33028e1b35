# SPDX-License-Identifier: Apache-2.0
"""Device memory: its account, its limit, what is known of an address; pinned memory; virtual memory."""

import ctypes
import os
import subprocess
import sys
import threading

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
HBM_HUGE = 4


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
@pytest.mark.parametrize("size", [2 * MIB, 5 * MIB + 512])
def test_memory_that_fills_huge_pages_asks_for_them(acl, size):
    with acl.device_memory(size) as address, open("/proc/self/smaps") as maps:
        flags = []
        for line in maps:
            first, _, last = line.partition(" ")[0].partition("-")
            if last:
                inside = int(first, 16) <= address < int(last, 16)
            elif inside and line.startswith("VmFlags:"):
                flags = line.split()[1:]
    assert address % (2 * MIB) == 0
    assert "hg" in flags


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


@pytest.mark.parametrize("setting", ["0", "-1", "1X", "G", "1 G", "1GG", "16777216T", "18446744073709551615K"])
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


def test_pinned_memory_is_known_as_host_memory(acl):
    with acl.pinned_memory(100) as pinned, acl.device_memory(100) as device:
        assert attributes(acl, pinned) == (HOST, 0) == attributes(acl, pinned + 99)
        assert attributes(acl, device) == (DEVICE, 0)
    pageable = ctypes.create_string_buffer(100)
    assert attributes(acl, ctypes.addressof(pageable))[0] == UNREGISTERED


class HostAttribute(ctypes.Structure):
    _fields_ = (("attribute", ctypes.c_int), ("value", ctypes.c_uint32 * 2))


@pytest.mark.parametrize(
    "attribute, value, message",
    [
        (1, 7, None),
        (2, 1, None),
        (3, 1, None),
        (2, 99, "there is no device 99"),
        (3, 2, "vaFlag is 2; expected 0 or 1"),
        (0, 0, "attribute 0 of cfg is unknown"),
        (9, 0, "attribute 9 of cfg is unknown"),
    ],
)
def test_attributes_of_pinned_memory_are_true_or_rejected(acl, attribute, value, message):
    config = (ctypes.c_size_t * 2)(ctypes.addressof(given := HostAttribute(attribute, (value,))), 1)
    if message is None:
        address = acl.make("aclrtMallocHostWithCfg", 64, config)
        device = ctypes.c_void_p()
        acl.call("aclrtHostRegister", address, 64, 0, ctypes.byref(device))
        assert device.value == address
        acl.call("aclrtHostUnregister", address)
        acl.call("aclrtFreeHost", address)
    else:
        with pytest.raises(acl.AclError, match=message):
            acl.make("aclrtMallocHostWithCfg", 64, config)
    assert given.attribute == attribute


def test_host_memory_can_be_registered_once_and_unregistered(acl):
    buffer = ctypes.create_string_buffer(3 * 4096)
    address = (ctypes.addressof(buffer) + 4095) // 4096 * 4096
    for arguments, message in (
        ((address + 1, 4096, 2), "is not aligned to 4096 bytes"),
        ((address, 4096, 0), "flag is 0; ACL_HOST_REG_MAPPED"),
    ):
        with pytest.raises(acl.AclError, match=message) as failure:
            acl.call("aclrtHostRegisterV2", *arguments)
        assert failure.value.code == acl.RT_PARAM_INVALID
    acl.call("aclrtHostRegisterV2", address, 8192, 0x10000000)
    with pytest.raises(acl.AclError, match="aclrtHostRegister has mapped") as failure:
        acl.call("aclrtHostGetDevicePointer", address, ctypes.byref(ctypes.c_void_p()), 0)
    assert failure.value.code == acl.RT_PARAM_INVALID
    acl.call("aclrtHostUnregister", address)
    acl.call("aclrtHostRegisterV2", address, 8192, 2)
    result = ctypes.c_void_p()
    acl.call("aclrtHostGetDevicePointer", address + 4096, ctypes.byref(result), 0)
    assert result.value == address + 4096
    assert attributes(acl, address + 8191)[0] == HOST
    with pytest.raises(acl.AclError, match="overlap"):
        acl.call("aclrtHostRegisterV2", address + 4096, 4096, 2)
    acl.call("aclrtHostUnregister", address)
    assert attributes(acl, address)[0] == UNREGISTERED
    with pytest.raises(acl.AclError):
        acl.call("aclrtHostUnregister", address)


def test_pinned_memory_can_be_mapped_and_is_pinned_still_when_it_is_not_mapped_any_more(acl):
    result = ctypes.c_void_p()
    with acl.pinned_memory(100) as pinned:
        with pytest.raises(acl.AclError, match="aclrtHostRegister has mapped"):
            acl.call("aclrtHostGetDevicePointer", pinned, ctypes.byref(result), 0)
        for _ in range(2):
            acl.call("aclrtHostRegister", pinned, 100, 0, ctypes.byref(result))
            assert result.value == pinned
            acl.call("aclrtHostGetDevicePointer", pinned + 9, ctypes.byref(result), 0)
            assert result.value == pinned + 9
            with pytest.raises(acl.AclError, match="overlap"):
                acl.call("aclrtHostRegisterV2", pinned, 100, 2)
            acl.call("aclrtHostUnregister", pinned)
            assert attributes(acl, pinned)[0] == HOST


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
        properties = PhysicalMemory(memory_attribute=HBM_HUGE, location=Location(device, DEVICE))
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


@pytest.mark.parametrize("device", [0, 1])
def test_unmapping_waits_for_no_stream_and_leaves_the_memory_to_tasks(acl, reservation, tasks, device):
    """A mapping at the same addresses waits for them."""
    address = reservation.map(0, reservation.allocate())
    acl.call("aclrtMemset", address, 16, 0, 16)
    arrived = ctypes.c_int64(0)
    acl.call("aclrtSetDevice", device)
    with acl.stream() as stream:
        acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(arrived), 2))
        acl.check(acl.status(tasks.launch_increment, stream, address))
        acl.call("aclrtSetDevice", 0)
        reservation.unmap(address)
        again = threading.Thread(target=reservation.map, args=(0, reservation.allocate()))
        again.start()
        again.join(0.2)
        assert again.is_alive()
        arrived.value = 2
        again.join(10)
        assert acl.read(address, 8) == bytes(8)
        acl.call("aclrtSetDevice", device)
        acl.call("aclrtSynchronizeStream", stream)
    acl.call("aclrtSetDevice", 0)


def test_addresses_are_given_back_behind_the_tasks_that_use_what_was_mapped_there(acl, tasks):
    reservation = Reservation(acl, granules=1)
    address = reservation.map(0, reservation.allocate())
    arrived = ctypes.c_int64(0)
    free, _ = acl.memory_info()
    with acl.stream() as stream:
        acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(arrived), 2))
        acl.check(acl.status(tasks.launch_increment, stream, address))
        reservation.close()
        assert acl.memory_info()[0] == free + GRANULE
        arrived.value = 2
        acl.call("aclrtSynchronizeStream", stream)


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
        "size is 4194304; the physical memory has 2097152": lambda: reservation.map(1, handle, granules=2),
        "size is 2097152; the physical memory has 4194304": lambda: reservation.map(1, reservation.allocate(2)),
        "flags is 3; it must be 0$": lambda: acl.call("aclrtMapMem", reservation.address, GRANULE, 0, handle, 3),
        "flags is 9; it must be 0 or 1": lambda: acl.make("aclrtReserveMemAddress", GRANULE, 0, None, 9),
        "of device 1, and these addresses were given memory of device 0": lambda: reservation.map(
            1, reservation.allocate(device=1)
        ),
        "no multiple": lambda: acl.call("aclrtMapMem", reservation.address + 512, GRANULE, 0, handle, 0),
        "nothing is mapped": lambda: acl.call("aclrtUnmapMem", reservation.address + GRANULE),
        "still holds mapped memory": lambda: acl.call("aclrtReleaseMemAddress", reservation.address),
        "was not reserved": lambda: acl.call("aclrtReleaseMemAddress", reservation.address + GRANULE),
    }
    for message, make_wrong in wrong.items():
        with pytest.raises(acl.AclError, match=message):
            make_wrong()


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"handle_type": 7}, "handleType is 7"),
        ({"allocation_type": 9}, "allocationType is 9"),
        ({"memory_attribute": 99}, "memAttr is 99"),
        ({"memory_attribute": 2}, "memAttr is 2"),
    ],
)
def test_properties_of_physical_memory_are_checked(acl, properties, message):
    wrong = PhysicalMemory(**({"memory_attribute": HBM_HUGE, "location": Location(0, DEVICE)} | properties))
    with pytest.raises(acl.AclError, match=message):
        acl.make("aclrtMallocPhysical", GRANULE, ctypes.byref(wrong), 0)
    with pytest.raises(acl.AclError, match=message):
        acl.call("aclrtMemGetAllocationGranularity", ctypes.byref(wrong), 0, ctypes.byref(ctypes.c_size_t()))


def test_physical_memory_is_whole_pages_of_its_kind(acl):
    huge, gigantic = (PhysicalMemory(memory_attribute=kind, location=Location(0, DEVICE)) for kind in (HBM_HUGE, 10))
    granularity = ctypes.c_size_t()
    for properties, expected in ((huge, GRANULE), (gigantic, 1 << 30)):
        acl.call("aclrtMemGetAllocationGranularity", ctypes.byref(properties), 0, ctypes.byref(granularity))
        assert granularity.value == expected
    free, _ = acl.memory_info()
    handle = acl.make("aclrtMallocPhysical", 1000, ctypes.byref(huge), 0)
    assert acl.memory_info()[0] == free - GRANULE
    acl.call("aclrtFreePhysical", handle)
    with pytest.raises(acl.AclError, match="flags is 5"):
        acl.make("aclrtMallocPhysical", GRANULE, ctypes.byref(huge), 5)
