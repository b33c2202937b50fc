"""Times an order next to the usual ways to a Jacobian."""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from veenv.engine.api import jacve
from veenv.kernel.fusing import fuse
from veenv.kernel.scalar_program import CannotFuseError
from veenv.tasks import Task

K = TypeVar("K")
SPREAD = 0.02
"""Relative distance of the random points from the task's own."""
USUAL = ("jacfwd", "jacrev", "forward", "reverse", "markowitz")
"""Methods that an order is timed against."""
SHORTEST = 2e-3
"""Least seconds of a turn: 40 times the wake-up time of the waiting thread."""
JAX_MODES = ("jacfwd", "jacrev")
OURS, KERNEL = "this order", "one kernel"
_COMPILING = 0.7  # share of the time limit after which no further method is compiled
_TURNS = 4  # turns of which the fastest estimates a call: the first have cold caches
_LARGE = 0.2
"""Share of the time left that a first call may take, for the function to be called again."""
_FEWEST = 3


SAME = 1.1
"""Largest ratio of times of programs that count as equally fast: the spread of one program."""


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
      ratio: median, over the rounds, of its time to that of the faster of JAX's modes; None where
        neither was timed.
    """

    method: str
    median: float
    low: float
    high: float
    flops: float | None
    temporary: int | None
    ratio: float | None


def near(args: Any, seed: Sequence[int] | None, batch: int | None = None) -> Any:
    """Returns a random point near another, or a batch of them, as NumPy arrays.

    Without a seed it is the point itself; what is not floating-point is only repeated.
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
    """Times an order and the usual ways `beside` it, all by XLA, interleaved, over a batch.

    "jacfwd" is missing where the task has no forward mode.
    """
    by_xla = functools.partial(jacve, task.fun, argnums=task.argnums, kernel="xla")
    methods: dict[str, Callable[..., Any]] = {"order": by_xla(ids)}
    for name in (n for n in USUAL if n in beside):
        if name in JAX_MODES:
            methods[name] = getattr(jax, name)(task.fun, task.argnums)
        else:
            methods[name] = by_xla(name)
    return timed(methods, task.example_args(), batch, rounds, seed, longest=longest)[0]


def times(
    task: Task, ids: Sequence[int], batch: int, rounds: int, seed: int = 0
) -> tuple[tuple[Timing, ...], tuple[str, ...]]:
    """Times an order and JAX's modes, each as XLA and as one kernel; says why one is missing.

    The methods are named ``"jacfwd"`` or ``"jacfwd, one kernel"``; a sentence says why one is
    missing.
    """
    ways = {OURS: jacve(task.fun, tuple(ids), task.argnums, kernel="xla")}
    ways |= {mode: getattr(jax, mode)(task.fun, task.argnums) for mode in JAX_MODES}
    methods = {}
    for way, jacobian in ways.items():
        methods |= {way: jacobian, f"{way}, {KERNEL}": fuse(jacobian)}
    bars, missing = timed(methods, task.example_args(), batch, rounds, seed, longest=4.0)
    return bars, tuple(f"{way}: not timed, {reason}" for way, reason in missing.items())


def timed(
    methods: Mapping[str, Callable[..., Any]],
    point: Sequence[Any],
    batch: int,
    rounds: int = 30,
    seed: int = 0,
    *,
    longest: float | None = None,
    limit: float = inf,
) -> tuple[tuple[Timing, ...], dict[str, str]]:
    """Compiles and times any ways to a Jacobian; returns, by name, why one is missing.

    Args:
      methods: the Jacobian of one point, by name; JAX's modes are named as in `JAX_MODES`.
      point: what the points are near.
      batch: how many there are.
      rounds: timed turns of each method.
      seed: of the points.
      longest: as `interleaved`.
      limit: seconds after which nothing more is begun but what is compiled is timed three times.

    Returns:
      One `Timing` for each method, and by name why one is missing: it has no forward mode, cannot
      be one kernel, or there was no time left.
    """
    began = time.perf_counter()
    points = jax.tree.map(jnp.asarray, near(tuple(point), [seed], batch))
    runs, missing = {}, {}
    for name, method in methods.items():
        if runs and time.perf_counter() - began > _COMPILING * limit:
            missing[name] = "as there was no time left"
            continue
        try:
            runs[name] = jax.jit(jax.vmap(method)).lower(*points).compile()
        except CannotFuseError as error:
            missing[name] = f"as it cannot be one kernel: {error}"
        except TypeError as error:
            if "jacfwd" not in name:  # a custom reverse rule has no forward mode
                raise
            missing[name] = f"as it has no forward mode: {str(error).splitlines()[0]}"
    left = limit - (time.perf_counter() - began)
    times = interleaved(runs, points, rounds, longest, seconds=left, fewest=_FEWEST)
    least = min(map(len, times.values()), default=0)  # a method left out of a round stays out
    modes = [times[m][:least] for m in JAX_MODES if m in times]
    timings = []
    for name, run in runs.items():
        low, median, high = (float(q) for q in np.quantile(times[name], [0.1, 0.5, 0.9]))
        ratio = float(np.median(times[name][:least] / np.min(modes, axis=0))) if modes else None
        timings.append(Timing(name, median, low, high, *analysis(run), ratio))
    return tuple(timings), missing


class Rounds(Generic[K]):
    """Functions timed in turn, so that a temporary slowdown of the machine affects all of them.

    Every round has an order of its own (the same in every run): a function pays for the memory that
    the one before it has given back, so none may always follow the same one.

    The calls of a turn follow each other, and only the last is waited for, as a program's loop
    does: waiting takes longer than many a call, and is no part of it.

    Attributes:
      seconds: of a call, by function and by the number of the round.
    """

    def __init__(self, shortest: float = SHORTEST, clock: Callable[[], float] | None = None):
        """Prepares empty rounds.

        A turn lasts about as long as `shortest` at least: a function that is faster is called
        several times, after one that is not timed, and their mean counts.
        """
        self.seconds: dict[K, dict[int, float]] = {}
        self._shortest, self._clock = shortest, clock or time.perf_counter
        self._runs: dict[K, Callable[[], object]] = {}
        self._calls: dict[K, int] = {}
        self._number = 0

    def enter(self, name: K, run: Callable[[], object], left: float = inf) -> float:
        """Warms a function up, and returns how many seconds a call takes.

        Where `left` are the seconds for everything, one that takes much of them is called once.
        """
        self.seconds[name], self._runs[name], self._calls[name] = {}, run, 1
        once, spent = self._time(name), 0.0
        for _ in range(_TURNS if once <= _LARGE * left else 0):
            if spent >= _TURNS * self._shortest:
                break
            measured = self._time(name)
            once, spent = min(once, measured), spent + self._calls[name] * measured
            self._calls[name] = max(1, int(self._shortest / max(once, 1e-9)))
        return once

    def run(self, names: Iterable[K], late: Callable[[], bool] = lambda: False) -> bool:
        """Times functions once more; returns whether there was time for all of them."""
        names, self._number = list(names), self._number + 1
        for k in np.random.default_rng(self._number).permutation(len(names)):
            if late():
                return False
            self.seconds[names[k]][self._number] = self._time(names[k])
        return True

    def leave(self, name: K) -> None:
        """Frees a function; its seconds stay."""
        self._runs.pop(name, None)

    def _time(self, name: K) -> float:
        """Measures the seconds of a call; calls of a turn are dispatched without a wait between."""
        run, calls = self._runs[name], self._calls[name]
        if calls > 1:
            jax.block_until_ready(run())  # wakes the processor, and fills its caches
        result, began = None, self._clock()
        for _ in range(calls):
            result = run()
        jax.block_until_ready(result)
        return (self._clock() - began) / calls


def interleaved(
    runs: Mapping[K, Callable[..., Any]],
    args: Sequence[Any],
    rounds: int,
    longest: float | None = None,
    *,
    shortest: float = SHORTEST,
    seconds: float = inf,
    fewest: int = 5,
    clock: Callable[[], float] | None = None,
) -> dict[K, np.ndarray]:
    """Times functions interleaved, after one call of each that warms it up.

    Args:
      runs: the functions, by name.
      args: what they are all called with.
      rounds: how often each is timed, at most.
      longest: seconds after which a function is left out of further rounds, but not of the first
        three.
      shortest: as `Rounds` has it, and so is `clock`.
      seconds: after which no round begins.
      fewest: rounds that there are whatever they take.
      clock: tells the time.

    Returns:
      The seconds of each round, float64 [n], by name.
    """
    timed, clock = Rounds[K](shortest, clock), clock or time.perf_counter
    began = clock()
    for name, run in runs.items():
        timed.enter(name, functools.partial(run, *args))
    for turn in range(rounds):
        if turn >= fewest and clock() - began > seconds:
            break
        timed.run(
            name for name, durations in timed.seconds.items()
            if longest is None or turn < _FEWEST or sum(durations.values()) <= longest
        )  # fmt: skip
    return {name: np.array([*durations.values()]) for name, durations in timed.seconds.items()}


def spread(ratios: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Returns the median of ratios between bounds that hold with about 95 %.

    The bounds are order statistics, by the sign test; of fewer than six ratios they are the
    extremes, widened by a tenth for each that lacks.
    """
    ordered, n = np.sort(ratios), len(ratios)
    rank = max(0, int(np.floor(0.5 * n - 0.98 * np.sqrt(n))))
    wider = 1.0 + 0.1 * max(0, 6 - n)
    # The geometric mean of the middle two, so that the other way round it is one over this.
    middle = np.sqrt(ordered[(n - 1) // 2] * ordered[n // 2])
    return float(ordered[rank] / wider), float(middle), float(ordered[n - 1 - rank] * wider)


def analysis(compiled: Any) -> tuple[float | None, int | None]:
    """Returns flops and bytes of temporary memory of a compiled function; None where unknown."""
    cost, memory = compiled.cost_analysis() or {}, compiled.memory_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    return cost.get("flops"), getattr(memory, "temp_size_in_bytes", None)


def machine() -> str:
    """Describes the machine and the versions, as one line."""
    kinds = ", ".join(sorted({d.device_kind for d in jax.devices()}))
    return (
        f"{os.cpu_count()} CPU cores ({platform.machine()}), JAX on {kinds}, "
        f"Python {platform.python_version()}, jax {jax.__version__}"
    )
