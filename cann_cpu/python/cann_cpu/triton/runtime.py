# SPDX-License-Identifier: Apache-2.0
"""What the backend asks of the runtime, libascendcl."""

import ctypes
import functools

AICORES, VECTOR_CORES = 101, 201  # ACL_DEV_ATTR_AICORE_CORE_NUM, ACL_DEV_ATTR_VECTOR_CORE_NUM
DEVICE = 1  # ACL_MEM_LOCATION_TYPE_DEVICE


class _Attributes(ctypes.Structure):
    """aclrtPtrAttributes."""

    _fields_ = (
        ("id", ctypes.c_uint32),
        ("type", ctypes.c_int),
        ("page", ctypes.c_uint32),
        ("rest", ctypes.c_uint32 * 4),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libascendcl.so")
    library.aclrtGetSocName.restype = ctypes.c_char_p
    library.aclrtGetDeviceInfo.argtypes = (ctypes.c_uint32, ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
    library.aclrtPointerGetAttributes.argtypes = (ctypes.c_void_p, ctypes.POINTER(_Attributes))
    return library


def chip() -> str:
    """The name of the chip, such as Ascend910B3."""
    return _library().aclrtGetSocName().decode()


def cores(device: int, kind: int) -> int:
    """The number of AI or of vector cores."""
    value = ctypes.c_int64()
    if code := _library().aclrtGetDeviceInfo(device, kind, ctypes.byref(value)):
        raise RuntimeError(f"aclrtGetDeviceInfo of device {device} returned {code}")
    return value.value


def is_device_memory(address: int) -> bool:
    """Whether an address is in an allocation of device memory."""
    attributes = _Attributes()
    return not _library().aclrtPointerGetAttributes(address, ctypes.byref(attributes)) and attributes.type == DEVICE
