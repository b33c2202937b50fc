"""Times an order next to the usual ways to a Jacobian."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from veenv.engine.api import jacve
from veenv.tasks import Task

K = TypeVar("K")
SPREAD = 0.02
"""Relative distance of the random points from the task's own."""
USUAL = ("jacfwd", "jacrev", "forward", "reverse", "markowitz")
"""The ways to a Jacobian that an order is timed next to."""
_CALLS = 3
"""Calls of which the fastest tells how long one takes."""
_FEWEST = 3


@dataclass(frozen=True)
class Timing:
    """One way to the Jacobian, over a vmapped batch in the default precision.

    Attributes:
      method: its name.
      median: seconds of a call.
      low: its 10 % quantile.
      high: its 90 % quantile.
      flops: what XLA's cost analysis says; None where it does not.
      temporary: bytes of temporary memory that XLA allots; None where it does not say.
    """

    method: str
    median: float
    low: float
    high: float
    flops: float | None
    temporary: int | None


def near(args: Any, seed: Sequence[int] | None, batch: int | None = None) -> Any:
    """A random point near another, or a batch of them.

    Args:
      args: the point, a pytree.
      seed: seed; None for the point itself.
      batch: size of a new leading axis.

    Returns:
      The point or points, NumPy arrays; what is not floating-point is only repeated.

    Example:
      >>> near((np.array([1.0, 2.0]), 3), [0], batch=4)[0].shape
      (4, 2)
    """
    rng = np.random.default_rng(seed)

    def move(x: Any) -> np.ndarray:
        x = np.asarray(x)
        shape = x.shape if batch is None else (batch, *x.shape)
        if seed is None or not np.issubdtype(x.dtype, np.floating):
            return np.broadcast_to(x, shape)
        noise = SPREAD * rng.standard_normal(shape)
        return np.where(x == 0, noise, x * (1 + noise))

    return jax.tree.map(move, args)


def measure(
    task: Task,
    ids: Sequence[int],
    batch: int,
    rounds: int,
    seed: int,
    *,
    beside: Collection[str] = USUAL,
    longest: float | None = None,
) -> tuple[Timing, ...]:
    """Times the order and the usual ways interleaved, over a batch of points.

    Args:
      task: the task.
      ids: vertex ids in elimination order.
      batch: number of points that are differentiated at once.
      rounds: timed calls of each method.
      seed: seed of the points.
      beside: which of the usual ways to time too.
      longest: as `interleaved`.

    Returns:
      One `Timing` for each method; without "jacfwd" where the task has no forward mode.

    Example:
      >>> task = Task("cube", lambda x: x * x * x, lambda: (1.5,), 0, "", "")
      >>> [t.method for t in measure(task, (1,), batch=2, rounds=1, seed=0)]
      ['order', 'jacfwd', 'jacrev', 'forward', 'reverse', 'markowitz']
    """
    by_xla = functools.partial(jacve, task.fun, argnums=task.argnums, kernel="xla")
    methods: dict[str, Callable[..., Any]] = {"order": by_xla(ids)}
    for name in (n for n in USUAL if n in beside):
        if name in ("jacfwd", "jacrev"):
            methods[name] = getattr(jax, name)(task.fun, task.argnums)
        else:
            methods[name] = by_xla(name)
    args = jax.tree.map(jnp.asarray, near(task.example_args(), [seed], batch))
    compiled = {}
    for name, method in methods.items():
        try:
            compiled[name] = jax.jit(jax.vmap(method)).lower(*args).compile()
        except TypeError:
            if name != "jacfwd":  # a function with a reverse rule of its own has no forward mode
                raise
    seconds = interleaved(compiled, args, rounds, longest)
    timings = []
    for name, run in compiled.items():
        low, median, high = np.quantile(seconds[name], [0.1, 0.5, 0.9])
        flops, temporary = analysis(run)
        timings.append(Timing(name, float(median), float(low), float(high), flops, temporary))
    return tuple(timings)


def interleaved(
    runs: Mapping[K, Callable[..., Any]],
    args: Sequence[Any],
    rounds: int,
    longest: float | None = None,
) -> dict[K, list[float]]:
    """Times functions interleaved, so that what slows the machine for a while slows all of them.

    Args:
      runs: the functions, by name.
      args: what they are all called with.
      rounds: how often each is timed, after one call that warms it up.
      longest: seconds after which a function is left out of further rounds, but not of the first
        three.

    Returns:
      The seconds of each round, by name.

    Example:
      >>> seconds = interleaved({"sin": jnp.sin, "cos": jnp.cos}, (1.0,), rounds=2)
      >>> [len(seconds[name]) for name in ("sin", "cos")]
      [2, 2]
    """
    *_, seconds = rounds_interleaved(runs, args, rounds, longest)
    return seconds


def rounds_interleaved(
    runs: Mapping[K, Callable[..., Any]],
    args: Sequence[Any],
    rounds: int,
    longest: float | None = None,
    shortest: float = 0.0,
) -> Iterator[dict[K, list[float]]]:
    """The rounds of `interleaved` one by one, for a caller who may have enough of them.

    Every round has an order of its own (the same in every run): a function pays for the memory that
    the one before it has given back, so none may always follow the same one.

    Args:
      runs: as there.
      args: as there.
      rounds: as there.
      longest: as there.
      shortest: seconds that a function's turn lasts at least, about: one that is faster is called
        several times, and their mean counts.

    Yields:
      The seconds of the rounds so far, by name: after the calls that warm up and after each round.

    Example:
      >>> rounds = rounds_interleaved({"sin": jnp.sin}, (1.0,), rounds=2)
      >>> [len(seconds["sin"]) for seconds in rounds]
      [0, 1, 2]
    """
    seconds: dict[K, list[float]] = {name: [] for name in runs}
    calls = dict.fromkeys(runs, 1)
    names = list(runs)
    for turn in range(rounds + 1):
        for k in np.random.default_rng(turn).permutation(len(names)):
            name, run = names[k], runs[names[k]]
            if longest is not None and turn > _FEWEST and sum(seconds[name]) > longest:
                continue
            once = _seconds(run, args, calls[name])
            if turn:
                seconds[name].append(once)
            elif shortest:  # warmed up; a call that finds its code in no cache tells too much
                once = min(_seconds(run, args, 1) for _ in range(_CALLS))
                calls[name] = max(1, int(shortest / once))
        yield seconds


def _seconds(run: Callable[..., Any], args: Sequence[Any], calls: int) -> float:
    """Mean seconds of some calls, each of which is waited for."""
    began = time.perf_counter()
    for _ in range(calls):
        jax.block_until_ready(run(*args))
    return (time.perf_counter() - began) / calls


def analysis(compiled: Any) -> tuple[float | None, int | None]:
    """Flops and bytes of temporary memory of a compiled function, where the backend tells.

    Args:
      compiled: what ``jax.jit(f).lower(...).compile()`` gives.

    Returns:
      The flops and the bytes; None for what the backend does not tell.

    Example:
      >>> x = jnp.ones(8)
      >>> analysis(jax.jit(jnp.sin).lower(x).compile())[1]
      0
    """
    cost, memory = compiled.cost_analysis() or {}, compiled.memory_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    return cost.get("flops"), getattr(memory, "temp_size_in_bytes", None)
