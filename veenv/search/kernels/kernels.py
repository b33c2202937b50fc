"""Compiled vertex elimination on a `Core`: bitset rows for scalars, structure ids for arrays.

Node numbers are local (`veenv.search.problem`): the n eliminable vertices come first, then the
other nodes that carry an edge; N nodes in all, W = ceil(N / 64) words a bitset row.  A graph's
state is

    bits  uint64 [3, N, W]   0: successors, 1: predecessors, 2: successors by a valued edge
    ids   int32 [N, N]       structure id of edge (source, target), 0 for none ([1, 1] for scalars)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from veenv.search.kernels.array import ArrayCore, array_eliminate
from veenv.search.kernels.compilation import compiled
from veenv.search.kernels.scalar import ScalarCore, scalar_eliminate, scalar_price

Core = ScalarCore | ArrayCore


def eliminate(core: Any, bits: Any, ids: Any, v: Any) -> Any:
    """Eliminates v in place, and returns what it costs; for compiled callers.

    It is specialised on the kind of core: a scalar graph's code must not mention the tables, whose
    reference counts would cost more than the elimination itself.
    """
    raise TypeError("eliminate is called from compiled code only")


@overload(eliminate, strict=False)
def _eliminate(core: Any, bits: Any, ids: Any, v: Any) -> Any:
    if core.instance_class is ScalarCore:
        return lambda core, bits, ids, v: scalar_eliminate(
            bits, core.kept[v], core.plain, core.additions, v
        )
    return lambda core, bits, ids, v: array_eliminate(core, bits, ids, v, True)


def cost_of(core: Any, bits: Any, ids: Any, v: Any) -> Any:
    """What eliminating v now would cost, the state unchanged; for compiled callers."""
    raise TypeError("cost_of is called from compiled code only")


@overload(cost_of, strict=False)
def _cost_of(core: Any, bits: Any, ids: Any, v: Any) -> Any:
    if core.instance_class is ScalarCore:
        return lambda core, bits, ids, v: scalar_price(bits, core.plain, core.additions, v)
    return lambda core, bits, ids, v: array_eliminate(core, bits, ids, v, False)


@compiled
def copy_flat(target, source):
    """Copies a contiguous array; one loop over all elements, which becomes a memcpy."""
    flat, values = target.reshape(target.size), source.reshape(source.size)
    for i in range(flat.shape[0]):
        flat[i] = values[i]


@compiled
def copy_state(target, target_ids, source, source_ids):
    """Copies a state."""
    copy_flat(target, source)
    copy_flat(target_ids, source_ids)


@compiled
def order_costs(core, order, costs):
    """Cost of each elimination of `order` (int64 [n], local), into `costs`; returns the sum."""
    bits, ids = core.bits.copy(), core.ids.copy()
    total = np.int64(0)
    for i in range(order.shape[0]):
        costs[i] = eliminate(core, bits, ids, order[i])
        total += costs[i]
    return total


@compiled
def order_totals(core, orders, totals):
    """Total cost of many orders (int64 [B, n]) into `totals` (int64 [B])."""
    bits, ids = core.bits.copy(), core.ids.copy()
    for b in range(orders.shape[0]):
        copy_state(bits, ids, core.bits, core.ids)
        total = np.int64(0)
        for i in range(orders.shape[1]):
            total += eliminate(core, bits, ids, orders[b, i])
        totals[b] = total
