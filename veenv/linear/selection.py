"""Selections along one axis whose places are known, so that equal ones are recognised.

One that slices, pads, reverses or strides joins out index ``o + s·t`` to in index ``i + r·t`` for
t = 0 … size − 1.  Such maps compose to such maps, so a chain of slices has one canonical form
however it came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, ClassVar, final

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


@dataclass(frozen=True)
class Affine:
    """A selection along one axis.

    Attributes:
      out_size: number of out indices.
      in_size: number of in indices.
      out_start: out index of the first pair.
      out_step: distance of the out indices of successive pairs, not zero.
      in_start: in index of the first pair.
      in_step: distance of their in indices, not zero.
      size: number of pairs.
    """

    out_size: int
    in_size: int
    out_start: int
    out_step: int
    in_start: int
    in_step: int
    size: int

    @property
    def T(self) -> Affine:
        """The transposed selection."""
        return canonical(
            self.in_size,
            self.out_size,
            self.in_start,
            self.in_step,
            self.out_start,
            self.out_step,
            self.size,
        )

    @property
    def line(self) -> tuple[int, int] | None:
        """Which diagonal or antidiagonal the pairs lie on; None with longer steps."""
        if self.out_step != 1 or abs(self.in_step) != 1:
            return None
        return self.in_step, self.in_start - self.in_step * self.out_start

    def columns(self) -> np.ndarray:
        """int32 [out_size]: the in index that each out index is joined to, -1 where none is."""
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
    """The one form of a selection: ascending out indices, plain steps where there is no pair."""
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
    """The stretch of a line from the first pair of two selections on it to the last."""
    first, last = min(a.out_start, b.out_start), max(a.out_start + a.size, b.out_start + b.size)
    start = a.in_start + a.in_step * (first - a.out_start)
    return canonical(a.out_size, a.in_size, first, 1, start, a.in_step, last - first)


def compose(post: Affine, pre: Affine) -> Affine:
    """The places of post ∘ pre."""
    # Pairs (t, s) with post.in_start + post.in_step·t = pre.out_start + pre.out_step·s.
    a, b = post.in_step, pre.out_step
    shift = pre.out_start - post.in_start
    common = gcd(a, b)
    empty = canonical(post.out_size, pre.in_size, 0, 1, 0, 1, 0)
    if shift % common or not post.size or not pre.size:
        return empty
    step = abs(b) // common  # t advances by this from one meeting to the next
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
    return canonical(
        post.out_size,
        pre.in_size,
        post.out_start + post.out_step * t,
        post.out_step * step,
        pre.in_start + pre.in_step * s,
        pre.in_step * s_step,
        high - low + 1,
    )


@final
@dataclass(frozen=True)
class Selection:
    """A linear map that moves entries along one axis to known places.

    Attributes:
      places: which entries go where.
      out_shape: shape of the result; its one axis may be left out if it is of size one.
      in_shape: shape of the argument, likewise.
      dtype: dtype of the entries, which are zeros and ones.
      diagonal: axes along which it is known to be diagonal: none.
    """

    places: Affine
    out_shape: tuple[int, ...]
    in_shape: tuple[int, ...]
    dtype: ClassVar[Any] = jnp.float32
    diagonal: ClassVar[tuple[tuple[int, int], ...]] = ()

    @property
    def key(self) -> Affine:
        """Equal keys mean equal maps."""
        return self.places

    @property
    def T(self) -> Selection:
        """The transposed map."""
        return Selection(self.places.T, self.in_shape, self.out_shape)

    def apply(self, x: Array) -> Array:
        """The map, from `in_shape` to `out_shape`."""
        return _select(self.places, x.reshape(self.places.in_size), 0).reshape(self.out_shape)

    def transpose(self, x: Array) -> Array:
        """Its transpose, from `out_shape` to `in_shape`."""
        return self.T.apply(x)

    def along(
        self, x: Array, axes: Sequence[int], *, transposed: bool = False, key: object = None
    ) -> Array:
        """As `veenv.linear.linear_map.Operator.along`; a selection needs no key."""
        del key
        a, axis = self.places.T if transposed else self.places, axes[0] if axes else x.ndim
        y = _select(a, x if axes else x[..., None], axis)
        rest = [k for k in range(y.ndim) if k != axis]
        if a.out_size == 1:
            return y.reshape([y.shape[k] for k in rest])
        return y.transpose([*rest, axis])


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


def widened(
    own: Any,
    out_shape: Sequence[int],
    out_labels: tuple[Sequence[int], Sequence[int]],
    in_labels: tuple[Sequence[int], Sequence[int]],
    extra: Sequence[tuple[int, int]],
    in_sizes: Sequence[int],
) -> np.ndarray:
    """The columns of the product of a selection with the identity on further axes.

    Args:
      own: the selection's columns.
      out_shape: shape of its result.
      out_labels: labels of its out axes, and of all.
      in_labels: labels of its in axes, and of all.
      extra: (out label, in label) of each further axis.
      in_sizes: sizes of all in axes.
    """
    (out_axes, outs), (in_axes, ins) = out_labels, in_labels
    order = [ins.index(j) for j in (*in_axes, *(j for _, j in extra))]
    rows = np.arange(np.prod(in_sizes, dtype=int)).reshape(in_sizes).transpose(order)
    rows = rows.reshape(-1, *rows.shape[len(in_axes) :])
    found = np.where((own >= 0).reshape(-1, *[1] * len(extra)), rows[own], -1)
    found = found.reshape(*out_shape, *found.shape[1:])
    labels = [*out_axes, *(k for k, _ in extra)]
    return found.transpose([labels.index(k) for k in outs]).reshape(-1).astype(np.int32)
