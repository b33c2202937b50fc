"""Measured rewards: how fast an order really runs, and how much memory it takes.

Counts are exact and pure, so the environment pays them.  Seconds and bytes are neither: they are
measured here, on the host, when an episode has ended, and nothing of this can be jitted.

Seconds are noisy. Each order is timed interleaved with a baseline (`jax.jacrev`) and the reward is
minus the median ratio of the rounds, so that a machine that slows down slows both; `Measurement`
says how far the rounds spread. Differences below that spread mean nothing. An order is measured
once per `Meter`, so equal orders get equal rewards. Small functions must be batched: a single call
of a scalar function is dispatch cost, whatever the order.  Bytes are those that the compiler
allots for temporary values; they are exact and repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsFloat

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from veenv import tasks
from veenv.engine.api import jacve
from veenv.env.adapters.gymnasium import GymVertexEnv
from veenv.env.factory import task_graph
from veenv.graph.graph import CostModel
from veenv.measure.timing import analysis, interleaved, near

Objective = Literal["runtime", "memory"]
OBJECTIVES: tuple[Objective, ...] = ("runtime", "memory")
BASELINES: Mapping[str, Callable[..., Any]] = {"jacrev": jax.jacrev, "jacfwd": jax.jacfwd}


@dataclass(frozen=True)
class Measurement:
    """What an order cost when it ran, next to the baseline.

    Attributes:
      seconds: median of a call.
      baseline_seconds: median of a call of the baseline, timed interleaved with it.
      ratio: median over the rounds of seconds / baseline's seconds.
      low: 10 % quantile of that ratio.
      high: its 90 % quantile.
      temporary_bytes: temporary memory of the compiled order; None where the backend is silent.
      baseline_bytes: that of the baseline.

    Examples:
      >>> found = Measurement(1e-3, 2e-3, 0.5, 0.48, 0.53, temporary_bytes=30, baseline_bytes=120)
      >>> found.of("runtime"), found.of("memory")
      (0.5, 0.25)
    """

    seconds: float
    baseline_seconds: float
    ratio: float
    low: float
    high: float
    temporary_bytes: int | None
    baseline_bytes: int | None

    def of(self, objective: Objective) -> float:
        """What an objective makes small: 1 where the order does as well as the baseline.

        Raises:
          ValueError: if the backend does not tell the bytes of temporary memory.
        """
        if objective == "runtime":
            return self.ratio
        if self.temporary_bytes is None or self.baseline_bytes is None:
            raise ValueError("this backend does not tell how much temporary memory a program takes")
        return self.temporary_bytes / max(1, self.baseline_bytes)


class Meter:
    """Compiles and measures `jacve` of one function under one order after another.

    Examples:
      >>> meter = Meter(lambda x: jnp.sin(jnp.exp(x)) * x, jnp.ones(()), batch=16, rounds=3)
      >>> found = meter.measure([2, 1])
      >>> found.low <= found.ratio <= found.high
      True
    """

    def __init__(
        self,
        fun: str | Callable[..., Any],
        *args: Any,
        argnums: int | Sequence[int] = 0,
        batch: int | None = None,
        rounds: int = 30,
        baseline: str = "jacrev",
        seed: int = 0,
    ):
        """Compiles the baseline.

        Args:
          fun: a function, or a task's name.
          *args: the point at which the function is differentiated; none for a task.
          argnums: arguments to differentiate by; a task has its own.
          batch: differentiates at so many points near the given one at once, by `jax.vmap`; None
            for the given one alone.
          rounds: how often an order and the baseline are timed interleaved.
          baseline: ``"jacrev"``, or ``"jacfwd"`` for functions without a reverse mode.
          seed: seeds the points.

        Raises:
          ValueError: if the task or the baseline is unknown, a task is given arguments, or
            `rounds` or `batch` is not positive.
        """
        if baseline not in BASELINES:
            raise ValueError(f"baseline must be one of {', '.join(BASELINES)}, got {baseline!r}")
        if rounds < 1 or (batch is not None and batch < 1):
            raise ValueError(f"rounds and batch must be positive, got {rounds=}, {batch=}")
        if isinstance(fun, str):
            if args or argnums != 0:
                raise ValueError(f"{fun!r} takes neither arguments nor argnums of its own")
            task = tasks.get(fun)
            fun, args, argnums = task.fun, task.example_args(), task.argnums
        points = near(args, None if batch is None else [seed], batch)
        self._points = jax.tree.map(jnp.asarray, points)
        self._fun, self._argnums, self._batched = fun, argnums, batch is not None
        self._rounds = rounds
        self._baseline = self._compile(BASELINES[baseline](fun, argnums))
        self._found: dict[tuple[int, ...], Measurement] = {}

    def measure(self, order: Iterable[int]) -> Measurement:
        """Measures an order, or finds what it was measured to be before.

        Args:
          order: vertex ids.

        Raises:
          ValueError: if it is no order of the function's graph.
        """
        ids = tuple(int(v) for v in order)
        if ids not in self._found:
            run = self._compile(jacve(self._fun, ids, self._argnums))
            runs = {"order": run, "baseline": self._baseline}
            seconds = interleaved(runs, self._points, self._rounds)
            ratios = np.divide(seconds["order"], seconds["baseline"])
            low, ratio, high = (float(q) for q in np.quantile(ratios, [0.1, 0.5, 0.9]))
            self._found[ids] = Measurement(
                seconds=float(np.median(seconds["order"])),
                baseline_seconds=float(np.median(seconds["baseline"])),
                ratio=ratio,
                low=low,
                high=high,
                temporary_bytes=analysis(run)[1],
                baseline_bytes=analysis(self._baseline)[1],
            )
        return self._found[ids]

    def _compile(self, jacobian: Callable[..., Any]) -> Callable[..., Any]:
        jacobian = jax.vmap(jacobian) if self._batched else jacobian
        return jax.jit(jacobian).lower(*self._points).compile()


class MeasuredReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pays what the finished order measures, in place of multiplications.

    Every step is paid 0, but for the last: minus the measured ratio (-1: as good as the baseline,
    -0.5: half of its seconds or bytes), not below ``-worst``.  An illegal action is paid
    ``-worst - 1``, so that no episode with one returns as much as a legal one.  ``info["cost"]``
    and ``info["total"]`` remain multiplications; at a legal end ``info["measured"]`` is the
    `Measurement`.

    Examples:
      >>> f = lambda x: jnp.sin(jnp.exp(x)) * x
      >>> graph = task_graph(f, jnp.ones(()))
      >>> env = MeasuredReward(GymVertexEnv(graph), Meter(f, jnp.ones(()), rounds=1))
      >>> obs, info = env.reset(seed=0)
      >>> rewards = []
      >>> for slot in (1, 0):
      ...     obs, reward, terminated, truncated, info = env.step(slot)
      ...     rewards.append(reward)
      >>> rewards == [0.0, -min(info["measured"].ratio, env.worst)]
      True
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        meter: Meter,
        objective: Objective = "runtime",
        *,
        worst: float = 100.0,
    ):
        """Wraps an environment of one task.

        Args:
          env: a `veenv.env.adapters.GymVertexEnv`, wrapped or not, of the meter's function.
          meter: measures the orders.
          objective: ``"runtime"`` or ``"memory"``.
          worst: ratios above it are paid like it.

        Raises:
          ValueError: if the objective is unknown, or `worst` is not positive.
        """
        if objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
        if not worst > 0:
            raise ValueError(f"worst must be positive, got {worst}")
        super().__init__(env)
        self.objective: Objective = objective
        self.meter, self.worst = meter, worst
        self._over = False

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Eliminates one vertex, and measures the order if it was the last."""
        over = self._over
        obs, _, terminated, truncated, info = self.env.step(action)
        self._over = terminated
        if over or not terminated:
            return obs, 0.0, terminated, truncated, info
        if info["illegal"]:
            return obs, -self.worst - 1.0, terminated, truncated, info
        measured = self.meter.measure(info["order"])
        reward = -min(measured.of(self.objective), self.worst)
        return obs, reward, terminated, truncated, {**info, "measured": measured}

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        self._over = False
        return self.env.reset(**kwargs)

    def action_masks(self) -> Any:
        """Legal actions of the current state (the name that sb3-contrib's MaskablePPO calls)."""
        return self.env.get_wrapper_attr("action_masks")()


def make_measured(
    task: str | Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    objective: Objective = "runtime",
    cost: CostModel = "executed",
    render_mode: str | None = None,
    worst: float = 100.0,
    **meter: Any,
) -> MeasuredReward:
    """Makes a Gymnasium environment that pays measured seconds or bytes.

    Args:
      task: a task's name, or a function.
      *args: the point at which the function is differentiated; none for a task.
      argnums: arguments to differentiate by; a task has its own.
      objective: ``"runtime"`` or ``"memory"``.
      cost: the cost model of the observation's features and of the info.
      render_mode: ``"ansi"``, ``"rgb_array"`` or None.
      worst: ratios above it are paid like it.
      **meter: ``batch``, ``rounds``, ``baseline`` and ``seed``, as `Meter` takes them.

    Returns:
      The environment.

    Raises:
      ValueError: as `veenv.make`, `Meter` and `MeasuredReward`.

    Examples:
      >>> f = lambda x: jnp.sin(jnp.exp(x)) * x
      >>> env = make_measured(f, jnp.ones(()), objective="memory", rounds=1)
      >>> obs, info = env.reset(seed=0)
      >>> env.step(int(info["action_mask"].argmax()))[1]
      0.0
    """
    graph = task_graph(task, *args, argnums=argnums)
    measuring = Meter(task, *args, argnums=argnums, **meter)
    env = GymVertexEnv(graph, cost, render_mode)
    return MeasuredReward(env, measuring, objective, worst=worst)
