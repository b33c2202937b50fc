"""Primitives that put entries in order: sorting, search in sorted tables, orders of all floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from veenv.kernel.builder import Builder
from veenv.kernel.ids import Ids
from veenv.kernel.program import FLOATS, CannotFuseError, dtype_name
from veenv.kernel.rules_shape import Rule

_MOST_SORTED = 16
"""Entries that are sorted at most."""


def _precedes(b: Builder, dtype: str, x: int, y: int) -> int:
    """Whether x comes before y; what is not a number comes last."""
    if dtype == "bool":
        return b.op("and", "bool", b.op("not", "bool", x), y)
    less = b.op("lt", "bool", x, y)
    if dtype not in FLOATS:
        return less
    numbers = b.op("eq", "bool", x, x), b.op("ne", "bool", y, y)
    return b.op("or", "bool", less, b.op("and", "bool", *numbers))


def _ordered(name: str) -> Rule:
    """A comparison that orders zeros by sign and what is not a number, too: that of their bits."""

    def key(b: Builder, x: int) -> int:
        dtype = b.ops[x].dtype
        if dtype == "bool":
            return b.op("convert", "uint8", x)
        if dtype not in FLOATS:
            return x
        whole = np.iinfo(dtype.replace("float", "int"))
        kind = whole.dtype.name
        bits = b.op("bitcast", kind, x)
        below = b.op("shr_a", kind, bits, b.number(whole.bits - 1, kind))
        return b.op("xor", kind, bits, b.op("and", kind, below, b.number(whole.max, kind)))

    def rule(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        x, y = np.broadcast_arrays(*ins)
        ids = [
            b.op(name, "bool", key(b, int(p)), key(b, int(q)))
            for p, q in zip(x.flat, y.flat, strict=True)
        ]
        return [np.array(ids, np.int64).reshape(x.shape)]

    return rule


def _sort(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Each entry's rank, and for each place the entry of that rank; equal ones in their order."""
    axis, dtype = eqn.params["dimension"], dtype_name(eqn.invars[0].aval.dtype)
    size = ins[0].shape[axis]
    if size > _MOST_SORTED or eqn.params["num_keys"] != 1:
        raise CannotFuseError(
            f"primitive 'sort' can be fused for one key and at most {_MOST_SORTED} entries", "sort"
        )
    columns = [np.moveaxis(x, axis, -1) for x in ins]
    results = [np.empty(x.shape, np.int64) for x in columns]
    for place in np.ndindex(columns[0].shape[:-1]):
        keys = [int(i) for i in columns[0][place]]
        rank = [b.number(0, "int32") for _ in keys]
        for i, j in product(range(size), repeat=2):
            if i < j:
                later = _precedes(b, dtype, keys[j], keys[i])
                sooner = b.op("not", "bool", later)
                rank[i] = b.op("add", "int32", rank[i], b.op("convert", "int32", later))
                rank[j] = b.op("add", "int32", rank[j], b.op("convert", "int32", sooner))
        for column, result in zip(columns, results, strict=True):
            entries = column[place]
            for k in range(size):
                chosen = int(entries[-1])
                for i in range(size - 1):
                    here = b.op("eq", "bool", rank[i], b.number(k, "int32"))
                    chosen = b.op("select", b.ops[chosen].dtype, here, int(entries[i]), chosen)
                result[place][k] = chosen
    return [np.moveaxis(x, -1, axis) for x in results]


def _named_by_class(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Primitives that newer versions of JAX tell apart by a class alone."""
    made = eqn.params["_prim"]
    name = type(made).__name__
    if name != "SearchSorted" or not type(made).__module__.startswith("jax."):
        raise CannotFuseError(f"primitive {name!r} cannot be fused", name)
    if made.params["batch_dims"] or ins[0].ndim != 1:
        raise CannotFuseError(f"primitive {name!r} can be fused for one table", name)
    return [_search_sorted(b, eqn, made.params["side"] == "right", *ins)]


def _search_sorted(b: Builder, eqn: Any, right: bool, table: Ids, wanted: Ids) -> Ids:
    """How many entries of a sorted table are below each of some numbers, or are not above."""
    to, of = (dtype_name(v.aval.dtype) for v in (eqn.outvars[0], eqn.invars[0]))
    found = []
    for x in wanted.flat:
        count = b.number(0, to)
        for entry in table:
            pair = (int(x), int(entry)) if right else (int(entry), int(x))
            passed = _precedes(b, of, *pair)
            passed = b.op("not", "bool", passed) if right else passed
            count = b.op("add", to, count, b.op("convert", to, passed))
        found.append(count)
    return np.array(found, np.int64).reshape(wanted.shape)


RULES: Mapping[str, Rule] = {
    "call_hi_primitive": _named_by_class,
    "le_to": _ordered("le"),
    "lt_to": _ordered("lt"),
    "sort": _sort,
}
"""For each primitive that orders what it does to the numbers of operations."""
