"""The entry point of all searches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from veenv.graph.graph import CostModel, Graph
from veenv.search.budget import Budget, Progress, Tracker
from veenv.search.exact.astar import solve_astar
from veenv.search.exact.bounds import vertex_bounds
from veenv.search.exact.patterns import make_patterns, single_patterns
from veenv.search.exact.subsets import MAX_VERTICES, solve_subsets
from veenv.search.heuristic.anneal import anneal
from veenv.search.heuristic.beam import beam
from veenv.search.heuristic.greedy import RULES, greedy, lookahead
from veenv.search.plugins import Proposer, consider, find_method, plugin_names, propose
from veenv.search.problem import Problem, prepare

METHODS = (
    "auto",
    "anneal",
    "beam",
    "exact",
    "forward",
    "reverse",
    *RULES,
    "lookahead",
)
"""Names of the methods; ``"beam-256"`` fixes the width and ``"lookahead-3"`` the depth."""

_SECONDS_PER_SET = 2.5e-6
_TINY = 10
_SMALL = 16


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
      order: vertex ids in elimination order.
      cost: multiplications of that order under the cost model.
      cost_model: ``"multiplications"`` or ``"executed"``.
      lower_bound: proven: no order costs less.
      optimal: the cost equals the lower bound.
      evaluations: orders evaluated (annealing, beam), or states expanded (exact search).
      seconds: wall-clock time, without that of compiling the kernels.
      trace: (seconds, evaluations, cost) of every improvement, the first order's included.
      method: the method asked for.
      seed: the seed.
    """

    order: tuple[int, ...]
    cost: int
    cost_model: CostModel
    lower_bound: int
    optimal: bool
    evaluations: int
    seconds: float
    trace: tuple[tuple[float, int, int], ...]
    method: str
    seed: int


def search(
    graph: Graph,
    method: str = "anneal",
    *,
    cost: CostModel = "multiplications",
    budget: Budget | str | int = "10s",
    seed: int = 0,
    start: Sequence[int] | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> SearchResult:
    """Searches for an elimination order of few multiplications.

    The same arguments give the same order if the budget counts evaluations; with a time budget
    a faster machine gets further along the same path.  A KeyboardInterrupt ends the search early
    and the best order so far is returned.  Every improvement is evaluated anew from the initial
    graph, and the final one by `Graph.cost`.

    Args:
      graph: the graph.
      method: one of `METHODS`.  ``"exact"`` proves optimality where it can and otherwise
        reports a lower bound; ``"auto"`` proves small graphs optimal and shares the budget
        between annealing and beam search on larger ones.  ``"policy"`` plays the pretrained policy
        of the package ``agents``, greedily and then by sampling until the budget is spent
        (``"policy-32"``: at most 32 samples), and so does any method of `register_method`.
      cost: the cost model.
      budget: seconds (``"10s"``, ``"2m"``) or a number of evaluations; the greedy methods, which
        take milliseconds, do not look at it.  The clock starts when the kernels are compiled,
        which takes seconds once on a machine whose cache directory can be written.
      seed: seed of everything random, not negative.
      start: vertex ids of an order to improve upon, with which annealing, beam or exact search
        begins instead of the greedy ones.
      callback: called with a `Progress` on every improvement and about ten times a second.

    Returns:
      The result.

    Raises:
      RuntimeError: if the search and the graph count the order found differently (a bug).
      ValueError: if the method, cost model, budget or seed is not valid, or the graph too large.

    Example:
      >>> import jax.numpy as jnp
      >>> from veenv import make_graph
      >>> graph = make_graph(lambda x: jnp.sin(x) * jnp.cos(x) * x)(1.0)
      >>> result = search(graph, "exact")
      >>> result.cost, result.optimal
      (3, True)
    """
    name, size, proposer = _parse_method(method)
    limit = Budget.parse(budget)
    if start is not None and name not in _METHODS:
        raise ValueError(f"only {', '.join(_METHODS)} search from a start, not {method}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an int that is not negative, got {seed!r}")
    problem = prepare(graph, cost)
    _warm_up(problem, name)
    given = None if start is None else problem.to_local(graph.check_order(start))
    proposals = iter(())
    if proposer is not None:
        given, proposals = propose(problem, proposer, seed, size)
    began = time.perf_counter()
    starts = _starts(problem, name, size) if given is None else [given]
    tracker = Tracker(problem, starts[0], limit, callback, began)
    bounds = vertex_bounds(problem)
    tracker.raise_bound(int(bounds.sum()))
    try:
        consider(problem, tracker, proposals)
        if not tracker.done():
            _METHODS.get(name, _nothing)(problem, tracker, starts, bounds, seed, size)
    except KeyboardInterrupt:
        pass
    order = problem.to_ids(tracker.order)
    found = tracker.cost
    if graph.reverse_only:
        order = min(map(graph.legal, (order, graph.reverse())), key=lambda o: graph.cost(o, cost))
        found = graph.cost(order, cost)
    actual = graph.cost(order, cost)
    if actual != found:
        raise RuntimeError(f"the search counts {found}, the graph {actual}: {order}")
    return SearchResult(
        order,
        found,
        cost,
        tracker.lower_bound,
        found == tracker.lower_bound,
        tracker.evaluations,
        tracker.seconds,
        tuple(tracker.trace),
        method,
        seed,
    )


def _parse_method(method: str) -> tuple[str, int | None, Proposer | None]:
    """Name and size of a method such as ``"beam-256"``, and who proposes if it is a plugin.

    Raises:
      ValueError: if there is no such method.
    """
    if method in METHODS:
        return method, None, None
    name, hyphen, number = str(method).partition("-")
    size = int(number) if number.isdecimal() else 0
    if name in ("beam", "lookahead") and size > 0:
        return name, size, None
    proposer = find_method(name) if name not in METHODS and (size > 0 or not hyphen) else None
    if proposer is not None:
        return name, size or None, proposer
    raise ValueError(
        f"method must be one of {', '.join(dict.fromkeys((*METHODS, *plugin_names())))}, or "
        f"beam-WIDTH or lookahead-DEPTH, got {method!r}"
    )


def _warm_up(problem: Problem, name: str) -> None:
    """Has the kernels of a method compiled, or loaded from the cache, by using them once."""
    kinds = _USES.get(name, ())
    order = np.arange(problem.n)
    for rule in RULES if kinds else ():
        greedy(problem, rule)
    for kind in kinds:
        tracker = Tracker(problem, order, Budget(evaluations=1))
        if kind == "anneal":
            anneal(problem, tracker, [order], 0)
        elif kind == "beam":
            beam(problem, tracker, 0)
        elif problem.tables is None and problem.n <= MAX_VERTICES:
            solve_subsets(problem, tracker)
        if kind == "exact":
            solve_astar(problem, Tracker(problem, order, Budget(evaluations=1)))


def _starts(problem: Problem, name: str, size: int | None) -> list[np.ndarray]:
    """The order a direct method asks for, or the greedy family from best to worst."""
    forward = np.arange(problem.n)
    if name == "forward":
        return [forward]
    if name == "reverse":
        return [forward[::-1].copy()]
    if name in RULES:
        return [greedy(problem, name)]
    if name == "lookahead":
        return [lookahead(problem, 2 if size is None else size)]
    orders = [forward, forward[::-1].copy(), *(greedy(problem, rule) for rule in RULES)]
    return sorted(orders, key=problem.total)


def _nothing(*_: object) -> None:
    """The direct methods are done when they start."""


def _anneal(
    problem: Problem,
    tracker: Tracker,
    starts: list[np.ndarray],
    bounds: np.ndarray,
    seed: int,
    size: int | None,
) -> None:
    anneal(problem, tracker, starts, seed)


def _beam(
    problem: Problem,
    tracker: Tracker,
    starts: list[np.ndarray],
    bounds: np.ndarray,
    seed: int,
    size: int | None,
) -> None:
    beam(problem, tracker, seed, size)


def _exact(
    problem: Problem,
    tracker: Tracker,
    starts: list[np.ndarray],
    bounds: np.ndarray,
    seed: int,
    size: int | None,
) -> None:
    """A good order first, which prunes the proof; then sets or A*; what is left anneals on."""
    if problem.n <= _TINY and solve_astar(problem, tracker, single_patterns(bounds)):
        return
    with tracker.share(0.02 if problem.n <= MAX_VERTICES else 0.2):
        anneal(problem, tracker, starts, seed)
    if tracker.done():
        return
    sets = 1 << problem.n
    affordable = (
        problem.tables is None
        and problem.n <= MAX_VERTICES
        and sets <= tracker.evaluations_left()
        and sets * _SECONDS_PER_SET <= tracker.seconds_left()
    )
    proven = solve_subsets(problem, tracker) if affordable else False
    if proven:
        return
    if not solve_astar(problem, tracker, make_patterns(problem, tracker, bounds)):
        anneal(problem, tracker, [tracker.order], seed + 1)


def _auto(
    problem: Problem,
    tracker: Tracker,
    starts: list[np.ndarray],
    bounds: np.ndarray,
    seed: int,
    size: int | None,
) -> None:
    """Exact for small graphs; annealing and beam search by turns for others."""
    if problem.n <= _SMALL:
        _exact(problem, tracker, starts, bounds, seed, size)
        return
    with tracker.share(0.5):
        anneal(problem, tracker, starts, seed)
    with tracker.share(0.5):
        beam(problem, tracker, seed)
    anneal(problem, tracker, [tracker.order], seed + 1)


_USES = {
    "anneal": ("anneal",),
    "beam": ("beam",),
    "exact": ("anneal", "exact"),
    "auto": ("anneal", "beam", "exact"),
}
_METHODS = {"anneal": _anneal, "beam": _beam, "exact": _exact, "auto": _auto}
