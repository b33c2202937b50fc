"""Compiling the kernels of a method, or loading them from the cache, before it searches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from veenv.graph.linearisation import make_graph
from veenv.search.budget import Budget, Tracker
from veenv.search.exact.astar import solve_astar
from veenv.search.exact.bounds import vertex_bounds
from veenv.search.exact.patterns import make_patterns, single_patterns
from veenv.search.exact.subsets import solve_subsets
from veenv.search.heuristic.annealing import anneal
from veenv.search.heuristic.beam_search import beam
from veenv.search.heuristic.greedy_rules import RULES, greedy, lookahead
from veenv.search.heuristic.regions import anneal_regions
from veenv.search.problem import Problem, prepare

_warm: set[tuple[str, bool]] = set()
"""Kernels that this process has in memory: which, and whether for scalar graphs."""


def warm_up(kinds: tuple[str, ...], scalar: bool, wanted: Callable[[], bool]) -> bool:
    """Has kernels compiled, which takes seconds each where no cache has them.

    Args:
      kinds: keys of `_RUNS`.
      scalar: for scalar graphs, or else for graphs of arrays.
      wanted: asked before each kernel; False ends it.

    Returns:
      Whether all are ready.
    """
    for kind in kinds:
        if (kind, scalar) in _warm:
            continue
        for run in _RUNS[kind]:
            if not wanted():
                return False
            run(_example(scalar))
        _warm.add((kind, scalar))
    return True


def is_warm(kind: str, scalar: bool) -> bool:
    """Whether a kind of kernels is in memory."""
    return (kind, scalar) in _warm


@cache
def _example(scalar: bool) -> Problem:
    """A graph small enough to search at once, of the same types as all others of its kind."""
    shape = () if scalar else (2,)
    x = jax.ShapeDtypeStruct(shape, np.float32)
    return prepare(make_graph(lambda x, y: jnp.sin(jnp.exp(x) * y) * jnp.cos(y), (0, 1))(x, x))


def _tracker(problem: Problem) -> Tracker:
    return Tracker(problem, np.arange(problem.n)[::-1].copy(), Budget(evaluations=40))


def _search_sets(problem: Problem) -> None:
    if problem.tables is None:
        solve_subsets(problem, _tracker(problem))


def _search_states(problem: Problem) -> None:
    nothing_known = single_patterns(np.zeros(problem.n, np.int64))
    solve_astar(problem, _tracker(problem), nothing_known)
    make_patterns(problem, _tracker(problem), vertex_bounds(problem))


_Run = Callable[[Problem], object]
_RUNS: dict[str, tuple[_Run, ...]] = {
    "total": (lambda problem: problem.total(np.arange(problem.n)),),
    "greedy": tuple(lambda problem, rule=rule: greedy(problem, rule) for rule in RULES),
    "lookahead": (lookahead,),
    "anneal": (lambda problem: anneal(problem, _tracker(problem), [np.arange(problem.n)], 0),),
    "regions": (
        lambda problem: anneal_regions(problem, _tracker(problem), [np.arange(problem.n)], 0),
    ),
    "beam": (lambda problem: beam(problem, _tracker(problem), 0),),
    "exact": (_search_sets, _search_states),
}
