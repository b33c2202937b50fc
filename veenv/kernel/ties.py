"""Axes along which an equation computes the same at each index, or combines what it has of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from veenv.kernel import linear
from veenv.kernel.elementwise import ELEMENTWISE
from veenv.kernel.sums import COMBINE
from veenv.rules.indexmap import moved, numbered, of_gather, of_scatter

_ONE_ROW = frozenset({"lu_pivots_to_permutation", "tridiagonal_solve"})
"""Primitives of linear algebra whose first operand is a vector, not a matrix."""


class Tie(NamedTuple):
    """An axis of the results, or one that is gone, and the same axis of the operands.

    Attributes:
      out: the axis of every result; None where entries along it are combined.
      ins: of each operand its axis; None where it has the same for every index.
      combine: what combines them, such as "sum"; empty where they are apart.
    """

    out: int | None
    ins: tuple[int | None, ...]
    combine: str = ""


def ties_of(eqn: Any, *, indexed: bool = False) -> list[Tie]:
    """The axes of an equation; none of one that is not known to have any.

    `indexed`: those that indices have, too. They are not known in a loop of a kernel.
    """
    name, params = eqn.primitive.name, eqn.params
    shapes = [v.aval.shape for v in eqn.invars]
    out = eqn.outvars[0].aval.shape
    if name in ELEMENTWISE or name in ("le_to", "lt_to"):
        return [Tie(k, tuple(k if s else None for s in shapes)) for k in range(len(out))]
    if name == "dot_general":
        return _of_product(params["dimension_numbers"], shapes)
    if name.startswith("reduce_") and name.removeprefix("reduce_") in COMBINE:
        kept = [j for j in range(len(shapes[0])) if j not in params["axes"]]
        gone = [Tie(None, (j,), name.removeprefix("reduce_")) for j in params["axes"]]
        return [*(Tie(k, (j,)) for k, j in enumerate(kept)), *gone]
    if name in ("argmax", "argmin"):
        kept = [j for j in range(len(shapes[0])) if j not in params["axes"]]
        return [Tie(k, (j,)) for k, j in enumerate(kept)]
    if name.startswith("cum") or name == "sort":
        along = params["axis" if name != "sort" else "dimension"]
        return [Tie(k, (k,) * len(shapes)) for k in range(len(out)) if k != along]
    if name in linear.RULES:
        batch = len(shapes[0]) - (1 if name in _ONE_ROW else 2)
        return [Tie(k, (k,) * len(shapes)) for k in range(batch)]
    if name == "iota":
        return [Tie(k, ()) for k in range(len(out)) if k != params["dimension"]]
    if name == "gather" or name.startswith("scatter"):
        return [t for t in _of_windows(eqn, shapes) if indexed or t.ins[1] is None]
    return _of_moves(eqn, shapes)


def _of_windows(eqn: Any, shapes: list[tuple[int, ...]]) -> list[Tie]:
    """The axes of a gather, or of a scatter."""
    if eqn.primitive.name == "gather":
        alike = of_gather(eqn.params).alike(shapes[0], len(eqn.outvars[0].aval.shape))
        return [Tie(k, (j, i)) for k, j, i in alike]
    windows = of_scatter(eqn.params, len(shapes[0]), shapes[2])
    return [Tie(j, (j, i, k)) for k, j, i in windows.alike(shapes[0], len(shapes[2]))]


def _of_product(numbers: Any, shapes: list[tuple[int, ...]]) -> list[Tie]:
    (over_x, over_y), (batch_x, batch_y) = numbers
    found = [Tie(k, pair) for k, pair in enumerate(zip(batch_x, batch_y, strict=True))]
    for operand, taken in enumerate(((*over_x, *batch_x), (*over_y, *batch_y))):
        for j in range(len(shapes[operand])):
            if j not in taken:
                found.append(Tie(len(found), (j, None) if operand == 0 else (None, j)))
    return [*found, *(Tie(None, pair, "sum") for pair in zip(over_x, over_y, strict=True))]


def _of_moves(eqn: Any, shapes: list[tuple[int, ...]]) -> list[Tie]:
    """Of what moves entries as shapes say: where each comes from tells."""
    sizes = [int(np.prod(s)) for s in shapes]
    starts = np.cumsum([0, *sizes])
    numbers = [numbered(s, int(k)) for s, k in zip(shapes, starts[:-1], strict=True)]
    results = moved(eqn.primitive.name, eqn.params, numbers, eqn.outvars[0].aval.shape)
    if not results or not results[0].size:
        return []
    found = []
    for k in range(results[0].ndim):
        if any(r.ndim <= k or r.shape[k] != results[0].shape[k] for r in results):
            continue
        ins: list[int | None] = []
        for operand, shape in enumerate(shapes):
            partner = {_partner(r, k, shape, int(starts[operand])) for r in results}
            ins.append(partner.pop() if len(partner) == 1 else -1)
        if -1 not in ins:
            found.append(Tie(k, tuple(ins)))
    return found


def _partner(places: np.ndarray, k: int, shape: tuple[int, ...], start: int) -> int | None:
    """The axis of an operand that goes with axis k of a result; None for none, -1 for no single."""
    from_here = (places >= start) & (places < start + int(np.prod(shape)))
    if (from_here != from_here.take([0], k)).any():
        return -1
    if (places == places.take([0], k))[from_here].all():
        return None
    index = np.broadcast_to(
        np.arange(places.shape[k]).reshape((-1,) + (1,) * (places.ndim - 1 - k)), places.shape
    )[from_here]
    coordinates = np.unravel_index(places[from_here] - start, shape)
    for j, along in enumerate(coordinates):
        if shape[j] == places.shape[k] and (along == index).all():
            return j
    return -1
