"""What an order must be: the id of every eliminable vertex, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def check_order(
    order: Iterable[int], eliminable: Sequence[int], num_vertices: int
) -> tuple[int, ...]:
    """Checks that an order names every eliminable vertex once, and drops pruned ids.

    Raises:
      ValueError: if an id is not an int, is unknown, repeated or missing.
    """
    wanted, seen, kept = set(eliminable), set(), []
    for item in order:
        vertex = as_vertex_id(item)
        if not 1 <= vertex <= num_vertices:
            raise ValueError(
                f"order names vertex {vertex}, but the graph's vertices are 1 .. {num_vertices}"
            )
        if vertex in seen:
            raise ValueError(f"order repeats vertex {vertex}")
        seen.add(vertex)
        if vertex in wanted:
            kept.append(vertex)
    missing = sorted(wanted - seen)
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (" …" if len(missing) > 10 else "")
        raise ValueError(
            f"order misses {len(missing)} of {len(wanted)} eliminable vertices: {shown}"
        )
    return tuple(kept)


def as_vertex_id(item: Any) -> int:
    """A vertex id as a Python int.

    Raises:
      ValueError: if it is not an integer (bool and float are not).
    """
    index: Callable[[], int] | None = getattr(item, "__index__", None)
    if index is None or isinstance(item, bool):
        raise ValueError(f"order must hold integer vertex ids, got {item!r}")
    return index()
