"""Precedence of vertices: masks actions that a graph's rules allow only after others.

A derivative rule that is not linear in its cotangent can only be applied to the cotangents of
outputs (`veenv.graph.precedence`), so what depends on its results goes before them, and they go
before its operands. That is a partial order of the vertices, known before the first move. It is
data in the params: with L what is left, the mask of legal actions is

    mask[a] = L[a] and no b with L[b] and before[a, b].

As the order is partial, some vertex is legal as long as one is left, and every finished episode is
an order that the graph allows.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from veenv.env.encode import EnvParams, Spec
from veenv.graph.graph import Graph


def encode_before(graph: Graph, spec: Spec) -> Bool[Array, "A A"] | None:
    """Returns bool [A, A], which slots precede each slot; None if the spec has no precedence."""
    if not spec.precedence:
        return None
    slots = {vertex: slot for slot, vertex in enumerate(graph.eliminable)}
    before = np.zeros((spec.num_actions, spec.num_actions), bool)
    for vertex, earlier in graph.prerequisites.items():
        before[slots[vertex], [slots[other] for other in earlier]] = True
    return jnp.asarray(before)


def legal_slots(params: EnvParams, left: Bool[Array, " A"]) -> Bool[Array, " A"]:
    """Selects from the slots that are left (bool [A]) those that need not wait: bool [A]."""
    if params.before is None:
        return left
    return left & ~(params.before & left[None, :]).any(-1)


def left_slots(
    params: EnvParams, mask: Bool[Array, " A"], order: Int[Array, " A"]
) -> Bool[Array, " A"]:
    """Returns the slots whose vertices are not eliminated yet.

    Args:
      params: the graph.
      mask: bool [A], the legal slots, which are what is left where nothing has to wait.
      order: int32 [A], the slots eliminated so far; -1 where not yet.

    Returns:
      bool [A].
    """
    if params.before is None:
        return mask
    slots = jnp.arange(mask.shape[0], dtype=jnp.int32)
    return (params.vertex_ids >= 0) & ~(order[None, :] == slots[:, None]).any(-1)
