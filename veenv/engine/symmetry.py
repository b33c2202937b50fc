"""Hessians are symmetric: which blocks, and which halves of blocks, need not be computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from veenv import _compat
from veenv.graph.linearisation import Linearisation
from veenv.graph.program import trace
from veenv.rules import walk
from veenv.rules.table import facts

Pair = tuple[int, int]
"""Source and target of an edge."""


@dataclass(frozen=True)
class Half:
    """What of a symmetric Jacobian is left out of an elimination.

    Attributes:
      mirrors: edges that are not formed: their block is the transpose of another.
      triangles: edges of which what is below the diagonal is what is above it.
    """

    mirrors: frozenset[Pair] = frozenset()
    triangles: frozenset[Pair] = frozenset()


def half_of(lin: Linearisation) -> Half:
    """The half of a Jacobian that is left out, where the k-th output is the k-th input's gradient.

    Of two blocks that are each other's transpose the one in a later row is left out, of a block on
    the diagonal what is below its diagonal. What leads on to further nodes stays whole.
    """
    graph = lin.graph
    rows: dict[int, list[int]] = {}
    for row, node in enumerate(graph.outputs):
        if node is not None and node >= graph.num_inputs:
            rows.setdefault(node, []).append(row)
    inside = {u for u, _ in graph.edges}
    last = {node: some for node, some in rows.items() if node not in inside}
    every = [(u, node, some) for u in range(graph.num_inputs) for node, some in last.items()]
    dtypes = {a.dtype for a in lin.program.avals[: graph.num_inputs]}
    mirrors = frozenset((u, v) for u, v, some in every if min(some) > u and len(dtypes) == 1)
    triangles = frozenset((u, v) for u, v, some in every if some == [u])
    return Half(mirrors, triangles)


def is_symmetric(fun: Callable[..., Any], args: Any, kwargs: Any, argnums: Any) -> bool:
    """Whether the Jacobian of a function's gradient is known to be symmetric.

    The function returns one number then. It need not be symmetric where the derivative of a part
    is the user's own, or rests on an assumption.
    """
    program = trace(fun, args, kwargs, argnums=argnums)
    if [tuple(aval.shape) for aval in program.out_avals] != [()]:
        return False
    every = (e for top in program.equations for e in (top, *walk.inside(top.params)))
    return not any(
        _compat.own_rule(e.primitive, e.params) or facts(e.primitive.name).assumes for e in every
    )
