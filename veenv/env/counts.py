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
"""Most wide counts summed at once: the sum of so many half words fits a word."""


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
        """Converts counts to wide ones."""
        if isinstance(value, WideCount):
            return value
        value = jnp.asarray(value, jnp.int32)
        return cls((value >> 31).astype(jnp.uint32), value.astype(jnp.uint32))

    @classmethod
    def of_ints(cls, values: Int[np.ndarray, " n"]) -> WideCount:
        """Converts int64 numbers of the host to wide counts."""
        words = values.astype(np.int64).view(np.uint64)
        high, low = words >> np.uint64(32), words & np.uint64(2**32 - 1)
        return cls(jnp.asarray(high.astype(np.uint32)), jnp.asarray(low.astype(np.uint32)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of counts."""
        return self.low.shape

    def __add__(self, other: Count | int) -> WideCount:
        """Returns the sum."""
        other = WideCount.of(other)
        low = self.low + other.low
        return WideCount(self.high + other.high + (low < other.low).astype(jnp.uint32), low)

    __radd__ = __add__

    def __neg__(self) -> WideCount:
        """Returns minus the number."""
        return WideCount(~self.high + (self.low == 0).astype(jnp.uint32), -self.low)

    def __sub__(self, other: Count | int) -> WideCount:
        """Returns the difference."""
        return self + -WideCount.of(other)

    def __mul__(self, factor: Int[Array, "*shape"] | int) -> WideCount:
        """Returns the product with non-negative int32."""
        word = jnp.asarray(factor, jnp.int32).astype(jnp.uint32)
        return WideCount(self.high * word + upper_product(self.low, word), self.low * word)

    __rmul__ = __mul__

    def __lt__(self, other: WideCount) -> Bool[Array, "*shape"]:
        """Compares number by number: True where the left one is less."""
        return ((self - other).high >> 31).astype(bool)

    def __getitem__(self, index: Any) -> WideCount:
        """Returns the numbers at an index."""
        return WideCount(self.high[index], self.low[index])

    def reshape(self, *shape: int) -> WideCount:
        """Returns the numbers in another shape."""
        return WideCount(self.high.reshape(*shape), self.low.reshape(*shape))

    def argmin(self, axis: int) -> Int[Array, "*shape"]:
        """Returns the index of the least non-negative number along an axis."""
        tops = self.high == self.high.min(axis, keepdims=True)
        return jnp.where(tops, self.low, jnp.uint32(2**32 - 1)).argmin(axis)

    def sum(self) -> WideCount:
        """Returns the sum of at most `MOST_ADDENDS` numbers along one axis."""
        return _joined(self._pieces().sum(0, dtype=jnp.uint32))

    def added_at(self, index: Int[Array, " n"], amounts: WideCount) -> WideCount:
        """Returns the counts with at most `MOST_ADDENDS` amounts added at indices of the axis."""
        sums = jnp.zeros((*self.shape, 3), jnp.uint32).at[index].add(amounts._pieces())
        return self + _joined(sums)

    def _pieces(self) -> UInt[Array, "*shape 3"]:
        """Splits numbers into the lower word's halves and the upper word: sums need no carry."""
        return jnp.stack([self.low & 0xFFFF, self.low >> 16, self.high], -1)

    def astype(self, dtype: Any) -> Float[Array, "*shape"]:
        """Returns the nearest floats, as a conversion of integers gives them.

        Raises:
          TypeError: for another type than float32.
        """
        if np.dtype(dtype) != np.float32:
            raise TypeError(f"a wide count becomes float32, not {np.dtype(dtype)}")
        negative = (self.high >> 31).astype(bool)
        number = select(negative, -self, self)
        shift = lax.clz(number.high)
        top = (number.high << shift) | (number.low >> (32 - shift))
        top |= ((number.low << shift) != 0).astype(jnp.uint32)  # breaks ties in rounding
        power = lax.bitcast_convert_type((159 - shift) << 23, jnp.float32)  # 2 ** (32 - shift)
        size = top.astype(jnp.float32) * power
        return jnp.where(negative, -size, size)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the numbers as int64."""
        del copy
        words = np.asarray(self.high).astype(np.uint64) << np.uint64(32) | np.asarray(self.low)
        numbers = np.asarray(words, np.uint64).view(np.int64)
        return numbers if dtype is None else numbers.astype(dtype)

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
        """Returns the one number."""
        return int(np.asarray(self))

    def item(self) -> int:
        """Returns the one number."""
        return int(self)

    def tolist(self) -> Any:
        """Returns the numbers as Python integers."""
        return np.asarray(self).tolist()


Count: TypeAlias = Int[Array, "*shape"] | WideCount
"""Counts of an environment: int32, or wide where its spec says so."""


def select(which: Bool[Array, "*shape"], a: Any, b: Any) -> Any:
    """Returns `a` where `which`, else `b`: `jnp.where` for pytrees, as counts of one kind are."""
    return jax.tree.map(lambda x, y: jnp.where(which, x, y), a, b)


def less(a: Any, b: Any) -> Bool[Array, "*shape"]:
    """Compares counts of one kind: True where `a` is less than `b`."""
    return a < b


def largest_like(count: Count) -> Count:
    """Returns the largest counts of the same kind and shape."""
    if isinstance(count, WideCount):
        most = np.iinfo(np.uint32).max
        return WideCount(jnp.full_like(count.high, most >> 1), jnp.full_like(count.low, most))
    return jnp.full_like(count, jnp.iinfo(jnp.int32).max)


def added_at(total: Count, index: Int[Array, " n"], amounts: Any) -> Count:
    """Returns counts with amounts added at indices of the one axis, which may repeat."""
    if isinstance(total, WideCount):
        return total.added_at(index, amounts)
    return total.at[index].add(amounts)


def _joined(pieces: UInt[Array, "*shape 3"]) -> WideCount:
    """Carries sums of pieces over into wide counts."""
    first, second, high = pieces[..., 0], pieces[..., 1], pieces[..., 2]
    second += first >> 16
    return WideCount(high + (second >> 16), second << 16 | first & 0xFFFF)
