"""Rules that are not linear in their cotangents, applied to the rows of the Jacobian.

Such a rule (gradient clipping, say) has no matrix.  In an order that its graph allows, all that is
behind its results is gone when the first of them is eliminated: the edges from the results to the
outputs are then the rows that reverse mode would pull back, and are pulled back one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from veenv.engine.edge import Edge, todense
from veenv.engine.sparse.policy import structured
from veenv.engine.sums import Policy, Terms
from veenv.graph.linearisation import Elemental
from veenv.graph.precedence import ReverseOnly
from veenv.graph.tableau import Tableau
from veenv.structure import structure as algebra

E = TypeVar("E")


@dataclass(frozen=True)
class Call:
    """A rule at the values of its equation.

    Attributes:
      rule: where it stands in the graph.
      result_shapes: shape of each result, as real numbers.
      operand_shapes: shape of each operand, as real numbers.
      dtypes: dtype of each result's cotangent.
      pull: cotangents of all results → cotangents of all operands.
    """

    rule: ReverseOnly
    result_shapes: Sequence[tuple[int, ...]]
    operand_shapes: Sequence[tuple[int, ...]]
    dtypes: Sequence[Any]
    pull: Callable[[Sequence[Array]], Sequence[Array]]

    def rows(self, cotangents: Mapping[int, Array], num_rows: int) -> dict[int, Array]:
        """Pulls back rows of a Jacobian.

        Args:
          cotangents: for each node among the results with any, an array [num_rows, *its shape].
          num_rows: number of rows.

        Returns:
          For each node among the operands an array [num_rows, *its shape].
        """
        every = []
        for node, shape, dtype in zip(
            self.rule.results, self.result_shapes, self.dtypes, strict=True
        ):
            given = cotangents.get(node)
            every.append(jnp.zeros((num_rows, *shape), dtype) if given is None else given)
        total: dict[int, Array] = {}
        pulled = jax.vmap(lambda *g: tuple(self.pull(g)))(*every)
        for node, x in zip(self.rule.operands, pulled, strict=True):
            total[node] = total[node] + x if node in total else x
        return total


def elemental_edges(
    call: Call, elementals: Sequence[Elemental], outputs: frozenset[int]
) -> Iterator[Edge]:
    """The edges that stand for a rule: of an output its own rows, of others no values at all."""
    own: dict[int, dict[int, Array]] = {}
    for e in elementals:
        at = call.rule.results.index(e.target)
        if e.target not in outputs:
            yield Edge(e.partial.executed, None, call.dtypes[at])
            continue
        if e.target not in own:
            shape = call.result_shapes[at]
            size = prod(shape)
            basis = jnp.eye(size, dtype=call.dtypes[at]).reshape(size, *shape)
            own[e.target] = call.rows({e.target: basis}, size)
        x = own[e.target][e.source]
        yield Edge(e.partial.executed, x.reshape(e.partial.executed.value_shape), x.dtype)


def pull_back(
    tableau: Tableau[E], call: Call, shapes: Sequence[tuple[int, ...]], policy: Policy[E]
) -> None:
    """Puts edges from a rule's operands in place of those from its results, which end at outputs.

    Args:
      tableau: the graph; nothing leads on from where the results' edges lead to.
      call: the rule.
      shapes: shape of every node.
      policy: what the tableau's edges are.
    """
    results = dict(zip(call.rule.results, call.result_shapes, strict=True))
    operands = dict(zip(call.rule.operands, call.operand_shapes, strict=True))
    for target in {w: None for r in results for w in tableau.succs[r]}:
        row, size = tableau.preds[target], prod(shapes[target])
        posts = {r: row.pop(r) for r in results if r in row}
        rows = {
            r: dense(structured(policy.left(post)), shapes[target], results[r]).reshape(
                size, *results[r]
            )
            for r, post in posts.items()
        }
        for source, x in call.rows(rows, size).items():
            pairs = [
                (post, algebra.dense(results[r], operands[source])) for r, post in posts.items()
            ]
            new = policy.stored(x.reshape(*shapes[target], *operands[source]), pairs)
            old = row.get(source)
            row[source] = new if old is None else policy.add(old, new)
            tableau.succs[source][target] = None
    for r in results:
        tableau.succs[r] = {}


def dense(
    terms: Terms, out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any = None
) -> Array:
    """The dense array of a sum of terms, in their own dtype by default."""
    arrays = [todense(t, out_shape, in_shape, t.dtype if dtype is None else dtype) for t in terms]
    return reduce(jnp.add, arrays)
