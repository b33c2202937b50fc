"""Resolves any accepted form of an order to the vertex ids of a graph, `auto` included."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice

from veenv.graph.graph import CostModel, Graph
from veenv.graph.program import normalise_argnums
from veenv.orders.cache import Auto
from veenv.orders.order import Order, climb
from veenv.orders.scored import scored_order
from veenv.orders.shipped import best_for

_COST: CostModel = "operations"
_EDGES = 5_000  # edges visited in all, about, while a classical order is improved
_MOST = 100  # most orders that are evaluated meanwhile

OrderLike = str | os.PathLike[str] | Order | Auto | Iterable[int]


def automatic_order(graph: Graph) -> tuple[int, ...]:
    """Returns an order of few operations: a shipped one, or an improved classical one.

    The classical order with the fewest operations, or of scalars a scored one, is improved by moves
    of single vertices, of which a fixed sequence is tried; how many depends on the graph alone.
    """
    with suppress(ValueError):  # none is shipped
        return best_for(graph, _COST).ids_for(graph)
    starts = [graph.legal(ids) for ids in (graph.reverse(), graph.forward(), graph.markowitz())]
    evaluations = min(_MOST, _EDGES // max(1, len(graph.edges)))
    if graph.is_scalar and len(graph.edges) <= _EDGES:
        starts.append(scored_order(graph))
        evaluations //= 4  # the scored order takes the rest of the time
    start = min(starts, key=lambda ids: graph.cost(ids, _COST))
    *_, (improved, _) = islice(climb(graph, start, _COST), 1 + evaluations)
    return improved


_NAMED: dict[str, Callable[[Graph], tuple[int, ...]]] = {
    "forward": Graph.forward,
    "fwd": Graph.forward,
    "reverse": Graph.reverse,
    "rev": Graph.reverse,
    "markowitz": lambda graph: graph.legal(graph.markowitz()),
    "best": lambda graph: best_for(graph).ids_for(graph),
    "best-executed": lambda graph: best_for(graph, "executed").ids_for(graph),
    "best-operations": lambda graph: best_for(graph, "operations").ids_for(graph),
    "auto": automatic_order,
}
_EXPECTED = f"one of {', '.join(_NAMED)}, a .json order file, an Order or a sequence of vertex ids"


def plain_order(order: OrderLike) -> OrderLike:
    """Returns an order that can be read repeatedly: ids as a tuple, other forms as they are.

    Raises:
      TypeError: if it is neither the name of an order, nor an `Order`, a path or ids.
    """
    if isinstance(order, (str, os.PathLike, Order, Auto)):
        return order
    if not isinstance(order, Iterable):
        hint = f"; did you mean argnums={order!r}?" if hasattr(order, "__index__") else ""
        raise TypeError(f"order must be {_EXPECTED}, got {order!r}{hint}")
    return tuple(order)


def resolve_order(order: OrderLike, graph: Graph, num_args: int = 0) -> tuple[int, ...]:
    """Returns the eliminable vertex ids of an order in any of the accepted forms.

    Ids that are no order of the graph may be argnums by mistake, of a function of `num_args`
    arguments.

    Raises:
      TypeError: if it is no form of an order.
      ValueError: if the order does not fit the graph, the name is unknown, or no best order is
        shipped for the graph.
    """
    order = plain_order(order)
    if isinstance(order, str) and order.lower() in _NAMED:
        return graph.check_order(_NAMED[order.lower()](graph))
    if isinstance(order, (str, os.PathLike)):
        path = os.fspath(order)
        if not path.endswith(".json"):
            near = difflib.get_close_matches(path.lower(), _NAMED, n=1)
            near = [f"{path}.json"] if os.path.isfile(f"{path}.json") else near
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"order must be {_EXPECTED}, got {path!r}{hint}")
        order = Order.load(path)
    if isinstance(order, Order):
        return order.ids_for(graph)
    if isinstance(order, Auto):
        return order.order(graph)
    try:
        return graph.check_order(order)
    except ValueError as error:
        with suppress(TypeError, ValueError):
            if normalise_argnums(order, num_args):
                hint = f"the second argument is the order: did you mean argnums={order!r}?"
                error = ValueError(f"{error} ({hint})")
        raise error from None
