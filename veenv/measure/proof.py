"""Verifies an order's Jacobian: compares `jacve` with both of JAX's modes, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from veenv.engine.api import jacve
from veenv.graph.graph import Graph
from veenv.graph.linearisation import make_graph
from veenv.measure.timing import near
from veenv.tasks import Task

TOLERANCE = 1e-9
"""Largest error of a correct Jacobian in float64; JAX's two modes differ by less."""
ATTEMPTS = 10
"""Points tried for each point requested."""


@dataclass(frozen=True)
class Proof:
    """The result of a comparison of Jacobians.

    Attributes:
      errors: largest error against ``jax.jacrev`` and ``jax.jacfwd`` (where that exists): relative
        to the largest entry of the block in question, or to 1e-6 of the largest entry of all if
        that is more; infinite where the order's Jacobian alone is not finite.
      noise: the same between ``jax.jacrev`` and ``jax.jacfwd``; None without a forward mode.
      points: number of points compared.
      tried: number of points tried, those included where the function, or its derivative by one
        of JAX's modes, is not finite.
      entries: number of entries of the Jacobian that were compared.
      missing: what could not be compared, as it is finite at no point that was tried: blocks of
        the Jacobian, with how many of their entries.
      tolerance: largest error allowed.
    """

    errors: Mapping[str, float]
    noise: float | None
    points: int
    tried: int
    entries: int
    missing: tuple[str, ...]
    tolerance: float = TOLERANCE

    @property
    def error(self) -> float:
        """The largest of all errors."""
        return max(self.errors.values(), default=0.0)

    @property
    def passed(self) -> bool:
        """True if everything compared is right, and something was compared."""
        return not self.problems

    @property
    def problems(self) -> tuple[str, ...]:
        """The failures, one sentence each."""
        sentences = [
            f"the Jacobian differs from {name}'s by {error:.1e}, more than {self.tolerance:.1e}"
            for name, error in self.errors.items()
            if not error <= self.tolerance
        ]
        if self.missing and not self.entries:
            sentences.append(
                f"nothing could be compared: JAX's derivative is not finite at {self.tried} points"
            )
        return tuple(sentences)


def prove(
    task: Task, ids: Sequence[int], points: int = 3, seed: int = 0, tolerance: float = TOLERANCE
) -> Proof:
    """Compares the Jacobian under an order with both of JAX's modes, in float64.

    Points are tried, the task's own first and then random ones near it, until there are enough at
    which the function and both modes are finite everywhere.  Where there are too few of them the
    others are compared entry by entry, where both modes are finite, those with most entries first.

    Args:
      task: the function, where it is differentiated, and by what.
      ids: vertex ids in elimination order.
      points: number of points.
      seed: seed of the random points.
      tolerance: largest error allowed.

    Returns:
      The proof.

    Examples:
      >>> import jax.numpy as jnp
      >>> task = Task("f", lambda x: jnp.sqrt(x - 1) * x, lambda: (1.0,), 0, "", "")
      >>> proof = prove(task, (2, 1))  # no derivative at 1, no function below
      >>> proof.passed, proof.points, proof.tried > 3, proof.missing
      (True, 3, True, ())
    """
    graph = make_graph(task.fun, task.argnums)(*task.example_args())
    with jax.enable_x64(True):
        compared = _Comparison(task, _renumbered(task, graph, ids))
        partial, tried = [], 0
        for index in range(points * ATTEMPTS):
            args = near(task.example_args(), None if index == 0 else [seed, index])
            tried += 1
            expected, whole, entries = compared.expected(args)
            if whole:
                compared.compare(args, expected)
            elif entries:
                partial.append((entries, index, args, expected))
            if compared.points == points:
                break
        partial.sort(key=lambda candidate: (-candidate[0], candidate[1]))
        for *_, args, expected in partial[: points - compared.points]:
            compared.compare(args, expected)
        return Proof(
            errors=compared.errors,
            noise=compared.noise,
            points=compared.points,
            tried=tried,
            entries=sum(int(seen.sum()) for seen in compared.seen.values()),
            missing=tuple(compared.missing()),
            tolerance=tolerance,
        )


def _renumbered(task: Task, graph: Graph, ids: Sequence[int]) -> tuple[int, ...]:
    """Translates an order to the ids that its vertices have where 64-bit types are enabled.

    Indices of 64 bits are then traced with other conversions, which are numbered too but are no
    moves: it is the n-th vertex that is eliminable in both graphs.
    """
    traced = make_graph(task.fun, task.argnums)(*task.example_args())
    moves, traced_moves = (
        [(g.primitives[v - 1], g.shapes[g.node(v)]) for v in g.eliminable] for g in (graph, traced)
    )
    if moves != traced_moves:
        return tuple(ids)
    new = dict(zip(graph.eliminable, traced.eliminable, strict=True))
    return tuple(new[v] for v in graph.check_order(ids))


class _Comparison:
    """Comparison of Jacobians point by point, with the largest errors so far.

    Attributes:
      errors: as `Proof.errors`.
      noise: as `Proof.noise`.
      points: number of points compared.
      seen: for each block which entries have been compared, bool of its shape.
    """

    def __init__(self, task: Task, ids: Sequence[int]):
        """Prepares the functions, which are compiled when first called."""
        self.errors: dict[str, float] = {}
        self.noise: float | None = None
        self.points = 0
        self.seen: dict[str, np.ndarray] = {}
        # A new function object: JAX would reuse this trace, with constants of 64 bits, for the task
        # without 64-bit types.
        self._fun = jax.jit(lambda *args: task.fun(*args))
        self._ours = jax.jit(jacve(task.fun, tuple(ids), task.argnums, kernel="xla"))
        self._modes: dict[str, Callable[..., Any]] = {
            "jacrev": jax.jit(jax.jacrev(task.fun, task.argnums)),
            "jacfwd": jax.jit(jax.jacfwd(task.fun, task.argnums)),
        }

    def expected(self, args: Any) -> tuple[dict[str, Any], bool, int]:
        """Returns JAX's Jacobians by mode, and under "finite" where all of them are finite.

        With them, whether everything is finite, the function too, and how many entries are.
        """
        jacobians = {}
        for name, mode in list(self._modes.items()):
            try:
                jacobians[name] = jax.tree.map(np.asarray, mode(*args))
            except TypeError:  # a function with a custom reverse rule has no forward mode
                if name != "jacfwd":
                    raise
                del self._modes[name]
        finite = jax.tree.map(lambda *blocks: np.all(np.isfinite(blocks), 0), *jacobians.values())
        for block, where in jax.tree_util.tree_leaves_with_path(finite):
            self.seen.setdefault(jax.tree_util.keystr(block), np.zeros(np.shape(where), bool))
        values = jax.tree.leaves(jax.tree.map(np.asarray, self._fun(*args)))
        entries = sum(int(where.sum()) for where in jax.tree.leaves(finite))
        whole = all(where.all() for where in jax.tree.leaves(finite)) and all(
            np.isfinite(value).all() for value in values if value.dtype.kind in "fc"
        )
        return {**jacobians, "finite": finite}, whole, entries

    def compare(self, args: Any, expected: dict[str, Any]) -> None:
        """Compares the Jacobians at a point, where JAX's modes are finite."""
        finite = expected["finite"]
        actual = self._ours(*args)
        for name in self._modes:
            worst = error(actual, expected[name], finite)
            self.errors[name] = max(self.errors.get(name, 0.0), worst)
        if len(self._modes) == 2:
            between = error(expected["jacfwd"], expected["jacrev"], finite)
            self.noise = max(self.noise or 0.0, between)
        for block, where in jax.tree_util.tree_leaves_with_path(finite):
            self.seen[jax.tree_util.keystr(block)] |= where
        self.points += 1

    def missing(self) -> list[str]:
        """Describes the blocks with entries that have not been compared."""
        return [
            f"{(~seen).sum()} of {seen.size} entries of the Jacobian{block}"
            for block, seen in self.seen.items()
            if not seen.all()
        ]


def error(actual: Any, expected: Any, where: Any = None) -> float:
    """Returns the largest difference of two Jacobians; infinite where one is not finite.

    `where` are bools in the tree of both, the entries to compare; all by default.
    """
    if where is None:
        where = jax.tree.map(lambda x: np.ones(np.shape(x), bool), expected)
    blocks = [
        tuple(map(np.asarray, block))
        for block in zip(*map(jax.tree.leaves, (actual, expected, where)), strict=True)
    ]
    largest = max((_largest(e[w]) for _, e, w in blocks), default=0.0)
    worst = 0.0
    for f, e, w in blocks:
        if f.shape != e.shape:
            return float("inf")
        scale = max(_largest(e[w]), 1e-6 * largest)
        with np.errstate(invalid="ignore", divide="ignore"):
            same = (f == e) | (np.isnan(f) & np.isnan(e)) | ~w
            relative = np.where(same, 0.0, np.abs(f - e) / scale)
        worst = max(worst, float(np.nan_to_num(relative, nan=np.inf).max(initial=0.0)))
    return worst


def _largest(entries: np.ndarray) -> float:
    """Returns the largest finite magnitude, 0 without any."""
    return float(np.abs(entries).max(initial=0.0, where=np.isfinite(entries)))
