"""Hill climbing on elimination orders in plain Python, which starts at once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from veenv.graph.graph import CostModel, Graph

_PATIENCE = 40  # moves for each vertex without a better order after which climbing ends


def climb(
    graph: Graph, order: Sequence[int], cost: CostModel = "multiplications", seed: int = 0
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Moves single vertices to other places while that makes the order no more expensive.

    The compiled searches get much further in a minute, but have to be compiled on a machine that
    has never run them.

    Yields:
      The best order so far and its cost: the given one, then after every move that was evaluated.
    """
    rng = random.Random(seed)
    current = list(graph.check_order(order))
    price = graph.cost(current, cost)
    best, best_price, stale = tuple(current), price, 0
    yield best, best_price
    while len(best) > 1 and best_price and stale < _PATIENCE * len(best):
        moved = current.copy()
        vertex = moved.pop(rng.randrange(len(moved)))
        moved.insert(rng.randrange(len(moved) + 1), vertex)
        if graph.reverse_only:
            moved = list(graph.legal(moved))
        new = price if moved == current else graph.cost_within(moved, cost, price)
        stale += 1
        if new <= price:
            current, price = moved, new
        if new < best_price:
            best, best_price, stale = tuple(moved), new, 0
        yield best, best_price


def climb_until(graph: Graph, order: Sequence[int], end: float, cost: CostModel) -> tuple[int, ...]:
    """The best order that climbing finds until `time.perf_counter` is `end`; one move at least."""
    found = tuple(order)
    for better, _ in climb(graph, order, cost):
        found = better
        if time.perf_counter() >= end:
            break
    return found
