"""Linear maps known by their action: the operators and selections that edges keep unevaluated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from veenv import _compat
from veenv.linear.selection import Affine, canonical, compose

Action = Callable[[Array], Array]


class Shared(Protocol):
    """What several maps take their values from (`veenv.linear.joint.Joint`)."""

    def push(self, operand: int, x: Array, axes: Sequence[int], key: object) -> tuple[Array, ...]:
        """Tangents of all results for tangents of one operand along `axes` of x."""
        ...

    def pull(self, result: int, x: Array, axes: Sequence[int], key: object) -> tuple[Array, ...]:
        """Cotangents of all operands for cotangents of one result along `axes` of x."""
        ...


@dataclass(frozen=True)
class LinearMap:
    """A linear map between arrays, with its transpose.

    Attributes:
      out_shape: shape of the result of `apply`.
      in_shape: shape of its argument.
      apply: the map, from `in_shape` to `out_shape`.
      transpose: its transpose, from `out_shape` to `in_shape`.
      dtype: dtype of its entries, where they are not just zeros and ones.
      shared: (joint, result, operand) if other maps share the work of this one.
      flipped: whether the map is the transpose of the one `shared` names.
      name: equal names mean equal maps.
      diagonal: (out axis, in axis) pairs along which the map is diagonal.
    """

    out_shape: tuple[int, ...]
    in_shape: tuple[int, ...]
    apply: Action
    transpose: Action
    dtype: Any = jnp.float32
    shared: tuple[Shared, int, int] | None = None
    flipped: bool = False
    name: Hashable = field(default_factory=object)
    diagonal: tuple[tuple[int, int], ...] = ()

    @property
    def T(self) -> LinearMap:
        """The transposed map."""
        return LinearMap(
            self.in_shape,
            self.out_shape,
            self.transpose,
            self.apply,
            self.dtype,
            self.shared,
            not self.flipped,
            self.name.T if isinstance(self.name, Affine) else ("transpose", self.name),
            tuple((j, k) for k, j in self.diagonal),
        )

    def along(
        self, x: Array, axes: Sequence[int], *, transposed: bool = False, key: object = None
    ) -> Array:
        """Applies the map (or its transpose) along some axes of an array.

        Args:
          x: the array.
          axes: positions of the argument's axes in `x`, in order.
          transposed: apply the transpose.
          key: names the values in `x`: calls with an equal key share one pass through the
            equation the map belongs to, if there is one.

        Returns:
          Array with the untouched axes first (in order), then the result's axes.
        """
        if self.shared is not None and key is not None:
            joint, result, operand = self.shared
            if transposed != self.flipped:
                return joint.pull(result, x, axes, key)[operand]
            return joint.push(operand, x, axes, key)[result]
        if isinstance(self.name, Affine):
            return _select_along(self.name.T if transposed else self.name, x, axes)
        shape = self.out_shape if transposed else self.in_shape
        return along(self.transpose if transposed else self.apply, x, axes, shape)


def drop_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without its axes of size one."""
    return tuple(n for n in shape if n != 1)


def from_function(
    fun: Action, in_shape: Sequence[int], out_shape: Sequence[int], name: Hashable = None
) -> LinearMap:
    """A linear map from a JAX-traceable linear function of one array.

    The function may see any dtype; its transpose is JAX's.
    """
    in_shape = tuple(in_shape)

    def transpose(x: Array) -> Array:
        shape = jax.ShapeDtypeStruct(in_shape, x.dtype)
        return jax.linear_transpose(fun, shape)(x)[0]

    named = object() if name is None else name
    return LinearMap(tuple(out_shape), in_shape, fun, transpose, name=named)


def squeezed(
    fun: Action, in_shape: Sequence[int], out_shape: Sequence[int], name: Hashable = None
) -> LinearMap:
    """As `from_function`, seen without the axes of size one of both shapes."""
    full = tuple(in_shape)
    ins = tuple(n for n in in_shape if n != 1)
    outs = tuple(n for n in out_shape if n != 1)
    return from_function(lambda x: fun(x.reshape(full)).reshape(outs), ins, outs, name)


def identity(shape: Sequence[int]) -> LinearMap:
    """The identity on arrays of `shape`."""
    shape = tuple(shape)
    n = prod(shape)
    name = canonical(n, n, 0, 1, 0, 1, n) if len(shape) <= 1 else ("identity", shape)
    every = tuple((k, k) for k in range(len(shape)))
    return LinearMap(shape, shape, lambda x: x, lambda x: x, name=name, diagonal=every)


def chain(post: LinearMap, pre: LinearMap) -> LinearMap:
    """The map post ∘ pre."""
    name = compose(post.name, pre.name)
    if isinstance(name, Affine):
        return selection(name, post.out_shape, pre.in_shape)
    return LinearMap(
        post.out_shape,
        pre.in_shape,
        lambda x: post.apply(pre.apply(x)),
        lambda x: pre.transpose(post.transpose(x)),
        _compat.promoted(post.dtype, pre.dtype),
        name=name,
        diagonal=tuple((k, j) for k, m in post.diagonal for n, j in pre.diagonal if m == n),
    )


def selection(name: Affine, out_shape: Sequence[int], in_shape: Sequence[int]) -> LinearMap:
    """The selection of a name, between shapes of its sizes (axes of size one may be left out)."""
    out_shape, in_shape = tuple(out_shape), tuple(in_shape)

    def action(a: Affine, shape: tuple[int, ...]) -> Action:
        return lambda x: _select(a, x.reshape(a.in_size), 0).reshape(shape)

    return LinearMap(
        out_shape, in_shape, action(name, out_shape), action(name.T, in_shape), name=name
    )


def _select(a: Affine, x: Array, axis: int) -> Array:
    """Along one axis, cuts the selected entries out and puts them in their places among zeros."""
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


def _select_along(a: Affine, x: Array, axes: Sequence[int]) -> Array:
    """As `along` for a selection along one axis, which is left out of `axes` if of size one."""
    axis = axes[0] if axes else x.ndim
    y = _select(a, x if axes else x[..., None], axis)
    rest = [k for k in range(y.ndim) if k != axis]
    if a.out_size == 1:
        return y.reshape([y.shape[k] for k in rest])
    return y.transpose([*rest, axis])


def along(action: Action, x: Array, axes: Sequence[int], in_shape: Sequence[int]) -> Array:
    """Applies an action along some axes of an array, for every index of the others.

    Args:
      action: a linear function of an array of `in_shape`.
      x: the array.
      axes: positions of the action's axes in `x`, in the action's order.
      in_shape: the action's argument shape.

    Returns:
      Array with the untouched axes first (in order), then the action's result axes.
    """
    return along_several(lambda v: (action(v),), x, axes, in_shape)[0]


def along_several(
    action: Callable[[Array], tuple[Array, ...]],
    x: Array,
    axes: Sequence[int],
    in_shape: Sequence[int],
) -> tuple[Array, ...]:
    """As `along` for an action with several results."""
    rest = [a for a in range(x.ndim) if a not in axes]
    batch = tuple(x.shape[a] for a in rest)
    moved = x.transpose([*rest, *axes])
    if not batch:
        return action(moved)
    outs = jax.vmap(action)(moved.reshape((prod(batch), *in_shape)))
    return tuple(out.reshape(batch + out.shape[1:]) for out in outs)


def widen(
    base: LinearMap,
    out_axes: Sequence[int],
    in_axes: Sequence[int],
    extra: Sequence[tuple[int, int]],
    sizes: Sequence[int],
) -> LinearMap:
    """The product of a map with the identity on further axes.

    Args:
      base: the map on the axes named by `out_axes` and `in_axes` (ascending labels).
      out_axes: labels of the base's out axes.
      in_axes: labels of the base's in axes.
      extra: (out label, in label) of each axis that passes unchanged.
      sizes: its size, for each of them.

    Returns:
      The map whose axes are all those labels in ascending order.
    """
    outs = sorted([*out_axes, *(k for k, _ in extra)])
    ins = sorted([*in_axes, *(j for _, j in extra)])
    out_size = dict(zip(out_axes, base.out_shape, strict=True))
    out_size.update({k: n for (k, _), n in zip(extra, sizes, strict=True)})
    in_size = dict(zip(in_axes, base.in_shape, strict=True))
    in_size.update({j: n for (_, j), n in zip(extra, sizes, strict=True)})

    def one_way(
        action: Action,
        source: Sequence[int],
        target: Sequence[int],
        source_axes: Sequence[int],
        target_axes: Sequence[int],
        shape: Sequence[int],
        pairs: dict[int, int],
    ) -> Action:
        def run(x: Array) -> Array:
            y = along(action, x, [source.index(a) for a in source_axes], shape)
            passed = [pairs[a] for a in source if a not in source_axes]
            labels = [*passed, *target_axes]
            return y.transpose([labels.index(a) for a in target])

        return run

    forward = {j: k for k, j in extra}
    backward = dict(extra)
    return LinearMap(
        tuple(out_size[k] for k in outs),
        tuple(in_size[j] for j in ins),
        one_way(base.apply, ins, outs, in_axes, out_axes, base.in_shape, forward),
        one_way(base.transpose, outs, ins, out_axes, in_axes, base.out_shape, backward),
        base.dtype,
        name=_wide_name(base, out_axes, in_axes, extra, sizes),
        diagonal=tuple(
            (outs.index(k), ins.index(j))
            for k, j in [*extra, *((out_axes[a], in_axes[b]) for a, b in base.diagonal)]
        ),
    )


def _wide_name(
    base: LinearMap,
    out_axes: Sequence[int],
    in_axes: Sequence[int],
    extra: Sequence[tuple[int, int]],
    sizes: Sequence[int],
) -> Hashable:
    if not out_axes and not in_axes and len(extra) == 1:
        return identity(sizes).name
    return ("wide", base.name, tuple(out_axes), tuple(in_axes), tuple(extra), tuple(sizes))
