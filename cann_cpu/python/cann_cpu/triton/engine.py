# SPDX-License-Identifier: Apache-2.0
"""Runs a kernel for groups of programs: what the rewritten function calls, and the grid.

The rewritten function (rewrite.py) does control flow through control.py, and hands every operator and call to triton's
own language, with a builder (builder.py) whose operations are NumPy's on the values of all programs of a group.
"""

import inspect
import operator
from functools import cache
from typing import NamedTuple

import numpy as np

from . import diagnostics
from .builder import Builder, unsigned
from .control import UNDEFINED, Branch, For, Group, Steps, Structures, While, gather, scalar
from .control import Part as LeftPart
from .diagnostics import KERNELS, KernelError
from .language import Handlers, Triton
from .memory import Memory
from .rewrite import compile_kernel
from .values import INT1, Value

TEMPORARY = 1 << 21
"""Bytes of one temporary of a group of programs, so that those of an expression stay in the cache."""
MOST_PROGRAMS = 1 << 14
PLAIN = {"add": "add", "sub": "sub", "mul": "mul"}
REFLECTED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


@cache
def rewritten(function):
    """Returns (bind, code): the function that makes a rewritten kernel for an engine."""
    namespace = dict(function.__globals__)
    if function.__closure__:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
            namespace[name] = cell.cell_contents
    bind = compile_kernel(function, namespace)
    KERNELS[bind(None).__code__] = function.__name__
    return bind


class Bound(NamedTuple):
    """A function of triton that is called as a method of a tensor."""

    owner: object
    function: object


class Frame:
    """The returns of a function that is running."""

    def __init__(self, whole):
        self.whole = whole
        self.parts = []


class Engine:
    """One launch.

    Args:
        kernel: what is known of the kernel's function, a kernel.Kernel
        grid: the three sizes
        regions: the tensors of the launch
        capacity: bytes of the chip's unified buffer
        poison: the two bytes that new memory is filled with, or None where it is not
    """

    undefined = UNDEFINED

    def __init__(self, kernel, grid, regions, capacity, poison=None):
        self.kernel = kernel
        self.triton = Triton.installed()
        self.core = self.triton.core
        self.structures = Structures(self.triton.language)
        self.grid = grid
        self.capacity = capacity
        self.poison = poison
        self.largest = 1
        self.group = None
        self.is_first = True  # of the groups
        self.frames = []
        self.functions = {}
        self.memory = Memory(self, regions)
        self.builder = Builder(self, self.memory)
        self.passed = self.triton.passed(self.builder)
        self.handlers = Handlers(self)

    # the grid

    def run(self, function, arguments: dict):
        """Runs all programs, in the order of triton's interpreter: the last axis goes fastest."""
        count = int(np.prod(self.grid))
        done = 0
        with np.errstate(all="ignore"):
            while done < count:
                programs = np.arange(done, min(count, done + self.group_size(count)), dtype=np.int64)
                self.group = Group(programs, np.arange(len(programs)))
                self.function(function)(**arguments)
                done += len(programs)
                self.is_first = False

    def group_size(self, count) -> int:
        if self.kernel.one_at_a_time:
            return 1
        if self.kernel.block_bytes is None:
            # The first program tells how large the blocks are.
            self.kernel.block_bytes, size = 0, 1
            return size
        self.kernel.block_bytes = max(self.kernel.block_bytes, self.largest)
        return max(1, min(MOST_PROGRAMS, TEMPORARY // self.kernel.block_bytes))

    def index_of(self, program: int) -> tuple:
        _, y, z = self.grid
        return program // (y * z), program // z % y, program % z

    def program_ids(self, axis):
        if self.grid[axis] == 1:
            return 0
        _, y, z = self.grid
        programs = self.group.programs
        return (programs // (y * z), programs // z % y, programs % z)[axis]

    # functions

    def function(self, function):
        if function not in self.functions:
            self.functions[function] = rewritten(function)(self)
        return self._entered(self.functions[function])

    def _entered(self, function):
        def enter(**arguments):
            whole = self.group
            self.frames.append(Frame(whole))
            self.group = Group(whole.programs, np.arange(len(whole.programs)))
            try:
                return function(**arguments)
            finally:
                self.frames.pop()
                self.group = whole

        return enter

    def leave(self, value):
        """Ends the current programs of the function with a value."""
        self.frames[-1].parts.append(LeftPart(self.group, None, (value,)))
        self.group = Group(self.group.programs[:0], self.group.places[:0])

    def finish(self, value):
        if self.frames[-1].parts:
            self.leave(value)
            return self.result()
        return value

    def result(self):
        """What the function returns, of all its programs."""
        frame = self.frames[-1]
        whole = Group(frame.whole.programs, np.arange(len(frame.whole.programs)))
        parts = frame.parts
        if any(part.values[0] is None for part in parts):
            return None
        values = [part.values[0] for part in parts]
        if len(parts) > 1 and not all(isinstance(value, type(values[0])) for value in values):
            parts = [LeftPart(part.group, None, (self.value(part.values[0]),)) for part in parts]
        return gather(self, whole, (None,), parts)[1][0]

    def name(self, index) -> str:
        """The name of a variable of the function that is running, by its place."""
        import sys

        frame = sys._getframe(1)
        while frame.f_code not in KERNELS:
            frame = frame.f_back
        return frame.f_code.co_varnames[index]

    # control flow

    def truth(self, test):
        """A Python bool if all programs agree, or an array with one for each."""
        test = self.triton.unwrap(test)
        if not isinstance(test, self.core.tensor):
            return bool(test)
        handle = test.handle
        if test.type.is_block() and int(np.prod(handle.shape)) != 1:
            raise ValueError("Boolean value of Tensor with more than one value is ambiguous")
        if handle.constant is not None:
            return bool(handle.constant)
        data = handle.data.reshape(len(handle.data)) != 0
        if data.all():
            return True
        return data if data.any() else False

    def branch(self, test, values):
        return Branch(self, self.truth(test), values, self.is_tensor(self.triton.unwrap(test)))

    def loop(self, steps, target):
        if isinstance(steps, Steps):
            return For(self, steps, target)
        raise RuntimeError("Only `range` and `static_range` iterators are currently supported")

    def while_(self):
        return While(self)

    def steps(self, *bounds, static=False):
        """range(...) of numbers or tensors."""
        bounds = [self.triton.unwrap(bound) for bound in bounds]
        start, stop, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]
        if static:
            return Steps(start, stop, step, self.core.constexpr, is_static=True)
        tensors = [self.to_tensor(bound) for bound in (start, stop, step)]
        if any(tensor.type.is_block() or not tensor.dtype.is_int() for tensor in tensors):
            raise TypeError(f"For loop bounds and step must all be scalar ints, are {[str(t.type) for t in tensors]}")
        type = max((tensor.dtype for tensor in tensors), key=lambda type: type.primitive_bitwidth)

        def number(tensor):
            handle = tensor.handle
            if handle.constant is not None:
                return int(handle.constant)
            data = handle.as_affine().start
            return int(data[0]) if (data == data[0]).all() else data

        element = self.ir_type(type)
        return Steps(*map(number, tensors), lambda index: self.core.tensor(scalar(element, index), type))

    # values

    def ir_type(self, type):
        return type.to_ir(self.builder)

    def to_tensor(self, value):
        return self.triton.to_tensor(value, self.builder)

    def is_tensor(self, value) -> bool:
        return isinstance(value, self.structures.value) and not isinstance(value, self.core.constexpr)

    def value(self, value):
        """What a name holds that is assigned: numbers become tensors, as in the compiler."""
        value = self.triton.unwrap(value)
        if isinstance(value, (bool, int, float)):
            return self.to_tensor(value)
        if type(value) is tuple:
            return tuple(self.value(part) for part in value)
        return value

    def builtin(self, function, *args, **kwargs):
        """Calls a function of triton's language with the builder."""
        return function(*args, **kwargs, **self.triton.extra(function, self.passed))

    def binary(self, op, left, right):
        result = self._direct(op, left, right)
        if result is not None:
            return result
        if self.is_tensor(left):
            owner, name, other = left, f"__{op}__", right
        elif self.is_tensor(right):
            owner, name, other = right, f"__r{op}__", left
        else:
            left, right = self.triton.unwrap(left), self.triton.unwrap(right)
            return getattr(operator, {"and": "and_", "or": "or_"}.get(op, op))(left, right)
        return self._operator(owner, name, other)

    def _direct(self, op, left, right):
        """The sum, difference or product of tensors of one type, without the language's rules for other types."""
        tensor, name = self.core.tensor, PLAIN.get(op)
        if name is None or type(left) is not tensor or type(right) is not tensor or left.type != right.type:
            return None
        kind = left.type.scalar
        if kind.is_floating():
            return tensor(getattr(self.builder, f"create_f{name}")(left.handle, right.handle), left.type)
        if kind.is_int() and kind.primitive_bitwidth > 1:
            return tensor(getattr(self.builder, f"create_{name}")(left.handle, right.handle), left.type)
        return None

    def _operator(self, owner, name, *others):
        method = getattr(owner, name, None)
        if method is None:
            raise TypeError(f"unsupported operand: {type(owner).__name__} has no {name}")
        return self.call(Bound(owner, method) if self.triton.is_jit(method) else method, *others)

    def compare(self, op, left, right):
        if self.is_tensor(left):
            return self._operator(left, f"__{op}__", right)
        if self.is_tensor(right):
            return self._operator(right, f"__{REFLECTED[op]}__", left)
        return getattr(operator, op)(self.triton.unwrap(left), self.triton.unwrap(right))

    def unary(self, op, value):
        if self.is_tensor(value):
            return value if op == "pos" else self._operator(value, f"__{op}__")
        return getattr(operator, op)(self.triton.unwrap(value))

    def not_(self, value):
        value = self.triton.unwrap(value)
        return self._operator(value, "__not__") if self.is_tensor(value) else not value

    def _as_bool(self, value):
        """Operands of and, or: triton-ascend takes those of other types as `value != 0`."""
        return value if value.type.scalar.is_int1() else self.compare("ne", value, 0)

    def _logical(self, name, stops, operands):
        """and, or: numbers that decide end it, as in the compiler; tensors are all computed."""
        kept = None
        for function, names in operands:
            value = self.triton.unwrap(function(*names))
            if not self.is_tensor(value):
                last = value
                if bool(value) is stops:
                    return value
            else:
                last = kept = value if kept is None else self._operator(self._as_bool(kept), name, self._as_bool(value))
        return last if kept is None else kept

    def and_(self, *operands):
        return self._logical("logical_and", False, operands)

    def or_(self, *operands):
        return self._logical("logical_or", True, operands)

    def all_(self, *values):
        return self.and_(*((lambda value=value: value, ()) for value in values))

    def choose(self, test, yes, no):
        """The value of `yes if test else no`."""
        test = self.truth(test)
        if isinstance(test, bool):
            function, names = yes if test else no
            return function(*names)
        branch = Branch(self, test, (yes[1], no[1]), is_dynamic=False)
        for names in branch:
            function = yes[0] if branch.taken else no[0]
            result = self.to_tensor(function(*(names[0] if branch.taken else names[1])))
            branch.end((result, None))
        return branch.values[0]

    def is_(self, left, right):
        return self.triton.unwrap(left) is self.triton.unwrap(right)

    def is_not(self, left, right):
        return not self.is_(left, right)

    def in_(self, left, right):
        return self.triton.unwrap(left) in self.triton.unwrap(right)

    def not_in(self, left, right):
        return not self.in_(left, right)

    def slice(self, *bounds):
        bounds = [self.triton.unwrap(bound) for bound in bounds]
        return slice(*bounds)

    def subscript(self, value, index):
        if isinstance(value, self.core.tensor):
            if isinstance(index, tuple) and not value.type.is_block():
                # triton-ascend takes `:` of a scalar, later versions of triton do not.
                index = tuple(part for part in index if not isinstance(part, slice))
            return self.builtin(value.__getitem__, index)
        index = self.triton.unwrap(index)
        if isinstance(index, self.core.tensor) and index.handle.constant is not None:
            index = int(index.handle.constant)
        return self.triton.unwrap(value)[index]

    def attribute(self, value, name):
        if isinstance(value, self.core.tensor) and name == "T":
            return self.handlers.transpose(value)
        if inspect.ismodule(value) and not hasattr(value, name):
            return self.handlers.supplied(value, name)
        if isinstance(value, self.core.constexpr) and name not in ("value", "type"):
            value = value.value
        if self.is_tensor(value):
            own = getattr(type(value), name, None)
            if self.triton.is_jit(own):
                return Bound(value, own)
        return getattr(value, name)

    def call(self, function, *args, **kwargs):
        if isinstance(function, self.core.constexpr):
            function = function.value
        if isinstance(function, Bound):
            args, function = (function.owner, *args), function.function
        handler = self.handlers.find(function)
        if handler is not None:
            return handler(*args, **kwargs)
        if self.triton.is_jit(function):
            return self.inline(function, args, kwargs)
        extra = self.triton.extra(function, self.passed)
        if extra or self.triton.is_builtin(function):
            return function(*args, **kwargs, **extra)
        if inspect.isclass(function) or getattr(function, "__module__", None) == "builtins":
            args = [self.triton.unwrap(arg) for arg in args]
        return function(*args, **kwargs)

    def inline(self, function, args, kwargs):
        """Calls a @triton.jit function of the kernel."""
        bound = function.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        constants = (self.core.dtype, bool, int, float, self.triton.jit)  # which the compiler makes constexpr as well
        for parameter in function.params:
            value = arguments[parameter.name]
            if parameter.is_constexpr or isinstance(value, constants):
                arguments[parameter.name] = self.core.constexpr(self.triton.unwrap(value))
        return self.function(function.fn)(**arguments)

    def context(self, manager):
        return manager

    # what is reported

    def holds(self, shape, type, is_product_operand=False):
        """Notes a block that is loaded or stored. Operands of a product go to L1, which is larger."""
        bytes = int(np.prod(shape)) * type.bytes
        if bytes > self.largest:
            self.largest = bytes
            if bytes > self.capacity and not is_product_operand:
                diagnostics.too_big(self, bytes, self.capacity)

    def fits(self, *values: Value):
        """Notes the operands of an instruction, which the unified buffer must hold together."""
        # Without those that are one number in each program, which an instruction takes as a scalar.
        own = [v for v in values if v.affine is None and any(v.data.strides[1:])]
        sizes = {id(value): int(np.prod(value.shape)) * value.type.bytes for value in own}
        bytes = sum(sizes.values())
        if bytes > self.capacity:
            diagnostics.too_big(self, bytes, self.capacity)
        if sizes and max(sizes.values()) > self.largest:
            self.largest = max(sizes.values())

    def check(self, test, message):
        """`assert` in a kernel."""
        test = self.triton.unwrap(test)
        if not self.is_tensor(test):
            if not test:
                raise KernelError(f"{diagnostics.where()}: assertion failed: {message}")
            return
        self.demand(test.handle, message)

    def demand(self, condition, message):
        wrong = condition.data == 0 if condition.type is not INT1 else ~condition.data
        if wrong.any():
            lanes = diagnostics.Lanes(self, wrong)
            raise KernelError(f"{diagnostics.where()}: assertion failed: {message}\n  {lanes}")

    def print(self, prefix, values, hexadecimal=False):
        """A line for each program and value."""
        for place, program in enumerate(self.group.programs):
            head = str(self.index_of(int(program))) + (f" {prefix}" if prefix else "")
            if not values:
                print(head)
            for value in values:
                data = value.data[place if len(value.data) > 1 else 0]
                if hexadecimal and data.dtype.kind in "iu":
                    digits = 2 * data.dtype.itemsize
                    bits = unsigned(np.atleast_1d(data))
                    data = " ".join(f"0x{int(number):0{digits}x}" for number in bits.ravel())
                print(head, data)
