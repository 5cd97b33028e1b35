# SPDX-License-Identifier: Apache-2.0
"""The builder that triton's language calls, as it calls the one that makes MLIR: each operation is computed in NumPy.

The types are those of MLIR: integers have no sign, an operation says which it means (`create_udiv`). Rounding follows
triton's plain interpreter, so results are bitwise equal to it, except where that computes bfloat16 as integers.
"""

import numpy as np

from .control import Handles, scalar
from .diagnostics import KernelError
from .extension import Ascend
from .memory import Memory
from .values import FP32, INT1, INT32, INT64, TYPES, Affine, BlockType, PointerType, Value, element_of


class Options:
    """What triton's language asks of the target."""

    debug = True
    sanitize_overflow = False
    arch = None
    supported_fp8_dtypes = ("fp8e5", "fp8e5b16", "fp8e4nv", "fp8e4b8")
    deprecated_fp8_dtypes = ()
    deprecated_fp8_dot_operand_dtypes = ()
    default_dot_input_precision = "ieee"
    allowed_dot_input_precisions = ("tf32", "tf32x3", "ieee", "hf32")
    max_num_imprecise_acc_default = 0
    allow_fp8e4nv = True
    allow_fp8e4b15 = False
    backend_name = "cann_cpu"
    extern_libs = None
    num_warps = 4
    num_ctas = 1
    launch_cooperative_grid = False


def unsigned(data: np.ndarray) -> np.ndarray:
    return data.view(np.dtype(f"u{data.dtype.itemsize}")) if data.dtype.kind == "i" else data


def aligned(*values: Value) -> list[np.ndarray]:
    """The arrays of values, scalars with as many axes as the blocks beside them."""
    rank = max(len(value.shape) for value in values)
    return [
        value.data
        if len(value.shape) == rank
        else value.data.reshape(-1, *value.shape, *[1] * (rank - len(value.shape)))
        for value in values
    ]


def shape_of(*values: Value) -> tuple:
    return max((value.shape for value in values), key=len)


class Descriptor(Handles):
    """A tensor descriptor, or a block pointer, which also has offsets."""

    def __init__(self, base, shape, strides, block, padding=None, offsets=None):
        self.base, self.shape, self.strides, self.offsets = base, list(shape), list(strides), offsets
        self.block, self.padding = tuple(block), padding


def truncating_divide(a, b):
    """Of signed integers, as the processor divides; what is divided by zero is 0."""
    with np.errstate(divide="ignore"):
        quotient = a // np.where(b == 0, 1, b)
    quotient = quotient + ((quotient < 0) & (quotient * b != a))
    return np.where(b == 0, 0, quotient).astype(a.dtype)


def remainder(a, b):
    return np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))).astype(a.dtype)


def logical_shift(a, b):
    return (unsigned(a) >> unsigned(b)).view(a.dtype)


def as_unsigned(function):
    return lambda a, b: function(unsigned(a), unsigned(b))


def signless(function):
    return lambda a, b: function(unsigned(a), unsigned(b)).view(a.dtype)


FLOAT = {
    "fadd": np.add,
    "fsub": np.subtract,
    "fmul": np.multiply,
    "fdiv": np.divide,
    "precise_divf": np.divide,
    "approx_divf": np.divide,
    "frem": np.fmod,
    "minimumf": np.minimum,
    "maximumf": np.maximum,
    "minnumf": np.fmin,
    "maxnumf": np.fmax,
}
INTEGER = {
    "sdiv": truncating_divide,
    "udiv": signless(truncating_divide),
    "srem": remainder,
    "urem": signless(remainder),
    "shl": np.left_shift,
    "ashr": np.right_shift,
    "lshr": logical_shift,
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "minui": signless(np.minimum),
    "maxui": signless(np.maximum),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
# Of integers, and of int1.
LINEAR = {"add": (np.add, np.logical_xor), "sub": (np.subtract, np.logical_xor), "mul": (np.multiply, np.logical_and)}
COMPARE = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}
UNARY = {
    "fneg": np.negative,
    "cos": np.cos,
    "sin": np.sin,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
    "precise_sqrt": np.sqrt,
    "iabs": np.abs,
    "fabs": np.abs,
    "tanh": np.tanh,
    "rsqrt": lambda data: (1 / np.sqrt(data)).astype(data.dtype),
}
CASTS = ("si_to_fp", "fp_to_si", "fp_ext", "fp_trunc")


class Builder(Ascend):
    """Its handles are Value and Descriptor, its types those of values.py."""

    def __init__(self, engine, memory: Memory):
        self.engine = engine
        self.memory = memory
        self.options = Options()
        self.codegen_fns = {
            "convert_custom_types": self._convert,
            "min_dot_size": lambda left, right: (1, 1, 1),
        }
        self.module_map = {}

    def __getattr__(self, name):
        if name.startswith(("create_", "get_")):
            raise NotImplementedError(f"{name[name.find('_') + 1 :]} is not implemented on the CPU")
        raise AttributeError(name)

    # types and constants

    def get_ptr_ty(self, element, space=1):
        return PointerType(element)

    def get_block_ty(self, element, shape):
        return BlockType(element, tuple(shape))

    def get_void_ty(self):
        return None

    def get_null_value(self, type):
        element = element_of(type)
        if isinstance(element, PointerType):
            return Value(element, (), affine=Affine(0, (), ()), region=self.memory.everything)
        return self._constant(element, 0)

    def get_all_ones_value(self, type):
        element = element_of(type)
        return self._constant(element, True if element is INT1 else -1)

    def _constant(self, type, number):
        if type.array.kind == "i":
            number = (int(number) + (1 << type.bits - 1)) % (1 << type.bits) - (1 << type.bits - 1)
            return Value(type, (), affine=Affine(number, (), ()))
        return Value(type, (), type.round(np.array([number])))

    def get_bool(self, number):
        return self._constant(INT1, number)

    get_int1 = get_bool

    # the grid

    def create_get_program_id(self, axis):
        return scalar(INT32, self.engine.program_ids(axis))

    def create_get_num_programs(self, axis):
        return scalar(INT32, self.engine.grid[axis])

    # memory: the modifiers of caches and eviction come as one argument or two, and are of no concern here

    def create_load(self, pointer, *_):
        return self.memory.load(pointer, None, None)

    def create_masked_load(self, pointer, mask, other, *_):
        return self.memory.load(pointer, mask, other)

    def create_store(self, pointer, value, *_):
        self.memory.store(pointer, value, None)

    def create_masked_store(self, pointer, value, mask, *_):
        self.memory.store(pointer, value, mask)

    def get_cache_policy(self, *_):
        return None

    def create_atomic_rmw(self, operation, pointer, value, mask, *_):
        name = operation if isinstance(operation, str) else operation.name
        return self.memory.atomic(name.lower(), pointer, value, mask)

    def create_atomic_cas(self, pointer, expected, value, *_):
        return self.memory.compare_and_swap(pointer, expected, value)

    def create_atomic_load(self, pointer, mask, *_):
        return self.memory.load(pointer, mask, None)

    def create_atomic_store(self, pointer, value, mask, *_):
        self.memory.store(pointer, value, mask)

    def create_addptr(self, pointer, offset):
        return self._linear("add", pointer, offset, pointer.type, pointer.region)

    def create_ptr_to_int(self, pointer, type):
        absolute = self.memory.everything.absolute(pointer, elements=False)
        return Value(INT64, absolute.shape, absolute.data)

    def create_int_to_ptr(self, number, type):
        return self.memory.everything.pointer(number, element_of(type))

    # arithmetic

    def _linear(self, name, left, right, type, region=None):
        """add, sub and mul of integers, in affine form where it can be."""
        shape = shape_of(left, right)
        low, high = -(1 << type.bits - 1), (1 << type.bits - 1) - 1
        a, b = left.as_affine(), right.as_affine()
        affine = None
        if a and b and len(a.strides) == len(b.strides):
            if name == "add":
                affine = Affine(
                    a.start + b.start, tuple(x + y for x, y in zip(a.strides, b.strides, strict=True)), shape
                )
            elif name == "sub":
                affine = Affine(
                    a.start - b.start, tuple(x - y for x, y in zip(a.strides, b.strides, strict=True)), shape
                )
            else:
                if a.constant is not None:
                    a, b = b, a
                if b.constant is not None:
                    factor = b.constant
                    affine = Affine(a.start * factor, tuple(stride * factor for stride in a.strides), shape)
                elif not any(a.strides) and not any(b.strides):
                    affine = Affine(a.start * b.start, a.strides, shape)
        wrapped = None
        if left.wrapped is not None or right.wrapped is not None:
            wrapped = np.zeros((1, *shape), bool)
            for value in (left, right):
                if value.wrapped is not None:
                    wrapped = wrapped | value.wrapped.reshape(
                        len(value.wrapped), *value.shape, *[1] * (len(shape) - len(value.shape))
                    )
        if affine and low <= affine.bounds[0] and affine.bounds[1] <= high:
            return Value(type, shape, affine=affine, region=region, wrapped=wrapped)
        function = LINEAR[name][0]
        if type.bits == 64:
            # A pointer's offset has 64 bits, an offset may have 32.
            return Value(
                type,
                shape,
                function(*(x.astype(np.int64) for x in aligned(left, right))),
                region=region,
                wrapped=wrapped,
            )
        x, y = aligned(left, right)
        if type.bits == 32 and self._may_wrap(name, left, right, low, high):
            exact = function(x.astype(np.int64), y.astype(np.int64))
            data = exact.astype(np.int32)
            over = data != exact
            if over.any():
                wrapped = over if wrapped is None else wrapped | over
        else:
            data = function(x, y)
        return Value(type, shape, type.round(data), region=region, wrapped=wrapped)

    @staticmethod
    def _may_wrap(name, left, right, low, high):
        (a, b), (c, d) = left.bounds, right.bounds
        ends = {"add": (a + c, b + d), "sub": (a - d, b - c), "mul": (a * c, a * d, b * c, b * d)}[name]
        return min(ends) < low or max(ends) > high

    def _of_integers(name):
        on_bools = LINEAR[name][1]

        def create(self, left, right):
            if left.type is INT1:
                return Value(INT1, shape_of(left, right), on_bools(*aligned(left, right)))
            return self._linear(name, left, right, left.type)

        return create

    create_add, create_sub, create_mul = map(_of_integers, LINEAR)

    def binary(self, function, left, right, type=None):
        is_product = function is np.add and (left.is_product or right.is_product)
        if not is_product:
            self.engine.fits(left, right)
        data = function(*aligned(left, right))
        type = type or left.type
        result = Value(type, shape_of(left, right), type.round(data))
        result.is_product = is_product
        return result

    def unary(self, function, value):
        self.engine.fits(value)
        return Value(value.type, value.shape, value.type.round(function(value.data)))

    def create_srem(self, left, right):
        divisor = right.constant
        if left.affine and divisor and left.affine.bounds[0] >= 0 and left.affine.bounds[1] < divisor:
            return left  # which is its own remainder
        return self.binary(remainder, left, right)

    def create_and(self, left, right):
        for one, other in ((left, right), (right, left)):
            if one.type is INT1 and self.memory.everywhere(one):
                return other
        return self.binary(np.bitwise_and, left, right)

    def _compared(name):
        function, bounds_tell = COMPARE[name[-2:]], name.startswith("S")

        def create(self, left, right):
            if left.region is not right.region:
                left, right = (self.memory.everything.absolute(value, elements=False) for value in (left, right))
            if left.affine and right.affine and bounds_tell:
                # At the corners of the ranges: equal there, equal everywhere.
                (a, b), (c, d) = left.affine.bounds, right.affine.bounds
                result = function(a, d), function(b, c)
                if result[0] == result[1]:
                    shape = shape_of(left, right)
                    return Value(INT1, shape, np.broadcast_to(np.array(bool(result[0])), (1, *shape)))
            if name.startswith("U"):
                return self.binary(as_unsigned(function), left, right, INT1)
            return self.binary(function, left, right, INT1)

        return create

    def _of_floats(name):
        function = COMPARE[name[-2:]]
        if name[0] == "U" and name != "UNE":
            return lambda self, left, right: self.binary(
                lambda a, b: function(a, b) | np.isnan(a) | np.isnan(b), left, right, INT1
            )
        if name == "ONE":
            return lambda self, left, right: self.binary(
                lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b), left, right, INT1
            )
        return lambda self, left, right: self.binary(function, left, right, INT1)

    def _simple(function):
        return lambda self, left, right: self.binary(function, left, right)

    def _single(function):
        return lambda self, value: self.unary(function, value)

    for _name, _function in {**FLOAT, **INTEGER}.items():
        if f"create_{_name}" not in locals():
            locals()[f"create_{_name}"] = _simple(_function)
    for _name, _function in UNARY.items():
        locals()[f"create_{_name}"] = _single(_function)
    for _name in ("SLT", "SLE", "SGT", "SGE", "ULT", "ULE", "UGT", "UGE", "EQ", "NE"):
        locals()[f"create_icmp{_name}"] = _compared(_name)
    for _name in (sign + name for sign in "OU" for name in COMPARE):
        locals()[f"create_fcmp{_name}"] = _of_floats(_name)
    del _name, _function

    def create_umulhi(self, left, right):
        def high(a, b):
            a, b = unsigned(a), unsigned(b)
            if a.dtype.itemsize < 8:
                wide = np.dtype(f"u{2 * a.dtype.itemsize}")
                return (
                    ((a.astype(wide) * b.astype(wide)) >> (8 * a.dtype.itemsize)).astype(a.dtype).view(left.type.array)
                )
            low32 = np.uint64(0xFFFFFFFF)
            a0, a1, b0, b1 = a & low32, a >> 32, b & low32, b >> 32
            middle = a1 * b0 + ((a0 * b0) >> 32)
            second = a0 * b1 + (middle & low32)
            return (a1 * b1 + (middle >> 32) + (second >> 32)).view(np.int64)

        return self.binary(high, left, right)

    def create_clampf(self, value, low, high, propagate):
        data = aligned(value, low, high)
        none = getattr(propagate, "name", str(propagate)).endswith("NONE")
        clamped = np.fmin(np.fmax(data[0], data[1]), data[2]) if none else np.clip(*data)
        return Value(value.type, shape_of(value, low, high), value.type.round(clamped))

    def create_fma(self, x, y, z):
        a, b, c = aligned(x, y, z)
        if z.type.bits == 64:
            return Value(z.type, shape_of(x, y, z), a * b + c)
        if z.type is FP32:
            # The product of two float32 is exact in float64; long double rounds the sum once more, harmlessly.
            wide = np.longdouble
            return Value(z.type, shape_of(x, y, z), (a.astype(wide) * b + c).astype(np.float32))
        return Value(z.type, shape_of(x, y, z), z.type.round(a.astype(np.float64) * b + c))

    def create_select(self, condition, yes, no):
        if yes.region is not no.region:
            yes, no = (self.memory.everything.absolute(value) for value in (yes, no))
        if self.memory.everywhere(condition):
            return self._as_shape(yes, shape_of(condition, yes, no))
        data = np.where(*aligned(condition, yes, no))
        return Value(yes.type, shape_of(condition, yes, no), data, region=yes.region)

    def _as_shape(self, value, shape):
        return value if value.shape == shape else self.create_splat(shape, value)

    def create_erf(self, value):
        import torch

        return self.unary(lambda data: torch.erf(torch.from_numpy(np.array(data))).numpy(), value)

    # conversions

    def _cast(self, value, type, signed=True):
        to = element_of(type)
        source = value.data
        if not signed:
            source = unsigned(source)
        if to is INT1:
            return Value(to, value.shape, (source & 1).astype(bool) if source.dtype.kind in "iu" else source != 0)
        if source.dtype.kind == "f" and to.array.kind == "i":
            source = np.trunc(np.nan_to_num(source.astype(np.float64)))
            limits = np.iinfo(to.array)
            data = np.clip(source, limits.min, limits.max).astype(np.int64)
            data = np.where(source >= limits.max, limits.max, data).astype(to.array)
            return Value(to, value.shape, data)
        return Value(to, value.shape, to.round(source.astype(to.array)))

    for _name in CASTS:
        locals()[f"create_{_name}"] = lambda self, value, type: self._cast(value, type)
    del _name

    def create_ui_to_fp(self, value, type):
        return self._cast(value, type, signed=False)

    def create_fp_to_ui(self, value, type):
        to = element_of(type)
        whole = np.trunc(np.nan_to_num(value.data.astype(np.float64))).clip(0, 2.0**to.bits)
        half = 2.0 ** (to.bits - 1)
        data = np.where(whole >= half, whole - half, whole).astype(np.int64).astype(f"u{to.bytes}")
        data = np.where(whole >= 2.0**to.bits, np.iinfo(data.dtype).max, data + (whole >= half) * data.dtype.type(half))
        return Value(to, value.shape, data.astype(f"u{to.bytes}").view(to.array))

    def create_int_cast(self, value, type, signed):
        to = element_of(type)
        if value.type is to:
            return value
        if value.type is INT1:
            return Value(to, value.shape, value.data.astype(to.array) if not signed else -value.data.astype(to.array))
        form = value.as_affine()
        if form and (signed or form.bounds[0] >= 0) and to.array.kind == "i":
            low, high = form.bounds
            if -(1 << to.bits - 1) <= low and high < 1 << to.bits - 1:
                return Value(to, value.shape, affine=form, wrapped=value.wrapped)
        result = self._cast(value, to, signed)
        result.wrapped = value.wrapped if to.bits >= value.type.bits else None
        return result

    def saturated(self, value, source, target):
        """Integers of the type `source` within the limits of the type `target`."""
        source, target = np.iinfo(source), np.iinfo(target)
        data = unsigned(value.data) if source.min == 0 else value.data
        data = np.clip(data, max(source.min, target.min), min(source.max, target.max))
        return Value(value.type, value.shape, data.view(value.type.array))

    def create_fp_to_fp(self, value, type, rounding=None):
        return self._cast(value, type)

    def _convert(self, value, type, rounding=None, _semantic=None, _builder=None):
        return self.engine.core.tensor(self._cast(value.handle, self.engine.ir_type(type)), type)

    def create_bitcast(self, value, type):
        to = element_of(type)
        if isinstance(to, PointerType):
            return self.memory.reinterpret(value, to)
        memory = value.type.encode(value.data)
        return Value(to, value.shape, to.decode(np.ascontiguousarray(memory).view(to.memory)))

    # shapes

    def create_make_range(self, *arguments):
        start, stop = arguments[-2:]
        return Value(INT32, (stop - start,), affine=Affine(int(start), (1,), (stop - start,)))

    def create_splat(self, *arguments):
        # triton 3.2 gives (value, shape), later ones (type, value).
        first, second = arguments
        value, shape = (first, second) if isinstance(first, Value) else (second, getattr(first, "shape", first))
        shape = tuple(shape)

        def spread(data):
            return np.broadcast_to(data.reshape(-1, *[1] * len(shape)), (len(data), *shape))

        value.as_affine()
        return value.like(shape, spread, (0,) * len(shape))

    def create_unsplat(self, value):
        return value.like((), lambda data: data.reshape(len(data), -1)[:, 0], ())

    def create_expand_dims(self, value, axis):
        shape = list(value.shape)
        axis = axis % (len(shape) + 1)
        shape.insert(axis, 1)
        strides = None
        if value.affine:
            strides = list(value.affine.strides)
            strides.insert(axis, 0)
            strides = tuple(strides)
        return value.like(tuple(shape), lambda data: np.expand_dims(data, axis + 1), strides)

    def create_broadcast(self, value, shape):
        shape = tuple(shape)
        strides = None
        if value.affine:
            strides = tuple(
                0 if old == 1 != new else s
                for s, old, new in zip(value.affine.strides, value.shape, shape, strict=True)
            )
        return value.like(shape, lambda data: np.broadcast_to(data, (len(data), *shape)), strides)

    def create_reshape(self, value, shape, *_):
        shape = tuple(shape)
        strides = None
        if value.affine:
            kept = [(size, stride) for size, stride in zip(value.shape, value.affine.strides, strict=True) if size != 1]
            if [size for size, _ in kept] == [size for size in shape if size != 1]:
                left = iter(kept)
                strides = tuple(0 if size == 1 else next(left)[1] for size in shape)
        return value.like(shape, lambda data: data.reshape(len(data), *shape), strides)

    def create_trans(self, value, order):
        shape = tuple(value.shape[axis] for axis in order)
        strides = tuple(value.affine.strides[axis] for axis in order) if value.affine else None
        return value.like(shape, lambda data: data.transpose(0, *(axis + 1 for axis in order)), strides)

    def _together(self, function, left, right, shape):
        if left.region is not right.region:
            left, right = (self.memory.everything.absolute(value) for value in (left, right))
        programs = max(len(left.data), len(right.data))
        arrays = [np.broadcast_to(value.data, (programs, *value.shape)) for value in (left, right)]
        return Value(left.type, shape, function(arrays), region=left.region)

    def create_cat(self, left, right):
        shape = (left.shape[0] + right.shape[0], *left.shape[1:])
        return self._together(lambda arrays: np.concatenate(arrays, axis=1), left, right, shape)

    def create_join(self, left, right):
        return self._together(lambda arrays: np.stack(arrays, axis=-1), left, right, (*left.shape, 2))

    def create_split(self, value):
        return tuple(value.like(value.shape[:-1], lambda data, i=i: data[..., i]) for i in (0, 1))

    # blocks

    def create_dot(self, left, right, sum, *_):
        a, b = left.data, right.data
        to = sum.type
        if left.type.is_int:
            product = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(to.array)
        else:
            wide = np.float64 if to.bits == 64 else np.float32
            product = np.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False)).astype(to.array)
        result = Value(to, sum.shape, to.round(product + sum.data))
        result.is_product = True
        return result

    def create_histogram(self, value, bins, mask=None):
        kept = (value.data >= 0) & (value.data < bins)
        if mask is not None:
            kept = kept & mask.data
        data = np.broadcast_to(value.data, kept.shape)
        rows = np.arange(len(kept)).reshape(-1, *[1] * len(value.shape)) * bins
        counts = np.bincount((data + rows)[kept].ravel(), minlength=len(kept) * bins)
        return Value(INT32, (bins,), counts.reshape(len(kept), bins).astype(np.int32))

    def create_gather(self, source, index, axis):
        programs = max(len(source.data), len(index.data))
        low, high = index.bounds
        if low < 0 or high >= source.shape[axis]:
            raise KernelError(f"tl.gather takes index {low if low < 0 else high} of an axis of {source.shape[axis]}")
        arrays = (np.broadcast_to(value.data, (programs, *value.shape)) for value in (source, index))
        data = np.take_along_axis(*arrays, axis=axis + 1)
        return Value(source.type, index.shape, data, region=source.region)

    # descriptors and block pointers

    def create_make_tensor_descriptor(self, base, shape, strides, block, signed, padding=None):
        return Descriptor(base, shape, strides, block, padding)

    def create_make_block_ptr(self, base, shape, strides, offsets, block, order):
        return Descriptor(base, shape, strides, block, offsets=list(offsets))

    def create_advance(self, pointer, offsets):
        moved = [
            self._linear("add", self.create_int_cast(old, INT64, True), self.create_int_cast(by, INT64, True), INT64)
            for old, by in zip(pointer.offsets, offsets, strict=True)
        ]
        return Descriptor(pointer.base, pointer.shape, pointer.strides, pointer.block, offsets=moved)

    def _pointers(self, descriptor, offsets, checked):
        """The pointers of a block, and its mask: true inside the tensor along the axes in checked."""
        block = descriptor.block
        rank = len(block)
        pointer = self.create_splat(block, descriptor.base)
        mask = None
        for axis in range(rank):
            index = self.create_make_range(0, block[axis])
            start = self.create_splat(index.shape, self.create_int_cast(offsets[axis], INT64, True))
            index = self._linear("add", self.create_int_cast(index, INT64, True), start, INT64)
            for other in range(rank):
                if other != axis:
                    index = self.create_expand_dims(index, other)
            if axis in checked:
                size = self.create_int_cast(descriptor.shape[axis], INT64, True)
                zero = self._constant(INT64, 0)
                inside = self.create_and(
                    self.create_icmpSGE(index, self.create_splat(index.shape, zero)),
                    self.create_icmpSLT(index, self.create_splat(index.shape, size)),
                )
                inside = self.create_broadcast(inside, block)
                mask = inside if mask is None else self.create_and(mask, inside)
            stride = self.create_splat(index.shape, self.create_int_cast(descriptor.strides[axis], INT64, True))
            offset = self.create_broadcast(self._linear("mul", index, stride, INT64), block)
            pointer = self.create_addptr(pointer, offset)
        return pointer, mask

    @staticmethod
    def _padded(padding, type):
        if "NAN" in str(getattr(padding, "name", padding)).upper():
            return Value(type, (), np.array([np.nan], type.array))
        return None

    def create_descriptor_load(self, descriptor, offsets, *_):
        pointer, mask = self._pointers(descriptor, offsets, range(len(descriptor.block)))
        return self.memory.load(pointer, mask, self._padded(descriptor.padding, pointer.type.element))

    def create_descriptor_store(self, descriptor, value, offsets):
        pointer, mask = self._pointers(descriptor, offsets, range(len(descriptor.block)))
        self.memory.store(pointer, value, mask)

    def create_tensor_pointer_load(self, pointer, checked, padding, *_):
        pointers, mask = self._pointers(pointer, pointer.offsets, checked)
        return self.memory.load(pointers, mask, self._padded(padding, pointers.type.element))

    def create_tensor_pointer_store(self, pointer, value, checked, *_):
        pointers, mask = self._pointers(pointer, pointer.offsets, checked)
        self.memory.store(pointers, value, mask)

    # debugging

    def create_print(self, prefix, hexadecimal, values, signed):
        self.engine.print(prefix, values, hexadecimal)

    def create_assert(self, condition, message, *_):
        self.engine.demand(condition, message)

    def create_assume(self, condition):
        self.engine.demand(condition, "tl.assume: the condition does not hold")

    def create_barrier(self, *_):
        """Programs are one thread here."""

    def create_name_loc(self, *_):
        return None

    get_loc = set_loc = create_name_loc


for _name, _type in {
    "half": "fp16", "bf16": "bf16", "float": "fp32", "double": "fp64", "fp8e4nv": "fp8e4nv", "fp8e4b8": "fp8e4b8",
    "fp8e5": "fp8e5", "fp8e5b16": "fp8e5b16", **{f"int{bits}": f"int{bits}" for bits in (1, 8, 16, 32, 64)},
}.items():  # fmt: skip
    setattr(Builder, f"get_{_name}_ty", lambda self, type=TYPES[_type]: type)
for _name, _type in {
    "fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "fp64": "fp64",
    **{f"{sign}int{bits}": f"int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}.items():  # fmt: skip
    setattr(Builder, f"get_{_name}", lambda self, number, type=TYPES[_type]: self._constant(type, number))
