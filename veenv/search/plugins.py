"""Search methods of other packages: anything that proposes orders of a graph, such as a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import entry_points
from itertools import islice
from typing import TypeAlias

import numpy as np

from veenv.graph.graph import CostModel, Graph
from veenv.search.budget import ClosedError, Tracker
from veenv.search.problem import Problem
from veenv.search.race import Race

GROUP = "veenv.search_methods"
"""Entry-point group in which an installed package offers methods by name."""

Proposer: TypeAlias = Callable[[Graph, CostModel, int], Iterator[Sequence[int] | None]]
"""From a graph, a cost model and a seed to orders (vertex ids), best guess first.

One that takes long over an order may give None in between: a search whose time is up ends there.
"""

# Filled by register_method only, never on import.
_registered: dict[str, Proposer] = {}


def register_method(name: str, proposer: Proposer) -> None:
    """Registers a method, which `search` then finds by its name.

    A package can offer the same without being imported, as an entry point of the group
    ``veenv.search_methods``.

    Args:
      name: the name, without a hyphen (``"name-100"`` asks for 100 orders).
      proposer: called with a graph, a cost model and a seed; gives orders, the best guess first.

    Raises:
      ValueError: if the name is not an identifier.

    Examples:
      >>> from veenv import make_graph
      >>> from veenv.search import search
      >>> register_method("backwards", lambda graph, cost, seed: iter([graph.reverse()]))
      >>> search(make_graph(lambda x: x * x * x)(1.0), "backwards").order
      (1,)
    """
    if not name.isidentifier():
        raise ValueError(f"a method's name must be an identifier, got {name!r}")
    _registered[name] = proposer


def plugin_names() -> tuple[str, ...]:
    """Returns the names of the methods that are registered or that installed packages offer."""
    return tuple(sorted({*_registered, *(point.name for point in entry_points(group=GROUP))}))


def find_method(name: str) -> Proposer | None:
    """Returns the method of a name; None if there is none.

    Raises:
      ValueError: the method is known, but its package is not installed or fails to import.
    """
    if name in _registered:
        return _registered[name]
    for point in entry_points(group=GROUP, name=name):
        try:
            return point.load()
        except ImportError as error:
            missing = "; pip install 'veenv[agents]' has what it needs" if name == "policy" else ""
            raise ValueError(f"method {name!r} cannot be loaded: {error}{missing}") from error
    return None


def propose(
    race: Race, proposer: Proposer, size: int | None
) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """Returns a method's proposals as local orders: the best guess, and at most `size` others.

    Raises:
      ClosedError: if the orders are not wanted any more.
      ValueError: if it proposes nothing, or something that is no order of the graph.
    """
    orders = _orders(race, proposer(race.problem.graph, race.problem.cost_model, race.seed))
    for first in orders:
        return first, orders if size is None else islice(orders, size)
    raise ValueError("the method proposes no order")


def _orders(race: Race, proposed: Iterator[Sequence[int] | None]) -> Iterator[np.ndarray]:
    """Yields checked local orders."""
    for ids in proposed:
        if not race.wanted():
            raise ClosedError
        if ids is not None:
            yield race.problem.to_local(race.problem.graph.check_order(ids))


def consider(problem: Problem, tracker: Tracker, orders: Iterable[np.ndarray]) -> None:
    """Evaluates proposed local orders until there are no more or the search is done."""
    for order in orders:
        tracker.add(1)
        cost = problem.total(order)
        if cost < tracker.cost:
            tracker.improve(order, cost)
        if tracker.done():
            return
