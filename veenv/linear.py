"""Linear maps known by their action: the operators and selections that edges keep unevaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import jax
import jax.numpy as jnp
from jax import Array

Action = Callable[[Array], Array]


@dataclass(frozen=True)
class LinearMap:
    """A linear map between arrays, with its transpose.

    Attributes:
      out_shape: shape of the result of `apply`.
      in_shape: shape of its argument.
      apply: the map, from `in_shape` to `out_shape`.
      transpose: its transpose, from `out_shape` to `in_shape`.
    """

    out_shape: tuple[int, ...]
    in_shape: tuple[int, ...]
    apply: Action
    transpose: Action

    @property
    def T(self) -> LinearMap:
        """The transposed map."""
        return LinearMap(self.in_shape, self.out_shape, self.transpose, self.apply)


def from_function(fun: Action, in_shape: Sequence[int], out_shape: Sequence[int]) -> LinearMap:
    """A linear map from a JAX-traceable linear function of one array.

    The function may see any dtype; its transpose is JAX's.
    """
    in_shape = tuple(in_shape)

    def transpose(x: Array) -> Array:
        shape = jax.ShapeDtypeStruct(in_shape, x.dtype)
        return jax.linear_transpose(fun, shape)(x)[0]

    return LinearMap(tuple(out_shape), in_shape, fun, transpose)


def squeezed(fun: Action, in_shape: Sequence[int], out_shape: Sequence[int]) -> LinearMap:
    """As `from_function`, seen without the axes of size one of both shapes."""
    full = tuple(in_shape)
    ins = tuple(n for n in in_shape if n != 1)
    outs = tuple(n for n in out_shape if n != 1)
    return from_function(lambda x: fun(x.reshape(full)).reshape(outs), ins, outs)


def identity(shape: Sequence[int]) -> LinearMap:
    """The identity on arrays of `shape`."""
    return LinearMap(tuple(shape), tuple(shape), lambda x: x, lambda x: x)


def chain(post: LinearMap, pre: LinearMap) -> LinearMap:
    """The map post ∘ pre."""
    return LinearMap(
        post.out_shape,
        pre.in_shape,
        lambda x: post.apply(pre.apply(x)),
        lambda x: pre.transpose(post.transpose(x)),
    )


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
    rest = [a for a in range(x.ndim) if a not in axes]
    batch = tuple(x.shape[a] for a in rest)
    moved = x.transpose([*rest, *axes])
    if not batch:
        return action(moved)
    flat = moved.reshape((prod(batch), *in_shape))
    out = jax.vmap(action)(flat)
    return out.reshape(batch + out.shape[1:])


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
    )


def ones(shape: Sequence[int], dtype: jnp.dtype) -> Array:
    """An array of ones."""
    return jnp.ones(tuple(shape), dtype)
