"""Compiles the functions of benchmarks, and times them beside JAX's two modes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from veenv.kernel import primitive
from veenv.kernel.cpu import kernel_registry
from veenv.measure.timing import SHORTEST, interleaved
from veenv.structure import product, structure

Methods = Mapping[str, Callable[..., Any]]
MODES = {"jacfwd": jax.jacfwd, "jacrev": jax.jacrev}
_LONG = 1.0
"""Seconds of compiling after which it is not timed again."""


@dataclass(frozen=True)
class Compiled:
    """A compiled method.

    Attributes:
      run: the program.
      seconds: what tracing and compiling took with empty caches, each time.
    """

    run: Any
    seconds: Sequence[float]

    @property
    def compile(self) -> float:
        """The median of the seconds."""
        return float(np.median(self.seconds))

    @property
    def memory(self) -> Any:
        """XLA's memory analysis; backends without one cannot be measured."""
        return self.run.memory_analysis()

    @property
    def bytes(self) -> int:
        """Bytes of temporary memory and results."""
        return self.memory.temp_size_in_bytes + self.memory.output_size_in_bytes


def compiled(
    methods: Methods,
    args: Sequence[Any],
    rounds: int = 1,
    refused: tuple[type[Exception], ...] = (),
) -> dict[str, Compiled]:
    """Traces and compiles methods in turn, as if for the first time.

    Args:
      methods: functions of the arguments, by name.
      args: the arguments.
      rounds: how often those are compiled that take less than a second.
      refused: errors for which one of JAX's modes is left out, as reverse mode of a `while` raises.
    """
    seconds: dict[str, list[float]] = {}
    runs: dict[str, Any] = {}
    for turn in range(rounds):
        for name, method in methods.items():
            if turn and (name not in runs or seconds[name][0] > _LONG):
                continue
            forget()
            began = time.perf_counter()
            try:
                runs[name] = jax.jit(method).lower(*args).compile()
            except refused:
                if name not in MODES:
                    raise
                continue
            seconds.setdefault(name, []).append(time.perf_counter() - began)
    return {name: Compiled(run, seconds[name]) for name, run in runs.items()}


def forget() -> None:
    """Empties all caches of programs; kernels are kept while they are in use."""
    jax.clear_caches()
    primitive.forget()
    gc.collect()
    kernel_registry.alive()
    product.multiply.cache_clear()
    structure.add.cache_clear()


class Timings:
    """Times of programs, interleaved, beside the faster of JAX's two modes in the same round.

    Attributes:
      programs: the programs, by name.
      times: seconds of a call in each round, by name.
      faster: those of the faster mode in each round.
      mode: the mode that is faster in the median.
    """

    def __init__(
        self,
        programs: Mapping[str, Compiled],
        args: Sequence[Any],
        seconds: float,
        rounds: int = 100,
        shortest: float = SHORTEST,
    ):
        self.programs = programs
        runs = {name: program.run for name, program in programs.items()}
        self.times = interleaved(runs, args, rounds, shortest=shortest, seconds=seconds)
        modes = {mode: self.times[mode] for mode in MODES if mode in self.times}
        self.faster: np.ndarray = np.min([*modes.values()] or [[np.nan]], axis=0)
        self.mode = min(modes, key=lambda m: float(np.median(modes[m])), default="")

    def seconds(self, name: str) -> float:
        """The median of a program's times."""
        return float(np.median(self.times[name]))

    def ms(self, name: str) -> float:
        """The same in milliseconds."""
        return 1e3 * self.seconds(name)

    def first(self, name: str, to: str = "") -> str:
        """A cell of the seconds of tracing and compiling over those of another program."""
        return f"{self.programs[name].compile / self.programs[to or self.mode].compile:.2g}"

    def ratios(self, name: str, to: str = "") -> np.ndarray:
        """Times over those of another program in the same round, by default of the faster mode."""
        return self.times[name] / (self.times[to] if to else self.faster)

    def ratio(self, name: str, to: str = "") -> float:
        """The median of the ratios."""
        return float(np.median(self.ratios(name, to)))

    def spread(self, name: str) -> str:
        """A cell of the median, and of what most ratios lie between."""
        low, ratio, high = np.quantile(self.ratios(name), [0.1, 0.5, 0.9])
        return f"**{ratio:.2g}** ({low:.2g} … {high:.2g})"


def at_batch(methods: Methods, size: int) -> dict[str, Callable[..., Any]]:
    """Functions of so many points; of one point they are as they were."""
    return {name: jax.vmap(f) if size > 1 else f for name, f in methods.items()}


def difference(actual: Any, expected: Any) -> float:
    """The largest difference of two trees of arrays, in relation to the largest finite number."""
    worst = 0.0
    for x, y in zip(*map(jax.tree.leaves, (actual, expected)), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        largest = np.max(np.abs(y[np.isfinite(y)]), initial=1e-30)
        worst = max(worst, float(np.max(np.abs(x[~same] - y[~same]), initial=0.0) / largest))
    return worst
