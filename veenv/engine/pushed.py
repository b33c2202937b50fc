"""Rules that JAX cannot transpose, applied to the columns of the Jacobian.

Such a rule (a cut in a tangent, say) has no matrix.  In an order that its graph allows, all that
is before its operands is gone when it is applied: its tangents are those of forward mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from veenv.engine.edge import Edge
from veenv.engine.elimination import Elimination
from veenv.engine.evaluation import Evaluation, evaluate
from veenv.graph.linearisation import Linearisation
from veenv.rules.dtypes import is_differentiable
from veenv.rules.operator import from_real, to_real
from veenv.structure import structure as algebra


def is_pushed(lin: Linearisation) -> bool:
    """Whether a program has a rule that JAX cannot transpose."""
    return any(one.rule.forward for one in lin.reverse_only if one is not None)


def push_forward(lin: Linearisation, inputs: Sequence[Any]) -> tuple[Evaluation, Elimination]:
    """The values of a program, and its dense Jacobian by forward mode.

    Args:
      lin: the program.
      inputs: value of each input leaf.
    """
    avals = lin.program.avals[: len(inputs)]
    moving = [k for k, aval in enumerate(avals) if is_differentiable(aval)]
    plain = replace(lin, elementals=((),) * len(lin.elementals))

    def outputs(*values: Any) -> tuple[list[Any], tuple[list[Any], list[Any]]]:
        full = list(inputs)
        for k, value in zip(moving, values, strict=True):
            full[k] = from_real(value, avals[k]) if lin.realify else value
        found = evaluate(plain, full)
        outs = list(map(jnp.asarray, found.outputs))
        return [to_real(x) if lin.realify else x for x in outs], (found.outputs, found.aux)

    given = [jnp.asarray(inputs[k]) for k in moving]
    given = [to_real(x) if lin.realify else x for x in given]
    columns, (values, aux) = jax.jacfwd(
        outputs, tuple(range(len(given))), has_aux=True, holomorphic=not lin.realify
    )(*given)
    left: dict[tuple[int, int], Any] = {}
    for node, row in zip(lin.graph.outputs, columns, strict=True):
        for source, x in zip(moving, row, strict=True):
            if node is not None:
                dense = algebra.dense(lin.graph.shapes[node], lin.graph.shapes[source])
                left[source, node] = (Edge(dense, x.reshape(dense.value_shape), x.dtype),)
    return Evaluation(values, aux, {}), Elimination(left, (), ())
