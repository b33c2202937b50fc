"""First derivatives of the elements of an array, of which each depends on few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv.engine import places
from veenv.engine.known import Known
from veenv.engine.sparse.numbers import Numbers
from veenv.engine.sparse.pattern import collection
from veenv.graph.equations import Equation

_MOST_COMPARED = 4
"""Most slots that are made dense by comparing numbers, in one loop, instead of by a gather."""


@dataclass(frozen=True)
class Slopes:
    """Derivatives of the elements of an array by the numbers they depend on.

    Attributes:
      values: [k, *shape].
      total: how many numbers there are.
      numbers: int32 [k, *shape], which number each value is the derivative by, -1 for none; None:
        k is `total`, and each number is by itself.
    """

    values: Array
    total: int
    numbers: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.values.shape[1:]

    def dense(self) -> Slopes:
        """The derivatives by each number."""
        if self.numbers is None:
            return self
        if len(self.numbers) <= _MOST_COMPARED:
            every = jnp.arange(self.total, dtype=jnp.int32).reshape(-1, *[1] * len(self.shape))
            found: Any = 0
            for k, number in enumerate(self.numbers):
                found = found + jnp.where(every == number[None], self.values[k : k + 1], 0)
            return Slopes(found, self.total)
        ranks = np.where(self.numbers < 0, self.total, self.numbers)
        return Slopes(_collected(self.values, ranks, self.total), self.total)


def aligned(several: Sequence[Slopes]) -> list[Slopes]:
    """Slopes of arrays of one shape by the same numbers in the same places."""
    known = [s.numbers for s in several if s.numbers is not None]
    if len(known) < len(several):
        return [s.dense() for s in several]
    if all(np.array_equal(numbers, known[0]) for numbers in known[1:]):
        return list(several)
    numbers, ranks = _union(np.concatenate(known), several[0].total)
    if _many(numbers, several[0].total):
        return [s.dense() for s in several]
    cuts = np.cumsum([len(k) for k in known])[:-1]
    return [
        Slopes(_collected(s.values, part, len(numbers)), s.total, numbers)
        for s, part in zip(several, np.split(ranks, cuts), strict=True)
    ]


def summed(s: Slopes, axes: Sequence[int]) -> Slopes:
    """The slopes of the sum along some axes."""
    if s.numbers is None:
        return Slopes(s.values.sum(axis=tuple(a + 1 for a in axes)), s.total)
    gone = prod(s.shape[a] for a in axes)
    kept = [n for a, n in enumerate(s.shape) if a not in axes]
    front = (0, *(a + 1 for a in axes), *(a + 1 for a in range(len(s.shape)) if a not in axes))
    shape = (len(s.numbers) * gone, *kept)
    values, every = (
        s.values.transpose(front).reshape(shape),
        s.numbers.transpose(front).reshape(shape),
    )
    numbers, ranks = _union(every, s.total)
    if _many(numbers, s.total):
        ranks = np.where(every < 0, s.total, every)
        return Slopes(_collected(values, ranks, s.total), s.total)
    return Slopes(_collected(values, ranks, len(numbers)), s.total, numbers)


def joined(several: Sequence[Slopes | None], shapes: Sequence[Any], axis: int) -> Any:
    """Slopes by as many numbers each, and the numbers of the arrays joined along an axis.

    Args:
      several: slopes of the arrays, None where they are zero.
      shapes: of the arrays.
      axis: along which they are joined.

    Returns:
      Slopes of those that have any, and numbers int32 [k, *shape] of the whole; None if one of
      them is dense.
    """
    known = [s for s in several if s is not None]
    if any(s.numbers is None for s in known):
        return None
    most = max(len(s.values) for s in known)
    numbers = []
    for s, shape in zip(several, shapes, strict=True):
        none = np.full((most, *shape), -1, np.int32)
        if s is not None:
            assert s.numbers is not None
            none[: len(s.numbers)] = s.numbers
        numbers.append(none)
    padded = [
        jnp.concatenate([s.values, jnp.zeros((most - len(s.values), *s.shape), s.values.dtype)])
        for s in known
    ]
    return padded, np.concatenate(numbers, axis=axis + 1)


def sources(equation: Equation, known: Known) -> list[np.ndarray] | None:
    """For each element of each result the first operand's element that it is; None if unknown.

    Args:
      equation: of a primitive that only moves elements, or any other.
      known: the variables of the program that are known.
    """
    name, params, shape = equation.primitive.name, equation.params, equation.in_avals[0].shape
    numbered, target = places.numbered(shape), equation.out_avals[0].shape
    if name == "split":
        return np.split(numbered, np.cumsum(params["sizes"])[:-1], params["axis"])
    if len(equation.outputs) > 1:
        return None
    if name in ("squeeze", "expand_dims"):
        return [numbered.reshape(target)]
    if name == "transpose":
        return [numbered.transpose(params["permutation"])]
    if name == "broadcast_in_dim":
        axes = [1] * len(target)
        for axis, n in zip(params["broadcast_dimensions"], shape, strict=True):
            axes[axis] = n
        return [np.broadcast_to(numbered.reshape(axes), target)]
    if name not in ("gather", "dynamic_slice"):
        found = places.moved(equation)
        return None if found is None else [found]
    indices = [known(a) for a in equation.inputs[1:]]
    given = [i for i in indices if i is not None]
    if len(given) < len(indices):
        return None
    gathers = name == "gather"
    return [places.gathered(equation, given[0]) if gathers else places.sliced(equation, given)]


def moved(numbers: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The numbers [k, *shape] of elements taken from an array, -1 where there is none."""
    flat = numbers.reshape(len(numbers), -1)
    found = flat[:, np.maximum(taken, 0)] if flat.size else np.zeros((len(flat), *taken.shape))
    return np.where(taken >= 0, found, -1).astype(np.int32)


def _many(numbers: np.ndarray, total: int) -> bool:
    """Whether so many slots are no less work than all."""
    return 2 * len(numbers) > total


def _union(numbers: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """For each element its numbers, each once.

    Args:
      numbers: int32 [K, *shape], -1 for none.
      total: how many numbers there are.

    Returns:
      Numbers int32 [k, *shape], ascending, then -1; int [K, *shape], which of these each of the
      given ones is, k for none.
    """
    every = np.where(numbers < 0, total, numbers)
    order = np.argsort(every, axis=0, kind="stable")
    ascending = np.take_along_axis(every, order, axis=0)
    first = ascending < total
    first[1:] &= ascending[1:] != ascending[:-1]
    rank = np.cumsum(first, axis=0) - 1
    most = int(rank.max(initial=-1)) + 1
    found = np.full((most, *numbers.shape[1:]), -1, np.int32)
    slots = np.nonzero(first)
    found[(rank[slots], *slots[1:])] = ascending[slots]
    rank = np.where(ascending < total, rank, most)
    ranks = np.empty_like(rank)
    np.put_along_axis(ranks, order, rank, axis=0)
    return found, ranks


def _collected(values: Array, ranks: np.ndarray, size: int) -> Array:
    """Values [K, *shape] added up to [size, *shape] by their ranks; ranks of `size` are none."""
    shape = values.shape[1:]
    width = prod(shape)
    results = (ranks.reshape(-1, width) * width + np.arange(width)).reshape(-1)
    order = np.argsort(results, kind="stable")
    order = order[results[order] < size * width]
    collect = collection(order, results[order], size * width, len(results))
    return Numbers(values.reshape(-1)).collected(collect).array().reshape(size, *shape)
