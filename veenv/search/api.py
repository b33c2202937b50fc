"""The entry point of all searches: `search` runs one method on a graph within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from veenv.env.factory import task_graph
from veenv.graph.graph import CostModel, Graph
from veenv.search.budget import Budget, Progress, Tracker, check_seed
from veenv.search.exact.astar import solve_astar
from veenv.search.exact.bounds import vertex_bounds
from veenv.search.exact.patterns import make_patterns, single_patterns
from veenv.search.heuristic.greedy_rules import RULES, greedy
from veenv.search.heuristic.regions import anneal
from veenv.search.plugins import Proposer, consider, find_method, plugin_names, propose
from veenv.search.problem import Problem, prepare
from veenv.search.race import Race
from veenv.search.result import SearchResult

_IMPROVING = ("auto", "anneal", "exact")  # methods that improve orders; "auto" chooses by size
METHODS = (*_IMPROVING, "forward", "reverse", *RULES)
"""Names of the methods."""

_TINY, _SMALL, _FEW = 10, 16, 24
LARGE = 64
"""Most vertices of a graph for which "auto" does not use the policy."""
_BOUNDED = 400  # most vertices of an annealed graph for which lower bounds are computed
_SECONDS_PER_BOUND = 1e-5  # seconds of the flows behind lower bounds, per pair of vertices
_ADVICE, _SHARE_OF_ADVICE, _SHARE_OF_BOUNDS = 32, 0.1, 0.1


def search(
    graph: Graph | str,
    method: str = "anneal",
    *,
    cost: CostModel = "multiplications",
    budget: Budget | str | int = "10s",
    seed: int = 0,
    start: Sequence[int] | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> SearchResult:
    """Searches for an elimination order that costs little.

    The same arguments give the same order if the budget counts evaluations; with a time budget
    a faster machine gets further along the same path.  The search runs in a thread of its own; a
    KeyboardInterrupt ends it early and the best order so far is returned.  Every improvement is
    evaluated anew from the initial graph, and the final one by `Graph.cost`.

    Args:
      graph: the graph, or the name of a task.
      method: one of `METHODS`.  ``"exact"`` proves optimality where it can and otherwise
        reports a lower bound; ``"auto"`` proves graphs of up to 16 vertices optimal and anneals
        larger ones, above 64 vertices from the policy's orders too.  ``"policy"`` plays the
        pretrained policy of the package ``agents``, greedily and then by sampling until the budget
        is spent (``"policy-32"``: at most 32 samples), and so does any method of `register_method`.
      cost: the cost model.
      budget: seconds (``"10s"``, ``"2m"``) from call to return, or a number of evaluations, which
        the greedy methods do not look at.  What is compiled (once on a machine whose cache
        directory can be written) is compiled in the background while plain hill climbing stands
        in; what is not ready in time gives way to its order.
      seed: seed of everything random, not negative.
      start: vertex ids of an order to improve upon, with which annealing or exact search begins
        instead of the greedy ones.
      callback: called with a `Progress` on every improvement and about ten times a second, in the
        thread of the caller.

    Returns:
      The result.

    Raises:
      RuntimeError: if the search and the graph count the order found differently (a bug).
      TypeError: if there is no graph, but a function or an environment for example.
      ValueError: if the method, cost model, budget or seed is not valid, or the graph too large.

    Examples:
      >>> import jax.numpy as jnp
      >>> from veenv import make_graph
      >>> graph = make_graph(lambda x: jnp.sin(x) * jnp.cos(x) * x)(1.0)
      >>> result = search(graph, "exact", budget=1000)
      >>> result.cost, result.optimal
      (3, True)
    """
    began = time.perf_counter()
    name, size, proposer = parse_method(method)
    limit = Budget.parse(budget)
    if start is not None and name not in _IMPROVING:
        raise ValueError(f"only {', '.join(_IMPROVING)} search from a start, not {method}")
    check_seed(seed)
    graph = task_graph(graph)
    problem = prepare(graph, cost)
    initial = None if start is None else graph.check_order(start)
    race = Race(problem, limit, began, initial, seed)
    if proposer is not None:
        proposing = proposer
        race.run(lambda: _consider(race, proposing, size), callback)
    elif name in _IMPROVING:
        race.run(lambda: _improve(race, name), callback)
    else:
        race.run(lambda: _construct(race, name), callback)
    return SearchResult.of(race, method)


def _consider(race: Race, proposer: Proposer, size: int | None) -> None:
    """Evaluates the orders that a plugin proposes."""
    first, further = propose(race, proposer, size)
    tracker = race.start(first)
    tracker.raise_bound(int(vertex_bounds(race.problem).sum()))
    consider(race.problem, tracker, further)


def _improve(race: Race, name: str) -> None:
    """Searches from the greedy orders, or from the given one."""
    problem = race.problem
    kind = name if name != "auto" else "exact" if problem.n <= _SMALL else "anneal"
    starts = _starts(problem) if race.initial is None else [problem.to_local(race.initial)]
    tracker = race.start(starts[0])
    bounds = np.zeros(problem.n, np.int64)
    if kind == "exact" or _affordable_bounds(tracker, problem.n):
        bounds = vertex_bounds(problem)
        tracker.raise_bound(int(bounds.sum()))
    if name == "auto" and problem.n > LARGE and race.initial is None:
        starts = _advised(race, tracker, starts)
    if tracker.done():
        return
    if kind == "exact":
        _prove(race, tracker, starts, bounds)
    else:
        anneal(problem, tracker, starts, race.seed)


def _affordable_bounds(tracker: Tracker, n: int) -> bool:
    """Returns whether the flows behind lower bounds take little of the time that is left."""
    share = n * n * _SECONDS_PER_BOUND / _SHARE_OF_BOUNDS
    return n <= _BOUNDED and share <= tracker.seconds_left()


def _advised(race: Race, tracker: Tracker, starts: list[np.ndarray]) -> list[np.ndarray]:
    """Returns starts, best first, with the pretrained policy's best order if it is installed."""
    try:
        proposer = find_method("policy")
    except ValueError:
        proposer = None
    if proposer is None:
        return starts
    with tracker.limited_to(_SHARE_OF_ADVICE):
        first, further = propose(race, proposer, _ADVICE)
        consider(race.problem, tracker, chain([first], further))
    known = any(np.array_equal(tracker.order, start) for start in starts)
    return starts if known else [tracker.order, *starts]


def _construct(race: Race, name: str) -> None:
    """Sets the one order of a greedy method as the search's result."""
    problem, graph = race.problem, race.problem.graph
    classical = {"forward": graph.forward, "reverse": graph.reverse, "markowitz": graph.markowitz}
    make = classical.get(name, lambda: problem.to_ids(greedy(problem, name)))
    ids = graph.legal(make())
    race.outcome = ids, graph.cost(ids, problem.cost_model)
    race.bound = min(int(vertex_bounds(problem).sum()), race.outcome[1])


def parse_method(method: str) -> tuple[str, int | None, Proposer | None]:
    """Returns name and size of a method such as ``"policy-32"``, and a plugin's proposer.

    Raises:
      ValueError: if `search` does not take this method.
    """
    if method in METHODS:
        return method, None, None
    name, hyphen, number = str(method).partition("-")
    size = int(number) if number.isdecimal() else 0
    proposer = find_method(name) if name not in METHODS and (size > 0 or not hyphen) else None
    if proposer is not None:
        return name, size or None, proposer
    raise ValueError(
        f"method must be one of {', '.join(dict.fromkeys((*METHODS, *plugin_names())))}, "
        f"got {method!r}"
    )


def _starts(problem: Problem) -> list[np.ndarray]:
    """Returns the greedy orders from best to worst."""
    forward = np.arange(problem.n)
    classical = [problem.legal(order) for order in (forward, forward[::-1].copy())]
    orders = [*classical, *(greedy(problem, rule) for rule in RULES)]
    return sorted(orders, key=problem.total)


def _prove(race: Race, tracker: Tracker, starts: list[np.ndarray], bounds: np.ndarray) -> None:
    """Proves by A*, after a quick search for an order that prunes; anneals in the time left."""
    problem = race.problem
    if problem.n <= _TINY and solve_astar(problem, tracker, single_patterns(bounds)):
        return
    with tracker.limited_to(0.02 if problem.n <= _FEW else 0.2):
        anneal(problem, tracker, starts, race.seed)
    if tracker.done():
        return
    if not solve_astar(problem, tracker, make_patterns(problem, tracker, bounds)):
        anneal(problem, tracker, [tracker.order], race.seed + 1)
