"""Computes Laplacians forward: value, slopes and Laplacian of each variable of a program.

In: a `Program` and the leaves of the arguments. Out: the Laplacian of each output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv import limits
from veenv.engine.known import Known
from veenv.engine.sparse.pattern import Numbers, collection
from veenv.graph.equations import Equation
from veenv.graph.program import Program
from veenv.rules import indexmap, walk
from veenv.rules.base import is_differentiable, replaced
from veenv.rules.table import facts


@dataclass(frozen=True)
class Jet:
    """A variable with its derivatives."""

    value: Array  # the variable
    slopes: Slopes  # its derivatives by the numbers differentiated by that it depends on
    laplacian: Array  # sum of its second derivatives, of its shape


def laplacians(program: Program, inputs: Sequence[Any]) -> list[Array]:
    """Returns the Laplacians of the outputs of a program by the leaves of its arguments."""
    variables: dict[int, Any] = dict(enumerate([*_seeds(inputs), *program.constants]))
    known = Known(program)
    step = lambda equation, ins: _step(equation, ins, known)  # noqa: E731
    read = walk.run(program.equations, variables, step)
    outputs = [read(o) for o in program.outputs]
    return [
        o.laplacian if isinstance(o, Jet) else jnp.zeros(aval.shape, aval.dtype)
        for o, aval in zip(outputs, program.out_avals, strict=True)
    ]


def _seeds(inputs: Sequence[Any]) -> list[Jet]:
    total, start, jets = sum(map(jnp.size, inputs)), 0, []
    for x in map(jnp.asarray, inputs):
        numbers = indexmap.numbered((1, *x.shape), start).astype(np.int32)
        slopes = Slopes(jnp.ones((1, *x.shape), x.dtype), total, numbers)
        jets.append(Jet(x, slopes, jnp.zeros_like(x)))
        start += x.size
    return jets


def _step(equation: Equation, ins: Sequence[Any], known: Known) -> list[Any]:
    """Returns the results of an equation: jets where they depend on active variables."""
    active = [
        i
        for i, (x, aval) in enumerate(zip(ins, equation.in_avals, strict=True))
        if isinstance(x, Jet) and is_differentiable(aval)
    ]
    plain = [x.value if isinstance(x, Jet) else x for x in ins]

    def run(*values: Any) -> list[Any]:
        return walk.apply(equation, replaced(plain, active, values))

    inert = not any(map(is_differentiable, equation.out_avals))  # comparisons and the like
    if not active or inert or facts(equation.primitive.name).stops:
        return run(*(plain[i] for i in active))
    jets = [ins[i] for i in active]
    known_of = facts(equation.primitive.name)
    if known_of.form == "entry" and known_of.linear is None and len(ins) == 1:
        return [_unary(lambda x: run(x)[0], jets[0])]
    if known_of.sums:
        [jet], axes = jets, equation.params["axes"]
        [value], [laplacian] = run(jet.value), run(jet.laplacian)
        return [Jet(value, summed(jet.slopes, axes), laplacian)]
    values = [j.value for j in jets]
    by_operand = dict(zip(active, (j.slopes for j in jets), strict=True))
    slopes, numbers = _met(equation, by_operand, known)

    def push(tangents: Any) -> tuple[Any, Any]:
        return jax.jvp(run, values, list(tangents))

    outs, forward = push([j.laplacian for j in jets])
    pushed, total = jax.vmap(lambda t: push(t)[1])(slopes), jets[0].slopes.total
    carried = [Slopes(s, total, n) for s, n in zip(pushed, numbers, strict=True)]
    linear = {*active} <= {*(known_of.linear_in(len(ins)) or ())}
    linear |= known_of.bilinear and len(active) == 1
    if known_of.bilinear and len(active) == 2:
        twice = jax.vmap(lambda a, b: run(a, b))(*slopes)
        second = [2 * s.sum(axis=0) for s in twice]
    elif not linear:
        second = _second(run, values, slopes)
    else:
        second = [0] * len(outs)
    return [
        Jet(o, s, f + q) if is_differentiable(aval) else o
        for o, s, f, q, aval in zip(outs, carried, forward, second, equation.out_avals, strict=True)
    ]


def _met(
    equation: Equation, by_operand: dict[int, Slopes], known: Known
) -> tuple[list[Array], list[np.ndarray | None]]:
    """Returns the slopes of an equation's operands by the same numbers, and its results' numbers.

    Slopes are by all numbers where it is not known on which numbers a result depends.
    """
    several, shape = list(by_operand.values()), equation.out_avals[0].shape
    name, params = equation.primitive.name, equation.params
    if facts(name).form in ("entry", "same") and all(s.shape == shape for s in several):
        several = aligned(several)
        return [s.values for s in several], [several[0].numbers]
    numbers = several[0].numbers
    if facts(name).form == "move" and all(s.numbers is not None for s in several):
        most = max(len(s.values) for s in several)
        several = [_widened(s, most) for s in several]
        operand_numbers: Any = [np.full((most, *a.shape), -1, np.int32) for a in equation.in_avals]
        for i, s in zip(by_operand, several, strict=True):
            operand_numbers[i] = s.numbers
        slots = zip(*operand_numbers, strict=True)
        rows: Any = [indexmap.move_elements(name, params, slot, shape) for slot in slots]
        return [s.values for s in several], [np.stack(of) for of in zip(*rows, strict=True)]
    if list(by_operand) == [0] and numbers is not None:
        index_maps = indexmap.sources(equation, known)
        if index_maps is not None:
            return [several[0].values], [_gathered(numbers, index_map) for index_map in index_maps]
    return [s.dense().values for s in several], [None] * len(equation.out_avals)


def _unary(fun: Any, x: Jet) -> Jet:
    """Applies an elementwise function of one variable to a jet."""
    one = jnp.ones_like(x.value)

    def slope(v: Array) -> tuple[Array, Array]:
        return jax.jvp(fun, (v,), (one,))[::-1]

    (first, value), (second, _) = jax.jvp(slope, (x.value,), (one,))
    squares = jnp.square(x.slopes.values).sum(axis=0)
    slopes = replace(x.slopes, values=first[None] * x.slopes.values)
    return Jet(value, slopes, first * x.laplacian + second * squares)


def _second(run: Any, values: Sequence[Array], slopes: Sequence[Array]) -> list[Array]:
    """Sums the second directional derivatives of an equation along the slopes."""

    def along(tangents: Sequence[Array]) -> list[Array]:
        def first(*at: Array) -> Any:
            return jax.jvp(run, list(at), list(tangents))[1]

        return jax.jvp(first, list(values), list(tangents))[1]

    derivatives = jax.vmap(along)(list(slopes))
    return [s if s.dtype == jax.dtypes.float0 else s.sum(axis=0) for s in derivatives]


@dataclass(frozen=True)
class Slopes:
    """Derivatives of the elements of an array by the numbers they depend on."""

    values: Array  # [k, *shape]
    total: int  # how many numbers there are
    # int32 [k, *shape], which number each value is the derivative by, -1 for none; None: k is
    # `total`, and each number is by itself
    numbers: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.values.shape[1:]

    def dense(self) -> Slopes:
        """Returns the derivatives by each number."""
        if self.numbers is None:
            return self
        if len(self.numbers) <= limits.THIN:
            every = jnp.arange(self.total, dtype=jnp.int32).reshape(-1, *[1] * len(self.shape))
            total: Any = 0
            for k, number in enumerate(self.numbers):
                total = total + jnp.where(every == number[None], self.values[k : k + 1], 0)
            return Slopes(total, self.total)
        return _spread(self.values, self.numbers, self.total)


def aligned(several: Sequence[Slopes]) -> list[Slopes]:
    """Returns slopes of arrays of one shape by the same numbers in the same places."""
    known = [s.numbers for s in several if s.numbers is not None]
    if len(known) < len(several):
        return [s.dense() for s in several]
    if all(np.array_equal(numbers, known[0]) for numbers in known[1:]):
        return list(several)
    total = several[0].total
    numbers, ranks = _union(np.concatenate(known), total)
    if 2 * len(numbers) > total:  # all numbers take no more work
        return [s.dense() for s in several]
    cuts = np.cumsum([len(k) for k in known])[:-1]
    return [
        Slopes(_collected(s.values, part, len(numbers)), total, numbers)
        for s, part in zip(several, np.split(ranks, cuts), strict=True)
    ]


def summed(s: Slopes, axes: Sequence[int]) -> Slopes:
    """Returns the slopes of the sum along some axes."""
    if s.numbers is None:
        return Slopes(s.values.sum(axis=tuple(a + 1 for a in axes)), s.total)
    count = prod(s.shape[a] for a in axes)
    remaining = [n for a, n in enumerate(s.shape) if a not in axes]
    front = (0, *(a + 1 for a in axes), *(a + 1 for a in range(len(s.shape)) if a not in axes))
    shape = (len(s.numbers) * count, *remaining)
    every = s.numbers.transpose(front).reshape(shape)
    values = s.values.transpose(front).reshape(shape)
    numbers, ranks = _union(every, s.total)
    if 2 * len(numbers) > s.total:  # slots that lie on several devices cannot be taken one by one
        return _spread(values, every, s.total)
    return Slopes(_collected(values, ranks, len(numbers)), s.total, numbers)


def _spread(values: Array, numbers: np.ndarray, total: int) -> Slopes:
    """Returns the derivatives by each number, put at their places."""
    return Slopes(_collected(values, np.where(numbers < 0, total, numbers), total), total)


def _widened(s: Slopes, count: int) -> Slopes:
    """Returns the slopes with so many slots, the further ones by no number."""
    shape = (count - len(s.values), *s.shape)
    if s.numbers is None or not shape[0]:
        return s
    values = jnp.concatenate([s.values, jnp.zeros(shape, s.values.dtype)])
    return Slopes(values, s.total, np.concatenate([s.numbers, np.full(shape, -1, np.int32)]))


def _gathered(numbers: np.ndarray, index_map: np.ndarray) -> np.ndarray:
    """Returns the numbers [k, *shape] of gathered elements, -1 where they are of none."""
    flat = np.append(numbers.reshape(len(numbers), -1), np.full((len(numbers), 1), -1), axis=1)
    at = np.where(index_map < flat.shape[1], index_map, -1)
    return flat[:, at].astype(np.int32)


def _union(numbers: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns each element's numbers, each once: ascending [k, *shape], then -1.

    The second result has, for each input number, its rank among these, k for none.
    """
    every = np.where(numbers < 0, total, numbers)
    order = np.argsort(every, axis=0, kind="stable")
    ascending = np.take_along_axis(every, order, axis=0)
    first = ascending < total
    first[1:] &= ascending[1:] != ascending[:-1]
    rank = np.cumsum(first, axis=0) - 1
    most = int(rank.max(initial=-1)) + 1
    union = np.full((most, *numbers.shape[1:]), -1, np.int32)
    slots = np.nonzero(first)
    union[(rank[slots], *slots[1:])] = ascending[slots]
    rank = np.where(ascending < total, rank, most)
    ranks = np.empty_like(rank)
    np.put_along_axis(ranks, order, rank, axis=0)
    return union, ranks


def _collected(values: Array, ranks: np.ndarray, size: int) -> Array:
    """Adds values [K, *shape] to [size, *shape] by their ranks; ranks of `size` are none."""
    shape = values.shape[1:]
    width = prod(shape)
    results = (ranks.reshape(-1, width) * width + np.arange(width)).reshape(-1)
    order = np.argsort(results, kind="stable")
    order = order[results[order] < size * width]
    collect = collection(order, results[order], size * width, len(results))
    return Numbers(values.reshape(-1)).collected(collect).array().reshape(size, *shape)
