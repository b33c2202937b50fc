"""Defines `Request`: one record of all options of a transformation of a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from veenv.graph.program import Program
from veenv.kernel.fusing import KernelMode
from veenv.linear.barrier import PinMode
from veenv.orders.resolve import OrderLike
from veenv.rules.complex import are_analytic

Name = Literal["auto", "reverse"]
"""An order in whose place a faster form may be taken."""
Blocks = Literal["dense", "sparse", "scattered"]
"""The elimination of blocks: as arrays, `SparseTensor`s, or sparse ones scattered into arrays."""


@dataclass(frozen=True)
class Request:
    """A request: options of `jacve` and similar functions, the order and argnums as plain ones."""

    order: OrderLike
    argnums: int | tuple[int, ...]
    # of the result: "value", "jacobian", "gradient" (the Jacobian of one), "aux", "counts"
    parts: tuple[str, ...]
    has_aux: bool = False
    blocks: Blocks = "dense"
    holomorphic: bool = False
    allow_int: bool = False
    kernel: KernelMode = "auto"
    pin: PinMode = "auto"
    # of arguments and keyword arguments whether the Jacobian is known to be symmetric
    symmetric: Callable[[Any, Any], bool] = lambda args, kwargs: False

    @property
    def compared(self) -> Name | None:
        """The name of an order that other forms may replace."""
        if self.blocks == "scattered" and not self.holomorphic:
            return "auto"
        if "counts" in self.parts or self.blocks != "dense" or self.holomorphic or self.allow_int:
            return None
        name = self.order.lower() if isinstance(self.order, str) else ""
        return "auto" if name == "auto" else "reverse" if name in ("reverse", "rev") else None

    def by_complex(self, program: Program) -> bool:
        """Returns whether all partials are complex; otherwise variables are pairs of real ones."""
        return self.holomorphic and are_analytic(program.equations)

    def result(self, returned: Any, jacobian: Any, counts: Any = None) -> Any:
        """Returns the parts asked for, of what the function returned and its Jacobian."""
        known = {"value": returned, "jacobian": jacobian, "gradient": jacobian, "counts": counts}
        if "aux" in self.parts:
            known["aux"] = returned[1]
        parts = [known[part] for part in self.parts]
        return tuple(parts) if len(parts) > 1 else parts[0]
