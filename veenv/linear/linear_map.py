"""Linear maps that edges keep unevaluated: selections, and operators given by their action."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any, ClassVar, Protocol, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv import _compat


@dataclass(frozen=True)
class Affine:
    """An affine index map along one axis: pairs (out_start + out_step·t, in_start + in_step·t)."""

    out_size: int  # number of out indices
    in_size: int  # number of in indices
    out_start: int  # out index of the first pair
    out_step: int  # distance of the out indices of successive pairs, not zero
    in_start: int  # in index of the first pair
    in_step: int  # distance of their in indices, not zero
    size: int  # number of pairs

    @property
    def T(self) -> Affine:
        """The transposed index map."""
        into, out = (self.in_start, self.in_step), (self.out_start, self.out_step)
        return canonical(self.in_size, self.out_size, *into, *out, self.size)

    @property
    def line(self) -> tuple[int, int] | None:
        """(slope, offset) of the diagonal or antidiagonal of the pairs; None with longer steps."""
        if self.out_step != 1 or abs(self.in_step) != 1:
            return None
        return self.in_step, self.in_start - self.in_step * self.out_start

    def columns(self) -> np.ndarray:
        """Returns int32 [out_size], the in index paired with each out index; -1 where none is."""
        steps = np.arange(self.size)
        columns = np.full(self.out_size, -1, np.int32)
        columns[self.out_start + self.out_step * steps] = self.in_start + self.in_step * steps
        return columns


def canonical(
    out_size: int,
    in_size: int,
    out_start: int,
    out_step: int,
    in_start: int,
    in_step: int,
    size: int,
) -> Affine:
    """Returns the canonical form: ascending out indices, plain steps for a single pair or none."""
    if size <= 0:
        return Affine(out_size, in_size, 0, 1, 0, 1, 0)
    if size == 1:
        return Affine(out_size, in_size, out_start, 1, in_start, 1, 1)
    if out_step < 0:
        out_start += out_step * (size - 1)
        in_start += in_step * (size - 1)
        out_step, in_step = -out_step, -in_step
    return Affine(out_size, in_size, out_start, out_step, in_start, in_step, size)


def hull(a: Affine, b: Affine) -> Affine:
    """Returns the line from the first pair to the last of two index maps on the same line."""
    first, last = min(a.out_start, b.out_start), max(a.out_start + a.size, b.out_start + b.size)
    start = a.in_start + a.in_step * (first - a.out_start)
    return canonical(a.out_size, a.in_size, first, 1, start, a.in_step, last - first)


def compose(post: Affine, pre: Affine) -> Affine:
    """Composes two index maps: post ∘ pre."""
    # Pairs (t, s) with post.in_start + post.in_step·t = pre.out_start + pre.out_step·s.
    a, b = post.in_step, pre.out_step
    shift = pre.out_start - post.in_start
    common = gcd(a, b)
    empty = canonical(post.out_size, pre.in_size, 0, 1, 0, 1, 0)
    if shift % common or not post.size or not pre.size:
        return empty
    step = abs(b) // common  # distance of t between common pairs
    first = 0 if step == 1 else (shift // common) * pow(a // common, -1, step) % step
    s_step = a * step // b
    s = (a * first - shift) // b
    # Keep 0 <= s < pre.size and 0 <= t < post.size.
    low, high = 0, (post.size - 1 - first) // step
    if s_step > 0:
        low = max(low, -(s // s_step))
        high = min(high, (pre.size - 1 - s) // s_step)
    else:
        low = max(low, -((pre.size - 1 - s) // -s_step))
        high = min(high, s // -s_step)
    if high < low:
        return empty
    t, s = first + step * low, s + s_step * low
    out = post.out_start + post.out_step * t, post.out_step * step
    into = pre.in_start + pre.in_step * s, pre.in_step * s_step
    return canonical(post.out_size, pre.in_size, *out, *into, high - low + 1)


@final
@dataclass(frozen=True)
class Selection:
    """A linear map that moves entries along one axis to known positions."""

    places: Affine  # positions of the entries in result and argument
    # shape of the result; its one axis may be left out if it is of size one
    out_shape: tuple[int, ...]
    in_shape: tuple[int, ...]  # shape of the argument, likewise
    dtype: ClassVar[Any] = jnp.float32  # dtype of the entries, which are zeros and ones
    # axes along which it is known to be diagonal: none
    diagonal: ClassVar[tuple[tuple[int, int], ...]] = ()
    counts: ClassVar[bool] = True  # whether entries are counts, independent of values

    @property
    def key(self) -> Affine:
        """A key of the map: equal keys mean equal maps."""
        return self.places

    @property
    def T(self) -> Selection:
        """The transposed map."""
        return Selection(self.places.T, self.in_shape, self.out_shape)

    def apply(self, x: Array) -> Array:
        """Applies the map, from `in_shape` to `out_shape`."""
        return _select(self.places, x.reshape(self.places.in_size), 0).reshape(self.out_shape)

    def transpose(self, x: Array) -> Array:
        """Applies the transpose, from `out_shape` to `in_shape`."""
        return self.T.apply(x)

    def along(
        self, x: Array, axes: Sequence[int], *, transposed: bool = False, key: object = None
    ) -> Array:
        """Applies the map along one axis, as `Operator.along` does; a selection needs no key."""
        del key
        a, axis = self.places.T if transposed else self.places, axes[0] if axes else x.ndim
        y = _select(a, x if axes else x[..., None], axis)
        rest = [k for k in range(y.ndim) if k != axis]
        if a.out_size == 1:
            return y.reshape([y.shape[k] for k in rest])
        return y.transpose([*rest, axis])


def _select(a: Affine, x: Array, axis: int) -> Array:
    """Slices the selected entries along one axis, and pads them with zeros to their positions."""
    if not a.size:
        return jnp.zeros([*x.shape[:axis], a.out_size, *x.shape[axis + 1 :]], x.dtype)
    last = a.in_start + a.in_step * (a.size - 1)
    low, high = min(a.in_start, last), max(a.in_start, last)
    if (low, high) != (0, a.in_size - 1) or abs(a.in_step) != 1:
        x = lax.slice_in_dim(x, low, high + 1, abs(a.in_step), axis)
    if a.in_step < 0:
        x = lax.rev(x, (axis,))
    above = a.out_size - 1 - a.out_start - a.out_step * (a.size - 1)
    if (a.out_start, above, a.out_step) == (0, 0, 1):
        return x
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (a.out_start, above, a.out_step - 1)
    return lax.pad(x, jnp.zeros((), x.dtype), config)


Action = Callable[[Array], Array]
Ends: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""Labels of a base map's out axes, or of its in axes, and of all such axes of a widened map."""


class Same:
    """A hashable key that is equal only for the same object."""

    def __init__(self, item: Any):
        self.item = item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.item is other.item

    def __hash__(self) -> int:
        return id(self.item)


class Shared(Protocol):
    """The interface of a linearisation that several maps share (`veenv.linear.joint.Joint`)."""

    def push(self, operand: int, x: Array, axes: Sequence[int], key: object) -> tuple[Array, ...]:
        """Returns tangents of all results for tangents of one operand along `axes` of x."""
        ...

    def pull(self, result: int, x: Array, axes: Sequence[int], key: object) -> tuple[Array, ...]:
        """Returns cotangents of all operands for cotangents of one result along `axes` of x."""
        ...


@final
@dataclass(frozen=True)
class Operator:
    """A linear map between arrays, given by its action and that of its transpose."""

    out_shape: tuple[int, ...]  # shape of the result of `apply`
    in_shape: tuple[int, ...]  # shape of its argument
    apply: Action  # the map, from `in_shape` to `out_shape`
    transpose: Action  # its transpose, from `out_shape` to `in_shape`
    dtype: Any = jnp.float32  # dtype of its entries, where they are not just zeros and ones
    # (joint, result, operand) if other maps share the work of this one
    shared: tuple[Shared, int, int] | None = None
    flipped: bool = False  # whether the map is the transpose of the one `shared` names
    key: Hashable = field(default_factory=object)  # equal keys mean equal maps
    # (out axis, in axis) pairs along which the map is diagonal
    diagonal: tuple[tuple[int, int], ...] = ()
    # makes `columns`, of a map that selects elements at positions known without values
    gather: Callable[[], np.ndarray] | None = None
    counts: bool = False  # whether its entries are counts of how often an element is added
    # `along` by its factors, of a composition in which a factor shares its passes
    by_parts: Callable[[Array, Sequence[int], bool, object], Array] | None = None

    @property
    def T(self) -> Operator:
        """The transposed map."""
        return Operator(
            self.in_shape,
            self.out_shape,
            self.transpose,
            self.apply,
            self.dtype,
            self.shared,
            not self.flipped,
            ("transpose", self.key),
            tuple((j, k) for k, j in self.diagonal),
            None if self.gather is None else self._transposed_columns,
            self.counts,
            (by := self.by_parts) and (lambda x, axes, back, key: by(x, axes, not back, key)),
        )

    def _transposed_columns(self) -> np.ndarray:
        """Returns `columns` of the transpose, of a map that takes no element twice."""
        assert self.gather is not None
        columns, transposed = self.gather(), np.full(prod(self.in_shape), -1, np.int32)
        there = np.flatnonzero(columns >= 0)
        transposed[columns[there]] = there
        return transposed

    def along(
        self, x: Array, axes: Sequence[int], *, transposed: bool = False, key: object = None
    ) -> Array:
        """Applies the map (or its transpose) along axes of an array; its result's axes come last.

        Calls with an equal key share one pass through the equation that the map belongs to. A map
        of real numbers takes both parts of complex ones, one after the other.
        """
        is_real = not (self.counts or jnp.issubdtype(self.dtype, jnp.complexfloating))
        if is_real and jnp.iscomplexobj(x):
            parts = [
                self.along(part, axes, transposed=transposed, key=key and (key, name))
                for name, part in (("real", lax.real(x)), ("imaginary", lax.imag(x)))
            ]
            return lax.complex(*parts)
        if self.shared is not None and key is not None:
            joint, result, operand = self.shared
            if transposed != self.flipped:
                return joint.pull(result, x, axes, key)[operand]
            return joint.push(operand, x, axes, key)[result]
        if self.by_parts is not None and key is not None:
            return self.by_parts(x, axes, transposed, key)
        shape = self.out_shape if transposed else self.in_shape
        return along(self.transpose if transposed else self.apply, x, axes, shape)


LinearMap: TypeAlias = Operator | Selection


def columns(link: LinearMap) -> np.ndarray | None:
    """Returns for each element of the result the flat index of its element of the argument, or -1.

    None for maps whose places are not known without values.
    """
    if isinstance(link, Selection):
        return link.places.columns()
    return None if link.gather is None else link.gather()


def drop_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns a shape without its axes of size one."""
    return tuple(n for n in shape if n != 1)


def squeezed(fun: Action, in_shape: Sequence[int], out_shape: Sequence[int]) -> Operator:
    """Wraps a function that moves or adds entries of one array, without axes of size one.

    The function may see any dtype; its transpose is JAX's.
    """
    full, ins, outs = tuple(in_shape), drop_ones(in_shape), drop_ones(out_shape)

    def apply(x: Array) -> Array:
        return fun(x.reshape(full)).reshape(outs)

    def transpose(x: Array) -> Array:
        return jax.linear_transpose(apply, jax.ShapeDtypeStruct(ins, x.dtype))(x)[0]

    return Operator(outs, ins, apply, transpose, counts=True)


def identity(shape: Sequence[int]) -> LinearMap:
    """Returns the identity on arrays of `shape`."""
    shape = tuple(shape)
    if len(shape) <= 1:
        n = prod(shape)
        return Selection(canonical(n, n, 0, 1, 0, 1, n), shape, shape)
    every = tuple((k, k) for k in range(len(shape)))
    key = ("identity", shape)
    numbers = functools.partial(np.arange, prod(shape), dtype=np.int32)
    return Operator(
        shape, shape, lambda x: x, lambda x: x, key=key, diagonal=every, gather=numbers, counts=True
    )


def chain(post: LinearMap, pre: LinearMap) -> LinearMap:
    """Composes two linear maps: post ∘ pre."""
    if isinstance(post, Selection) and isinstance(pre, Selection):
        return Selection(compose(post.places, pre.places), post.out_shape, pre.in_shape)

    def by_parts(x: Array, axes: Sequence[int], transposed: bool, key: object) -> Array:
        first, second = (post, pre) if transposed else (pre, post)
        y = first.along(x, axes, transposed=transposed, key=key)
        result_axes = range(x.ndim - len(axes), y.ndim)
        return second.along(y, result_axes, transposed=transposed, key=(key, first.key))

    return Operator(
        post.out_shape,
        pre.in_shape,
        lambda x: post.apply(pre.apply(x)),
        lambda x: pre.transpose(post.transpose(x)),
        _compat.promoted(post.dtype, pre.dtype),
        key=("chain", post.key, pre.key),
        diagonal=tuple((k, j) for k, m in _axes(post) for n, j in _axes(pre) if m == n),
        gather=functools.partial(_chained, post, pre) if _known(post) and _known(pre) else None,
        counts=post.counts and pre.counts,
        by_parts=by_parts if _shares(post) or _shares(pre) else None,
    )


def _shares(link: LinearMap) -> bool:
    """Returns whether a map shares its passes with others."""
    return isinstance(link, Operator) and bool(link.shared or link.by_parts)


def _known(link: LinearMap) -> bool:
    return isinstance(link, Selection) or link.gather is not None


def _chained(post: LinearMap, pre: LinearMap) -> np.ndarray:
    """Returns `columns` of post ∘ pre."""
    outer, inner = columns(post), columns(pre)
    assert outer is not None
    assert inner is not None
    return np.where(outer >= 0, np.append(inner, -1)[outer], -1)


def _axes(link: LinearMap) -> tuple[tuple[int, int], ...]:
    """Returns the axes along which a map is diagonal, that of an identity among them."""
    same = link.out_shape == link.in_shape and link.key == identity(link.out_shape).key
    return ((0, 0),) if len(link.out_shape) == 1 and same else link.diagonal


def along(action: Action, x: Array, axes: Sequence[int], in_shape: Sequence[int]) -> Array:
    """Applies an action along axes of an array, for every index of its other axes, now first."""
    return along_several(lambda v: (action(v),), x, axes, in_shape)[0]


def along_several(
    action: Callable[[Array], tuple[Array, ...]],
    x: Array,
    axes: Sequence[int],
    in_shape: Sequence[int],
) -> tuple[Array, ...]:
    """Applies an action with several results along axes of an array, as `along` does."""
    rest = [a for a in range(x.ndim) if a not in axes]
    batch = tuple(x.shape[a] for a in rest)
    batched = x.transpose([*rest, *axes])
    if not batch:
        return action(batched)
    outs = jax.vmap(action)(batched.reshape((prod(batch), *in_shape)))
    return tuple(out.reshape(batch + out.shape[1:]) for out in outs)


def widen(
    base: LinearMap,
    out_axes: Sequence[int],
    in_axes: Sequence[int],
    extra: Sequence[tuple[int, int]],
    sizes: Sequence[int],
) -> LinearMap:
    """Returns the Kronecker product of a map and an identity, axes sorted by their labels."""
    if not out_axes and not in_axes and len(extra) == 1:
        return identity(sizes)
    out_labels, in_labels = [*out_axes, *(k for k, _ in extra)], [*in_axes, *(j for _, j in extra)]
    out_size = dict(zip(out_labels, [*base.out_shape, *sizes], strict=True))
    in_size = dict(zip(in_labels, [*base.in_shape, *sizes], strict=True))
    outs, ins = sorted(out_labels), sorted(in_labels)
    out_end, in_end = (out_axes, outs), (in_axes, ins)

    def one_way(
        action: Action, shape: Sequence[int], source: Ends, target: Ends, pairs: dict[int, int]
    ) -> Action:
        (axes, every), (target_axes, all_targets) = source, target

        def run(x: Array) -> Array:
            y = along(action, x, [every.index(a) for a in axes], shape)
            labels = [*(pairs[a] for a in every if a not in axes), *target_axes]
            return y.transpose([labels.index(a) for a in all_targets])

        return run

    forward, backward = {j: k for k, j in extra}, dict(extra)
    in_shape = tuple(in_size[j] for j in ins)
    gather = functools.partial(_widened, base, out_end, in_end, extra, in_shape)
    return Operator(
        tuple(out_size[k] for k in outs),
        in_shape,
        one_way(base.apply, base.in_shape, in_end, out_end, forward),
        one_way(base.transpose, base.out_shape, out_end, in_end, backward),
        base.dtype,
        key=("wide", base.key, tuple(out_axes), tuple(in_axes), tuple(extra), tuple(sizes)),
        diagonal=tuple(
            (outs.index(k), ins.index(j))
            for k, j in [*extra, *((out_axes[a], in_axes[b]) for a, b in base.diagonal)]
        ),
        gather=gather if _known(base) else None,
        counts=base.counts,
    )


def _widened(
    base: LinearMap, outs: Ends, ins: Ends, extra: Sequence[tuple[int, int]], shape: Sequence[int]
) -> np.ndarray:
    """Returns `columns` of a widened map, whose argument has a `shape`.

    `extra` are the (out, in) axes of the identity.
    """
    known: Any = columns(base)
    (out_axes, every_out), (in_axes, every_in) = outs, ins
    order = [every_in.index(j) for j in (*in_axes, *(j for _, j in extra))]
    rows = np.arange(prod(shape)).reshape(shape).transpose(order)
    rest = rows.shape[len(in_axes) :]
    rows = rows.reshape(prod(rows.shape[: len(in_axes)]), *rest)
    gathered = np.full((len(known), *rest), -1)
    gathered[known >= 0] = rows[known[known >= 0]]
    gathered = gathered.reshape(*base.out_shape, *gathered.shape[1:])
    labels = [*out_axes, *(k for k, _ in extra)]
    return gathered.transpose([labels.index(k) for k in every_out]).reshape(-1).astype(np.int32)
