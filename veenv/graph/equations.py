"""One equation of a traced program: a primitive applied to variables and literals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Var = int
"""Index of a variable of the flat program."""


@dataclass(frozen=True)
class Literal:
    """A constant operand, in the place of a variable."""

    val: Any  # its value, under the name that JAX's literals give it


class Function:
    """A function in the interface of a primitive: values in, several values out."""

    multiple_results = True

    def __init__(self, name: str, bind: Callable[..., list[Any]]):
        self.name, self.bind = name, bind

    @staticmethod
    def get_bind_params(params: dict[str, Any]) -> dict[str, Any]:
        """Returns the parameters unchanged; primitives of JAX convert them here."""
        return params


@dataclass(frozen=True, slots=True)
class Equation:
    """One primitive application of the flat program, with the names of JAX's equations."""

    primitive: Any  # the JAX primitive
    params: dict[str, Any]  # its parameters
    invars: tuple[Var | Literal, ...]  # a variable or a `Literal` for each operand
    outvars: tuple[Var | None, ...]  # a variable for each result; None for results that are dropped
    in_avals: tuple[Any, ...]  # shape and dtype of each operand
    out_avals: tuple[Any, ...]  # shape and dtype of each result
    source: str  # the user's line, for error messages
    effects: frozenset[Any] = frozenset()  # such as callbacks and checks
