"""Functions with a derivative rule of their own, seen through that rule.

The tangent map of a `custom_jvp` call (or the cotangent map of a `custom_vjp` call) is a linear
program.  Its own graph, eliminated completely, gives the structure of the partials: an
elementwise rule stays elementwise, so that nothing about `relu` or a spike's surrogate gradient
becomes dense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv import _compat
from veenv.graph.program import Program, trace
from veenv.rules import Site
from veenv.rules.dtypes import is_complex, is_differentiable

JVP = ("custom_jvp_call",)
VJP = ("custom_vjp_call", "custom_vjp_call_jaxpr")


@dataclass(frozen=True)
class Inner:
    """The linear program of a custom rule.

    Attributes:
      program: from tangents of the operands to tangents of the results, or, for a cotangent
        rule, from cotangents of the results to cotangents of the operands.
      operands: the active operands.
      results: the differentiable results.
      backward: whether it is a cotangent rule.
    """

    program: Program
    operands: tuple[int, ...]
    results: tuple[int, ...]
    backward: bool

    def zeros(self) -> list[Any]:
        """Inputs to evaluate the program at: it is linear, so any will do."""
        return [jnp.zeros(a.shape, a.dtype) for a in self.program.avals[: self.program.num_inputs]]


def inner_program(site: Site) -> Inner | None:
    """The linear program of an equation with a custom rule; None for any other equation."""
    name = site.primitive.name
    if name not in (*JVP, *VJP) or any(is_complex(a) for a in (*site.in_avals, *site.out_avals)):
        return None
    operands = tuple(i for i, a in enumerate(site.active) if a)
    results = tuple(k for k, a in enumerate(site.out_avals) if is_differentiable(a))
    if not results:
        return None

    def call(primals: list[Any], *moving: Any) -> tuple[Any, ...]:
        full = list(primals)
        for i, value in zip(operands, moving, strict=True):
            full[i] = value
        outs = _compat.bind(site.primitive, site.params, full)
        return tuple(outs[k] for k in results)

    def pushed(tangents: list[Any], primals: list[Any]) -> Any:
        moving = [primals[i] for i in operands]
        return jax.jvp(lambda *v: call(primals, *v), moving, tangents)[1]

    def pulled(cotangents: list[Any], primals: list[Any]) -> Any:
        moving = [primals[i] for i in operands]
        return jax.vjp(lambda *v: call(primals, *v), *moving)[1](tuple(cotangents))

    backward = name in VJP
    over = (
        [site.out_avals[k] for k in results] if backward else [site.in_avals[i] for i in operands]
    )
    args = ([shape_of(a) for a in over], [shape_of(a) for a in site.in_avals])
    program = trace(pulled if backward else pushed, args)
    return Inner(program, operands, results, backward)


def shape_of(aval: Any) -> Any:
    """An argument to trace with: of the shape and dtype of a variable."""
    if aval.dtype == jax.dtypes.float0:
        return np.zeros(aval.shape, aval.dtype)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
