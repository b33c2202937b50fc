"""Elementwise JAX primitives on arrays of the numbers of scalar operations, equal entries once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from veenv.kernel import complex_numbers, rules_scalar
from veenv.kernel.arrays import arithmetic
from veenv.kernel.builder import Builder
from veenv.kernel.fold import evaluate
from veenv.kernel.ids import Ids, constant, constants, different, once
from veenv.kernel.numbering import CONSTANT, ONE
from veenv.kernel.program import COMPLEX, DTYPES, FLOATS, CannotFuseError, Op, dtype_name
from veenv.rules import table

_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def elementwise(b: Builder, eqn: Any, ins: Sequence[Ids]) -> Ids:
    """The result of an elementwise equation.

    Args:
      b: the builder.
      eqn: an equation whose primitive has a rule for single entries.
      ins: the operands, of the result's shape or of none.

    Raises:
      CannotFuseError: an operand has a dtype that no scalar program has.
    """
    name, shape = eqn.primitive.name, eqn.outvars[0].aval.shape
    of, to = dtype_name(eqn.invars[0].aval.dtype), dtype_name(eqn.outvars[0].aval.dtype)
    if of not in DTYPES and of not in COMPLEX:
        raise CannotFuseError(f"values of dtype {of} cannot be fused", name)
    if name in _COMPARISONS and of != "bool" and of not in COMPLEX:
        values = [constant(b, x) for x in ins]
        if all(v is not None for v in values):  # as masks are made of indices
            return constants(b, np.broadcast_to(evaluate(Op(name, to), values), shape))
    columns = once(*(x if x.shape == shape else np.broadcast_to(x, shape) for x in ins))
    return np.broadcast_to(_entry_by_entry(b, eqn, columns, of, to), shape)


def clamped(b: Builder, eqn: Any, ins: Sequence[Ids]) -> Ids:
    """The result of an equation of `jax.lax.clamp`."""
    aval = eqn.outvars[0].aval
    dtype = dtype_name(aval.dtype)
    low, x, high = (np.broadcast_to(v, aval.shape).ravel().tolist() for v in ins)
    ids = [
        b.op("min", dtype, b.op("max", dtype, i, lo), hi)
        for lo, i, hi in zip(low, x, high, strict=True)
    ]
    return np.array(ids, np.int64).reshape(aval.shape)


def _entry_by_entry(b: Builder, eqn: Any, columns: Sequence[Ids], of: str, to: str) -> Ids:
    name, shape = eqn.primitive.name, columns[0].shape
    plain = rules_scalar.PLAIN.get(name)
    if plain is not None and to in FLOATS:
        return arithmetic(b, plain, to, *columns)
    if name == "select_n" and of == "bool":
        which = b.kinds[columns[0]]
        if (which >= CONSTANT).all():
            return np.where(which == ONE, columns[-1], columns[1])
    rows, places = different([x.ravel() for x in columns])
    ids = _ids(b, name, of, to, eqn.params, rows)
    return np.array(ids, np.int64)[places].reshape(shape)


def _ids(
    b: Builder,
    name: str,
    of: str,
    to: str,
    params: Mapping[str, Any],
    rows: Sequence[tuple[int, ...]],
) -> list[int]:
    """The number of each row's operation."""
    if table.facts(name).call and of in FLOATS:
        return b.calls(name, to, rows)
    if of in COMPLEX or to in COMPLEX:
        rule: Callable[..., int] = complex_numbers.rule_of(name, rules_scalar.RULES)
    else:
        rule = rules_scalar.RULES[name]
    if name == "pow" and of in FLOATS and len({y for _, y in rows}) == 1:
        first = b.ops[rule(b, of, to, params, *rows[0])]
        if first.attr == "pow":  # not a power that is computed otherwise
            return b.calls("pow", to, [(x, first.args[1]) for x, _ in rows])
    return [rule(b, of, to, params, *row) for row in rows]
