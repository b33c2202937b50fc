"""Functions of thousands of vertices: random ones, and unrolled loops over scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from veenv import make_graph
from veenv.graph.graph import Graph
from veenv.tasks.evaluation_sets import FIRST_TEST_SEED
from veenv.tasks.random_family import RandomFunctions

Values = list[Any]


def lorenz(x: Values) -> Values:
    """A step of Euler's method of Lorenz's system of 1996."""
    n = len(x)
    return [
        x[i] + 0.01 * ((x[(i + 1) % n] - x[i - 2]) * x[i - 1] - x[i] + 8.0) for i in range(n)
    ]  # fmt: skip


def diffusion(u: Values) -> Values:
    """A step of diffusion on a line, faster where there is more."""
    inner = [u[i] + 0.1 * u[i] * (u[i - 1] - 2.0 * u[i] + u[i + 1]) for i in range(1, len(u) - 1)]
    return [u[0], *inner, u[-1]]


def layer(x: Values) -> Values:
    """A layer of a net of single neurons, with weights that are constants."""
    weights = np.random.default_rng(0).normal(0.0, 0.5, (len(x), len(x)))
    return [jnp.tanh(sum(w * y for w, y in zip(row, x, strict=True))) for row in weights]


def oscillators(x: Values) -> Values:
    """A step of oscillators in a ring that pull at each other (Kuramoto 1975)."""
    n = len(x)
    return [x[i] + 0.1 * (jnp.sin(x[i - 1] - x[i]) + jnp.sin(x[(i + 1) % n] - x[i]))
            for i in range(n)]  # fmt: skip


def predators(x: Values) -> Values:
    """A step of a chain of species in which each eats the one before it."""
    food = [1.0, *x[:-1]]
    eaten = [*x[1:], 0.0]
    return [y * (1.0 + 0.05 * (a - b - 0.5 * y)) for y, a, b in zip(x, food, eaten, strict=True)]


STRUCTURED: tuple[tuple[str, Callable[[Values], Values], int], ...] = tuple(
    (f"{step.__name__}, {width}", step, width)
    for step in (lorenz, diffusion, layer, oscillators, predators)
    for width in ((5, 12) if step is not layer else (4, 8))
)
"""Name, step and number of scalars of every unrolled loop."""

FAMILIES = {"wide": {"inputs": (8, 64), "outputs": (8, 64)}, "narrow": {}}
"""What random functions of a set have besides their number of vertices."""


def unrolled(step: Callable[[Values], Values], width: int, vertices: int) -> Graph:
    """The graph of a loop of about so many vertices."""
    point = np.linspace(0.5, 1.5, width)

    def repeated(times: int) -> Callable[..., tuple[Any, ...]]:
        def fun(*x: Any) -> tuple[Any, ...]:
            values: Sequence[Any] = x
            for _ in range(times):
                values = step(list(values))
            return tuple(values)

        return fun

    def graph(times: int) -> Graph:
        return make_graph(repeated(times), tuple(range(width)))(*point)

    return graph(max(1, round(vertices / max(1, graph(1).num_vertices))))


def large_graph(name: str, vertices: int, index: int) -> tuple[str, Graph]:
    """A function of a set: its name and graph.

    Raises:
      ValueError: there is no such set or function.
    """
    if name == "structured":
        title, step, width = STRUCTURED[index % len(STRUCTURED)]
        return title, unrolled(step, width, vertices)
    if name not in FAMILIES:
        raise ValueError(f"set must be structured or one of {', '.join(FAMILIES)}, got {name!r}")
    family = RandomFunctions(vertices=(vertices, vertices), **FAMILIES[name])
    fun, point = family.draw([FIRST_TEST_SEED, index])
    return f"{name} {index}", make_graph(fun, tuple(range(len(point))))(*point)
