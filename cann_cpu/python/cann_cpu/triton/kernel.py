# SPDX-License-Identifier: Apache-2.0
"""A compiled kernel: what triton's `JITFunction.run` launches. A launch is a task of the current stream."""

import ast
import os
import threading
from functools import cached_property

from .. import chips, python_task
from . import runtime
from .engine import Engine
from .language import Triton
from .memory import Region, region_of
from .values import Affine, PointerType, Value

POISON = b"\xa5\xff"
MOST_BLOCKS = 65535
ALL_BLOCKS = "TRITON_ALL_BLOCKS_PARALLEL"


class Analysis:
    """What the source of a kernel, and of the functions that it calls, tells before it runs."""

    def __init__(self, function):
        self.has_atomics = False
        self.has_products = False
        self.one_at_a_time = False
        self.block_bytes = None
        self.lock = threading.Lock()
        self.written = self._visit(function, {})

    def _visit(self, function, seen) -> set:
        """Returns the parameters through which a function stores."""
        if function in seen:
            return seen[function]
        seen[function] = set()
        tree = function.parse()
        node = tree.body[0]
        called = {}
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            self.has_atomics |= name.startswith("atomic_")
            self.has_products |= name in ("dot", "dot_scaled")
            self.one_at_a_time |= name in ("breakpoint", "set_trace")
            target = self._called(function, call.func)
            if target is not None:
                called[call] = target, self._visit(target, seen)
        for loop in (each for each in ast.walk(node) if isinstance(each, ast.While)):
            # Programs that wait for each other: an earlier one must be done before the next begins.
            names = {getattr(c.func, "attr", "") for c in ast.walk(loop) if isinstance(c, ast.Call)}
            waits = {getattr(c.func, "attr", "") for c in ast.walk(loop.test) if isinstance(c, ast.Call)}
            self.one_at_a_time |= "load" in waits or any(name.startswith("atomic_") for name in names)
        seen[function] = self._stored(node, called)
        return seen[function]

    @staticmethod
    def _called(function, expression):
        scope = function.fn.__globals__
        thing = None
        if isinstance(expression, ast.Name):
            thing = scope.get(expression.id)
        elif isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            thing = getattr(scope.get(expression.value.id), expression.attr, None)
        return thing if Triton.installed().is_jit(thing) else None

    @staticmethod
    def _stored(node, called) -> set:
        """Follows names from the pointers of stores back to parameters; what is loaded is no pointer."""
        parameters = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        sources = {name: {name} for name in parameters}

        def names(expression):
            if isinstance(expression, ast.Call) and getattr(expression.func, "attr", "") in ("load", "program_id"):
                return set()
            if isinstance(expression, ast.Name):
                return sources.get(expression.id, set())
            return set().union(*(names(child) for child in ast.iter_child_nodes(expression)))

        assignments = [
            each for each in ast.walk(node) if isinstance(each, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For))
        ]
        changed = True
        while changed:
            changed = False
            for each in assignments:
                value = each.iter if isinstance(each, ast.For) else each.value
                if value is None:
                    continue
                found = names(value)
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                for target in (part for top in targets for part in ast.walk(top) if isinstance(part, ast.Name)):
                    if not found <= sources.setdefault(target.id, set()):
                        sources[target.id] = sources[target.id] | found
                        changed = True
        written = set()
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
            name = getattr(call.func, "attr", "")
            if call in called:
                target, stored = called[call]
                for i, argument in enumerate(call.args):
                    if i < len(target.params) and target.params[i].name in stored:
                        written |= names(argument)
                for keyword in call.keywords:
                    if keyword.arg in stored:
                        written |= names(keyword.value)
            elif name == "store" or name.startswith("atomic_"):
                owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
                pointer = call.args[:1] or [k.value for k in call.keywords if k.arg == "pointer"]
                for expression in [*pointer, *owner]:
                    written |= names(expression)
        return written


ANALYSES = {}


class Kernel:
    """Stands where triton's CompiledKernel does.

    Args:
        source: triton's ASTSource: the function, the signature, the constants
        metadata: the options of the launch, such as num_warps
    """

    function = None
    packed_metadata = ()
    n_regs = n_spills = 0

    def __init__(self, source, target, options):
        self.src = source
        self.jit = source.fn
        self.name = source.fn.__name__
        self.metadata = options
        self.hash = f"{id(source):x}"
        self.asm = {}
        self.options = options
        self.triton = Triton.installed()

    @cached_property
    def analysis(self) -> Analysis:
        function = self.jit.fn
        if function not in ANALYSES:
            ANALYSES[function] = Analysis(self.jit)
        return ANALYSES[function]

    def _init_handles(self):
        """Nothing is loaded."""

    def launch_metadata(self, grid, stream, *args):
        return None

    def __getitem__(self, grid):
        def launch(*args, stream=None):
            self.run(*grid, *[1] * (3 - len(grid)), stream, None, (), None, None, None, *args)

        return launch

    # arguments

    def _types(self, values) -> list:
        """Returns (name, type of the signature or "constexpr", value) for each parameter."""
        signature, constants = self.src.signature, self.src.constants
        names = [parameter.name for parameter in self.jit.params]
        if len(values) == len(names) and all(name in signature for name in names):
            return [(name, signature[name], value) for name, value in zip(names, values, strict=True)]
        given = iter(values)  # without the constants, as launches of triton 3.2 and of FlagGems are
        rows = []
        for parameter in self.jit.params:
            value = None if parameter.is_constexpr else next(given)
            for key in (parameter.name, parameter.num, (parameter.num,)):
                if key in constants:
                    rows.append((parameter.name, "constexpr", constants[key]))
                    break
            else:
                rows.append((parameter.name, signature[parameter.name], value))
        return rows

    def _argument(self, engine, name, type, value, regions):
        core = self.triton.core
        if type == "constexpr":
            return core.constexpr(value)
        if isinstance(type, tuple):
            parts = [
                self._argument(engine, f"{name}[{i}]", t, v, regions)
                for i, (t, v) in enumerate(zip(type, value, strict=True))
            ]
            return self.triton.tuple(parts, value)
        if type.startswith("tensordesc"):
            base = self._pointer(engine, name, value.base, regions)
            numbers = [engine.to_tensor(int(number)) for number in (*value.shape, *value.strides)]
            rank = len(value.shape)
            return engine.builtin(
                core.make_tensor_descriptor, base, numbers[:rank], [*numbers[rank:-1], core.constexpr(1)],
                [core.constexpr(size) for size in value.block_shape], value.padding,
            )  # fmt: skip
        if type.startswith("*"):
            return self._pointer(engine, name, value, regions, type)
        dtype = self.triton.type(type)
        element = engine.ir_type(dtype)
        if element.is_int and element.name != "int1":
            return core.tensor(engine.builder._constant(element, int(value)), dtype)
        return core.tensor(engine.builder._constant(element, value), dtype)

    def _pointer(self, engine, name, tensor, regions, type=None):
        core = self.triton.core
        dtype = self.triton.type(type or self.triton.mangled(tensor))
        element = engine.ir_type(dtype.element_ty)
        if name not in regions:
            regions[name] = Snapshot(name, tensor, element)
        start = Affine(regions[name].origin, (), ())
        return core.tensor(Value(PointerType(element), (), affine=start, region=regions[name].region), dtype)

    # launches

    def run(self, x, y, z, stream, function, packed, metadata, enter, exit, *values):
        grid = tuple(int(size) for size in (x, y, z))
        programs = grid[0] * grid[1] * grid[2]
        if programs > MOST_BLOCKS and os.environ.get(ALL_BLOCKS, "0") == "0":
            raise RuntimeError(
                f"{self.name}: a grid of {' x '.join(map(str, grid))} has {programs:,} programs, and an NPU takes "
                f"{MOST_BLOCKS:,}: let each do more, or set {ALL_BLOCKS}=1, with which triton-ascend loops over them"
            )
        if 0 in grid:
            return
        rows = self._types(values)
        # Made twice: here for the checks of the arguments and the addresses, and in the task, whose state is its own.
        tensors = list(self._tensors(rows))
        for name, tensor in tensors:
            device = getattr(getattr(tensor, "base", tensor), "device", None)
            if device is not None and device.type == "cpu":
                raise ValueError(f"Pointer argument ({name}) cannot be accessed from Triton (cpu tensor?)")
        snapshots = {name: Snapshot(name, tensor) for name, tensor in tensors}
        rows = [(name, type, self._kept(name, type, value, snapshots)) for name, type, value in rows]
        written = self.analysis.written
        accesses = [(s.address, s.bytes, s.name.split("[")[0] in written) for s in snapshots.values() if s.bytes]
        for hook in (enter,):
            if hook is not None:
                hook(metadata)
        python_task.launch(self.name, lambda: self.execute(grid, rows), accesses)
        if exit is not None:
            exit(metadata)

    def _tensors(self, rows):
        for name, type, value in rows:
            if isinstance(type, tuple):
                yield from self._tensors(
                    [(f"{name}[{i}]", t, v) for i, (t, v) in enumerate(zip(type, value, strict=True))]
                )
            elif type != "constexpr" and hasattr(value, "data_ptr"):
                yield name, value
            elif type != "constexpr" and hasattr(value, "base"):
                yield name, value.base

    def _kept(self, name, type, value, snapshots):
        """An argument without the tensor, whose memory the stream's order keeps."""
        if isinstance(type, tuple):
            return tuple(
                self._kept(f"{name}[{i}]", t, v, snapshots) for i, (t, v) in enumerate(zip(type, value, strict=True))
            )
        if type == "constexpr" or name not in snapshots:
            return value
        if hasattr(value, "data_ptr"):
            return snapshots[name]
        return snapshots[name].described(value)

    def execute(self, grid, rows):
        """Runs all programs, in the thread that calls it."""
        regions = {}
        pending = []
        engine = Engine(self.analysis, grid, pending, capacity(), poison())
        arguments = {name: self._argument(engine, name, type, value, regions) for name, type, value in rows}
        pending += [snapshot.region for snapshot in regions.values()]
        engine.run(self.jit.fn, arguments)


class Snapshot:
    """A tensor's memory, as it was when the kernel was launched; it stands for the tensor."""

    def __init__(self, name, tensor, element=None):
        self.name = name
        if isinstance(tensor, Snapshot):
            self.address, self.bytes, self.storage = tensor.address, tensor.bytes, tensor.storage
            self.dtype, self.origin = tensor.dtype, tensor.origin
        else:
            made, self.origin = region_of(name, tensor, None)
            self.address, self.bytes, self.storage = made.address, made.bytes, made.storage
            self.dtype = tensor.dtype
        self.region = element and Region(name, self.address, self.bytes, element, self.storage)

    def described(self, descriptor):
        """A tensor descriptor of the host, with this as its base."""
        import copy

        kept = copy.copy(descriptor)
        kept.base = self
        return kept

    def data_ptr(self):
        return self.address


def capacity() -> int:
    """Bytes of the unified buffer of the chip in use."""
    return chips.chips()[runtime.chip()].unified_buffer


def poison() -> bytes | None:
    """What the check `memory` fills new memory with (kPoison of runtime/checks/memory/guarded.cpp)."""
    return POISON if "memory" in os.environ.get("CANN_CPU_CHECK", "").split(",") else None
