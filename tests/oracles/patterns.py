"""Random programs next to which elements each result depends on, by sets that are written by hand.

A step is a function of a vector and, apart from it, the same of a bool matrix [SIZE, SIZE]: row i
says which elements of the first vector its element i depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse

SIZE = 12

Vector = Any
Sets = np.ndarray


class Step(NamedTuple):
    """A step of vectors, and of sets."""

    fun: Callable[[Vector], Vector]
    sets: Callable[[Sets], Sets]


def _meets(pattern: np.ndarray, s: Sets) -> Sets:
    """What the sums depend on whose terms a matrix names."""
    return pattern.astype(int) @ s > 0


def _groups(s: Sets, width: int) -> Sets:
    """What all elements of a group of so many depend on together, for each of them."""
    return np.repeat(s.reshape(-1, width, SIZE).any(axis=1), width, axis=0)


def _entry(rng: np.random.Generator) -> Step:
    functions = (
        jnp.sin,
        lambda x: x * x,
        lambda x: jnp.exp(-x) * x,
        lambda x: jnp.where(x > 0.4, x, x**3),
        lambda x: jnp.maximum(x, 0.2 * x * x),
        lambda x: lax.cond(x[0] > 0.1, jnp.sin, jnp.tanh, x),
    )
    return Step(functions[rng.integers(len(functions))], lambda s: s)


def _masked(rng: np.random.Generator) -> Step:
    mask, k = rng.random(SIZE) < 0.5, int(rng.integers(1, SIZE))
    return Step(
        lambda x: jnp.where(mask, x, jnp.roll(x, k) ** 2),
        lambda s: np.where(mask[:, None], s, np.roll(s, k, axis=0)),
    )


def _gather(rng: np.random.Generator) -> Step:
    at, own = rng.integers(0, SIZE, SIZE), bool(rng.integers(2))
    if own:
        return Step(lambda x: x[at] * x, lambda s: s[at] | s)
    return Step(lambda x: 1.5 * x[at], lambda s: s[at])


def _scatter(rng: np.random.Generator) -> Step:
    to, source, how = rng.permutation(SIZE)[:5], rng.integers(0, SIZE, 5), int(rng.integers(3))
    if how == 1:
        to = rng.integers(0, SIZE, 5)

    def fun(x: Vector) -> Vector:
        if how == 0:
            return x.at[to].set(jnp.sin(x[source]))
        return x.at[to].add(x[source] ** 2) if how == 1 else jnp.zeros(SIZE).at[to].set(x[source])

    def sets(s: Sets) -> Sets:
        found = np.zeros_like(s) if how == 2 else s.copy()
        if how == 1:
            np.logical_or.at(found, to, s[source])
        else:
            found[to] = s[source]
        return found

    return Step(fun, sets)


def _segments(rng: np.random.Generator) -> Step:
    segment, back = rng.integers(0, 5, SIZE), rng.integers(0, 5, SIZE)
    pattern = np.eye(5, dtype=bool)[segment].T
    return Step(
        lambda x: jax.ops.segment_sum(x * x, segment, 5)[back], lambda s: _meets(pattern, s)[back]
    )


def _stencil(rng: np.random.Generator) -> Step:
    mode: Any = rng.choice(["constant", "edge", "wrap", "reflect"])

    def fun(x: Vector) -> Vector:
        y = jnp.pad(x, 1, mode=mode)
        return x * (y[2:] - 0.3 * y[:-2])

    def sets(s: Sets) -> Sets:
        y = np.pad(s, [(1, 1), (0, 0)], mode=mode)
        return s | y[2:] | y[:-2]

    return Step(fun, sets)


def _cumulative(rng: np.random.Generator) -> Step:
    rows, reverse = int(rng.choice([1, 2, 3])), bool(rng.integers(2))
    kind = (lax.cumsum, lax.cummax, lax.cumlogsumexp)[rng.integers(3)]

    def sets(s: Sets) -> Sets:
        s = s.reshape(rows, -1, SIZE)
        s = s[:, ::-1] if reverse else s
        s = np.logical_or.accumulate(s, axis=1)
        return (s[:, ::-1] if reverse else s).reshape(SIZE, SIZE)

    return Step(lambda x: kind(x.reshape(rows, -1), axis=1, reverse=reverse).ravel() * 0.3, sets)


def _coo(values: np.ndarray) -> sparse.BCOO:
    places = np.argwhere(values)
    made: Any = sparse.BCOO  # JAX's types ask for its own arrays
    return made((values[tuple(places.T)], places), shape=values.shape)


def _matrix(rng: np.random.Generator) -> Step:
    """Products with matrices that hold their entries, or are known to be mostly zeros."""
    values = rng.normal(size=(SIZE, SIZE)) * (rng.random((SIZE, SIZE)) < 0.15)
    small = values[:6, :6] + np.eye(6)
    there = values != 0
    kind, coo, rows = int(rng.integers(6)), _coo(values), sparse.BCSR.from_bcoo(_coo(values))

    def fun(x: Vector) -> Vector:
        if kind == 0:
            return coo @ x
        if kind == 1:
            return rows @ jnp.sin(x)
        if kind == 2:
            return coo.T @ x
        if kind == 3:
            return x @ coo
        if kind == 4:
            return jnp.asarray(values) @ x
        return jnp.tanh(_coo(small) @ x.reshape(6, 2)).ravel()

    def sets(s: Sets) -> Sets:
        if kind == 5:
            both = _meets(small != 0, s.reshape(6, -1)).reshape(6, 2, SIZE)
            return both.reshape(SIZE, SIZE)
        return _meets(there.T if kind in (2, 3) else there, s)

    return Step(fun, sets)


def _by_data(rng: np.random.Generator) -> Step:
    """The elements of the vector are the entries of a matrix."""
    places = rng.permutation(SIZE * 3)[:SIZE]
    indices = np.stack(np.divmod(places, 3), axis=1)
    of = np.eye(SIZE, dtype=bool)[indices[:, 0]].T

    def fun(x: Vector) -> Vector:
        return sparse.BCOO((x, jnp.asarray(indices)), shape=(SIZE, 3)) @ jnp.arange(1.0, 4)

    return Step(fun, lambda s: _meets(of, s))


def _small(rng: np.random.Generator) -> Step:
    """Determinants, inverses, solutions and factors of three matrices of two rows."""
    kind = int(rng.integers(5))

    def fun(x: Vector) -> Vector:
        blocks = 0.3 * x.reshape(3, 2, 2) + 3 * jnp.eye(2)[None]
        if kind == 0:
            return jnp.repeat(jax.vmap(jnp.linalg.det)(blocks), 4)
        if kind == 1:
            return jnp.repeat(jax.vmap(lambda a: jnp.linalg.slogdet(a)[1])(blocks), 4)
        if kind == 2:
            return jax.vmap(jnp.linalg.inv)(blocks).ravel()
        if kind == 3:
            return jnp.repeat(jax.vmap(lambda a: jnp.linalg.solve(a, a[0] ** 2))(blocks), 2)
        both = blocks + jnp.swapaxes(blocks, 1, 2)
        return jnp.repeat(jax.vmap(jnp.linalg.eigvalsh)(both), 2)

    return Step(fun, lambda s: _groups(s, 4))


def _scan(rng: np.random.Generator) -> Step:
    """Residuals of steps that carry the row before, or all rows before."""
    width, backwards, all_before = int(rng.choice([2, 3])), bool(rng.integers(2)), rng.integers(2)

    def turn(before: Vector, now: Vector) -> tuple[Vector, Vector]:
        if all_before:
            fresh = jnp.tanh(before + now)
            return fresh, fresh
        return now, now * now - before

    def fun(x: Vector) -> Vector:
        rows = x.reshape(-1, width)
        return lax.scan(turn, jnp.ones(width), rows, reverse=backwards)[1].ravel()

    def sets(s: Sets) -> Sets:
        rows = s.reshape(-1, width, SIZE)
        rows = rows[::-1] if backwards else rows
        none = np.zeros_like(rows[:1])
        before = np.concatenate([none, rows[:-1]])
        found = np.logical_or.accumulate(rows, axis=0) if all_before else rows | before
        return (found[::-1] if backwards else found).reshape(SIZE, SIZE)

    return Step(fun, sets)


def _sorted(rng: np.random.Generator) -> Step:
    """Whose elements they are depends on values."""
    kind, width = int(rng.integers(3)), int(rng.choice([3, 4]))
    functions = (
        lambda x: jnp.sort(x.reshape(-1, width), axis=1).ravel(),
        lambda x: jnp.repeat(jnp.max(x.reshape(-1, width), axis=1), width),
        lambda x: jnp.repeat(jnp.median(x.reshape(-1, width), axis=1), width),
    )
    return Step(functions[kind], lambda s: _groups(s, width))


def _resized(rng: np.random.Generator) -> Step:
    """Made larger and cut, by a linear map that is read off the unit vectors."""
    method = str(rng.choice(["linear", "cubic", "nearest"]))
    fun = lambda x: jax.image.resize(x, (20,), method)[4 : 4 + SIZE]  # noqa: E731
    there = np.asarray(jax.vmap(fun, out_axes=1)(jnp.eye(SIZE))) != 0
    return Step(fun, lambda s: _meets(there, s))


def _turned(rng: np.random.Generator) -> Step:
    rows, cut = int(rng.choice([2, 3, 4])), int(rng.integers(1, SIZE))

    def fun(x: Vector) -> Vector:
        x = x.reshape(rows, -1).T.ravel()
        return jnp.concatenate([x[cut:], x[:cut] ** 2])

    def sets(s: Sets) -> Sets:
        s = s.reshape(rows, -1, SIZE).transpose(1, 0, 2).reshape(SIZE, SIZE)
        return np.roll(s, -cut, axis=0)

    return Step(fun, sets)


def _columns(rng: np.random.Generator) -> Step:
    """Some columns of small blocks, put beside each other."""
    a, b = (int(k) for k in rng.permutation(3)[:2])

    def block(r: Vector) -> Vector:
        return jnp.stack([r[a] * r[b], r[b], r[0] - r[1]])

    def sets(s: Sets) -> Sets:
        r = s.reshape(-1, 3, SIZE)
        return np.stack([r[:, a] | r[:, b], r[:, b], r[:, 0] | r[:, 1]], axis=1).reshape(s.shape)

    return Step(lambda x: jax.vmap(block)(x.reshape(-1, 3)).ravel(), sets)


def _along(rng: np.random.Generator) -> Step:
    at = rng.integers(0, 4, (3, 4))
    return Step(
        lambda x: jnp.take_along_axis(x.reshape(3, 4), at, axis=1).ravel(),
        lambda s: np.take_along_axis(s.reshape(3, 4, SIZE), at[..., None], axis=1).reshape(s.shape),
    )


STEPS = (
    _entry, _masked, _gather, _scatter, _segments, _stencil, _cumulative, _matrix, _by_data,
    _small, _scan, _sorted, _resized, _turned, _columns, _along,
)  # fmt: skip


def _ruled(fun: Callable[[Vector], Vector], kind: int) -> Callable[[Vector], Vector]:
    """The function as it is, or with a derivative rule of its own."""
    if kind == 0:
        return fun
    if kind == 1:
        own = jax.custom_jvp(fun)
        own.defjvp(lambda primals, tangents: jax.jvp(fun, primals, tangents))
        return own
    other = jax.custom_vjp(fun)
    other.defvjp(lambda x: (fun(x), x), lambda x, g: jax.vjp(fun, x)[1](g))
    return other


class Written(NamedTuple):
    """A random program of a vector [SIZE].

    Attributes:
      fun: the program.
      there: bool [SIZE, SIZE], which element of the result may depend on which of the vector.
      names: of its steps.
    """

    fun: Callable[[Vector], Vector]
    there: np.ndarray
    names: tuple[str, ...]


def written(seed: int) -> Written:
    """The program of a seed: some steps, about half of them with rules of their own, in others."""
    rng = np.random.default_rng([seed, 7])
    makers = [STEPS[k] for k in rng.integers(0, len(STEPS), rng.integers(2, 5))]
    steps = [make(rng) for make in makers]
    kinds = [int(k) for k in rng.choice(3, len(steps) + 1, p=(0.5, 0.25, 0.25))]

    def run(x: Vector) -> Vector:
        for step, kind in zip(steps, kinds[1:], strict=True):
            x = _ruled(step.fun, kind)(x)
        return x

    there = np.eye(SIZE, dtype=bool)
    for step in steps:
        there = step.sets(there)
    names = tuple(make.__name__.strip("_") for make in makers)
    return Written(_ruled(run, kinds[0]), there, names)


def points(seed: int) -> np.ndarray:
    """Some vectors: float64 [4, SIZE]."""
    return np.random.default_rng([seed, 8]).uniform(-1.2, 1.2, (4, SIZE))
