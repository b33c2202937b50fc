"""Decompositions and solves of matrices, pivots included: small ones unrolled, others as loops.

Rows are exchanged where LAPACK exchanges them: which row is the pivot's depends on the point, so
that an exchange is a choice for every entry of a row, or goes to places that are computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from veenv import limits
from veenv.kernel.building.builder import Builder, Ids, arithmetic, choose
from veenv.kernel.building.nests import Index, Matrix, Nest, Number
from veenv.kernel.scalar_program import (
    FLOATS,
    INDEX,
    ROUNDED,
    CannotFuseError,
    Workspace,
    dtype_name,
)

_UNROLLED = 300  # products: about those of a system of 8 with as many right sides

Solve = Callable[..., Sequence[Ids]]
"""From the builder and matrices without batch axes to those of the results."""


class _Entries:
    """Arithmetic and choices of arrays of one dtype of floats; single numbers are spread."""

    def __init__(self, b: Builder, dtype: str):
        self.b, self.dtype = b, dtype

    def __getattr__(self, name: str) -> Callable[..., Ids]:
        return lambda *operands: arithmetic(
            self.b, name, self.dtype, *np.broadcast_arrays(*(np.asarray(x) for x in operands))
        )

    def less(self, x: Any, *products: tuple[Any, Any]) -> Ids:
        """x minus products, from the first to the last."""
        for left, right in products:
            x = self.sub(x, self.mul(left, right))
        return np.asarray(x)

    def test(self, name: str, x: Any, y: Any) -> int:
        """A comparison."""
        return self.b.op(name, "bool", int(x), int(y))

    def number(self, value: float) -> int:
        """A constant."""
        return self.b.number(value, self.dtype)

    def choose(self, which: Any, x: Any, y: Any) -> Ids:
        """x where a bool is true, otherwise y."""
        return choose(self.b, which, x, y)


def _cholesky(b: Builder, a: Ids) -> Sequence[Ids]:
    """The lower factor; NaN in it if the matrix is not positive definite."""
    size = len(a)
    n = _nest(b, a, size**3 // 6)
    m, failed = n.matrix(a), n.matrix(np.array([[b.number(0, INDEX)]]))
    column = n.matrix(np.full((size, 1), b.number(0, n.dtype)))

    def fill(value: float, last: Callable[[Index], tuple[Index, Index]]) -> None:
        number = n.number(value)
        n.loop(0, size, lambda i: n.loop(*last(i), lambda j: n.set(m, i, j, to=number)))

    def step(k: Index) -> None:
        pivot, after = n.get(m, k, k), n.plus(k, 1)
        failing = n.test("le", pivot, n.number(0))  # which NaN is not, as in LAPACK
        n.set(failed, 0, to=n.select(failing, 1, n.get(failed, 0), dtype=INDEX))
        root = n.sqrt(pivot)
        n.set(m, k, k, to=root)
        inverse = n.div(n.number(1), root)

        def scale(i: Index) -> None:
            entry = n.mul(n.get(m, i, k), inverse)
            n.set(m, i, k, to=entry)
            n.set(column, i, to=entry)

        n.loop(after, size, scale)
        across = column.turned

        def below(i: Index) -> None:
            _subtract(n, m, i, n.get(column, i), across, 0, after, n.plus(i, 1), size // 3)

        n.loop(after, size, below)

    potrf = n.routine("potrf", "U", size, m.turned, size, failed)
    n.block(size, step, potrf)
    fill(0, lambda i: (n.plus(i, 1), size))
    n.where(n.test("ne", n.get(failed, 0), 0), lambda: fill(np.nan, lambda i: (0, n.plus(i, 1))))
    return [n.entries(m)]


def _subtract(
    n: Nest,
    x: Matrix,
    i: Index,
    factor: Number,
    y: Matrix,
    k: Index,
    first: Index,
    last: Index,
    usual: int = 0,
) -> None:
    """Takes a multiple of a row of y from row i of x, from a column on."""
    product = {"attr": ROUNDED} if n.unrolled else {}  # what cancels in LAPACK cancels

    def step(j: Index) -> None:
        n.set(x, i, j, to=n.sub(n.get(x, i, j), n.mul(factor, n.get(y, k, j), **product)))

    n.loop(first, last, step, usual=usual)


def _triangular_solve(b: Builder, a: Ids, x: Ids, params: Mapping[str, Any]) -> Sequence[Ids]:
    left, turned = params["left_side"], params["transpose_a"]
    lower, unit = params["lower"] != turned, params["unit_diagonal"]
    if turned:
        a = a.T
    if not left:
        a, x, lower = a.T, x.T, not lower
    if not lower:
        a, x = a[::-1, ::-1], x[::-1]
    shape = x.shape
    if (x == x[:, :1]).all():  # as those of a loop around
        x = x[:, :1]
    size, columns = x.shape
    # Right sides of small systems are mostly tangents, whose zeros and equal numbers loops miss.
    products = size * size * columns // 2
    n = _nest(b, x, products, limits.BODY if size <= limits.FEW else _UNROLLED)
    known = n.matrix(a, True, np.tri(size, k=-unit, dtype=bool))
    solved = n.matrix(x)

    def step(k: Index) -> None:
        if not unit:
            _divide(n, solved, k, n.get(known, k, k), columns)

        def below(i: Index) -> None:
            _subtract(n, solved, i, n.get(known, i, k), solved, k, 0, columns)

        n.loop(n.plus(k, 1), size, below)

    trsm = n.routine(
        "trsm", "R", "U", "N", "U" if unit else "N", columns, size, 1.0, known.turned, size,
        solved.turned, columns,
    )  # fmt: skip
    n.block(size, step, trsm if columns > limits.FEW else None)
    x = np.broadcast_to(n.entries(solved), shape)
    x = x if lower else x[::-1]
    return [x if left else x.T]


def _divide(n: Nest, x: Matrix, i: Index, divisor: Number, columns: int) -> None:
    """Divides a row; of many entries by their products with the inverse."""
    name, by = ("div", divisor) if columns == 1 else ("mul", n.div(n.number(1), divisor))
    n.loop(0, columns, lambda j: n.set(x, i, j, to=n.op(name, n.get(x, i, j), by)))


def _lu(b: Builder, a: Ids) -> Sequence[Ids]:
    """Factors in one matrix, and as int32 the pivots and the rows' permutation."""
    rows, columns = a.shape
    steps = min(rows, columns)
    n = _nest(b, a, rows * columns * steps // 3)
    m = n.matrix(a)
    pivots = n.matrix(np.full((steps, 1), b.number(0, INDEX)))  # LAPACK's begin with 1

    def step(k: Index) -> None:
        def compare(r: Index, largest: Number, place: Number) -> tuple[Number, Number]:
            size = n.abs(n.get(m, r, k))
            larger = n.test("gt", size, largest)
            return n.select(larger, size, largest), n.select(larger, r, place, dtype=INDEX)

        after, here = n.plus(k, 1), n.op("convert", k, dtype=INDEX)
        _, place = n.loop(after, rows, compare, n.abs(n.get(m, k, k)), here)
        n.set(pivots, k, 0, to=n.op("add", place, 1, dtype=INDEX))
        n.swap(m, k, place)
        pivot = n.get(m, k, k)
        singular = n.test("eq", pivot, n.number(0))
        factor = n.div(n.number(1), n.select(singular, n.number(1), pivot))

        def below(r: Index) -> None:
            multiple = n.mul(n.get(m, r, k), factor)
            n.set(m, r, k, to=multiple)
            _subtract(n, m, r, multiple, m, k, after, columns)

        n.loop(after, rows, below)

    getrf = n.routine("getrf", rows, columns, m, rows, pivots, Workspace(INDEX, 1))
    n.block(steps, step, getrf)
    one = b.number(1, INDEX)
    places = [b.op("sub", INDEX, i, one) for i in n.entries(pivots)[:, 0].tolist()]
    order = _pivots_to_permutation(b, np.array(places, np.int64), rows)
    return [n.entries(m), np.array(places, np.int64), *order]


def _tridiagonal_solve(b: Builder, low: Ids, middle: Ids, up: Ids, x: Ids) -> Sequence[Ids]:
    """Elimination with exchanges of neighbouring rows (LAPACK's gtsv); NaN if it is singular."""
    e = _Entries(b, b.ops[int(x.flat[0])].dtype)
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


def _qr(b: Builder, a: Ids, params: Mapping[str, Any]) -> Sequence[Ids]:
    """Both factors of a decomposition by reflections."""
    if params.get("pivoting"):
        raise CannotFuseError("primitive 'qr' with pivots cannot be fused", "qr")
    rows, columns = a.shape
    steps = min(rows, columns)
    packed, factors = _geqrf(b, a)
    zero = b.number(0, b.ops[int(a.flat[0])].dtype)
    size = rows if params["full_matrices"] else steps
    upper = np.tri(size, columns, -1, dtype=bool)
    wide = np.full((rows, size), zero, np.int64)
    wide[:, :steps] = packed[:, :steps]
    return [*_householder_product(b, wide, factors), np.where(upper, zero, packed[:size])]


def _geqrf(b: Builder, a: Ids) -> Sequence[Ids]:
    """Householder's reflections, with LAPACK's signs: below the diagonal, and their factors."""
    rows, columns = a.shape
    steps = min(rows, columns)
    n = _nest(b, a, rows * columns * steps // 3)
    m, zero = n.matrix(a), b.number(0, n.dtype)
    factors, sums = (n.matrix(np.full((size, 1), zero)) for size in (steps, columns))

    def step(k: Index) -> None:
        after, none = n.plus(k, 1), n.number(0)

        def add_square(i: Index, total: Number) -> list[Number]:
            entry = n.get(m, i, k)
            return [n.add(total, n.mul(entry, entry))]

        first, [rest] = n.get(m, k, k), n.loop(after, rows, add_square, none)
        norm = n.sqrt(n.add(rest, n.mul(first, first)))
        end, done = n.select(_has_sign(n, first), norm, n.neg(norm)), n.test("eq", rest, none)
        factor = n.select(done, none, n.div(n.sub(end, first), end))
        scale = n.select(done, none, n.div(n.number(1), n.sub(first, end)))
        n.loop(after, rows, lambda i: n.set(m, i, k, to=n.mul(n.get(m, i, k), scale)))
        n.set(m, k, k, to=n.select(done, first, end))
        n.set(factors, k, 0, to=factor)
        _reflect(n, (m, k, after), m, k, factor, sums)

    work = Workspace(n.dtype, 32 * columns)
    gelqf = n.routine(  # of the transpose
        "gelqf", columns, rows, m.turned, columns, factors, work, work.size, Workspace(INDEX, 1)
    )  # fmt: skip
    n.block(min(steps, rows - 1), step, gelqf)
    return [n.entries(m), n.entries(factors)[:, 0]]


def _has_sign(n: Nest, x: Number) -> Number:
    """Whether a number is below zero, or -0."""
    bits = f"int{np.dtype(n.dtype).itemsize * 8}"
    return n.test("lt", n.op("bitcast", x, dtype=bits), n.number(0, bits))


def _householder_product(b: Builder, a: Ids, factors: Ids) -> Sequence[Ids]:
    """The first columns of the product of reflections."""
    one, zero = (b.number(x, b.ops[int(a.flat[0])].dtype) for x in (1, 0))
    unit = np.where(np.eye(*a.shape, dtype=bool), one, zero)
    return [_reflected(b, a, factors, unit, backwards=True, within=True)]


def _ormqr(b: Builder, a: Ids, factors: Ids, x: Ids, params: Mapping[str, Any]) -> Sequence[Ids]:
    """A matrix times the product of reflections, or its transpose, from the left or right."""
    left, transpose = params["left"], params["transpose"]
    product = _reflected(b, a, factors, x if left else x.T, transpose != left)
    return [product if left else product.T]


def _reflected(
    b: Builder, a: Ids, factors: Ids, x: Ids, backwards: bool, within: bool = False
) -> Ids:
    """A matrix after reflections, the first one first or last; `within` it is a unit matrix."""
    (rows, columns), count = x.shape, len(factors)
    n = _nest(b, a, rows * columns * count // 3)
    below = np.tri(a.shape[0], a.shape[1], -1, dtype=bool)
    vectors, known = n.matrix(a, True, below), n.matrix(factors[:, None], True)
    m, sums = n.matrix(x), n.matrix(np.full((columns, 1), b.number(0, n.dtype)))

    def step(turn: Index) -> None:
        k = n.plus(n.times(turn, -1), count - 1) if backwards else turn
        _reflect(n, (m, k, k if within else 0), vectors, k, n.get(known, k), sums)

    work = Workspace(n.dtype, 32 * columns)
    ormlq = n.routine(  # of the transposes
        "ormlq", "R", "N" if backwards else "T", columns, rows, count,
        vectors.turned, a.shape[1], known, m.turned, columns, work, work.size, Workspace(INDEX, 1),
    )  # fmt: skip
    n.block(count, step, ormlq)
    return n.entries(m)


def _reflect(
    n: Nest,
    part: tuple[Matrix, Index, Index],
    vectors: Matrix,
    column: Index,
    factor: Number,
    sums: Matrix,
) -> None:
    """Puts x - factor · vector · (vectorᵀ x) in the place of x, a part of a matrix.

    `part` is the matrix, and the first row and column. The vector is a column of `vectors`, which
    has 1 in the first row; `sums` is memory.
    """
    x, top, first = part
    rows, columns = x.shape
    after = n.plus(top, 1)

    def each(step: Callable[[Index], None]) -> None:
        n.loop(first, columns, step)

    def add_row(i: Index) -> None:
        v = n.get(vectors, i, column)
        each(lambda j: n.set(sums, j, 0, to=n.add(n.get(sums, j), n.mul(v, n.get(x, i, j)))))

    def scale(j: Index) -> None:
        along = n.mul(factor, n.get(sums, j))
        n.set(sums, j, 0, to=along)
        n.set(x, top, j, to=n.sub(n.get(x, top, j), along))

    each(lambda j: n.set(sums, j, 0, to=n.get(x, top, j)))
    n.loop(after, rows, add_row)
    each(scale)
    across = sums.turned

    def below(i: Index) -> None:
        _subtract(n, x, i, n.get(vectors, i, column), across, 0, first, columns)

    n.loop(after, rows, below)


def product(b: Builder, left: Ids, right: Ids) -> Ids:
    """The matrix product of [rows, terms] and [terms, columns] as loops; equal rows once."""
    (first, row_of), (second, column_of) = _different(left), _different(right.T)
    left, right = left[first], right[:, second]
    turned = right.shape[1] < len(left)
    entries = _product(b, right.T, left.T).T if turned else _product(b, left, right)
    return entries[np.ix_(row_of, column_of)]


def _different(rows: Ids) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of rows that are not equal to one before, and which of these each row is.

    Rows are equal along an axis that is a loop around; what is computed of them has to be, too.
    """
    known: dict[bytes, int] = {}
    places = np.array([known.setdefault(row.tobytes(), len(known)) for row in rows], np.int64)
    return np.unique(places, return_index=True)[1], places


def _product(b: Builder, left: Ids, right: Ids) -> Ids:
    """Does `product` of rows and columns that differ."""
    (rows, terms), columns = left.shape, right.shape[1]
    n = Nest(b, b.ops[int(left.flat[0])].dtype, unrolled=False)
    x, y = (n.matrix(ids, fixed=True) for ids in (left, right))
    m = n.matrix(np.full((rows, columns), b.number(0, n.dtype)))

    def row(i: Index) -> None:
        def add(k: Index) -> None:
            factor = n.get(x, i, k)

            def entry(j: Index) -> None:
                n.set(m, i, j, to=n.add(n.get(m, i, j), n.mul(factor, n.get(y, k, j))))

            n.loop(0, columns, entry)

        n.loop(0, terms, add)

    gemm = n.routine(  # of the transposes
        "gemm", "N", "N", columns, rows, terms, 1.0, y.turned, columns, x.turned, terms, 0.0,
        m.turned, columns,
    )  # fmt: skip
    n.block(rows, row, gemm if rows > limits.FEW else None)
    return n.entries(m)


_SWEEPS = {"float32": (0, 0, 1, 4, 5), "float64": (0, 0, 1, 5, 6)}
"""Of Jacobi's method for matrices of each size, after which nothing is left to rounding."""


def _eigh(b: Builder, a: Ids, params: Mapping[str, Any]) -> Sequence[Ids]:
    """Jacobi's method; eigenvalues ascend, and the signs of eigenvectors are its own."""
    e, size = _Entries(b, b.ops[int(a.flat[0])].dtype), len(a)
    if size >= len(_SWEEPS[e.dtype]):
        raise CannotFuseError(
            f"primitive 'eigh' can only be fused up to 4 × 4, not for {size} × {size}", "eigh"
        )
    if params["subset_by_index"] not in (None, (0, size)):
        raise CannotFuseError("primitive 'eigh' of some eigenvalues cannot be fused", "eigh")
    lower = a if params["lower"] else a.T
    a = np.where(np.tri(size, dtype=bool), lower, lower.T)
    total = functools.reduce(e.add, e.mul(a.ravel(), e.number(0)))
    regular = e.test("eq", total, e.number(0))
    vectors = np.where(np.eye(size, dtype=bool), e.number(1), e.number(0))
    for _ in range(_SWEEPS[e.dtype][size]):
        for p, q in combinations(range(size), 2):
            _rotate(e, a, vectors, p, q)
    values = np.diagonal(a).copy()
    for end in range(size - 1, 0, -1):
        for i in range(end):
            swap = e.test("gt", values[i], values[i + 1])
            pair = np.vstack([values, vectors])[:, i : i + 2]
            pair = e.choose(swap, pair[:, ::-1], pair)
            values[i : i + 2], vectors[:, i : i + 2] = pair[0], pair[1:]
    return [e.choose(regular, x, e.number(np.nan)) for x in (vectors, values)]


def _rotate(e: _Entries, a: Ids, vectors: Ids, p: int, q: int) -> None:
    """Makes one entry beside the diagonal zero (Rutishauser 1966)."""
    zero, one, off = e.number(0), e.number(1), a[p, q]
    ratio = e.div(e.sub(a[q, q], a[p, p]), e.mul(e.number(2), off))
    size = e.add(e.abs(ratio), e.sqrt(e.add(e.mul(ratio, ratio), one)))
    tangent = e.div(e.choose(e.test("ge", ratio, zero), one, e.number(-1)), size)
    tangent = e.choose(e.test("eq", off, zero), zero, tangent)
    cosine = e.div(one, e.sqrt(e.add(e.mul(tangent, tangent), one)))
    sine, change = e.mul(tangent, cosine), e.mul(tangent, off)
    a[p, p], a[q, q] = e.sub(a[p, p], change), e.add(a[q, q], change)
    a[p, q] = a[q, p] = zero
    rest = [k for k in range(len(a)) if k not in (p, q)]
    table = np.concatenate([a[rest], vectors])
    x, y = table[:, p], table[:, q]
    table[:, p], table[:, q] = (
        e.less(e.mul(cosine, x), (sine, y)), e.add(e.mul(sine, x), e.mul(cosine, y)),
    )  # fmt: skip
    vectors[:] = table[len(rest) :]
    a[np.ix_(rest, [p, q])] = table[: len(rest), [p, q]]
    a[np.ix_([p, q], rest)] = table[: len(rest), [p, q]].T


def _pivots_to_permutation(b: Builder, pivots: Ids, rows: int) -> Sequence[Ids]:
    n = Nest(b, INDEX, len(pivots) * rows <= _UNROLLED)
    order = n.matrix(np.array([[b.number(i, INDEX)] for i in range(rows)]))
    if len(pivots):
        known = n.matrix(pivots[:, None], fixed=True)
        n.loop(0, len(pivots), lambda k: n.swap(order, k, n.get(known, k)))
    return [n.entries(order)[:, 0]]


def _nest(b: Builder, ids: Ids, products: int, most: int = _UNROLLED) -> Nest:
    """Returns the writer of an algorithm with so many products: unrolled if few, else loops."""
    return Nest(b, b.ops[int(ids.flat[0])].dtype, products <= most)


def _rule(solve: Solve, ranks: Sequence[int], **extra: Callable[[Any], Any]) -> Any:
    """A rule for operands of these ranks as one for any axes before them."""

    def rule(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        name, dtype = eqn.primitive.name, dtype_name(eqn.invars[0].aval.dtype)
        if dtype not in FLOATS and name != "lu_pivots_to_permutation":
            raise CannotFuseError(f"primitive {name!r} cannot be fused for {dtype}", name)
        further = {key: make(eqn) for key, make in extra.items()}
        batch = ins[0].shape[: ins[0].ndim - ranks[0]]
        flat = [x.reshape(prod(batch), *x.shape[len(batch) :]) for x in ins]
        shapes = [v.aval.shape for v in eqn.outvars]
        if not prod(batch):
            return [np.zeros(shape, np.int64) for shape in shapes]
        first, places = _different(np.hstack([x.reshape(len(x), -1) for x in flat]))
        several = [solve(b, *(x[k] for x in flat), **further) for k in first]
        pairs = zip(zip(*several, strict=True), shapes, strict=True)
        return [np.stack(rows)[places].reshape(shape) for rows, shape in pairs]

    return rule


def operations(eqn: Any, each: bool = False) -> int:
    """About how many operations an equation of linear algebra takes; 0 for others.

    `each`: for one of several matrices.
    """
    name = eqn.primitive.name
    if name not in RULES or name == "lu_pivots_to_permutation":  # moves alone
        return 0
    *batch, rows, columns = eqn.invars[-1 if "solve" in name else 0].aval.shape
    number = 1 if each else prod(batch)
    if name == "triangular_solve":
        return int(number * eqn.invars[0].aval.shape[-1] * rows * columns)
    if name == "tridiagonal_solve":
        return int(number * rows * (12 + 9 * columns))
    products = number * rows * columns * min(rows, columns)
    return int(products // 3 if name == "cholesky" else products)


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
