"""Functions that are measured, each with a point, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from veenv.measure.timing import near

Fun = TypeVar("Fun", bound=Callable[..., Any])


class Case(NamedTuple):
    """A function to differentiate.

    Attributes:
      name: its name.
      fun: the function of one point.
      args: a point.
      argnums: the arguments to differentiate by.
    """

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    argnums: Any = 0

    def points(self, batch: int) -> tuple[Any, ...]:
        """So many random points near the case's own; of one it is that itself."""
        return self.args if batch == 1 else points(self.args, batch)

    def single(self) -> Case:
        """The same at a point of float32."""
        return self._replace(args=jax.tree.map(single, self.args))


class Cases(dict[str, Case]):
    """Functions by name."""

    def add(self, *args: Any, argnums: Any = 0, name: str = "") -> Callable[[Fun], Fun]:
        """Decorates a function with its point, and a name where it is not its own."""

        def decorated(fun: Fun) -> Fun:
            called = name or fun.__name__
            self[called] = Case(called, fun, args, argnums)
            return fun

        return decorated


class Draws:
    """Random numbers of float32: normal ones of some scale, and uniform ones."""

    def __init__(self, seed: int, scale: float = 0.5):
        self.rng, self.scale = np.random.default_rng(seed), scale

    def normal(self, *shape: int) -> jax.Array:
        """Normal numbers of mean zero."""
        return jnp.asarray(self.scale * self.rng.standard_normal(shape), jnp.float32)

    def uniform(self, low: float, high: float, *shape: int) -> jax.Array:
        """Between two bounds."""
        return jnp.asarray(self.rng.uniform(low, high, shape), jnp.float32)


def single(x: object) -> np.ndarray:
    """An argument as an array, floats in float32."""
    array = np.asarray(jnp.asarray(x))
    return array.astype(np.float32) if np.issubdtype(array.dtype, np.floating) else array


def points(args: Any, batch: int) -> Any:
    """Arrays of so many random points near one."""
    return jax.tree.map(jnp.asarray, near(args, [0], batch))


def runge_kutta(slope: Callable[[Any], Any], y: Any, h: float) -> Any:
    """A step of the classical method of Runge and Kutta."""
    k1 = slope(y)
    k2 = slope(y + 0.5 * h * k1)
    k3 = slope(y + 0.5 * h * k2)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + h * k3))


def cart_pole(state: jax.Array, push: Any) -> jax.Array:
    """Rates of place, speed, angle and turning of a cart with a pole that is pushed."""
    _, speed, angle, turning = state
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    pushed = (push + 0.05 * turning**2 * sine) / 1.1
    turned = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    return jnp.stack([speed, pushed - 0.05 * turned * cosine / 1.1, turning, turned])
