"""Operations on single numbers of one dtype, shorter to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from veenv.kernel.program import Op


class Adds(Protocol):
    """What adds operations to a program: `veenv.kernel.builder.Builder`."""

    ops: list[Op]

    def op(self, name: str, dtype: str, *args: int, attr: Any = None) -> int:
        """An operation."""
        ...

    def number(self, value: float, dtype: str) -> int:
        """A constant."""
        ...


class Scalars:
    """Operations with results of one dtype, as methods of their names.

    Attributes:
      b: what they are added to.
      dtype: of the results.
      of: dtype of the first operand of what is computed.
      params: parameters of the primitive that is computed.
    """

    def __init__(
        self, b: Adds, dtype: str, of: str = "", params: Mapping[str, Any] = MappingProxyType({})
    ):
        self.b, self.dtype, self.of, self.params = b, dtype, of or dtype, params

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *args: self.op(name, *args)

    def op(self, name: str, *args: int) -> int:
        """An operation."""
        return self.b.op(name, self.dtype, *args)

    def call(self, function: str, *args: int) -> int:
        """A function of libm."""
        return self.b.op("call", self.dtype, *args, attr=function)

    def number(self, value: float) -> int:
        """A constant."""
        return self.b.number(value, self.dtype)

    def is_(self, name: str, x: int, y: int) -> int:
        """A comparison."""
        return self.b.op(name, "bool", x, y)

    def both(self, x: int, y: int) -> int:
        """Whether both are true."""
        return self.b.op("and", "bool", x, y)

    def either(self, x: int, y: int) -> int:
        """Whether one is true."""
        return self.b.op("or", "bool", x, y)

    def square(self, x: int) -> int:
        """x²."""
        return self.mul(x, x)
