# SPDX-License-Identifier: Apache-2.0
"""Operations of triton-ascend beyond triton's language.

triton-ascend 3.2 has them in `triton.language`; later versions, and kernels written for them, import them from
`triton.language.extra.cann.extension`. Where the installed triton has no such module, install() provides it, so that
the same kernels run with plain triton. Its libdevice is looked for in packages of other names as well: `ascend`, which
is triton-ascend 3.2's, and `npu`, the device's name, which FlagGems takes.
"""

import contextlib
import importlib.abc
import importlib.util
import sys

import numpy as np

from .values import INT64, TYPES, Value

NAME = "triton.language.extra.cann"
PACKAGES = (NAME, "triton.language.extra.ascend", "triton.language.extra.npu")
PARTS = ("extension", "libdevice")
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


class Ascend:
    """The builder's part."""

    def create_insert_slice(self, whole, part, offsets, sizes, strides):
        programs, index = self._slice_index(whole, offsets, sizes, strides, len(part.data))
        data = np.array(np.broadcast_to(whole.data, (programs, *whole.shape)))
        data[index] = part.data.reshape(len(part.data), *sizes)
        return Value(whole.type, whole.shape, data)

    def create_extract_slice(self, whole, offsets, sizes, strides):
        programs, index = self._slice_index(whole, offsets, sizes, strides, 1)
        return Value(whole.type, tuple(sizes), np.broadcast_to(whole.data, (programs, *whole.shape))[index])

    def _slice_index(self, whole, offsets, sizes, strides, programs):
        """Returns the number of programs, and the index of a slice that each program may have elsewhere."""
        from .diagnostics import KernelError, where

        starts = [np.asarray(offset.data) for offset in offsets]
        programs = max(programs, len(whole.data), *(len(start) for start in starts))
        rank = len(sizes)
        index = [np.arange(programs).reshape(-1, *[1] * rank)]
        for axis, (start, size, stride) in enumerate(zip(starts, sizes, strides, strict=True)):
            low, high = int(start.min()), int(start.max()) + (size - 1) * stride
            if low < 0 or high >= whole.shape[axis]:
                raise KernelError(f"{where()}: a slice from {low} to {high} of an axis of {whole.shape[axis]}")
            steps = (np.arange(size) * stride).reshape(-1, *[1] * (rank - axis - 1))
            index.append(start.reshape(-1, *[1] * rank) + steps)
        return programs, tuple(index)

    def create_extract_scalar(self, value, indices):
        programs = max(len(value.data), *(len(index.data) for index in indices))
        data = np.broadcast_to(value.data, (programs, *value.shape))
        at = tuple(np.broadcast_to(index.data, (programs,)) for index in indices)
        return Value(value.type, (), data[(np.arange(programs), *at)], region=value.region)

    def create_sort(self, value, dim, descending):
        data = np.sort(value.data, axis=dim % len(value.shape) + 1)
        return Value(value.type, value.shape, np.flip(data, dim % len(value.shape) + 1) if descending else data)

    def create_flip(self, value, dim):
        return value.like(value.shape, lambda data: np.flip(data, dim % len(value.shape) + 1))

    def create_mod(self, left, right):
        return self.create_frem(left, right)

    def create_annotation(self, *_):
        """A hint for the compiler."""

    create_custom_op_for_inter_core_sync = create_annotation  # a program is one thread here
    get_unit_attr = get_bool_attr = get_int32_attr = get_str_attr = get_i64_array_attr = create_annotation

    # blocks that are gathered from and scattered to memory

    def _along(self, axis, shape, start=None) -> Value:
        """start + the index along an axis, as a block of int64."""
        index = self.create_int_cast(self.create_make_range(0, shape[axis]), INT64, True)
        if start is not None:
            start = self.create_splat(index.shape, self.create_int_cast(start, INT64, True))
            index = self.create_add(index, start)
        for other in range(len(shape)):
            if other != axis:
                index = self.create_expand_dims(index, other)
        return self.create_broadcast(index, shape)

    def _spread(self, vector, axis, shape) -> Value:
        """A vector along an axis of a block, as int64."""
        vector = self.create_int_cast(vector, INT64, True)
        for other in range(len(shape)):
            if other != axis:
                vector = self.create_expand_dims(vector, other)
        return self.create_broadcast(vector, shape)

    def _scalar(self, number) -> Value:
        return self.create_int_cast(number, INT64, True) if isinstance(number, Value) else self._constant(INT64, number)

    def _contiguous(self, sizes) -> list:
        strides, step = [], self._constant(INT64, 1)
        for size in reversed(sizes):
            strides.insert(0, step)
            step = self.create_mul(step, self._scalar(size))
        return strides

    def _addresses(self, pointer, coordinates, strides, shape):
        pointers = self.create_splat(shape, pointer)
        for coordinate, stride in zip(coordinates, strides, strict=True):
            step = self.create_mul(coordinate, self.create_splat(shape, self._scalar(stride)))
            pointers = self.create_addptr(pointers, step)
        return pointers

    def _inside(self, pairs, shape):
        """0 <= coordinate < size for all pairs."""
        mask = None
        for coordinate, size in pairs:
            zero = self.create_splat(shape, self._constant(INT64, 0))
            size = self.create_splat(shape, self._scalar(size))
            inside = self.create_and(self.create_icmpSGE(coordinate, zero), self.create_icmpSLT(coordinate, size))
            mask = inside if mask is None else self.create_and(mask, inside)
        return mask

    def create_index_select_simd(self, source, index, dim, source_shape, offsets, read_shape, shape):
        shape = tuple(int(size) for size in shape)
        coordinates = [
            self._spread(index, axis, shape) if axis == dim else self._along(axis, shape, offsets[axis])
            for axis in range(len(shape))
        ]
        pointers = self._addresses(source, coordinates, self._contiguous(source_shape), shape)
        return self.memory.load(pointers, self._inside(zip(coordinates, source_shape, strict=True), shape), None)

    def create_gather_out_to_ub(self, source, index, bound, dim, strides, index_shape, offsets, other=None):
        shape = index.shape
        places = [self._along(axis, shape, offsets[axis]) for axis in range(len(shape))]
        index = self.create_int_cast(index, INT64, True)
        coordinates = [index if axis == dim else place for axis, place in enumerate(places)]
        mask = self._inside([*zip(places, index_shape, strict=True), (index, bound)], shape)
        return self.memory.load(self._addresses(source, coordinates, strides, shape), mask, other)

    def create_index_put(self, pointer, index, value, dim, shape, offsets):
        block = value.shape
        coordinates = [
            self._spread(index, axis, block) if axis == dim else self._along(axis, block, offsets[axis])
            for axis in range(len(block))
        ]
        mask = self._inside(zip(coordinates, shape, strict=True), block)
        self.memory.store(self._addresses(pointer, coordinates, self._contiguous(shape), block), value, mask)

    # products of scaled blocks

    def create_dot_scaled(self, left, left_scale, left_format, right, right_scale, right_format, *rest):
        left_pack, right_pack, total = (rest[1], rest[2], rest[3]) if len(rest) == 4 else (True, True, rest[-1])
        a = self._scaled(left, left_format, left_scale, -1, -1 if left_pack else -2)
        b = self._scaled(right, right_format, right_scale, -2, -2 if right_pack else -1)
        return Value(total.type, total.shape, np.matmul(a, b).astype(np.float32) + total.data)

    @staticmethod
    def _scaled(value, format, scale, axis, packed):
        name = getattr(format, "name", str(format)).upper()
        data = value.data
        if name == "E2M1":
            raw = np.moveaxis(data.view(np.uint8), packed, -1)
            pairs = np.stack([E2M1[raw & 15], E2M1[raw >> 4]], -1)
            data = np.moveaxis(pairs.reshape(*raw.shape[:-1], -1), -1, packed)
        elif data.dtype.kind == "i":
            kind = {"E4M3": "fp8e4nv", "E5M2": "fp8e5", "BF16": "bf16", "FP16": "fp16"}[name]
            data = TYPES[kind].decode(data.view(TYPES[kind].memory))
        data = data.astype(np.float32)
        if scale is None:
            return data
        exponents = scale.data.view(np.uint8) if scale.data.dtype.itemsize == 1 else scale.data
        factors = np.where(exponents == 255, np.nan, np.ldexp(np.float32(1), exponents.astype(np.int32) - 127))
        factors = np.repeat(factors.astype(np.float32), data.shape[axis] // factors.shape[-1], axis=-1)
        return data * (factors if axis == -1 else np.swapaxes(factors, -1, -2))


class Operation:
    """A function for kernels; the engine calls it with itself."""

    def __init__(self, function):
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = f"{NAME}.extension"
        self.__triton_builtin__ = True

    def __call__(self, *args, **kwargs):
        raise ValueError(f"{self.__name__} is a function for kernels of @triton.jit")


OPERATIONS = {}


def operation(function):
    OPERATIONS[function.__name__] = Operation(function)
    return function


def _numbers(engine, values):
    return [int(engine.triton.unwrap(value)) for value in values]


def _handles(engine, values):
    return [engine.to_tensor(value).handle for value in values]


@operation
def insert_slice(engine, ful, sub, offsets, sizes, strides):
    """A tensor with a slice replaced by another tensor."""
    sizes, strides = _numbers(engine, sizes), _numbers(engine, strides)
    handle = engine.builder.create_insert_slice(ful.handle, sub.handle, _handles(engine, offsets), sizes, strides)
    return engine.handlers.wrap(handle, ful.dtype)


@operation
def extract_slice(engine, ful, offsets, sizes, strides):
    """A slice of a tensor, whose start may depend on the program."""
    sizes, strides = _numbers(engine, sizes), _numbers(engine, strides)
    handle = engine.builder.create_extract_slice(ful.handle, _handles(engine, offsets), sizes, strides)
    return engine.handlers.wrap(handle, ful.dtype)


@operation
def get_element(engine, src, indice):
    """A scalar of a tensor."""
    handle = engine.builder.create_extract_scalar(src.handle, _handles(engine, indice))
    return engine.handlers.wrap(handle, src.dtype)


@operation
def sort(engine, ptr, dim=-1, descending=False):
    """A tensor sorted along an axis."""
    return engine.handlers.sort(ptr, dim, descending)


@operation
def flip(engine, ptr, dim=-1):
    """A tensor in the opposite order along an axis."""
    return engine.handlers.flip(ptr, dim)


@operation
def index_select_simd(engine, src, dim, index, src_shape, src_offset, read_shape):
    """Rows of a tensor in memory, chosen by an index along one axis."""
    dim, read_shape = int(engine.triton.unwrap(dim)), _numbers(engine, read_shape)
    shape = [index.handle.shape[0] if axis == dim else size for axis, size in enumerate(read_shape)]
    handle = engine.builder.create_index_select_simd(
        src.handle, index.handle, dim, _handles(engine, src_shape), _handles(engine, src_offset), read_shape, shape
    )
    return engine.handlers.wrap(handle, src.dtype.element_ty)


@operation
def gather_out_to_ub(engine, src, index, index_boundary, dim, src_stride, end_offset, start_offset, other=None):
    """Elements of a tensor in memory, chosen by an index along one axis."""
    bound, dim = (int(engine.triton.unwrap(value)) for value in (index_boundary, dim))
    other = None if engine.triton.unwrap(other) is None else engine.to_tensor(other).handle
    lists = [_handles(engine, values) for values in (src_stride, end_offset, start_offset)]
    handle = engine.builder.create_gather_out_to_ub(src.handle, index.handle, bound, dim, *lists, other)
    return engine.handlers.wrap(handle, src.dtype.element_ty)


@operation
def parallel(engine, *bounds, **_):
    """A range whose steps the compiler may divide among cores."""
    return engine.steps(*bounds)


@operation
def scope(engine, *_, **__):
    """A block of statements for some of a program's cores, which is one thread here."""
    return contextlib.nullcontext()


@operation
def sub_vec_id(engine):
    """The vector core of a pair that runs: one does all here."""
    return engine.handlers.wrap(engine.builder._constant(INT64, 0), engine.triton.language.int64)


@operation
def sub_vec_num(engine):
    """The vector cores of a program."""
    return engine.core.constexpr(1)


def _without_effect(name, text):
    def function(engine, *args, **kwargs):
        return None

    function.__name__, function.__doc__ = name, text
    operation(function)


for _name in ("compile_hint", "multibuffer"):
    _without_effect(_name, "A hint for the compiler.")
for _name in ("sync_block_all", "sync_block_set", "sync_block_wait", "debug_barrier"):
    _without_effect(_name, "Orders the cores of a program, which is one thread here.")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what no other finder has found."""

    def find_spec(self, name, path=None, target=None):
        package, _, part = name.rpartition(".")
        if name in PACKAGES or (package in PACKAGES and part in PARTS):
            return importlib.util.spec_from_loader(name, self, is_package=name in PACKAGES)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__ in PACKAGES:
            for part in PARTS:
                importlib.import_module(f"{module.__name__}.{part}")
        elif module.__name__.endswith(".extension"):
            vars(module).update(OPERATIONS)
        elif module.__name__.endswith(".libdevice"):
            from triton.language.extra import libdevice

            vars(module).update({name: value for name, value in vars(libdevice).items() if not name.startswith("_")})


def install():
    """Provides the module in a triton that has none. A second call changes nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


class BlockPointers:
    """Block pointers, for versions of triton that have removed them: load and store take them again."""

    def __init__(self, engine):
        self.engine = engine
        self.table = {}
        core, language = engine.core, engine.triton.language
        if engine.triton.semantic_class is None:
            return  # the language has them
        self.type = core.pointer_type
        self.load_, self.store_ = core.load, core.store
        self.table = {
            id(core.load): self.load,
            id(core.store): self.store,
            id(core.make_block_ptr): self.make,
            id(core.advance): self.advance,
        }
        self.core, self.language = core, language

    def make(self, base, shape, strides, offsets, block_shape, order, **_):
        handles = [_handles(self.engine, values) for values in (shape, strides, offsets)]
        block = _numbers(self.engine, block_shape)
        handle = self.engine.builder.create_make_block_ptr(base.handle, *handles, block, order)
        return self.core.tensor(handle, base.type)

    def advance(self, base, offsets, **_):
        handle = self.engine.builder.create_advance(base.handle, _handles(self.engine, offsets))
        return self.core.tensor(handle, base.type)

    def _checked(self, boundary_check):
        boundary_check = self.engine.triton.unwrap(boundary_check)
        return _numbers(self.engine, boundary_check if isinstance(boundary_check, (tuple, list)) else [boundary_check])

    def load(self, pointer, *args, boundary_check=(), padding_option="", care_padding=True, **kwargs):
        """care_padding=False is triton-ascend's: what a mask leaves out may be anything."""
        from .builder import Descriptor

        if not isinstance(getattr(pointer, "handle", None), Descriptor) or not isinstance(pointer, self.core.tensor):
            return self.engine.builtin(self.load_, pointer, *args, **kwargs)
        padding = self.engine.triton.unwrap(padding_option)
        handle = self.engine.builder.create_tensor_pointer_load(pointer.handle, self._checked(boundary_check), padding)
        return self.engine.handlers.wrap(handle, pointer.dtype.element_ty)

    def store(self, pointer, value, *args, boundary_check=(), **kwargs):
        from .builder import Descriptor

        if not isinstance(getattr(pointer, "handle", None), Descriptor) or not isinstance(pointer, self.core.tensor):
            return self.engine.builtin(self.store_, pointer, value, *args, **kwargs)
        value = self.engine.call(self.engine.to_tensor(value).to, pointer.dtype.element_ty)
        checked = self._checked(boundary_check)
        return self.engine.builder.create_tensor_pointer_store(pointer.handle, value.handle, checked)


__all__ = ["OPERATIONS", "Ascend", "BlockPointers", "Operation", "install"]
