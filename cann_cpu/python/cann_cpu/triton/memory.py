# SPDX-License-Identifier: Apache-2.0
"""Loads, stores and atomics of all programs of a group, in place: device memory is memory of this process.

A pointer is an offset in elements into a region, which is the tensor that the launch was given. Offsets in affine form
become slices of memory; others are gathered and scattered.
"""

import ctypes
import os
import warnings

import numpy as np

from . import diagnostics, runtime
from .diagnostics import KernelError
from .values import INT1, Affine, PointerType, Value

ATOMICS = {
    "add": np.add,
    "fadd": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": None,
}


class Region:
    """The memory of a tensor: `bytes` from `address`, of a storage that may be larger."""

    def __init__(self, name, address, bytes, type, storage=None):
        self.name, self.address, self.bytes, self.type = name, address, bytes, type
        self.storage = storage or (address, bytes)
        self.arrays = {}
        self.writers = None

    @property
    def elements(self) -> int:
        return self.bytes // self.type.bytes

    def array(self, type) -> np.ndarray:
        """The memory as an array of what a type stores."""
        if type not in self.arrays:
            size = self.bytes // type.bytes * type.bytes
            buffer = (ctypes.c_char * size).from_address(self.address) if size else b""
            self.arrays[type] = np.frombuffer(buffer, type.memory)
        return self.arrays[type]

    def in_storage(self, offset) -> bool:
        address = self.address + offset * self.type.bytes
        return self.storage[0] <= address < self.storage[0] + self.storage[1]

    def view(self, type):
        """This region with elements of another type."""
        if type is self.type:
            return self
        other = Region(self.name, self.address, self.bytes, type, self.storage)
        other.arrays = self.arrays
        return other

    def absolute(self, pointer: Value, elements=True) -> Value:
        raise TypeError("only the region of all memory has absolute pointers")


class Everything(Region):
    """All memory, for pointers that a kernel computes or reads: their offset is an address in elements."""

    def __init__(self, regions):
        super().__init__("memory", 0, 1 << 62, INT1)
        self.regions = regions

    def absolute(self, pointer, elements=True):
        """A pointer into all memory; with elements=False an integer, the address in bytes."""
        region = pointer.region
        if region is None:
            return pointer
        unit = pointer.type.element.bytes
        start = region.address if region is not self else 0
        if elements and start % unit == 0:
            start, unit = start // unit, 1
        elif elements:
            raise KernelError("a pointer to an address that is not a multiple of its element's size")
        form = pointer.as_affine()
        if form:
            moved = Affine(form.start * unit + start, tuple(stride * unit for stride in form.strides), pointer.shape)
            return Value(pointer.type, pointer.shape, affine=moved, region=self if elements else None)
        return Value(pointer.type, pointer.shape, pointer.data * unit + start, region=self if elements else None)

    def pointer(self, number: Value, type: PointerType) -> Value:
        return Value(type, number.shape, number.data.astype(np.int64) // type.element.bytes, region=self)

    def find(self, address: int) -> Region | None:
        for region in self.regions:
            if region.address <= address < region.address + region.bytes:
                return region
        return None


class Memory:
    def __init__(self, engine, regions):
        self.engine = engine
        self.everything = Everything(regions)
        self.races = not engine.kernel.has_atomics

    @staticmethod
    def everywhere(mask: Value) -> bool:
        """Whether a mask is one True for all programs and lanes."""
        data = mask.data
        return bool(data.size == 1 or (data.size and not any(data.strides))) and bool(data.flat[0])

    def reinterpret(self, value, to: PointerType) -> Value:
        """A pointer as one to elements of another type."""
        if value.region is None:
            return self.everything.pointer(value, to)
        old, new = value.type.element.bytes, to.element.bytes
        if old == new:
            return Value(to, value.shape, value._data, value.affine, value.region, value.wrapped)
        form = value.as_affine()
        offsets = form.array(value.shape) if form else value.data
        scaled = offsets * old
        if (scaled % new).any():
            raise KernelError(f"{diagnostics.where()}: a pointer that is not aligned for elements of {new} bytes")
        return Value(to, value.shape, scaled // new, region=value.region, wrapped=value.wrapped)

    # what is accessed

    def _resolve(self, pointer: Value) -> tuple[Value, Region]:
        region = pointer.region
        if region is not self.everything:
            return pointer, region
        unit = pointer.type.element.bytes
        rows = pointer.data.reshape(len(pointer.data), -1) * unit
        low, high = int(rows.min()), int(rows.max())
        found = self.everything.find(low)
        if found is None or found is not self.everything.find(high):
            # Tensors whose addresses the kernel has read from memory.
            for address in np.unique([rows.min(1), rows.max(1)]):
                if self.everything.find(int(address)) is None and not runtime.is_device_memory(int(address)):
                    raise KernelError(
                        f"{diagnostics.where()}: address {int(address):#x} is neither in a tensor that was given to "
                        "the launch nor in device memory"
                    )
            found = Region("memory", low, high - low + unit, pointer.type.element)
        offset = (pointer.data * unit - found.address) // unit
        return Value(pointer.type, pointer.shape, offset, region=found), found

    def _prepare(self, kind, pointer: Value, mask: Value | None, masked=False):
        """Checks the bounds. Returns (pointer, region, array of memory, mask or None); None where no lane is active."""
        if mask is not None:
            if self.everywhere(mask):
                mask = None
            elif not mask.data.any():
                return None
        if mask is not None and pointer.region is self.everything:
            data = np.broadcast_to(pointer.data, np.broadcast_shapes(pointer.data.shape, mask.data.shape))
            kept = np.where(mask.data, data, data[np.broadcast_to(mask.data, data.shape)][0])
            pointer = Value(pointer.type, pointer.shape, kept, region=pointer.region)
        pointer, region = self._resolve(pointer)
        type = pointer.type.element
        memory = region.array(type)
        region = region.view(type)
        low, high = pointer.bounds
        if low < 0 or high >= len(memory):
            wrong = (pointer.data < 0) | (pointer.data >= len(memory))
            if mask is not None:
                wrong = wrong & mask.data
            if wrong.any():
                self._wrapped(kind, region, pointer, mask)
                if kind == "load" and loads_reach_all_memory():
                    found = self._around(region, pointer, mask)
                    if found is not None:
                        return found
                diagnostics.outside(self.engine, kind, region, pointer.data, wrong, masked or mask is not None)
        if pointer.wrapped is not None:
            self._wrapped(kind, region, pointer, mask)
        return pointer, region, memory, mask

    @staticmethod
    def _around(region, pointer: Value, mask: Value | None):
        """What _prepare returns for elements around a tensor, as an NPU reads them; None if there is no memory."""
        offsets = pointer.data
        if mask is not None:
            active = np.broadcast_to(mask.data, np.broadcast_shapes(offsets.shape, mask.data.shape))
            offsets = np.where(active, offsets, np.broadcast_to(offsets, active.shape)[active][0])
        low, high = int(offsets.min()), int(offsets.max())
        unit = region.type.bytes
        if not all(runtime.is_device_memory(region.address + offset * unit) for offset in (low, high)):
            return None
        warnings.warn(
            f"{diagnostics.where()}: tl.load outside of `{region.name}`, elements {low} to {high} of {region.elements}",
            RuntimeWarning,
            stacklevel=2,
        )
        found = Region(region.name, region.address + low * unit, (high - low + 1) * unit, region.type)
        pointer = Value(pointer.type, pointer.shape, offsets - low, region=found)
        return pointer, found, found.array(region.type), mask

    def _wrapped(self, kind, region, pointer, mask):
        if pointer.wrapped is None:
            return
        wrong = pointer.wrapped if mask is None else pointer.wrapped & mask.data
        if wrong.any():
            diagnostics.wrapped(self.engine, kind, region, pointer.data, wrong)

    @staticmethod
    def _slice(memory, form: Affine, shape):
        """The elements of an affine pointer as a view of memory, or None where the programs' starts have no stride."""
        strides = tuple(stride * memory.itemsize for stride in form.strides)
        start = form.start
        if isinstance(start, int):
            first, programs, step = start, 1, 0
        else:
            first, programs = int(start[0]), len(start)
            step = int(start[1]) - first if programs > 1 else 0
            if programs > 2 and not (np.diff(start) == step).all():
                return None
        return np.lib.stride_tricks.as_strided(
            memory[first:], (programs, *shape), (step * memory.itemsize, *strides), writeable=memory.flags.writeable
        )

    @staticmethod
    def _box(pointer: Value, mask: Value | None):
        """The part of an affine block that a mask lets pass, if that is a box, and the same in all programs.

        Returns (pointers of the part, index of the part in the block), or None.
        """
        form = pointer.as_affine()
        if mask is None or form is None or not pointer.shape or len(mask.data) != 1:
            return None
        kept = mask.data[0]
        bounds = []
        for axis in range(kept.ndim):
            along = np.flatnonzero(kept.any(axis=tuple(other for other in range(kept.ndim) if other != axis)))
            if not len(along):
                return None
            bounds.append((int(along[0]), int(along[-1]) + 1))
        shape = tuple(high - low for low, high in bounds)
        index = tuple(slice(low, high) for low, high in bounds)
        if shape == pointer.shape or not kept[index].all():
            return None
        start = form.start + sum(low * stride for (low, _), stride in zip(bounds, form.strides, strict=True))
        wrapped = pointer.wrapped
        if wrapped is not None:
            wrapped = np.broadcast_to(wrapped, (len(wrapped), *pointer.shape))[(slice(None), *index)]
        part = Value(
            pointer.type, shape, affine=Affine(start, form.strides, shape), region=pointer.region, wrapped=wrapped
        )
        return part, index

    # instructions

    def load(self, pointer: Value, mask: Value | None, other: Value | None, masked=False) -> Value:
        type, shape = pointer.type.element, pointer.shape
        # What a kernel with products loads may be an operand of one.
        self.engine.holds(shape, type, is_product_operand=self.engine.kernel.has_products)
        if box := self._box(pointer, mask):
            part = self.load(box[0], None, None, masked=True).data
            fill = 0 if other is None else other.data.reshape(-1, *other.shape, *[1] * (len(shape) - len(other.shape)))
            programs = max(len(part), 1 if other is None else len(fill))
            data = np.empty((programs, *shape), type.array)
            data[...] = fill
            data[(slice(None), *box[1])] = part
            return Value(type, shape, data)
        prepared = self._prepare("load", pointer, mask, masked)
        if prepared is None:
            if other is not None:
                return other
            return Value(type, shape, np.zeros((1, *shape), type.array))
        pointer, region, memory, mask = prepared
        if mask is None:
            form = pointer.as_affine()
            view = self._slice(memory, form, shape) if form else None
            data = np.array(view) if view is not None else memory.take(pointer.data)
            self._check_written(region, pointer, data)
            return self._loaded(type, shape, data)
        index = pointer.data
        size = np.broadcast_shapes(index.shape, mask.data.shape)
        kept = np.where(mask.data, index, 0)
        data = memory.take(kept, mode="clip")
        self._check_written(region, pointer, data, mask)
        data = type.decode(data)
        fill = 0 if other is None else other.data.reshape(-1, *other.shape, *[1] * (len(shape) - len(other.shape)))
        data = np.where(mask.data, data, np.asarray(fill, data.dtype)) if data.shape else data
        return Value(type, shape, np.broadcast_to(data, np.broadcast_shapes(size, data.shape)))

    def _check_written(self, region, pointer, data, mask=None):
        poison = self.engine.poison
        if poison is None or data.itemsize < (4 if pointer.type.element.is_int else 2):
            return
        unwritten = int.from_bytes(poison * (data.itemsize // 2), "little")
        wrong = np.ascontiguousarray(data).view(f"u{data.itemsize}") == unwritten
        wrong = wrong if mask is None else wrong & mask.data
        if wrong.any():
            diagnostics.unwritten(self.engine, region, pointer.data, wrong)

    @staticmethod
    def _loaded(type, shape, data):
        data = type.decode(data)
        return Value(type, shape, data if data.dtype == type.array else data.astype(type.array))

    def store(self, pointer: Value, value: Value, mask: Value | None, masked=False):
        shape = pointer.shape
        self.engine.holds(shape, pointer.type.element)
        if box := self._box(pointer, mask):
            if len(value.shape) == len(shape):
                data = value.data[(slice(None), *box[1])]
                value = Value(value.type, box[0].shape, data)
            return self.store(box[0], value, None, masked=True)
        prepared = self._prepare("store", pointer, mask, masked)
        if prepared is None:
            return None
        pointer, region, memory, mask = prepared
        type = pointer.type.element
        data = value.data
        if len(value.shape) < len(shape):
            data = data.reshape(-1, *value.shape, *[1] * (len(shape) - len(value.shape)))
        data = type.encode(data).astype(type.memory, copy=False)
        form = pointer.as_affine()
        if mask is None and form and self._disjoint(form, shape):
            view = self._slice(memory, form, shape)
            if view is not None and (len(view) > 1 or len(data) == 1):
                self._claim(region, form, shape, pointer, data)
                view[...] = data
                return None
        index = pointer.data
        size = np.broadcast_shapes(index.shape, data.shape, () if mask is None else mask.data.shape)
        index, data = (np.broadcast_to(array, size) for array in (index, data))
        if self.races and self._root(region) is not None:
            self._check_race(region, memory, index, data, None if mask is None else np.broadcast_to(mask.data, size))
        if mask is None:
            memory[index] = data
        else:
            kept = np.broadcast_to(mask.data, size)
            memory[index[kept]] = data[kept]
        return None

    @staticmethod
    def _disjoint(form: Affine, shape) -> bool:
        """Whether no two elements are in one place: each stride steps over all that the smaller ones span."""
        strides = sorted((abs(stride), size) for stride, size in zip(form.strides, shape, strict=True) if size > 1)
        if not isinstance(form.start, int) and len(form.start) > 1:
            starts = np.diff(form.start)
            smallest = int(np.abs(starts).min())
            if not ((starts > 0).all() or (starts < 0).all()):
                return False
            if len(starts) > 1 and (starts != starts[0]).any():
                return False
            strides = sorted([*strides, (smallest, len(form.start))])
        span = 1
        for stride, size in strides:
            if stride < span:
                return False
            span = stride * (size - 1) + span
        return True

    # stores of two programs to one element

    def _writers(self, region):
        root = self._root(region)
        if root.writers is None or len(root.writers) != region.elements:
            root.writers = np.zeros(region.elements, np.int32)
        return root.writers

    def _root(self, region):
        """The tensor of the launch, or None for memory that the kernel has an address of otherwise."""
        return next((one for one in self.everything.regions if one.address == region.address), None)

    def _claim(self, region, form, shape, pointer, data):
        """Notes who stores to a slice of memory; each program's elements are apart."""
        if not self.races or self._root(region) is None:
            return
        writers = self._slice(self._writers(region), form, shape)
        programs = self.engine.group.programs.astype(np.int32) + 1
        programs = programs[: len(writers)].reshape(-1, *[1] * len(shape))
        if writers.any():
            index = pointer.data
            self._compare(
                region, region.array(region.type), index, np.broadcast_to(data, index.shape), writers, programs, None
            )
        writers[...] = programs

    def _check_race(self, region, memory, index, data, mask):
        writers = self._writers(region)
        programs = self.engine.group.programs.astype(np.int32) + 1
        if len(index) == 1:
            programs = programs[:1]
        programs = np.broadcast_to(programs.reshape(-1, *[1] * (index.ndim - 1)), index.shape)
        kept = np.ones(index.shape, bool) if mask is None else mask
        safe = np.where(kept, index, 0)
        self._compare(region, memory, safe, data, writers[safe], programs, kept)
        flat, by = index[kept], programs[kept]
        writers[flat] = by
        if (writers[flat] != by).any():
            # Within one instruction: against the first of those that store to an element.
            first = np.empty(len(writers), np.int64)
            first[flat[::-1]] = np.arange(len(flat))[::-1]
            values, first = data[kept], first[flat]
            differs = (by != by[first]) & ~self._same(values[first], values)
            if differs.any():
                wrong, others, old = (np.zeros(index.shape, kind) for kind in (bool, np.int64, data.dtype))
                wrong[kept], others[kept], old[kept] = differs, by[first] - 1, values[first]
                decode = region.type.decode
                diagnostics.conflict(self.engine, region, index, wrong, others, decode(old), decode(np.array(data)))

    def _compare(self, region, memory, index, data, writers, programs, kept):
        other = (writers != 0) & (writers != programs)
        if kept is not None:
            other = other & kept
        if not other.any():
            return
        old = memory[index]
        differs = other & ~self._same(old, data)
        if differs.any():
            decode = region.type.decode
            others = np.broadcast_to(writers, index.shape).astype(np.int64) - 1
            diagnostics.conflict(
                self.engine, region, index, differs, others, decode(old), decode(np.ascontiguousarray(data))
            )

    @staticmethod
    def _same(a, b):
        same = a == b
        return same | ((a != a) & (b != b)) if a.dtype.kind == "f" else same

    # atomics, in the order of the programs

    def _lanes(self, kind, pointer, value, mask):
        """Returns (pointer, memory, offsets, values, mask) as arrays with an element for each lane of each program."""
        prepared = self._prepare(kind, pointer, mask)
        if prepared is None:
            return None
        pointer, _, memory, mask = prepared
        size = (len(self.engine.group.programs), *pointer.shape)
        arrays = [
            array.reshape(-1, *array.shape[1:], *[1] * (len(size) - array.ndim)) for array in (pointer.data, value.data)
        ]
        index, data = (np.broadcast_to(array, size) for array in arrays)
        kept = np.ones(size, bool) if mask is None else np.broadcast_to(mask.data, size)
        return pointer, memory, index, data, kept

    def atomic(self, name, pointer, value, mask) -> Value:
        type = pointer.type.element
        signed = name not in ("umax", "umin")
        function = ATOMICS[name if signed else name[1:]]
        prepared = self._lanes(f"atomic_{name.removeprefix('f')}", pointer, value, mask)
        size = (len(self.engine.group.programs), *pointer.shape)
        old = np.zeros(size, type.array)
        if prepared is not None:
            pointer, memory, index, data, kept = prepared
            old[kept] = self._apply(type, function, signed, memory, index[kept], data[kept])
        return Value(type, pointer.shape, old)

    @staticmethod
    def _apply(type, function, signed, memory, index, data):
        """Applies one lane after the other; returns what each found."""
        view = (lambda array: array) if signed else (lambda array: array.view(f"u{array.dtype.itemsize}"))
        order = np.argsort(index, kind="stable")
        places, first = np.unique(index[order], return_index=True)
        found = np.empty(len(index), type.array)
        if len(places) == len(index):
            before = type.decode(memory[index]).astype(type.array)
            found[:] = before
            after = data if function is None else function(view(before), view(data)).view(type.array)
            memory[index] = type.encode(type.round(after)).astype(type.memory, copy=False)
            return found
        for place, lanes in zip(places, np.split(order, first[1:]), strict=True):
            before = type.decode(memory[place : place + 1]).astype(type.array)
            chain = np.concatenate([before, data[lanes]])
            if function is not None and type.memory == type.array:
                chain = function.accumulate(view(chain), dtype=view(chain).dtype).view(type.array)
            elif function is not None:
                for i in range(1, len(chain)):
                    chain[i : i + 1] = type.round(function(chain[i - 1 : i], chain[i : i + 1]))
            found[lanes] = chain[:-1]
            memory[place] = type.encode(chain[-1:])[0]
        return found

    def compare_and_swap(self, pointer, expected, value) -> Value:
        prepared = self._lanes("atomic_cas", pointer, value, None)
        pointer, memory, index, data, _ = prepared
        wanted = np.broadcast_to(expected.data, index.shape)
        type = pointer.type.element
        old = np.empty(index.shape, type.array)
        encoded = type.encode(data)
        for at in np.ndindex(index.shape):
            place = index[at]
            found = type.decode(memory[place : place + 1])[0]
            old[at] = found
            if found == wanted[at]:
                memory[place] = encoded[at]
        return Value(type, pointer.shape, old)


def region_of(name, tensor, type) -> tuple[Region, int]:
    """The region of a tensor that is given to a launch, from its lowest to its highest element in memory.

    Returns it and the place of the first element, which is not 0 where strides are negative, as they may be in a
    library's own object.
    """
    base = getattr(tensor, "base", tensor)
    address, size = base.data_ptr(), base.element_size()
    if base.numel() == 0:
        return Region(name, address, 0, type), 0
    steps = [(length - 1) * stride for length, stride in zip(base.shape, base.stride(), strict=True)]
    low, high = (sum(step for step in steps if (step < 0) is negative) for negative in (True, False))
    storage = base.untyped_storage()
    region = Region(name, address + low * size, (high - low + 1) * size, type, (storage.data_ptr(), storage.nbytes()))
    return region, -low


def loads_reach_all_memory() -> bool:
    """Whether a load outside of its tensor reads what is there, as on an NPU, and is only warned of."""
    value = os.environ.get("CANN_CPU_TRITON_LOADS", "tensor")
    if value not in ("tensor", "memory"):
        raise KernelError(f"CANN_CPU_TRITON_LOADS is {value!r}; it must be tensor or memory")
    return value == "memory"
