"""Decompositions and solves of small matrices as scalar operations, pivots included.

Rows are exchanged where LAPACK exchanges them: which row is the pivot's depends on the point, so
that each exchange is a choice for every entry of a row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from veenv.kernel.building.builder import Builder, Ids, arithmetic, choose
from veenv.kernel.scalar_program import FLOATS, ROUNDED, CannotFuseError, dtype_name

Solve = Callable[..., Sequence[Ids]]
"""From the builder, the dtype and matrices without batch axes to those of the results."""


class _Entries:
    """Arithmetic and choices of arrays of one dtype of floats; single numbers are spread."""

    def __init__(self, b: Builder, dtype: str):
        self.b, self.dtype = b, dtype

    def __getattr__(self, name: str) -> Callable[..., Ids]:
        return lambda *operands: arithmetic(
            self.b, name, self.dtype, *np.broadcast_arrays(*(np.asarray(x) for x in operands))
        )

    def rounded(self, x: Any, y: Any) -> Ids:
        """x · y, never joined with a sum: what cancels in LAPACK cancels."""
        one = lambda i, j: self.b.op("mul", self.dtype, int(i), int(j), attr=ROUNDED)  # noqa: E731
        return np.vectorize(one, otypes=[np.int64])(x, y)

    def less(self, x: Any, *products: tuple[Any, Any]) -> Ids:
        """x minus products, from the first to the last."""
        for left, right in products:
            x = self.sub(x, self.mul(left, right))
        return np.asarray(x)

    def sum(self, x: Ids) -> int:
        """The sum of a vector."""
        return int(functools.reduce(self.add, x))

    def abs(self, x: int) -> int:
        """|x|."""
        return self.b.op("abs", self.dtype, int(x))

    def test(self, name: str, x: int, y: int) -> int:
        """A comparison."""
        return self.b.op(name, "bool", int(x), int(y))

    def has_sign(self, x: int) -> int:
        """Whether a number is below zero, or -0."""
        bits = f"int{np.dtype(self.dtype).itemsize * 8}"
        return self.b.op("lt", "bool", self.b.op("bitcast", bits, int(x)), self.b.number(0, bits))

    def number(self, value: float) -> int:
        """A constant."""
        return self.b.number(value, self.dtype)

    def choose(self, which: Any, x: Any, y: Any) -> Ids:
        """x where a bool is true, otherwise y."""
        return choose(self.b, which, x, y)


def _cholesky(e: _Entries, a: Ids) -> Sequence[Ids]:
    """The lower factor, column by column; NaN everywhere if the matrix is not positive definite."""
    size = len(a)
    found = np.full(a.shape, e.number(0), np.int64)
    positive = e.b.const(np.bool_(True))
    for j in range(size):
        rest = e.less(a[j:, j], *((found[j:, k], found[j, k]) for k in range(j)))
        positive = e.b.op("and", "bool", positive, e.test("gt", rest[0], e.number(0)))
        found[j, j] = e.b.op("sqrt", e.dtype, int(rest[0]))
        found[j + 1 :, j] = e.div(rest[1:], found[j, j])
    lower = np.tril_indices(size)
    found[lower] = e.choose(positive, found[lower], e.number(np.nan))
    return [found]


def _triangular_solve(e: _Entries, a: Ids, x: Ids, params: Mapping[str, Any]) -> Sequence[Ids]:
    left, turned = params["left_side"], params["transpose_a"]
    lower = params["lower"] != turned
    if turned:
        a = a.T
    if not left:
        a, x, lower = a.T, x.T, not lower
    if not lower:
        a, x = a[::-1, ::-1], x[::-1]
    found = np.empty_like(x)
    for i in range(len(a)):
        found[i] = e.less(x[i], *((a[i, k], found[k]) for k in range(i)))
        if not params["unit_diagonal"]:
            found[i] = e.div(found[i], a[i, i])
    found = found if lower else found[::-1]
    return [found if left else found.T]


def _lu(e: _Entries, a: Ids) -> Sequence[Ids]:
    """Factors in one matrix, and as int32 the pivots and the rows' permutation."""
    a = np.array(a)
    rows, columns = a.shape
    place = lambda i: e.b.number(i, "int32")  # noqa: E731
    order = np.array([place(i) for i in range(rows)], np.int64)
    pivots = np.zeros(min(rows, columns), np.int64)
    for k in range(len(pivots)):
        largest, pivots[k] = e.abs(a[k, k]), place(k)
        for r in range(k + 1, rows):
            size = e.abs(a[r, k])
            larger = e.test("gt", size, largest)
            largest = int(e.choose(larger, size, largest))
            pivots[k] = e.choose(larger, place(r), pivots[k])
        table = np.column_stack([a, order])
        first = table[k].copy()
        for r in range(k + 1, rows):
            here = e.test("eq", pivots[k], place(r))
            table[k], table[r] = (
                e.choose(here, table[r], table[k]), e.choose(here, first, table[r]),
            )  # fmt: skip
        a, order = table[:, :-1].copy(), table[:, -1].copy()
        singular = e.test("eq", a[k, k], e.number(0))
        below = slice(k + 1, None)
        a[below, k] = e.choose(singular, a[below, k], e.div(a[below, k], a[k, k]))
        a[below, below] = e.sub(a[below, below], e.rounded(a[below, k][:, None], a[k, below]))
    return [a, pivots, order]


def _tridiagonal_solve(e: _Entries, low: Ids, middle: Ids, up: Ids, x: Ids) -> Sequence[Ids]:
    """Elimination with exchanges of neighbouring rows (LAPACK's gtsv); NaN if it is singular."""
    low, middle, up, x = (np.array(v) for v in (low, middle, up, x))
    size = len(middle)
    far = np.full(size, e.number(0), np.int64)  # the second diagonal above, where rows change
    for i in range(size - 1):
        under, over = int(low[i + 1]), int(middle[i])
        stays = e.test("ge", e.abs(over), e.abs(under))
        pivot, other = e.choose(stays, over, under), e.choose(stays, under, over)
        factor = e.div(other, pivot)
        left = e.choose(stays, middle[i + 1], up[i])
        right, below = e.choose(stays, x[i], x[i + 1]), e.choose(stays, x[i + 1], x[i])
        up[i] = e.choose(stays, up[i], middle[i + 1])
        far[i] = e.choose(stays, far[i], up[i + 1])
        up[i + 1] = e.choose(stays, up[i + 1], e.neg(e.mul(factor, far[i])))
        middle[i], middle[i + 1] = pivot, e.less(left, (factor, up[i]))
        x[i], x[i + 1] = right, e.less(below, (factor, right))
    regular = e.b.const(np.bool_(True))
    for i in reversed(range(size)):
        regular = e.b.op("and", "bool", regular, e.test("ne", middle[i], e.number(0)))
        known = [(d[i], x[i + k]) for k, d in ((1, up), (2, far)) if i + k < size]
        x[i] = e.div(e.less(x[i], *known), middle[i])
    return [e.choose(regular, x, e.number(np.nan))]


def _qr(e: _Entries, a: Ids, params: Mapping[str, Any]) -> Sequence[Ids]:
    """Both factors of a decomposition by reflections."""
    if params.get("pivoting"):
        raise CannotFuseError("primitive 'qr' with pivots cannot be fused", "qr")
    rows, columns = a.shape
    steps = min(rows, columns)
    packed, factors = _geqrf(e, a)
    size = rows if params["full_matrices"] else steps
    upper = np.tri(size, columns, -1, dtype=bool)
    wide = np.full((rows, size), e.number(0), np.int64)
    wide[:, :steps] = packed[:, :steps]
    return [*_householder_product(e, wide, factors), np.where(upper, e.number(0), packed[:size])]


def _geqrf(e: _Entries, a: Ids) -> Sequence[Ids]:
    """Householder's reflections, with LAPACK's signs: below the diagonal, and their factors."""
    a, zero = np.array(a), e.number(0)
    rows, columns = a.shape
    factors = np.full(min(rows, columns), zero, np.int64)
    for k in range(min(len(factors), rows - 1)):
        first, below = a[k, k], a[k + 1 :, k]
        rest = e.sum(e.mul(below, below))
        norm = e.b.op("sqrt", e.dtype, int(e.add(rest, e.mul(first, first))))
        end = e.choose(e.has_sign(first), norm, e.neg(norm))
        done = e.test("eq", rest, zero)
        factors[k] = e.choose(done, zero, e.div(e.sub(end, first), end))
        vector = e.choose(done, zero, e.div(below, e.sub(first, end)))
        a[k, k], a[k + 1 :, k] = e.choose(done, first, end), vector
        _reflect(e, a[k:, k + 1 :], factors[k], np.append(e.number(1), vector))
    return [a, factors]


def _householder_product(e: _Entries, a: Ids, factors: Ids) -> Sequence[Ids]:
    """The first columns of the product of reflections."""
    q = np.where(np.eye(*a.shape, dtype=bool), e.number(1), e.number(0))
    for k in reversed(range(len(factors))):
        _reflect(e, q[k:, k:], factors[k], np.append(e.number(1), a[k + 1 :, k]))
    return [q]


def _ormqr(e: _Entries, a: Ids, factors: Ids, x: Ids, params: Mapping[str, Any]) -> Sequence[Ids]:
    """A matrix times the product of reflections, or its transpose, from the left or right."""
    x = np.array(x if params["left"] else x.T)
    first_comes_first = params["transpose"] == params["left"]
    for k in range(len(factors))[:: 1 if first_comes_first else -1]:
        _reflect(e, x[k:], factors[k], np.append(e.number(1), a[k + 1 :, k]))
    return [x if params["left"] else x.T]


def _reflect(e: _Entries, a: Ids, factor: Any, vector: Ids) -> None:
    """Puts a - factor · vector · (vectorᵀ a) in the place of a."""
    for j in range(a.shape[1]):
        along = e.mul(factor, e.sum(e.mul(vector, a[:, j])))
        a[:, j] = e.sub(a[:, j], e.mul(vector, along))


_SWEEPS = {"float32": (0, 0, 1, 4, 5), "float64": (0, 0, 1, 5, 6)}
"""Of Jacobi's method for matrices of each size, after which nothing is left to rounding."""


def _eigh(e: _Entries, a: Ids, params: Mapping[str, Any]) -> Sequence[Ids]:
    """Jacobi's method; eigenvalues ascend, and the signs of eigenvectors are its own."""
    size = len(a)
    if size >= len(_SWEEPS[e.dtype]):
        raise CannotFuseError(
            f"primitive 'eigh' can only be fused up to 4 × 4, not for {size} × {size}", "eigh"
        )
    if params["subset_by_index"] not in (None, (0, size)):
        raise CannotFuseError("primitive 'eigh' of some eigenvalues cannot be fused", "eigh")
    lower = a if params["lower"] else a.T
    a = np.where(np.tri(size, dtype=bool), lower, lower.T)
    regular = e.test("eq", e.sum(e.mul(a.ravel(), e.number(0))), e.number(0))
    vectors = np.where(np.eye(size, dtype=bool), e.number(1), e.number(0))
    for _ in range(_SWEEPS[e.dtype][size]):
        for p, q in combinations(range(size), 2):
            _rotate(e, a, vectors, p, q)
    values = np.diagonal(a).copy()
    for end in range(size - 1, 0, -1):
        for i in range(end):
            swap = e.test("gt", int(values[i]), int(values[i + 1]))
            pair = np.vstack([values, vectors])[:, i : i + 2]
            pair = e.choose(swap, pair[:, ::-1], pair)
            values[i : i + 2], vectors[:, i : i + 2] = pair[0], pair[1:]
    return [e.choose(regular, x, e.number(np.nan)) for x in (vectors, values)]


def _rotate(e: _Entries, a: Ids, vectors: Ids, p: int, q: int) -> None:
    """Makes one entry beside the diagonal zero (Rutishauser 1966)."""
    zero, one, off = e.number(0), e.number(1), a[p, q]
    ratio = e.div(e.sub(a[q, q], a[p, p]), e.mul(e.number(2), off))
    size = e.add(e.abs(int(ratio)), e.b.op("sqrt", e.dtype, int(e.add(e.mul(ratio, ratio), one))))
    tangent = e.div(e.choose(e.test("ge", int(ratio), zero), one, e.number(-1)), size)
    tangent = e.choose(e.test("eq", off, zero), zero, tangent)
    root = e.b.op("sqrt", e.dtype, int(e.add(e.mul(tangent, tangent), one)))
    cosine = e.div(one, root)
    sine, change = e.mul(tangent, cosine), e.mul(tangent, off)
    a[p, p], a[q, q] = e.sub(a[p, p], change), e.add(a[q, q], change)
    a[p, q] = a[q, p] = zero
    others = [k for k in range(len(a)) if k not in (p, q)]
    table = np.concatenate([a[others], vectors])
    x, y = table[:, p], table[:, q]
    table[:, p], table[:, q] = (
        e.less(e.mul(cosine, x), (sine, y)), e.add(e.mul(sine, x), e.mul(cosine, y)),
    )  # fmt: skip
    vectors[:] = table[len(others) :]
    a[np.ix_(others, [p, q])] = table[: len(others), [p, q]]
    a[np.ix_([p, q], others)] = table[: len(others), [p, q]].T


def _pivots_to_permutation(e: _Entries, pivots: Ids, rows: int) -> Sequence[Ids]:
    order = np.array([e.b.number(i, "int32") for i in range(rows)], np.int64)
    for k, pivot in enumerate(pivots):
        before = order.copy()
        for r in range(k + 1, rows):
            here = e.test("eq", pivot, e.b.number(r, "int32"))
            order[k] = e.choose(here, before[r], order[k])
            order[r] = e.choose(here, before[k], before[r])
    return [order]


def _rule(solve: Solve, ranks: Sequence[int], **extra: Callable[[Any], Any]) -> Any:
    """A rule for operands of these ranks as one for any axes before them."""

    def rule(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        name, dtype = eqn.primitive.name, dtype_name(eqn.invars[0].aval.dtype)
        if dtype not in FLOATS and name != "lu_pivots_to_permutation":
            raise CannotFuseError(f"primitive {name!r} cannot be fused for {dtype}", name)
        further = {key: made(eqn) for key, made in extra.items()}
        batch = ins[0].shape[: ins[0].ndim - ranks[0]]
        flat = [x.reshape(prod(batch), *x.shape[len(batch) :]) for x in ins]
        entries = _Entries(b, dtype)
        each = [solve(entries, *(x[k] for x in flat), **further) for k in range(prod(batch))]
        avals = [v.aval for v in eqn.outvars]
        if not each:
            return [np.zeros(aval.shape, np.int64) for aval in avals]
        return [
            np.stack(found).reshape(aval.shape)
            for found, aval in zip(zip(*each, strict=True), avals, strict=True)
        ]

    return rule


def operations(eqn: Any) -> int:
    """About how many operations an equation of linear algebra takes; 0 for others."""
    name = eqn.primitive.name
    if name not in RULES or name == "lu_pivots_to_permutation":  # moves alone
        return 0
    shape = eqn.invars[-1 if "solve" in name else 0].aval.shape
    *batch, rows, columns = shape
    if name == "triangular_solve":
        size = eqn.invars[0].aval.shape[-1]
        return int(prod(batch) * size * rows * columns)
    if name == "tridiagonal_solve":
        return int(prod(batch) * rows * (12 + 9 * columns))
    return int(
        prod(batch) * rows * columns * min(rows, columns) // (3 if name == "cholesky" else 1)
    )


RULES: Mapping[str, Any] = {
    "cholesky": _rule(_cholesky, (2,)),
    "lu": _rule(_lu, (2,)),
    "lu_pivots_to_permutation": _rule(
        _pivots_to_permutation, (1,), rows=lambda eqn: eqn.params["permutation_size"]
    ),
    "triangular_solve": _rule(_triangular_solve, (2, 2), params=lambda eqn: eqn.params),
    "geqrf": _rule(_geqrf, (2,)),
    "householder_product": _rule(_householder_product, (2, 1)),
    "ormqr": _rule(_ormqr, (2, 1, 2), params=lambda eqn: eqn.params),
    "qr": _rule(_qr, (2,), params=lambda eqn: eqn.params),
    "eigh": _rule(_eigh, (2,), params=lambda eqn: eqn.params),
    "tridiagonal_solve": _rule(_tridiagonal_solve, (1, 1, 1, 2)),
}
"""For each primitive of linear algebra what it does to the numbers of operations."""
