"""Times an order as one kernel and as XLA, next to the reverse order and JAX's modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax

from veenv.engine.api import jacve
from veenv.graph.graph import Graph
from veenv.kernel.fusing import KernelMode
from veenv.measure.timing import JAX_MODES, SAME, Timing, timed
from veenv.tasks import Task
from veenv.tasks.user import trace_task

BATCH = 4096
_BYTES = 1 << 26  # most bytes of the Jacobians of a batch
_MOST_OPERATIONS = 20_000  # most operations of a kernel: it compiles in about two seconds
_MOST_VERTICES = 400  # XLA may compile functions of more vertices for minutes


@dataclass(frozen=True)
class Comparison:
    """Ways to the Jacobian of a batch of points, timed interleaved in the default precision.

    Attributes:
      batch: points of a call.
      rows: what was timed, the most telling first.
      skipped: why a way is missing, by its name.
    """

    batch: int
    rows: tuple[Timing, ...]
    skipped: Mapping[str, str]

    def text(self) -> str:
        """The table, and a line for each method that is missing."""
        timed = {row.method: row.median for row in self.rows if row.method in JAX_MODES}
        base = f"ratio to {next(iter(timed)) if len(timed) == 1 else 'JAX'}"
        lines = [f"{f'batch of {self.batch:,}':<24}  {'ms':>9}  {base:>15}"]
        for row in self.rows:
            ratio = f"{row.median / min(timed.values()):.3f}" if timed else "-"
            lines.append(f"{row.method:<24}  {1e3 * row.median:>9.3f}  {ratio:>15}")
        lines += [f"{name}: not timed, {reason}" for name, reason in self.skipped.items()]
        every = {row.method: row for row in self.rows}
        searched, reverse = (every.get(f"kernel, {order}") for order in ("found", "reverse"))
        if searched and reverse and reverse.median <= SAME * searched.median:
            lines.append("as one kernel the reverse order does as well")
        return "\n".join(lines)


def compare(
    task: Task, order: Sequence[int], *, batch: int = BATCH, limit: float = 10.0, seed: int = 0
) -> Comparison:
    """Times an order and reverse, as one kernel and as XLA, and JAX's two modes, interleaved.

    The batch of points near the task's own is smaller where their Jacobians take much memory. After
    `limit` seconds nothing more is begun. What cannot be a kernel, or would be compiled for long,
    is skipped.
    """
    graph = trace_task(task)
    batch = min(batch, _fitting(graph))
    every = _methods(task, tuple(order), graph)
    long = {name: _too_long(name, ids, graph) for name, (ids, _) in every.items()}
    methods = {name: method for name, (_, method) in every.items() if long[name] is None}
    rows, missing = timed(methods, task.example_args(), batch, seed=seed, limit=limit)
    skipped = {name: reason for name, reason in (long | missing).items() if reason is not None}
    return Comparison(batch, rows, skipped)


def _methods(
    task: Task, order: tuple[int, ...], graph: Graph
) -> dict[str, tuple[tuple[int, ...] | None, Callable[..., Any]]]:
    """Returns all methods by name, the most telling first, and the orders of those with one."""
    searched, reverse = order, tuple(graph.reverse())

    def one(ids: tuple[int, ...], kernel: KernelMode) -> tuple[tuple[int, ...], Callable[..., Any]]:
        return ids, jacve(task.fun, ids, task.argnums, kernel=kernel)

    return {
        "jacfwd": (None, jax.jacfwd(task.fun, task.argnums)),
        "kernel, found": one(searched, "fused"),
        "jacrev": (None, jax.jacrev(task.fun, task.argnums)),
        "kernel, reverse": one(reverse, "fused"),
        "XLA, found": one(searched, "xla"),
        "XLA, reverse": one(reverse, "xla"),
    }


def _fitting(graph: Graph) -> int:
    """Returns the number of Jacobians that fit into the memory limit."""
    columns = sum(prod(shape) for shape in graph.shapes[: graph.num_inputs])
    rows = sum(prod(graph.shapes[node]) for node in graph.outputs if node is not None)
    return max(1, _BYTES // max(1, 4 * rows * columns))


def _too_long(name: str, ids: Sequence[int] | None, graph: Graph) -> str | None:
    """Explains why a method would take long to compile; None if it would not."""
    if not name.startswith("kernel"):
        count = len(graph.eliminable)
        long = count > _MOST_VERTICES
        return f"as XLA may compile {count:,} vertices for minutes" if long else None
    operations = graph.cost(ids or (), "operations")
    long = operations > _MOST_OPERATIONS
    return f"as a kernel of {operations:,} operations is compiled for long" if long else None
