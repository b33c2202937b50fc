"""Names for linear maps, by which equal selections are recognised.

A selection along one axis that slices, pads, reverses or strides joins out index ``o + s·t`` to
in index ``i + r·t`` for t = 0 … size − 1.  Such maps compose to such maps, so a chain of slices
has one canonical name however it came about.  Every other map is named by where it was made.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import gcd

import numpy as np


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
    """The one name of a selection: ascending out indices, plain steps where there is no pair."""
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


def compose(post: Hashable, pre: Hashable) -> Hashable:
    """The name of post ∘ pre."""
    if isinstance(post, Affine) and isinstance(pre, Affine):
        return _compose(post, pre)
    return ("chain", post, pre)


def _compose(post: Affine, pre: Affine) -> Affine:
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
