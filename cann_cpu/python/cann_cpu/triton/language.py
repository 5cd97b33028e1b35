# SPDX-License-Identifier: Apache-2.0
"""The installed triton's language: what differs between versions, and the functions that are done here.

Reductions, scans and loops take regions of MLIR in triton's own implementation; here they are loops over halves of an
axis, in which the combining function runs for all elements of all programs at once.
"""

import inspect
import math
from functools import cache, partial

import numpy as np

from .extension import OPERATIONS, BlockPointers, Operation
from .values import TYPES, Value


class Triton:
    """The installed triton (3.2 of triton-ascend, or a later one)."""

    _installed = None

    def __init__(self):
        import triton
        from triton import language
        from triton.language import semantic
        from triton.runtime.jit import JITFunction

        self.triton, self.language, self.core = triton, language, language.core
        self.jit, self.semantic = JITFunction, semantic
        self.semantic_class = getattr(semantic, "TritonSemantic", None)
        if self.semantic_class is not None:
            self._allow_blocks_of_any_size()
        self.unwrap = language.core._unwrap_if_constexpr
        self.extra_names = cache(self._extra_names)
        plain = self.core.tensor.__repr__
        # In a debugger and in messages, tensors of a kernel that runs here show their elements.
        self.core.tensor.__repr__ = lambda tensor: (
            repr(tensor.handle) if isinstance(tensor.handle, Value) else plain(tensor)
        )

    @classmethod
    def installed(cls) -> "Triton":
        if cls._installed is None:
            cls._installed = cls()
        return cls._installed

    def _allow_blocks_of_any_size(self):
        """As triton-ascend does; later ones take powers of two only."""
        core = self.core

        def validate(shape):
            if not all(isinstance(size, int) and size > 0 for size in shape):
                raise ValueError(f"a block of shape {list(shape)}: its sizes must be positive integers")
            return math.prod(shape)

        class Semantic(self.semantic_class):
            def arange(self, start, end, *, ret_ty=None):
                if not isinstance(start, int) or not isinstance(end, int) or end <= start:
                    raise ValueError(f"arange({start}, {end}): both must be constants, the second the larger")
                ret_ty = ret_ty or core.block_type(core.int32, [end - start])
                handle = self.builder.create_make_range(ret_ty.to_ir(self.builder), start, end)
                return self.tensor(handle, ret_ty)

            def _cast_to_computation_type(self, value, dtype):
                """Numbers wrap in the type of the tensor beside them, as in triton-ascend; later ones reject them."""
                negative = isinstance(value, int) and value < 0 and dtype.is_int_unsigned()
                if isinstance(value, int) and dtype.is_int() and dtype.int_bitwidth > 1 and not negative:
                    low = dtype.get_int_min_value()
                    value = (value - low) % (1 << dtype.int_bitwidth) + low
                return super()._cast_to_computation_type(value, dtype)

        core.validate_block_shape = validate
        self.semantic_class = Semantic

    def is_jit(self, function) -> bool:
        return isinstance(function, self.jit)

    def is_builtin(self, function) -> bool:
        return self.core.is_builtin(function)

    def passed(self, builder) -> dict:
        """What functions of the language take besides their arguments."""
        if self.semantic_class is None:
            return {"_builder": builder, "_generator": None}
        semantic = self.semantic_class(builder)
        builder.semantic = semantic
        return {"_semantic": semantic, "_generator": None}

    @staticmethod
    def _extra_names(function):
        if not callable(function):
            return ()
        signature = getattr(function, "signature", None)
        try:
            signature = signature or inspect.signature(function)
        except (TypeError, ValueError):
            return ()
        return tuple(name for name in ("_semantic", "_builder", "_generator") if name in signature.parameters)

    def extra(self, function, passed) -> dict:
        plain = getattr(function, "__func__", function)
        try:
            names = self.extra_names(plain)
        except TypeError:  # not hashable
            names = self._extra_names(plain)
        return {name: passed[name] for name in names if name in passed}

    def type(self, name: str):
        """The type of a signature, such as *fp32."""
        return self.language.str_to_ty(name, None) if self.semantic_class else self.language.str_to_ty(name)

    def mangled(self, tensor) -> str:
        from triton.runtime.jit import type_canonicalisation_dict

        return "*" + type_canonicalisation_dict[str(tensor.dtype).split(".")[-1]]

    def tuple(self, parts, value):
        made = getattr(self.core, "tuple", None)
        if hasattr(value, "_fields"):
            return type(value)(*parts)
        return made(parts) if made else tuple(parts)

    def to_tensor(self, value, builder):
        if self.semantic_class is None:
            return self.semantic.to_tensor(value, builder)
        return builder.semantic.to_tensor(value)


REDUCED = {
    "_sum_combine": np.add,
    "_elementwise_max": np.fmax,
    "_elementwise_min": np.fmin,
    "_prod_combine": np.multiply,
    "_xor_combine": np.bitwise_xor,
    "_or_combine": np.bitwise_or,
    "_any_combine": np.bitwise_or,
}
SCANNED = {"_sum_combine": np.cumsum, "_prod_combine": np.cumprod}
ARG = {
    "_argmax_combine_tie_break_left": np.argmax,
    "_argmax_combine_tie_break_fast": np.argmax,
    "_argmin_combine_tie_break_left": np.argmin,
    "_argmin_combine_tie_break_fast": np.argmin,
}


def of_torch(name):
    """A function of torch.special, which NumPy has not."""

    def function(data):
        import torch

        wide = np.array(data, np.float64 if data.dtype == np.float64 else np.float32)
        return getattr(torch.special, name)(torch.from_numpy(wide)).numpy()

    return function


LIBRARY = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "cbrt": np.cbrt, "cosh": np.cosh, "expm1": np.expm1, "log1p": np.log1p, "log10": np.log10,
    "rint": np.rint, "round": np.round, "nearbyint": np.rint, "sinh": np.sinh, "tan": np.tan, "tanh": np.tanh,
    "trunc": np.trunc, "ceil": np.ceil, "floor": np.floor, "exp": np.exp, "exp2": np.exp2, "log": np.log,
    "log2": np.log2, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "fabs": np.abs, "abs": np.abs,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "recip": lambda x: 1 / x,
    "relu": lambda x: np.maximum(x, 0), "pow": np.power, "atan2": np.arctan2, "fmod": np.fmod, "hypot": np.hypot,
    "div_rn": np.divide, "fdiv": np.divide, "div_rz": lambda x, y: np.trunc(x / y), "floor_div": np.floor_divide,
    "isnan": np.isnan, "isinf": np.isinf, "isfinited": np.isfinite, "finitef": np.isfinite, "max": np.fmax,
    "min": np.fmin, "fmax": np.fmax, "fmin": np.fmin, "ldexp": np.ldexp, "copysign": np.copysign,
    "signbit": np.signbit, "log1pf": np.log1p, "nextafter": np.nextafter, "erf": of_torch("erf"),
    "erfinv": of_torch("erfinv"), "lgamma": of_torch("gammaln"), "cyl_bessel_i0": of_torch("i0"),
    "fast_expf": np.exp, "fast_logf": np.log, "fast_log2f": np.log2,
}  # fmt: skip
"""Functions of libdevice, which triton declares and a backend implements."""


OF_HALVES = ("exp", "exp2", "log", "log2", "cos", "sin", "sqrt", "rsqrt", "erf", "floor", "ceil")


class Handlers:
    """Functions of the language that the engine does itself, found by identity."""

    def __init__(self, engine):
        self.engine = engine
        self.triton = engine.triton
        language, core = self.triton.language, self.triton.core
        self.tensor = core.tensor
        standard = language.standard
        named = {
            "reduce": self.reduce,
            "_reduce_with_indices": self.reduce_with_indices,
            "associative_scan": self.scan,
            "map_elementwise": self.map_elementwise,
            "cast": self.cast,
            "static_print": self.static_print,
            "static_assert": self.static_assert,
            "device_print": self.device_print,
            "device_assert": self.device_assert,
            "range": self.range,
            "static_range": self.static_range,
            "parallel": self.range,
            "multiple_of": self.hint,
            "max_contiguous": self.hint,
            "max_constancy": self.hint,
        }
        self.table = {
            id(getattr(owner, name)): handler
            for owner in (core, core.tensor)
            for name, handler in named.items()
            if hasattr(owner, name)
        }
        for name, handler in {"sort": self.sort, "flip": self.flip}.items():
            if hasattr(standard, name):
                self.table[id(getattr(standard, name))] = handler
        for function, handler in {
            range: self.range,
            print: self.print,
            min: self.least,
            max: self.greatest,
            int: lambda value: int(self.triton.unwrap(value)),
            float: self.float,
        }.items():
            self.table[id(function)] = handler
        for name in OF_HALVES:
            self.table[id(getattr(language.math, name))] = partial(self.of_halves, name)
        self.combine = {id(getattr(standard, name, None)): name for name in {**REDUCED, **SCANNED, **ARG}}
        self.table |= BlockPointers(engine).table

    def find(self, function):
        handler = self.table.get(id(function))
        if handler is not None:
            return handler
        if isinstance(function, Operation):
            return partial(function.function, self.engine)
        owner = getattr(function, "__self__", None)
        if isinstance(owner, self.tensor):
            handler = self.table.get(id(function.__func__))
            if handler is None:
                handler = self.table.get(id(getattr(self.triton.core, function.__name__, None)))
            return handler and (lambda *args, **kwargs: handler(owner, *args, **kwargs))
        module = getattr(function, "__module__", None) or ""
        if "libdevice" in module:
            return lambda *args: self.library(function.__name__, *args)
        return None

    def supplied(self, module, name):
        """What a kernel takes from triton.language that the installed version has not: triton-ascend's, or removed."""
        core = self.triton.core
        if module in (self.triton.language, core) and (name in OPERATIONS or hasattr(core, name)):
            return OPERATIONS.get(name) or getattr(core, name)
        raise AttributeError(f"module {module.__name__} has no attribute {name}")

    def wrap(self, handle: Value, dtype):
        core = self.triton.core
        scalar = dtype.scalar
        return self.tensor(handle, core.block_type(scalar, list(handle.shape)) if handle.shape else scalar)

    # reductions and scans

    def _inputs(self, input):
        many = isinstance(input, (tuple, list, getattr(self.triton.core, "tuple", tuple)))
        return (list(input) if many else [input]), many

    def _packed(self, handles, inputs, many):
        results = [self.wrap(handle, tensor.dtype) for handle, tensor in zip(handles, inputs, strict=True)]
        return tuple(results) if many else results[0]

    def reduce(self, input, axis, combine_fn, keep_dims=False, **_):
        axis, keep_dims = self.triton.unwrap(axis), self.triton.unwrap(keep_dims)
        inputs, many = self._inputs(input)
        handles = [tensor.handle for tensor in inputs]
        rank = len(handles[0].shape)
        if rank == 0:
            return input
        if axis is None:
            handles = [
                handle.like((int(np.prod(handle.shape)),), lambda x: x.reshape(len(x), -1)) for handle in handles
            ]
            axis, kept = 0, (1,) * rank
        else:
            if not -rank <= axis < rank:
                raise ValueError(f"reduction axis must be < inputs rank ({rank}), is {axis}")
            axis %= rank
            kept = tuple(1 if i == axis else size for i, size in enumerate(handles[0].shape))
        results = self._reduced(handles, axis, combine_fn, inputs)
        if keep_dims:
            results = [result.like(kept, lambda data: data.reshape(len(data), *kept)) for result in results]
        return self._packed(results, inputs, many)

    def _reduced(self, handles, axis, combine, inputs):
        first = handles[0]
        self.engine.fits(*handles)
        shape = first.shape[:axis] + first.shape[axis + 1 :]
        name = self.combine.get(id(combine))
        if name in ARG:
            data = first.data
            if data.dtype.kind == "f":
                data = np.where(np.isnan(data), -np.inf if ARG[name] is np.argmax else np.inf, data)
            at = np.expand_dims(ARG[name](data, axis=axis + 1), axis + 1)
            arrays = [
                np.take_along_axis(np.broadcast_to(h.data, (len(h.data), *h.shape)), at[: len(h.data)], axis + 1)
                for h in handles[:1]
            ]
            arrays += [
                np.take_along_axis(np.broadcast_to(h.data, (len(at), *h.shape)), at, axis + 1) for h in handles[1:]
            ]
            return [Value(h.type, shape, a.reshape(len(a), *shape)) for h, a in zip(handles, arrays, strict=True)]
        if name in REDUCED and not (name == "_sum_combine" and first.type.bits < 16):
            data = np.asarray(first.data)
            if name == "_sum_combine":
                result = np.sum(data, axis=axis + 1, dtype=data.dtype)
            else:
                result = REDUCED[name].reduce(data, axis=axis + 1)
            return [Value(first.type, shape, first.type.round(result))]
        # Pairs of neighbours, the left operand the one before; an odd one at the end waits for the next round.
        while (size := handles[0].shape[axis]) > 1:
            even, odd = (self._part(handles, axis, slice(start, size - size % 2, 2)) for start in (0, 1))
            combined = self._call(combine, even, odd, inputs)
            if size % 2:
                rest = self._part(handles, axis, slice(size - 1, size))
                combined = [self._behind(*pair, axis) for pair in zip(combined, rest, strict=True)]
            handles = combined
        return [handle.like(shape, lambda data: data.reshape(len(data), *shape)) for handle in handles]

    @staticmethod
    def _part(handles, axis, part):
        index = (slice(None),) * (axis + 1) + (part,)
        size = len(range(handles[0].shape[axis])[part])
        shape = tuple(size if i == axis else other for i, other in enumerate(handles[0].shape))
        return [handle.like(shape, lambda data: data[index]) for handle in handles]

    @staticmethod
    def _behind(left, right, axis):
        programs = max(len(left.data), len(right.data))
        arrays = [np.broadcast_to(value.data, (programs, *value.shape)) for value in (left, right)]
        data = np.concatenate(arrays, axis=axis + 1)
        return Value(left.type, data.shape[1:], data)

    def _call(self, combine, left, right, inputs):
        """combine(*left, *right) for all elements of the blocks, which have one shape."""
        arguments = [
            self.wrap(handle, tensor.dtype)
            for side in (left, right)
            for handle, tensor in zip(side, inputs, strict=True)
        ]
        result = self.engine.call(combine, *arguments)
        results = self._inputs(result)[0]
        handles = []
        for value, handle in zip(results, left, strict=True):
            value = self.engine.to_tensor(value).handle
            if value.shape != handle.shape:
                value = self.engine.builder.create_splat(handle.shape, value)
            handles.append(value)
        return handles

    def reduce_with_indices(self, input, axis, combine_fn, keep_dims=False, **_):
        axis = self.triton.unwrap(axis)
        size = input.handle.shape[axis]
        builder = self.engine.builder
        index = builder.create_make_range(0, size)
        for other in range(len(input.handle.shape)):
            if other != axis % len(input.handle.shape):
                index = builder.create_expand_dims(index, other)
        index = builder.create_broadcast(index, input.handle.shape)
        indices = self.wrap(index, self.triton.language.int32)
        return self.reduce((input, indices), axis, combine_fn, keep_dims)

    def scan(self, input, axis, combine_fn, reverse=False, **_):
        axis, reverse = self.triton.unwrap(axis), self.triton.unwrap(reverse)
        inputs, many = self._inputs(input)
        handles = [tensor.handle for tensor in inputs]
        axis %= len(handles[0].shape)
        flip = (slice(None),) * (axis + 1) + (slice(None, None, -1),)
        if reverse:
            handles = [handle.like(handle.shape, lambda data: data[flip]) for handle in handles]
        name = self.combine.get(id(combine_fn))
        if name in SCANNED:
            first = handles[0]
            data = SCANNED[name](first.data, axis=axis + 1, dtype=first.data.dtype)
            handles = [Value(first.type, first.shape, first.type.round(data))]
        else:
            handles = self._scanned(handles, axis, combine_fn, inputs)
        if reverse:
            handles = [handle.like(handle.shape, lambda data: data[flip]) for handle in handles]
        return self._packed(handles, inputs, many)

    def _scanned(self, handles, axis, combine, inputs):
        """Each step combines with what is twice as far before, for all elements that have one."""
        before = (slice(None),) * (axis + 1)
        size, distance = handles[0].shape[axis], 1
        while distance < size:
            have = (*before, slice(distance, None))
            left = [
                handle.like(handle.shape, lambda data, d=distance: np.roll(data, d, axis + 1)) for handle in handles
            ]
            joined = []
            for handle, new in zip(handles, self._call(combine, left, handles, inputs), strict=True):
                programs = max(len(handle.data), len(new.data))
                data = np.array(np.broadcast_to(handle.data, (programs, *handle.shape)))
                data[have] = new.data[have]
                joined.append(Value(handle.type, handle.shape, data))
            handles, distance = joined, 2 * distance
        return handles

    def map_elementwise(self, scalar_fn, *args, pack=1, **_):
        """Each element of each program becomes a program."""
        from .control import Group

        engine = self.engine
        if self.triton.unwrap(pack) != 1:
            raise NotImplementedError("tl.map_elementwise with pack > 1 is not implemented on the CPU")
        tensors = [engine.to_tensor(arg) for arg in args]
        shape = max((t.handle.shape for t in tensors), key=len)
        programs, numel = len(engine.group.programs), int(np.prod(shape))
        whole = engine.group
        handles = [engine.builder._as_shape(t.handle, shape) for t in tensors]
        flat = [Value(h.type, (), np.array(np.broadcast_to(h.data, (programs, *shape))).reshape(-1)) for h in handles]
        engine.group = Group(np.repeat(whole.programs, numel), np.arange(programs * numel))
        try:
            result = engine.call(scalar_fn, *(self.wrap(f, t.dtype) for f, t in zip(flat, tensors, strict=True)))
        finally:
            engine.group = whole
        results, many = self._inputs(result)
        packed = []
        for value in results:
            value = engine.to_tensor(value)
            data = np.broadcast_to(value.handle.data, (programs * numel,)).reshape(programs, *shape)
            packed.append(self.wrap(Value(value.handle.type, shape, data), value.dtype))
        return tuple(packed) if many else packed[0]

    # other functions

    def transpose(self, value):
        handle = self.engine.builder.create_trans(value.handle, tuple(reversed(range(len(value.handle.shape)))))
        return self.wrap(handle, value.dtype)

    def sort(self, x, dim=None, descending=False, **_):
        dim, descending = self.triton.unwrap(dim), self.triton.unwrap(descending)
        return self.wrap(self.engine.builder.create_sort(x.handle, -1 if dim is None else dim, descending), x.dtype)

    def flip(self, x, dim=None, **_):
        dim = self.triton.unwrap(dim)
        return self.wrap(self.engine.builder.create_flip(x.handle, -1 if dim is None else dim), x.dtype)

    def cast(self, input, dtype, *args, overflow_mode=None, **kwargs):
        """overflow_mode="saturate" is triton-ascend's: integers end at the limits of the type, as floats always do."""
        dtype, input = self.triton.unwrap(dtype), self.engine.to_tensor(input)
        types = input.dtype.scalar, dtype.scalar
        if self.triton.unwrap(overflow_mode) == "saturate" and all(t.is_int() and not t.is_int1() for t in types):
            handle = self.engine.builder.saturated(input.handle, *map(str, types))
            input = self.tensor(handle, input.type)
        return self.engine.builtin(self.triton.core.cast, input, dtype, *args, **kwargs)

    def of_halves(self, name, x, **_):
        """A function of tl.math, for which later versions of triton-ascend take floats of two bytes as well."""
        x = self.engine.to_tensor(x)
        if x.dtype.scalar.primitive_bitwidth == 16 and x.dtype.scalar.is_floating():
            return self.tensor(getattr(self.engine.builder, f"create_{name}")(x.handle), x.type)
        return self.engine.builtin(getattr(self.triton.language.math, name), x)

    def hint(self, input, values, **_):
        return input

    def range(self, *bounds, start=None, end=None, step=None, **_):
        given = [bound for bound in (start, end, step) if bound is not None]
        return self.engine.steps(*bounds, *given)

    def static_range(self, *bounds, **named):
        return self.engine.steps(*bounds, *named.values(), static=True)

    def least(self, *values):
        return self._extreme(min, "minimum", values)

    def greatest(self, *values):
        return self._extreme(max, "maximum", values)

    def _extreme(self, plain, name, values):
        if not any(self.engine.is_tensor(value) for value in values):
            return plain(*(self.triton.unwrap(value) for value in values))
        result = values[0]
        for value in values[1:]:
            result = self.engine.call(getattr(self.triton.core, name), self.engine.to_tensor(result), value)
        return result

    def float(self, value):
        value = self.triton.unwrap(value)
        return (
            self.engine.call(value.to, self.triton.language.float32) if self.engine.is_tensor(value) else float(value)
        )

    def print(self, *values, **_):
        prefix = ""
        if values and isinstance(self.triton.unwrap(values[0]), str):
            prefix, values = self.triton.unwrap(values[0]), values[1:]
        self.device_print(prefix, *values)

    def static_print(self, *values, sep=" ", end="\n", **_):
        if self.engine.is_first:
            print(*(self.triton.unwrap(value) for value in values), sep=sep, end=end)

    def static_assert(self, condition, message="", **_):
        if not self.triton.unwrap(condition):
            raise AssertionError(f"static assertion failed: {self.triton.unwrap(message)}")

    def device_print(self, prefix, *values, hex=False, **_):
        handles = [self.engine.to_tensor(value).handle for value in values]
        self.engine.print(self.triton.unwrap(prefix), handles, self.triton.unwrap(hex))

    def device_assert(self, condition, message="", mask=None, **_):
        condition = self.engine.to_tensor(condition).handle
        if mask is not None:
            mask = self.engine.to_tensor(mask).handle
            condition = Value(condition.type, condition.shape, condition.data | ~mask.data)
        self.engine.demand(condition, self.triton.unwrap(message))

    def library(self, name, *args):
        if name not in LIBRARY:
            raise NotImplementedError(f"libdevice.{name} is not implemented on the CPU")
        tensors = [self.engine.to_tensor(arg) for arg in args]
        handles = [tensor.handle for tensor in tensors]
        like = max(tensors, key=lambda tensor: len(tensor.handle.shape))
        if name.startswith("is") or name == "finitef":
            data = LIBRARY[name](handles[0].data)
            return self.wrap(Value(TYPES["int1"], handles[0].shape, data), self.triton.language.int1)
        if len(handles) == 1:
            return self.wrap(self.engine.builder.unary(LIBRARY[name], handles[0]), like.dtype)
        return self.wrap(self.engine.builder.binary(LIBRARY[name], *handles, like.handle.type), like.dtype)
