# SPDX-License-Identifier: Apache-2.0
"""Which programs run: the ways of an `if`, the steps of a loop, the returns of a function.

A group is a sorted array of places, the indices of its programs among those that entered the current function. What a
way or a loop ends with is joined again by place, so the values of all programs come together after it.
"""

import copy
from typing import NamedTuple

import numpy as np

from .values import Affine, Value, join


class Undefined:
    """What a name holds before anything is assigned to it."""

    def __repr__(self):
        return "<not assigned>"

    def __getattr__(self, *_):
        raise NameError("a variable is used that is not assigned on this way, or only in a loop that has ended")


_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift")
for _name in (*_OPERATORS, *("r" + name for name in _OPERATORS), "lt", "le", "gt", "ge", "neg", "invert", "bool"):
    setattr(Undefined, f"__{_name}__", Undefined.__getattr__)
UNDEFINED = Undefined()


class Handles:
    """A handle that consists of others, such as a tensor descriptor's."""


class Structures:
    """Takes and joins values of every kind: triton's tensors, tuples and descriptors, and Python's objects."""

    def __init__(self, language):
        self.language = language
        core = language.core
        self.tensor, self.constexpr = core.tensor, core.constexpr
        self.tuple = getattr(core, "tuple", ())
        self.value = getattr(core, "base_value", getattr(core, "_value", ()))

    def parts(self, thing):
        """Returns (children, rebuild) of a structure, or None of a leaf."""
        if isinstance(thing, tuple):
            return thing, (type(thing)._make if hasattr(thing, "_make") else tuple)
        if isinstance(thing, list):
            return thing, list
        if self.tuple and isinstance(thing, self.tuple):
            return thing.values, lambda values: self.tuple(values, thing.type)
        if isinstance(thing, Handles) or (isinstance(thing, self.value) and not isinstance(thing, self.constexpr)):
            names = list(vars(thing))

            def rebuild(values):
                made = copy.copy(thing)
                vars(made).update(zip(names, values, strict=True))
                return made

            return [vars(thing)[name] for name in names], rebuild
        return None

    def take(self, thing, programs):
        if isinstance(thing, self.tensor):
            taken = self.take(thing.handle, programs)
            return thing if taken is thing.handle else self.tensor(taken, thing.type)
        if isinstance(thing, Value):
            return thing.take(programs)
        parts = self.parts(thing)
        if parts is None:
            return thing
        taken = [self.take(child, programs) for child in parts[0]]
        return thing if all(a is b for a, b in zip(taken, parts[0], strict=True)) else parts[1](taken)

    def join(self, parts, programs):
        """One thing of [(places, thing)]; raises TypeError where they have no common type."""
        first = parts[0][1]
        alike = all(thing is first for _, thing in parts[1:])
        if alike and not isinstance(first, (self.tensor, Value)) and self.parts(first) is None:
            return first
        if any(thing is UNDEFINED for _, thing in parts):
            return UNDEFINED
        if isinstance(first, self.tensor):
            kinds = {str(getattr(thing, "type", type(thing))) for _, thing in parts}
            if len(kinds) > 1:
                raise TypeError(f"has another type on each way of an `if` or a loop: {', '.join(sorted(kinds))}")
            handle = self.join([(places, thing.handle) for places, thing in parts], programs)
            return first if handle is first.handle else self.tensor(handle, first.type)
        if isinstance(first, Value):
            return join(parts, programs)
        children = self.parts(first)
        if children is None:
            if all(type(thing) is type(first) and bool(thing == first) for _, thing in parts):
                return first
            raise TypeError(f"is {' or '.join(repr(thing) for _, thing in parts)}, depending on the program")
        rows = [(places, self.parts(thing)[0]) for places, thing in parts]
        joined = [self.join([(places, row[i]) for places, row in rows], programs) for i in range(len(children[0]))]
        return children[1](joined)


class Group(NamedTuple):
    """The programs that run now: their numbers in the grid, and their places in the current function."""

    programs: np.ndarray
    places: np.ndarray

    def take(self, index) -> "Group":
        return Group(self.programs[index], self.places[index])


class Part(NamedTuple):
    group: Group
    taken: tuple | None  # the values with which these programs began
    values: tuple


def gather(engine, whole: Group, before: tuple, parts: list[Part]) -> tuple[Group, tuple]:
    """The group and the values of parts that come together."""
    if len(parts) == 1:
        return parts[0].group, parts[0].values
    places = np.sort(np.concatenate([part.group.places for part in parts]))
    index = np.searchsorted(whole.places, places)
    group = whole if len(index) == len(whole.places) else whole.take(index)
    where = [np.searchsorted(places, part.group.places) for part in parts]
    values = []
    for i in range(len(before)):
        if all(part.taken is not None and part.values[i] is part.taken[i] for part in parts):
            kept = before[i]
            values.append(kept if group is whole else engine.structures.take(kept, index))
            continue
        things = [(at, part.values[i]) for at, part in zip(where, parts, strict=True)]
        try:
            values.append(engine.structures.join(things, len(places)))
        except TypeError as error:
            raise TypeError(f"`{engine.name(i)}` {error}") from None
    return group, tuple(values)


def same_types(engine, before: tuple, after: tuple):
    """Raises TypeError where a variable that had a value has one of another type, which the compiler rejects."""
    tensor = engine.core.tensor
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if old is not new and isinstance(old, tensor) and isinstance(new, tensor) and old.type != new.type:
            raise TypeError(
                f"`{engine.name(i)}` has another type on each way of an `if` or a loop: {old.type}, {new.type}"
            )


class Branch:
    """The ways of an `if`: iterating gives each way's values, with its programs as the engine's group."""

    def __init__(self, engine, test, values, is_dynamic=True):
        self.engine = engine
        self.whole = engine.group
        self.values = values
        self.is_dynamic = is_dynamic  # the test is a tensor
        self.left = False
        self.parts = []
        self.way_taken = values
        self.taken = bool(test) if isinstance(test, (bool, np.bool_)) else None
        self.test = test

    def __iter__(self):
        engine = self.engine
        if self.taken is not None:
            yield self.values
        else:
            for self.taken in (True, False):
                index = np.flatnonzero(self.test == self.taken)
                engine.group = self.whole.take(index)
                self.way_taken = tuple(engine.structures.take(value, index) for value in self.values)
                yield self.way_taken
        if self.parts:
            engine.group, self.values = gather(engine, self.whole, self.values, self.parts)
        else:
            self.left = True

    def end(self, values):
        if len(self.engine.group.places):
            if self.is_dynamic:
                same_types(self.engine, self.way_taken, values)
            self.parts.append(Part(self.engine.group, self.way_taken, values))


class Loop:
    """Programs that finish wait, with their values, for the others.

    What is first assigned in a loop ends with it, as in the compiler, except where the loop is unrolled.
    """

    def __init__(self, engine, is_unrolled=False):
        self.engine = engine
        self.whole = engine.group
        self.is_unrolled = is_unrolled
        self.parts = []
        self.values = None
        self.before = None
        self.is_checked = is_unrolled

    def check(self, values):
        """After the first step: what the loop carries keeps its type."""
        if self.before is None:
            self.before = values
        elif not self.is_checked:
            same_types(self.engine, self.before, values)
            self.is_checked = True

    def keep(self, going: np.ndarray, values):
        """Lets the programs wait that are not going; their values are those of `values`."""
        structures, group = self.engine.structures, self.engine.group
        for index, stays in ((np.flatnonzero(~going), False), (np.flatnonzero(going), True)):
            taken = tuple(structures.take(value, index) for value in values)
            if stays:
                self.engine.group, self.values = group.take(index), taken
            else:
                self.parts.append(Part(group.take(index), None, taken))

    def end(self, values) -> bool:
        if self.parts:
            self.parts.append(Part(self.engine.group, None, values))
            self.engine.group, values = gather(self.engine, self.whole, values, self.parts)
        if not self.is_unrolled:
            pairs = zip(self.before, values, strict=True)
            values = tuple(UNDEFINED if before is UNDEFINED else value for before, value in pairs)
        self.values = values
        return False


class While(Loop):
    def test(self, test, values) -> bool:
        self.check(values)
        going = self.engine.truth(test)
        if isinstance(going, bool):
            if going:
                self.values = values
                return True
            return self.end(values)
        self.keep(going, values)
        return True


class Steps(NamedTuple):
    """range(start, stop, step); the numbers are Python's, or arrays of one for each program."""

    start: object
    stop: object
    step: object
    wrap: object  # makes the index of a number or an array
    is_static: bool = False


class For(Loop):
    """Args:
    target: the place of the loop's variable among the values
    """

    def __init__(self, engine, steps, target):
        super().__init__(engine, steps.is_static)
        self.steps = steps
        self.target = target
        self.count = 0
        self.index = None
        self.uniform = all(isinstance(number, int) for number in steps[:3])
        if self.uniform:
            self.numbers = iter(range(*steps[:3]))
        else:
            numbers = np.broadcast_arrays(*(np.asarray(number, np.int64) for number in steps[:3]))
            self.start, self.stop, self.step = (np.broadcast_to(n, self.whole.places.shape) for n in numbers)

    def next(self, values) -> bool:
        # A variable that had this name before is another, perhaps of another type.
        self.check((*values[: self.target], UNDEFINED, *values[self.target + 1 :]))
        if self.uniform:
            number = next(self.numbers, None)
            if number is None:
                return self.end(values)
            self.index = self.steps.wrap(number)
            self.values = values
            return True
        index = self.start + self.count * self.step
        going = np.where(self.step > 0, index < self.stop, index > self.stop)
        if not going.any():
            return self.end(values)
        if going.all():
            self.values = values
        else:
            self.keep(going, values)
            self.start, self.stop, self.step, index = (n[going] for n in (self.start, self.stop, self.step, index))
        self.index = self.steps.wrap(index)
        self.count += 1
        return True


def scalar(type, number) -> Value:
    """A scalar of a number, or of an array of one for each program."""
    if isinstance(number, np.ndarray) and len(number) == 1:
        number = int(number[0])
    return Value(type, (), affine=Affine(number if isinstance(number, int) else number.astype(np.int64), (), ()))
