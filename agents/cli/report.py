"""What a run says about its result: the table of counts, and the proof that the order is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from veenv.engine.api import jacve
from veenv.tasks import Task

TOLERANCE = 1e-10


@dataclasses.dataclass(frozen=True)
class Validation:
    """How far an order's Jacobian lies from `jax.jacrev`'s.

    Attributes:
      error: largest error of any entry, relative to the largest entry of its block (absolute
        where a block is zero); infinite where one of the two is not finite.
      points: number of points compared.
      entries: number of Jacobian entries compared at each point.
    """

    error: float
    points: int
    entries: int

    @property
    def passed(self) -> bool:
        """Whether the error is within `TOLERANCE`."""
        return self.error <= TOLERANCE


def validate(task: Task, order: Sequence[int], *, points: int = 3, seed: int = 0) -> Validation:
    """Compares the order's Jacobian in `jacve` with `jax.jacrev`, in float64.

    Args:
      task: the function and its example point.
      order: vertex ids.
      points: number of random points near the example.
      seed: of the points.
    """
    rng = np.random.default_rng(seed)
    worst, entries = 0.0, 0
    with jax.enable_x64(True):
        found = jax.jit(jacve(task.fun, tuple(order), argnums=task.argnums))
        expected = jax.jit(jax.jacrev(task.fun, argnums=task.argnums))
        for _ in range(points):
            args = nearby(task.example_args(), rng)
            ours, theirs = jax.tree.leaves(found(*args)), jax.tree.leaves(expected(*args))
            pairs = list(zip(map(np.asarray, ours), map(np.asarray, theirs), strict=True))
            worst = max([worst, *(relative_error(a, b) for a, b in pairs)])
            entries = sum(b.size for _, b in pairs)
    return Validation(worst, points, entries)


def nearby(args: Any, rng: np.random.Generator, spread: float = 0.05) -> Any:
    """The arguments with every floating-point number multiplied by 1 + `spread`·normal noise."""

    def move(leaf: Any) -> np.ndarray:
        x = np.asarray(leaf)
        if not np.issubdtype(x.dtype, np.floating):
            return x
        return x * (1.0 + spread * rng.standard_normal(x.shape))

    return jax.tree.map(move, args)


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference over the largest magnitude expected; infinite where not comparable."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    if not expected.size:
        return 0.0
    scale = np.abs(expected).max()
    error = np.abs(found - expected).max() / (scale if scale > 0 else 1.0)
    return float(error) if np.isfinite(error) else float("inf")


def result_table(
    classical: Mapping[str, int],
    best: int | None,
    label: str = "PPO",
    polished: int | None = None,
) -> str:
    """The costs of the classical orders and of the best one found, one line each.

    There is none where no episode was played; what a local search made of it has its own line.
    """
    reference = min(classical.values())
    rows = [(name, cost) for name, cost in classical.items()]
    if best is not None:
        rows.append((f"best found ({label})", best))
    if polished is not None:
        rows.append((f"polished ({label} + search)", polished))
    width = max(len(name) for name, _ in rows)
    lines = [f"{'order':<{width}}  {'multiplications':>15}  {'ratio to best classical':>23}"]
    for name, cost in rows:
        ratio = f"{cost / reference:.3f}" if reference else "-"
        lines.append(f"{name:<{width}}  {cost:>15,}  {ratio:>23}")
    return "\n".join(lines)
