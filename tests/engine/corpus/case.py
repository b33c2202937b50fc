"""What a corpus entry is, and the points that the functions are taken at."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tests.oracles.jacobians import assert_orders


@dataclass(frozen=True)
class Case:
    """A function and the point at which its Jacobian is compared with JAX's.

    Attributes:
      name: what the function does.
      fun: the function.
      args: its arguments; float64 NumPy arrays unless the case is about something else.
      argnums: arguments to differentiate by.
      oracle: `jax.jacrev`, or `jax.jacfwd` for what JAX cannot reverse.
      tol: relative and absolute tolerance.
      zero: a block of the Jacobian vanishes by nature (a constant or unused input).
      slow: only in the long suite.
    """

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    argnums: int | tuple[int, ...] = 0
    oracle: Callable[..., Any] = jax.jacrev
    tol: float = 1e-9
    zero: bool = False
    slow: bool = False

    def check(self, num_random: int = 0, seed: int = 0) -> None:
        """Forward, reverse, Markowitz and random orders, compiled, against the oracle.

        Raises:
          AssertionError: naming the order and the block that differs; or if a block of JAX's own
            Jacobian is not finite or vanishes, because then the point is badly chosen.
        """
        how = (self.fun, self.args, self.argnums, self.oracle, num_random)
        expected = assert_orders(*how, seed=seed, tol=self.tol)
        leaves = [np.asarray(leaf, complex) for leaf in jax.tree.leaves(expected)]
        assert all(np.isfinite(leaf).all() for leaf in leaves), "the point is badly chosen"
        assert self.zero or all(leaf.any() for leaf in leaves if leaf.size), "a block vanishes"


def case(name: str, fun: Callable[..., Any], *args: Any, **options: Any) -> Case:
    """A `Case` with its arguments written in line."""
    return Case(name, fun, args, **options)


def promoted(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function with JAX's default promotion of dtypes and ranks, which the suite forbids."""

    def wrapped(*args: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return fun(*args)

    return wrapped


def _rng(shape: Sequence[int], seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(repr(tuple(shape)).encode())])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal entries, none closer to zero than 0.05."""
    x = _rng(shape, seed).normal(size=shape)
    return np.asarray(x + 0.05 * np.sign(x))


def uniform(*shape: int, low: float = 0.15, high: float = 0.85, seed: int = 0) -> np.ndarray:
    """Entries in an open interval, by default well inside (0, 1)."""
    return np.asarray(_rng(shape, seed).uniform(low, high, size=shape))


def distinct(*shape: int, seed: int = 0) -> np.ndarray:
    """Entries of both signs that differ from each other by at least 0.3."""
    n = int(np.prod(shape))
    rng = _rng(shape, seed)
    return (0.4 * (rng.permutation(n) - (n - 1) / 2 + 0.1) + rng.uniform(0, 0.1, n)).reshape(shape)


def definite(n: int, seed: int = 0) -> np.ndarray:
    """A symmetric positive definite matrix with well separated eigenvalues."""
    a = normal(n, n, seed=seed)
    return a @ a.T / n + np.diag(1.0 + np.arange(n))


def inside(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function between two multiplications, so that its vertex has neighbours to eliminate."""

    def wrapped(x: Any, *rest: Any) -> Any:
        return fun(1.1 * x, *rest) * (x + 0.3)

    return wrapped
