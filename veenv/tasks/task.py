"""The record of a benchmark task: a function and a point at which to differentiate it."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeAlias

import numpy as np
from jaxtyping import Array, Float

Scalar: TypeAlias = Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Task:
    """A function to differentiate, with a point at which no derivative vanishes by chance.

    Attributes:
      name: unique name; look-up ignores case.
      fun: pure JAX function of the arguments that ``example_args`` returns. It works in float32
        and in float64 alike.
      example_args: returns the point: a tuple with one pytree of float64 NumPy arrays for each
        argument of ``fun``. Called anew each time, so that nobody can change another's point.
      argnums: arguments to differentiate, as in ``jax.jacrev``.
      description: one sentence.
      source: where the equations come from.

    Examples:
      >>> task = Task.at("product", lambda x, y: x * y, (2.0, [3.0, 4.0]), "", "")
      >>> task.argnums, task.fun(*task.example_args()).tolist()
      ((0, 1), [6.0, 8.0])
    """

    name: str
    fun: Callable[..., Any]
    example_args: Callable[[], tuple[Any, ...]]
    argnums: int | tuple[int, ...]
    description: str
    source: str

    @classmethod
    def at(
        cls, name: str, fun: Callable[..., Any], point: Iterable[Any], description: str, source: str
    ) -> Self:
        """Makes a task that is differentiated by all its arguments, numbers or arrays of floats."""
        values = [float(x) if isinstance(x, int) else x for x in point]
        every = tuple(range(len(values)))
        return cls(name, fun, lambda: tuple(map(np.array, values)), every, description, source)
