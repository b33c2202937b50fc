"""Random programs of gathers, scatters, stencils, windows, sorts, loops, solves, thin matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax

from tests.oracles import patterns

Vector = Any
Step = Callable[[Vector, Any], Vector]
"""A vector and the run-time indices to the next vector."""

SIZE = patterns.SIZE


def _of_vectors(make: Callable[[np.random.Generator], patterns.Step]) -> Any:
    """A step whose sets are known, too, as one of run-time indices, which it does not read."""

    def step_of(rng: np.random.Generator, n: int) -> Step:
        step = make(rng)
        return lambda x, at: step.fun(x)

    return step_of


def _shift(rng: np.random.Generator, n: int) -> Step:
    k = int(rng.integers(1, n))
    return lambda x, at: jnp.roll(x, k) * x


def _convolution(rng: np.random.Generator, n: int) -> Step:
    del n
    kernel = rng.normal(size=3)
    return lambda x, at: jnp.convolve(x, kernel, "same")


def _take(rng: np.random.Generator, n: int) -> Step:
    indices = rng.integers(-n - 2, n + 2, size=n)
    mode = str(rng.choice(["clip", "wrap", "fill"]))

    def step(x: Vector, at: Any) -> Vector:
        return jnp.take(x, indices, mode=mode, fill_value=0.5) * x

    return step


def _scatter(rng: np.random.Generator, n: int) -> Step:
    indices = rng.permutation(n)[:4]
    twice = rng.integers(0, n, size=5)
    how = int(rng.integers(4))

    def step(x: Vector, at: Any) -> Vector:
        if how == 0:
            return x.at[indices].set(x[:4] ** 2)
        if how == 1:
            return x.at[twice].add(jnp.sin(x[:5]))
        return (
            x.at[indices].multiply(x[1:5], unique_indices=True)
            if how == 2
            else x.at[twice].subtract(x[:5] * x[0])
        )

    return step


def _set_slice(rng: np.random.Generator, n: int) -> Step:
    start, size = int(rng.integers(0, n - 4)), int(rng.integers(1, 4))
    return lambda x, at: x.at[start : start + size].set(x[-size:] ** 2)


def _blocks(rng: np.random.Generator, n: int) -> Step:
    del n
    weights = rng.normal(size=(2, 2))
    return lambda x, at: jnp.tanh(x.reshape(-1, 2) @ weights).reshape(-1)


def _grid(rng: np.random.Generator, n: int) -> Step:
    axis, sign = int(rng.integers(2)), int(rng.choice([-1, 1]))

    def step(x: Vector, at: Any) -> Vector:
        u = x.reshape(2, -1)
        return (u * u - jnp.roll(u, sign, axis) + u[::-1]).ravel()

    return step


def _windows(rng: np.random.Generator, n: int) -> Step:
    del n
    kind = int(rng.integers(4))

    def step(x: Vector, at: Any) -> Vector:
        if kind == 0:
            return lax.reduce_window(x, 0.0, lax.add, (3,), (1,), "SAME")
        if kind == 1:
            return lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), "SAME") + x
        if kind == 2:
            return jnp.cumsum(x.reshape(2, -1), axis=1).ravel() * 0.3
        return jnp.tile(x[: x.size // 2] * x[0], 2)

    return step


def _total(rng: np.random.Generator, n: int) -> Step:
    k = int(rng.integers(0, n))
    return lambda x, at: x * x[k] + jnp.concatenate([x[:1], x[:-1]])


def _run_time(rng: np.random.Generator, n: int) -> Step:
    kind = int(rng.integers(6))

    def step(x: Vector, at: Any) -> Vector:
        if kind == 0:
            return x.at[at].add(x[:4] ** 2)
        if kind == 1:
            return x * jnp.tile(x[at], n // 4 + 1)[:n]
        if kind == 2:  # XLA's update in place goes wrong where it reads what it overwrites
            y = lax.dynamic_update_slice(x, x[:1] ** 2, (at[1],))
            return y.at[:3].add(lax.dynamic_slice(x, (at[0],), (3,)))
        if kind == 3:
            return x[(np.arange(n) + at[2]) % n] * x
        if kind == 4:
            return x.at[at[3]].set(x[0] * x[1])
        return jax.ops.segment_sum(jnp.sin(x), (np.arange(n) * at[1]) % n, n) + x

    return step


def _springs(rng: np.random.Generator, n: int) -> Step:
    """Differences of gathered elements, added up where they came from."""
    i, j = rng.integers(0, n, size=(2, n))

    def step(x: Vector, at: Any) -> Vector:
        d = x[i] - x[j]
        force = d * jnp.exp(-d * d)
        return x.at[i].add(-force).at[j].add(force)

    return step


def _picture(rng: np.random.Generator, n: int) -> Step:
    """A small convolution of a picture of two rows."""
    del n
    kernel = rng.normal(size=(1, 1, 2, 3))

    def step(x: Vector, at: Any) -> Vector:
        picture = x.reshape(1, 1, 2, -1)
        return lax.conv_general_dilated(picture, kernel, (1, 1), "SAME").ravel() * 0.5

    return step


def _known_slice(rng: np.random.Generator, n: int) -> Step:
    """Dynamic slices at places that are known when tracing."""
    start, to = (int(k) for k in rng.integers(0, n, size=2))

    def step(x: Vector, at: Any) -> Vector:
        part = lax.dynamic_slice(x, (np.int32(start),), (n // 2,))
        return lax.dynamic_update_slice(x, part * x[: n // 2], (np.int32(to),)) + x[::-1]

    return step


def _extremes(rng: np.random.Generator, n: int) -> Step:
    """Which elements are taken depends on their values."""
    kind, segments = int(rng.integers(4)), rng.permutation(n) % 4

    def step(x: Vector, at: Any) -> Vector:
        if kind == 0:
            return jnp.sort(x) * x
        if kind == 1:
            return jnp.tile(lax.top_k(x, n // 2)[0], 2) + x
        if kind == 2:
            return jax.ops.segment_max(x, segments, 4)[segments] * x
        return x[jnp.argsort(x)] + jnp.min(x) * x

    return step


def _loops(rng: np.random.Generator, n: int) -> Step:
    """Recurrences, what every turn of them gives, a buffer that is filled."""
    kind, backwards = int(rng.integers(4)), bool(rng.integers(2))

    def turn(c: Vector, x: Vector) -> tuple[Vector, Vector]:
        c = jnp.tanh(c + x)
        return c, c * x

    def step(x: Vector, at: Any) -> Vector:
        rows = x.reshape(3, -1)
        if kind == 0:
            return lax.scan(turn, jnp.zeros(n // 3), rows, reverse=backwards)[1].ravel()
        if kind == 1:
            return lax.fori_loop(1, n, lambda i, h: h.at[i].set(h[i] * jnp.sin(h[i - 1])), x)
        if kind == 2:
            return lax.scan(turn, rows[0], rows[1:])[0].sum() * x + rows[::-1].ravel()
        return lax.scan(lambda c, _: (jnp.roll(c, 4) * c, None), x, None, length=2)[0]

    return step


def _branches(rng: np.random.Generator, n: int) -> Step:
    which = int(rng.integers(4))

    def step(x: Vector, at: Any) -> Vector:
        branches = [jnp.sin, lambda x: x[::-1] * 0.5, lambda x: jnp.cumsum(x) * 0.2]
        index = at[0] % 3 if which == 3 else which
        return lax.switch(index, branches, x)

    return step


def _solves(rng: np.random.Generator, n: int) -> Step:
    """Triangular solves and factors of small matrices, some in batches."""
    kind, lower = int(rng.integers(4)), bool(rng.integers(2))
    matrix = rng.normal(size=(4, 4)) + 4 * np.eye(4)

    def step(x: Vector, at: Any) -> Vector:
        sides = x.reshape(4, -1)
        if kind == 0:
            return jsl.solve_triangular(matrix + 0.1 * sides @ sides.T, sides, lower=lower).ravel()
        if kind == 1:
            return jnp.linalg.solve(matrix, sides).ravel() * x
        blocks = x[:8].reshape(2, 2, 2)
        if kind == 2:
            symmetric = blocks @ blocks.mT + 3 * np.eye(2)[None]
            return jnp.concatenate([jnp.linalg.cholesky(symmetric).ravel(), x[8:] ** 2])
        return jnp.concatenate([lax.linalg.lu(blocks + 3 * np.eye(2)[None])[0].ravel(), x[8:] ** 2])

    return step


def _matrices(rng: np.random.Generator, n: int) -> Step:
    """Products with matrices that are mostly zeros, known or made of the vector."""
    kind = int(rng.integers(4))
    thin = np.where(rng.random((n, n)) < 0.2, rng.normal(size=(n, n)), 0.0)
    mask = (rng.random(n) < 0.5).astype(float)
    rows = rng.integers(0, n, size=n)

    def step(x: Vector, at: Any) -> Vector:
        if kind == 0:
            return thin @ x + x
        if kind == 1:
            return mask * x * x + x[::-1]
        if kind == 2:
            return jax.nn.one_hot(rows, n, dtype=x.dtype) @ x * x
        block, none = jnp.sin(x[:4].reshape(2, 2)), jnp.zeros((2, n - 2))
        top = jnp.concatenate([block, none], 1)
        return jnp.concatenate([top @ x, x[2:] * jnp.pad(x[:3], (0, n - 5))])

    return step


STEPS = (
    _shift, _convolution, _take, _scatter, _set_slice, _blocks, _grid, _windows, _total, _run_time,
    _springs, _picture, _known_slice, _extremes, _loops, _branches, _solves, _matrices,
    *(_of_vectors(make) for make in patterns.STEPS),
)  # fmt: skip


def program(seed: int) -> Callable[[Any, Any], Any]:
    """A random function of a vector [SIZE] and four run-time indices; it keeps the size."""
    rng = np.random.default_rng(seed)
    steps = [STEPS[k](rng, SIZE) for k in rng.integers(0, len(STEPS), size=rng.integers(2, 6))]
    if rng.random() < 0.3:  # indices at run time in every third program at least
        steps.insert(int(rng.integers(0, len(steps) + 1)), _run_time(rng, SIZE))
    shape = ((SIZE,), (3, 4), (2, 2, 3))[int(rng.integers(3))]

    def run(x: Any, at: Any) -> Any:
        for step in steps:
            x = step(x, at)
        return x.reshape(shape)

    return run


def point(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two vectors and their run-time indices: float64 [2, SIZE] and int64 [2, 4]."""
    rng = np.random.default_rng([seed, 1])
    return rng.uniform(0.3, 1.7, size=(2, SIZE)), rng.integers(0, SIZE, size=(2, 4))
