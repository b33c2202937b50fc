"""Whether XLA makes one function of a loop's body on a CPU, or calls a program for each operation.

A loop without contractions, large sums, scatters, sorts or calls of libraries is compiled to one
function (XLA's pass ``small-while-loop-hoisting``): a step then costs what it computes.  Any other
loop calls a program for each of its operations in every step, which takes longer than what small
operations compute.  What prevents one function can depend on the batch: a product by a matrix that
all points share becomes a product of matrices.

So it is in JAX 0.12; what 0.10 has also leaves out loops whose steps read and write more than a
kilobyte, which is not counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, prod
from typing import Any

from jax.extend import core

from veenv import _compat

_CALLED = frozenset(
    "conv_general_dilated sort cholesky triangular_solve lu eigh eig svd qr householder_product "
    "pure_callback io_callback".split()
)
"""Primitives that keep a loop from being one function, whatever their size."""
_SUMS = frozenset(["reduce_sum", "reduce_max", "reduce_min"])
_LARGE_SUM = 4096
"""Entries from which on a sum or a maximum is a call of a library."""
_LONGEST, _LARGEST = 7, 63
"""Most entries of an axis, and products of two entries, of a contraction that is multiplied out."""


def called_from(equation: Any, varies: Sequence[bool]) -> float:
    """The least batch at which an equation keeps the loop around it from being one function.

    Args:
      equation: of the loop's body; what it calls counts by itself.
      varies: of its operands, whether a batch runs over them.

    Returns:
      Infinity where it does not.
    """
    name = equation.primitive.name
    if name in _CALLED:
        return 0.0
    if name.startswith("scatter"):  # with one index it is written like a slice
        places = prod(equation.invars[1].aval.shape[:-1])
        return 0.0 if places > 1 else 2.0 if varies[1] else inf
    if name == "dynamic_update_slice":
        return 2.0 if any(varies[2:]) else inf
    if name in _SUMS:
        size = prod(equation.invars[0].aval.shape)
        if not varies[0]:
            return 0.0 if size >= _LARGE_SUM else inf
        return ceil(_LARGE_SUM / max(1, size))
    return _contraction_from(equation, varies) if name == "dot_general" else inf


def varying(equation: Any, body: Any, varies: Sequence[bool]) -> list[bool]:
    """Over which arguments of a loop's body a batch runs.

    Args:
      equation: the loop.
      body: its body, open.
      varies: of its operands, whether a batch runs over them.

    Returns:
      For a `scan` what is carried varies if a step makes it vary; for other loops everything does
      where anything does.
    """
    if equation.primitive.name != "scan":
        return [any(varies)] * len(body.invars)
    carried = _compat.num_alike(_avals(body.outvars), _avals(equation.outvars))
    first = _compat.num_alike(_avals(body.invars), _avals(equation.invars)) - carried
    flags = list(varies)
    while True:
        outs = _results_vary(body, flags)[:carried]
        after = [*flags[:first], *outs, *flags[first + carried :]]
        after = [a or b for a, b in zip(flags, after, strict=True)]
        if after == flags:
            return flags
        flags = after


def _results_vary(body: Any, varies: Sequence[bool]) -> list[bool]:
    """Which results of a jaxpr depend on arguments that vary."""
    varied = {v for v, flag in zip(body.invars, varies, strict=True) if flag}

    def is_varied(atom: Any) -> bool:
        return not isinstance(atom, core.Literal) and atom in varied

    for equation in body.eqns:
        if any(map(is_varied, equation.invars)):
            varied.update(equation.outvars)
    return [is_varied(atom) for atom in body.outvars]


def _avals(variables: Sequence[Any]) -> list[Any]:
    return [v.aval for v in variables]


def _contraction_from(equation: Any, varies: Sequence[bool]) -> float:
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    shapes = [atom.aval.shape for atom in equation.invars[:2]]
    summed = prod(shapes[0][axis] for axis in left)
    free = [
        prod(n for axis, n in enumerate(shape) if axis not in (*axes, *batch))
        for shape, axes, batch in zip(shapes, (left, right), (left_batch, right_batch), strict=True)
    ]
    if varies[0] == varies[1]:
        return inf if _is_multiplied_out(summed, *free) else 0.0
    grows = free[0 if varies[0] else 1]
    other = free[1 if varies[0] else 0]
    batches = range(1, _LARGEST + 2)
    return next((n for n in batches if not _is_multiplied_out(summed, grows * n, other)), inf)


def _is_multiplied_out(summed: int, left: int, right: int) -> bool:
    """Whether a product of a matrix [left, summed] by one [summed, right] is no call."""
    sizes = summed, left, right
    return 1 in sizes or (max(sizes) <= _LONGEST and prod(sizes) <= _LARGEST)


def num_unstacked(outer: Sequence[Any], inner: Sequence[Any]) -> int:
    """How many variables of a loop have the same rank outside: those that are not stacked."""
    pairs = zip(outer, inner, strict=True)
    return sum(len(o.aval.shape) == len(i.aval.shape) for o, i in pairs)
