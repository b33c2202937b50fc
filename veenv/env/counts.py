"""Counts that pass int32, exactly: numbers of 64 bits as two words.

Without 64-bit types, which are off in JAX by default, an array holds at most 2³² - 1.  A graph of
arrays of ordinary sizes can cost more, so its environment counts in `WideCount`s.  The functions of
this module take counts of both kinds, arrays of int32 and wide ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt

from veenv.env.bits import upper_product

INT64_MAX = 2**63 - 1
MOST_ADDENDS = 2**16 - 1
"""Wide counts that are added up at once: so many halves of a word fit a word."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WideCount:
    """Whole numbers from -2⁶³ to 2⁶³ - 1: on the device two words, on the host int64.

    ``int(count)``, ``count.tolist()`` and ``np.asarray(count)`` give the numbers outside of
    transformations, ``count.astype(jnp.float32)`` the nearest floats anywhere.

    Attributes:
      high: uint32 [...], the upper words, as two's complement.
      low: uint32 [...], the lower words.

    Examples:
      >>> count = WideCount.of(jnp.int32(2**30)) * 6 + 1
      >>> int(count), float(count.astype(jnp.float32))
      (6442450945, 6442450944.0)
    """

    high: UInt[Array, "*shape"]
    low: UInt[Array, "*shape"]

    @classmethod
    def of(cls, value: Count | int) -> WideCount:
        """The same numbers, wide."""
        if isinstance(value, WideCount):
            return value
        value = jnp.asarray(value, jnp.int32)
        return cls((value >> 31).astype(jnp.uint32), value.astype(jnp.uint32))

    @classmethod
    def of_ints(cls, values: Int[np.ndarray, " n"]) -> WideCount:
        """Numbers of the host, int64."""
        words = values.astype(np.int64).view(np.uint64)
        high, low = words >> np.uint64(32), words & np.uint64(2**32 - 1)
        return cls(jnp.asarray(high.astype(np.uint32)), jnp.asarray(low.astype(np.uint32)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of each word."""
        return self.low.shape

    def __add__(self, other: Count | int) -> WideCount:
        """The sum."""
        other = WideCount.of(other)
        low = self.low + other.low
        return WideCount(self.high + other.high + (low < other.low).astype(jnp.uint32), low)

    __radd__ = __add__

    def __neg__(self) -> WideCount:
        """Minus the number."""
        return WideCount(~self.high + (self.low == 0).astype(jnp.uint32), -self.low)

    def __sub__(self, other: Count | int) -> WideCount:
        """The difference."""
        return self + -WideCount.of(other)

    def __mul__(self, factor: Int[Array, "*shape"] | int) -> WideCount:
        """The product with int32 that are not negative."""
        word = jnp.asarray(factor, jnp.int32).astype(jnp.uint32)
        return WideCount(self.high * word + upper_product(self.low, word), self.low * word)

    __rmul__ = __mul__

    def __lt__(self, other: WideCount) -> Bool[Array, "*shape"]:
        """Where the number is less."""
        return ((self - other).high >> 31).astype(bool)

    def __getitem__(self, index: Any) -> WideCount:
        """Some of the numbers."""
        return WideCount(self.high[index], self.low[index])

    def reshape(self, *shape: int) -> WideCount:
        """The numbers in another shape."""
        return WideCount(self.high.reshape(*shape), self.low.reshape(*shape))

    def argmin(self, axis: int) -> Int[Array, "*shape"]:
        """Where the least number stands that is not negative."""
        tops = self.high == self.high.min(axis, keepdims=True)
        return jnp.where(tops, self.low, jnp.uint32(2**32 - 1)).argmin(axis)

    def sum(self) -> WideCount:
        """The sum of at most `MOST_ADDENDS` numbers along one axis."""
        return _joined(self._pieces().sum(0, dtype=jnp.uint32))

    def added_at(self, index: Int[Array, " n"], amounts: WideCount) -> WideCount:
        """With at most `MOST_ADDENDS` amounts added at places of the one axis."""
        sums = jnp.zeros((*self.shape, 3), jnp.uint32).at[index].add(amounts._pieces())
        return self + _joined(sums)

    def _pieces(self) -> UInt[Array, "*shape 3"]:
        """The lower word's halves and the upper word, which can be summed without a carry."""
        return jnp.stack([self.low & 0xFFFF, self.low >> 16, self.high], -1)

    def astype(self, dtype: Any) -> Float[Array, "*shape"]:
        """The nearest floats, as a conversion of integers gives them.

        Raises:
          TypeError: for another type than float32.
        """
        if np.dtype(dtype) != np.float32:
            raise TypeError(f"a wide count becomes float32, not {np.dtype(dtype)}")
        negative = (self.high >> 31).astype(bool)
        number = select(negative, -self, self)
        shift = lax.clz(number.high)
        top = (number.high << shift) | (number.low >> (32 - shift))
        top |= ((number.low << shift) != 0).astype(jnp.uint32)  # decides what is halfway
        power = lax.bitcast_convert_type((159 - shift) << 23, jnp.float32)  # 2 ** (32 - shift)
        size = top.astype(jnp.float32) * power
        return jnp.where(negative, -size, size)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The numbers as int64."""
        del copy
        words = np.asarray(self.high).astype(np.uint64) << np.uint64(32) | np.asarray(self.low)
        found = np.asarray(words, np.uint64).view(np.int64)
        return found if dtype is None else found.astype(dtype)

    def __jax_array__(self) -> Array:
        """Refuses to become an array of JAX, which would keep the lower word only.

        Raises:
          TypeError: always.
        """
        raise TypeError(
            "a count that may pass int32 is no array of JAX: use np.asarray(count) on the host, "
            "or count.astype(jnp.float32)"
        )

    def __int__(self) -> int:
        """The one number."""
        return int(np.asarray(self))

    def item(self) -> int:
        """The one number."""
        return int(self)

    def tolist(self) -> Any:
        """The numbers as Python integers."""
        return np.asarray(self).tolist()


Count: TypeAlias = Int[Array, "*shape"] | WideCount
"""Counts of an environment: int32, or wide where its spec says so."""


def select(which: Bool[Array, "*shape"], a: Count, b: Count) -> Any:
    """`a` where `which`, else `b`: as `jnp.where` for counts of one kind."""
    return jax.tree.map(lambda x, y: jnp.where(which, x, y), a, b)


def less(a: Any, b: Any) -> Bool[Array, "*shape"]:
    """Where counts are less than others of their kind."""
    return a < b


def largest_like(count: Count) -> Count:
    """The largest counts of a kind and shape."""
    if isinstance(count, WideCount):
        most = np.iinfo(np.uint32).max
        return WideCount(jnp.full_like(count.high, most >> 1), jnp.full_like(count.low, most))
    return jnp.full_like(count, jnp.iinfo(jnp.int32).max)


def added_at(total: Count, index: Int[Array, " n"], amounts: Any) -> Count:
    """With the amounts added at places of the one axis, however many at one place."""
    if isinstance(total, WideCount):
        return total.added_at(index, amounts)
    return total.at[index].add(amounts)


def _joined(pieces: UInt[Array, "*shape 3"]) -> WideCount:
    """The numbers of sums of pieces."""
    first, second, high = pieces[..., 0], pieces[..., 1], pieces[..., 2]
    second += first >> 16
    return WideCount(high + (second >> 16), second << 16 | first & 0xFFFF)
