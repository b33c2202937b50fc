"""Arrays of the numbers of scalar operations: constants, arithmetic, and entries that are equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from veenv.kernel import complex_numbers
from veenv.kernel.builder import Builder
from veenv.kernel.program import DTYPES, NARROW, PAIRS, Op, dtype_name

Ids = np.ndarray
"""Numbers of scalar operations, int64, in the shape of the array whose entries they compute."""
Rule = Callable[[Builder, Any, Sequence[Ids]], list[Ids]]
"""What a primitive does: from the builder, the equation and the operands to the results."""
_ALIKE = 64
"""Entries of an array from which on equal ones, as in a stencil's Jacobian, are looked for."""


def arithmetic(b: Builder, name: str, dtype: str, *operands: Ids) -> Ids:
    """As `Builder.op` for each entry of arrays of one shape; equal entries are added once."""
    rows, places = different([x.ravel() for x in operands])
    return np.array(b.rows(name, dtype, rows), np.int64)[places].reshape(operands[0].shape)


def choose(b: Builder, which: Any, x: Any, y: Any) -> Ids:
    """The entries of x where a bool is true, otherwise those of y, all broadcast to one shape."""
    if np.size(which) == 1 and np.shape(x) == np.shape(y):
        for new, old, negate in ((x, y, False), (y, x, True)):
            found = _written(b, int(np.ravel(which)[0]), new, old, negate)
            if found is not None:
                return found
    rows = np.broadcast_arrays(*(np.asarray(v, np.int64) for v in (which, x, y)))
    columns = zip(*(v.ravel().tolist() for v in rows), strict=True)
    ids = [b.op("select", b.ops[p].dtype, w, p, q) for w, p, q in columns]
    return np.array(ids, np.int64).reshape(rows[0].shape)


def whole(b: Builder, ids: Sequence[int]) -> int | None:
    """The array with something written in it, of which these are all entries; None for others."""
    first = b.ops[ids[0]] if len(ids) else None
    if first is None or first.name != "entry" or first.attr or b.entries(first.args[0]) != len(ids):
        return None
    same = all(b.ops[i] == first._replace(attr=k) for k, i in enumerate(ids))
    return first.args[0] if same else None


def _written(b: Builder, which: int, new: Any, old: Any, negate: bool) -> Ids | None:
    """An array where what was written in another is chosen as it is written; None for others."""
    ids = np.ravel(new).tolist()
    last = whole(b, ids)
    if last is None or b.ops[last].name != "write":
        return None
    writes, base = list[Op](), b.array(np.ravel(old).tolist())
    while last != base and b.ops[last].name == "write":
        writes.append(b.ops[last])
        last = b.ops[last].args[0]
    if last != base:
        return None
    for op in reversed(writes):
        _, place, value = op.args
        pair = value, b.op("read", op.dtype, last, place)
        value = b.op("select", op.dtype, which, *(pair[::-1] if negate else pair))
        last = b.op("write", op.dtype, last, place, value)
    found = [b.op("entry", b.ops[last].dtype, last, attr=k) for k in range(len(ids))]
    return np.array(found, np.int64).reshape(np.shape(new))


def reals(b: Builder, ids: Ids) -> list[int]:
    """The operations of an array's entries; of complex ones the parts, one after the other."""
    flat = ids.ravel().tolist()
    if flat and b.ops[flat[0]].dtype in PAIRS:
        return [part for i in flat for part in b.ops[i].args]
    return flat


def once(*arrays: Ids) -> list[Ids]:
    """Arrays of one shape with one entry along each axis along which all of them are broadcast."""
    steps = zip(*(x.strides for x in arrays), strict=True)
    cut = [slice(None) if any(step) else slice(0, 1) for step in steps]
    return [x[*cut, ...] for x in arrays]


def constant(b: Builder, ids: Ids) -> np.ndarray | None:
    """The array that constants make up; None where an entry is not constant."""
    if ids.size and b.value(int(ids.flat[0])) is None:
        return None
    (few,) = once(ids)
    rows, places = different([few.ravel()])
    values = [b.value(i) for (i,) in rows]
    if any(v is None for v in values):
        return None
    dtype = b.ops[int(ids.flat[0])].dtype if ids.size else np.int32
    return np.broadcast_to(np.array(values, dtype)[places].reshape(few.shape), ids.shape)


def constants(b: Builder, values: Any) -> Ids:
    """The numbers of the entries of a constant array."""
    values = np.asarray(values)
    if values.dtype == bool:
        return np.where(values, b.const(np.True_), b.const(np.False_))
    if values.dtype.name in NARROW:
        values = values.astype(np.float32)
    if values.size == 1 or dtype_name(values.dtype) not in {*DTYPES, *PAIRS}:
        # no operation takes the latter
        return np.array([b.const(v) for v in values.flat], np.int64).reshape(values.shape)
    if np.iscomplexobj(values):
        pairs = zip(constants(b, values.real).flat, constants(b, values.imag).flat, strict=True)
        ids = [complex_numbers.pair(b, int(re), int(im)) for re, im in pairs]
        return np.array(ids, np.int64).reshape(values.shape)
    bits = values.ravel().view(f"u{values.dtype.itemsize}")
    rows, places = different([bits])
    found = np.array(rows, bits.dtype).ravel().view(values.dtype)
    return np.array(b.consts(found), np.int64)[places].reshape(values.shape)


def different(columns: Sequence[np.ndarray]) -> tuple[list[tuple[int, ...]], Any]:
    """The rows that are not equal, in the order in which they come first, and where each is."""
    if len(columns[0]) < _ALIKE:
        return [*zip(*[column.tolist() for column in columns], strict=True)], slice(None)
    key, *others = columns
    for column in others:
        if int(key.max() + 1) * int(column.max() + 1) > np.iinfo(np.int64).max:
            key = np.unique(key, return_inverse=True)[1]  # as many numbers as there are rows
        key = key * (int(column.max()) + 1) + column
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(len(first))
    first.sort()
    return [*zip(*[column[first].tolist() for column in columns], strict=True)], rank[inverse]
