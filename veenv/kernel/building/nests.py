"""Nests of loops over entries of arrays, as textbooks write them, and short ones unrolled.

An algorithm is written once, as a function of a `Nest`: indices are Python integers where it is
unrolled, and numbers of the program where it is loops, each of which carries all arrays that the
algorithm writes. Numbers of outer steps are captured where an inner step needs them.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from veenv import limits
from veenv.kernel.building.builder import Builder, Ids, constant
from veenv.kernel.scalar_program import INDEX, Buffer, Leaf, Loop, Routine, ScalarProgram
from veenv.rules.indexmap import strides_of


class Number(NamedTuple):
    """A number, or an array, of a step: how many loops it is in, and its operation there."""

    level: int
    id: int


Index = Number | int
"""The place of an entry, or a bound of a loop."""
_FEW = 4  # steps that are written one after the other


class Matrix(NamedTuple):
    """Entries of an array of a nest at equal distances along axes, mostly two."""

    array: int
    start: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def turned(self) -> Matrix:
        """The transpose."""
        return self._replace(strides=self.strides[::-1], shape=self.shape[::-1])


class _Level:
    """The builder of a step, and what is captured in it."""

    def __init__(self, b: Builder):
        self.b = b
        self.captured: dict[Number, int] = {}
        self.leaves: list[Leaf] = []

    def input(self, leaf: Leaf) -> int:
        """The number, or array, that is one more argument of the step."""
        attr = len(self.leaves), None if leaf.shape else 0
        self.leaves.append(leaf)
        return self.b.op("input", leaf.dtype, attr=attr)


class Nest:
    """Writes an algorithm of floats of one dtype.

    Args:
      b: the program.
      dtype: of the numbers.
      unrolled: whether its loops are.
    """

    def __init__(self, b: Builder, dtype: str, unrolled: bool):
        self.dtype, self.unrolled = dtype, unrolled
        self._levels = [_Level(b)]
        self._arrays: list[Any] = []
        """Of each array its entries' operations, or its own; of what is only read a `Number`."""
        self._leaves: list[Leaf] = []
        self._condition: Number | None = None

    @property
    def b(self) -> Builder:
        """The builder of the step that is written now."""
        return self._levels[-1].b

    def array(self, ids: Sequence[int], fixed: bool = False) -> int:
        """The number of an array with these entries, of which there is one at least."""
        leaf = Leaf((len(ids),), self.b.ops[ids[0]].dtype)
        return self._add([*ids] if self.unrolled else self.b.array(ids), leaf, fixed)

    def _add(self, whole: Any, leaf: Leaf, fixed: bool) -> int:
        self._arrays.append(Number(0, whole) if fixed and not self.unrolled else whole)
        self._leaves.append(leaf)
        return len(self._arrays) - 1

    def matrix(self, ids: Ids, fixed: bool = False, needed: Any = True) -> Matrix:
        """A matrix, [rows, columns], that is written, or only read: `fixed`.

        It is where it lies already, if nothing else lies there or it is only read. Of what is only
        read some entries are `needed`.
        """
        place = self.lying(ids, fixed, needed)
        if place is None:
            zero = self.b.number(0, self.b.ops[int(ids.flat[0])].dtype)
            flat = np.where(needed, ids, zero).ravel().tolist()
            place = Matrix(self.array(flat, fixed), 0, (ids.shape[1], 1), ids.shape)
        return place

    def lying(self, ids: Ids, fixed: bool = False, needed: Any = True) -> Matrix | None:
        """The same of any axes, where it lies in memory; None where it does not."""
        place = None if self.unrolled else lies(self.b, ids, np.broadcast_to(needed, ids.shape))
        if place is None or not (fixed or self.b.entries(place[0]) == ids.size):
            return None
        whole, start, strides = place
        leaf = Leaf((self.b.entries(whole) or 1,), self.b.ops[whole].dtype)
        return Matrix(self._add(whole, leaf, fixed), start, strides, ids.shape)

    def placed(self, ids: Ids) -> Matrix | Number | None:
        """Returns read-only arrays where they lie; few numbers and constants are copied there."""
        if (ids == ids.flat[0]).all():
            return Number(0, int(ids.flat[0]))
        place = self.lying(ids, fixed=True)
        if place is not None:
            return place
        few = ids
        for axis in range(ids.ndim):
            first = few.take([0], axis)
            few = few if (few != first).any() else first
        if few.size * limits.FEW > ids.size and constant(self.b, few) is None:
            return None
        pairs = zip(strides_of(few.shape), few.shape, strict=True)
        strides = tuple(row if count > 1 else 0 for row, count in pairs)
        return Matrix(self.array(few.ravel().tolist(), fixed=True), 0, strides, ids.shape)

    def entries(self, m: Matrix) -> Ids:
        """The operations of a matrix' entries."""
        along = zip(np.indices(m.shape), m.strides, strict=True)
        places = sum((k * stride for k, stride in along), np.full(m.shape, m.start))
        places, whole = places.ravel().tolist(), self._arrays[m.array]
        one = [whole[k] for k in places] if self.unrolled else self.b.entries_at(whole, places)
        return np.array(one, np.int64).reshape(m.shape)

    def whole(self, m: Matrix) -> int:
        """The operation of the array that a matrix lies in."""
        return self._arrays[m.array]

    def number(self, value: float, dtype: str = "") -> Number:
        """A constant."""
        return Number(len(self._levels) - 1, self.b.number(value, dtype or self.dtype))

    def op(self, name: str, *args: Index, dtype: str = "", attr: Any = None) -> Number:
        """An operation; integers are indices."""
        ids = [self._here(a) for a in args]
        return Number(len(self._levels) - 1, self.b.op(name, dtype or self.dtype, *ids, attr=attr))

    def __getattr__(self, name: str) -> Callable[..., Number]:
        return functools.partial(self.op, name)

    def computed(self, compute: Callable[..., int], *args: Number) -> Number:
        """The result of a function of the builder and the operations of numbers."""
        return Number(len(self._levels) - 1, compute(self.b, *map(self._here, args)))

    def test(self, name: str, x: Index, y: Index) -> Number:
        """A comparison."""
        return self.op(name, x, y, dtype="bool")

    def plus(self, i: Index, k: Index) -> Index:
        """The sum of indices."""
        if isinstance(i, int) and isinstance(k, int):
            return i + k
        return i if k == 0 else k if i == 0 else self.op("add", i, k, dtype=INDEX)

    def times(self, i: Index, k: int) -> Index:
        """An index times a stride."""
        return i * k if isinstance(i, int) else i if k == 1 else self.op("mul", i, k, dtype=INDEX)

    def _place(self, m: Matrix, index: Sequence[Index]) -> Index:
        """The place of an entry."""
        if self.unrolled:  # the same of integers
            products: Any = map(operator.mul, index, m.strides)
            return sum(products, m.start)
        each = map(self.times, index, m.strides)
        return functools.reduce(self.plus, each, m.start)

    def get(self, m: Matrix, *index: Index) -> Number:
        """An entry."""
        place, whole = self._place(m, index), self._arrays[m.array]
        if self.unrolled:
            return Number(0, whole[place])
        array = self._here(whole) if isinstance(whole, Number) else whole
        dtype = self._leaves[m.array].dtype
        return Number(len(self._levels) - 1, self.b.op("read", dtype, array, self._here(place)))

    def set(self, m: Matrix, *index: Index, to: Index) -> None:
        """Writes an entry."""
        place, value_id, whole = self._place(m, index), self._here(to), self._arrays[m.array]
        if self.unrolled:
            if self._condition is not None:
                rest = self._condition, Number(0, value_id), Number(0, whole[place])
                value_id = self.op("select", *rest, dtype=self._leaves[m.array].dtype).id
            whole[place] = value_id
        else:
            dtype = self._leaves[m.array].dtype
            self._arrays[m.array] = self.b.op("write", dtype, whole, self._here(place), value_id)

    def swap(self, m: Matrix, i: Index, other: Number) -> None:
        """Exchanges two rows, of which the other is the same or a later one, for each point."""
        rows, columns = m.shape

        def exchange(r: Index, j: Index) -> None:
            x, y = self.get(m, i, j), self.get(m, r, j)
            self.set(m, i, j, to=y)
            self.set(m, r, j, to=x)

        def compare(r: Index) -> None:
            row = functools.partial(self.loop, 0, columns, functools.partial(exchange, r))
            self.where(self.test("eq", other, r), row)

        self.loop(self.plus(i, 1), rows, compare)

    def where(self, condition: Number, body: Callable[[], Any]) -> None:
        """Runs `body`, which writes arrays alone, for points for which a condition holds."""
        if self.unrolled:
            self._condition = condition
            body()
            self._condition = None
        else:

            def holds(turn: Number) -> Number:
                return self.op("and", condition, self.test("eq", turn, 0), dtype="bool")

            first = self.number(0, INDEX)
            self._loop(lambda _: body() or [self.number(1, INDEX)], [first], None, 1, holds)

    def loop(
        self,
        start: Index,
        stop: Index,
        step: Callable[..., Any],
        *carry: Number,
        usual: int = 0,
    ) -> list[Number]:
        """Runs `step` for each index; returns what is carried, which it takes and gives.

        `usual` is about how many steps there are where the bounds are not known; by default half of
        those to the end, such as where each turn of a loop around begins one later.
        """
        bounds: Any = start, stop
        known = isinstance(start, int) and isinstance(stop, int)
        if self.unrolled or (known and bounds[1] - bounds[0] <= _FEW):
            for i in range(*bounds):
                carry = tuple(step(i, *carry) or ())
            return [*carry]
        length = bounds[1] - bounds[0] if known else None
        half = stop // 2 + 1 if isinstance(stop, int) else limits.UNKNOWN_STEPS
        goes_on = None if known else lambda i: self.test("lt", i, stop)

        def body(i: Number, *numbers: Number) -> list[Any]:
            return [self.op("add", i, 1, dtype=INDEX), *(step(i, *numbers) or ())]

        first = self.op("convert", start, dtype=INDEX)
        return self._loop(body, [first, *carry], length, usual or half, goes_on)[1:]

    def block(self, count: int, step: Callable[[Index], Any], routine: Routine | None) -> None:
        """Runs so many steps, or has a library do the same for each point.

        They write arrays alone.
        """
        if self.unrolled:
            self.loop(0, count, step)
        else:
            self._loop(lambda: self.loop(0, count, step), [], 1, routine=routine)

    def routine(self, name: str, *arguments: Any) -> Routine | None:
        """A routine of LAPACK or BLAS in the place of a block."""
        if self.unrolled:
            return None
        written = [k for k, whole in enumerate(self._arrays) if not isinstance(whole, Number)]
        fixed = {x: len(written) + k for k, x in enumerate(self._fixed)}
        known: list[Any] = []
        for one in arguments:
            if isinstance(one, Matrix):
                whole = self._arrays[one.array]
                number = fixed[whole] if isinstance(whole, Number) else written.index(one.array)
                one = Buffer(number, one.start, one.shape[::-1], one.strides[::-1])
            known.append(one)
        letter = {"float32": "s", "float64": "d"}[self.dtype]
        return Routine(letter + name, tuple(known), self.dtype)

    @property
    def _fixed(self) -> dict[Number, None]:
        return dict.fromkeys(x for x in self._arrays if isinstance(x, Number))

    def _loop(
        self,
        body: Callable[..., Sequence[Index]],
        carry: Sequence[Number],
        length: int | None,
        usual: int = limits.UNKNOWN_STEPS,
        goes_on: Callable[[Number], Number] | None = None,
        routine: Routine | None = None,
    ) -> list[Number]:
        outer, before = self._levels[-1], [*self._arrays]
        written = [k for k, whole in enumerate(before) if not isinstance(whole, Number)]
        args = [*(before[k] for k in written), *map(self._here, carry)]
        leaves = [*(self._leaves[k] for k in written)]
        leaves += [Leaf((), outer.b.ops[i].dtype) for i in args[len(written) :]]
        level = _Level(Builder())
        self._levels.append(level)
        depth = len(self._levels) - 1
        ids = [*map(level.input, leaves)]
        for k, i in zip(written, ids, strict=False):
            self._arrays[k] = i
        numbers = [Number(depth, i) for i in ids[len(written) :]]
        if routine is not None:  # its arguments are in their order
            for whole in self._fixed:
                self._here(whole)
        condition = [] if goes_on is None else [self._here(goes_on(numbers[0]))]
        outs = [self._here(x) for x in body(*numbers)]
        results = [*(self._arrays[k] for k in written), *outs, *condition]
        self._levels.pop()
        outputs = tuple(Leaf((), level.b.ops[i].dtype) for i in results)
        places = tuple((i,) for i in results)
        program = ScalarProgram(tuple(level.leaves), tuple(level.b.ops), outputs, places)
        nest = Loop(program, len(args), 0, length, usual=usual, routine=routine)
        nest = outer.b.loops.setdefault(nest.digest(), nest)
        captured = [self._here(x) for x in level.captured]
        loop = outer.b.op("loop", "bool", *args, *captured, attr=nest)
        parts = [outer.b.op("part", leaf.dtype, loop, attr=k) for k, leaf in enumerate(leaves)]
        for k, whole in enumerate(before):
            self._arrays[k] = whole
        for k, part in zip(written, parts, strict=False):
            self._arrays[k] = part
        return [Number(depth - 1, part) for part in parts[len(written) :]]

    def _here(self, x: Index) -> int:
        """The operation of a number in the step that is written now."""
        depth, level = len(self._levels) - 1, self._levels[-1]
        if isinstance(x, int):
            return level.b.number(x, INDEX)
        if x.level == depth:
            return x.id
        op = self._levels[x.level].b.ops[x.id]
        if op.name == "const":
            return level.b.const(op.attr)
        if x not in level.captured:
            pairs = zip(self._arrays, self._leaves, strict=True)
            shape = next((leaf.shape for whole, leaf in pairs if whole == x), ())
            level.captured[x] = level.input(Leaf(shape, op.dtype))
        return level.captured[x]


def lies(b: Builder, ids: Ids, needed: np.ndarray) -> tuple[int, int, tuple[int, ...]] | None:
    """The array in which those entries of a matrix lie that are needed, of any axes.

    Also where the first entry is, and the distances along the axes; None where there is no array.
    """
    if not needed.any():
        return None
    first = b.ops[int(ids[needed][0])]
    if first.name not in ("entry", "input"):
        return None
    ops = [b.ops[i] for i in ids[needed].tolist()]
    if any(op.name != first.name for op in ops):
        return None
    rows = [op.attr if op.name == "input" else (op.args[0], op.attr) for op in ops]
    wholes, known = zip(*rows, strict=True)
    if any(whole != wholes[0] for whole in wholes):
        return None
    table = np.zeros(ids.shape, np.int64)
    table[needed] = known
    distances, places = list[int](), np.zeros(ids.shape, np.int64)
    for axis, along in enumerate(np.indices(ids.shape)):
        both = np.delete(needed, 0, axis) & np.delete(needed, -1, axis)
        distances.append(int(np.diff(table, axis=axis)[both][0]) if both.any() else 0)
        places += along * distances[-1]
    start = known[0] - int(places[needed][0])
    if (table != start + places)[needed].any():
        return None
    if first.name == "entry":
        return wholes[0], start, tuple(distances)
    low, high = min(known), max(known)
    whole = b.array([b.input(wholes[0], place, first.dtype) for place in range(low, high + 1)])
    return whole, start - low, tuple(distances)


class Formula(NamedTuple):
    """How each entry of an array is computed, from entries of others at the same place."""

    operands: tuple[Ids, ...]  # in the shape of the array
    compute: Callable[..., int] = lambda b, i: i  # of a builder and one entry of each
    length: int = 0  # how many equations it comes from

    def reader(self, n: Nest) -> Callable[..., Number] | None:
        """What reads an entry in a nest, by its indices; None where an operand is not in memory."""
        places = [n.placed(ids) for ids in self.operands]
        if None in places:
            return None

        def read(*index: Index) -> Number:
            entries = (n.get(x, *index) if isinstance(x, Matrix) else x for x in places)
            return n.computed(self.compute, *entries)  # pyright: ignore[reportArgumentType]

        return read


def _formula(b: Builder, ids: Ids) -> Formula:
    """The formula of an array that is some entries of another with one; else it is read."""
    first = b.ops[int(ids.flat[0])]
    known = b.formulas.get(first.args[0]) if first.name == "entry" else None
    ops = [] if known is None else [b.ops[i] for i in ids.ravel().tolist()]
    if known is None or any(op.name != "entry" or op.args != first.args for op in ops):
        return Formula((ids,))
    places = np.array([op.attr for op in ops]).reshape(ids.shape)
    return known._replace(operands=tuple(x.ravel()[places] for x in known.operands))


def _read(n: Nest, ids: Ids) -> tuple[Formula, Callable[..., Number] | None]:
    """A formula of an array, of entries that are in memory, and what reads an entry by it."""
    for formula in (_formula(n.b, ids), Formula((ids,))):
        if (reader := formula.reader(n)) is not None:
            return formula, reader
    return Formula((ids,)), None


def entrywise(
    b: Builder, ins: Sequence[Ids], dtype: str, compute: Callable[..., int], cheap: bool
) -> Ids | None:
    """The result of an operation on each entry of arrays in memory, as loops; None of others.

    `compute` goes from a builder and entries of the operands, of one shape. Single numbers, those
    that are broadcast and constants may be operands, too, but not constants alone. What is `cheap`
    is computed again where it is needed, and not stored if it is needed in loops only.
    """
    n, shape = Nest(b, dtype, unrolled=False), ins[0].shape
    if all(constant(b, ids) is not None for ids in ins):
        return None
    pairs = [_read(n, ids) for ids in ins]
    if any(reader is None for _, reader in pairs):
        return None
    out = Matrix(n.array([b.number(0, dtype)] * prod(shape)), 0, strides_of(shape), shape)

    def run(*index: Index) -> None:
        if len(index) < len(shape):
            n.loop(0, shape[len(index)], functools.partial(run, *index))
            return
        numbers = [reader(*index) for _, reader in pairs if reader is not None]
        n.set(out, *index, to=n.computed(compute, *numbers))

    run()
    formulas = [formula for formula, _ in pairs]
    length = 1 + sum(formula.length for formula in formulas)
    if cheap and length <= limits.MANY:

        def whole(b: Builder, *entries: int) -> int:
            rest = iter(entries)
            parts = (f.compute(b, *itertools.islice(rest, len(f.operands))) for f in formulas)
            return compute(b, *parts)

        operands = tuple(ids for formula in formulas for ids in formula.operands)
        b.formulas[n.whole(out)] = Formula(operands, whole, length)
    return n.entries(out)


def reduced(b: Builder, ids: Ids, name: str, start: int) -> Ids | None:
    """Rows of an array in memory, combined by an operation from a start on; None of others."""
    n = Nest(b, b.ops[start].dtype, unrolled=False)
    m, formula = n.lying(ids, fixed=True), _formula(b, ids)
    if m is None:
        return None
    reader = (formula.reader(n) if formula.length else None) or functools.partial(n.get, m)
    (rows, columns), out = ids.shape, n.matrix(np.full((len(ids), 1), start))

    def run(i: Index) -> None:
        step = lambda j, total: [n.op(name, total, reader(i, j))]  # noqa: E731
        [total] = n.loop(0, columns, step, Number(0, start))
        n.set(out, i, to=total)

    n.loop(0, rows, run)
    return n.entries(out)[:, 0]
