"""Sums of partials, kept as terms for as long as a policy says.

The sum of two different selections (a slice and another one, say) is dense, and the algebra counts
it so.  Forming it at once would write and read a dense array for every term.  Under the policy
`AsCounted` such a sum waits: terms with entries in the same places merge, products with unit
edges, which cost nothing, reach every term on its own, and only when the sum meets values, or at
the end, is the dense array made, of all terms at once.  Structures and multiplications are those
of the algebra.  The other policy is `veenv.engine.sparse.policy.Sparse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Protocol, TypeVar

import jax.numpy as jnp
from jax import Array

from veenv import _compat
from veenv.engine import edge, masking, terms
from veenv.engine import product as edge_product
from veenv.engine.links import expand_link, is_placed, placed, places
from veenv.engine.stored import Edge, stored_values, with_mask
from veenv.engine.terms import Terms, merged
from veenv.linear.barrier import pin
from veenv.structure import structure as algebra
from veenv.structure.product import Plan
from veenv.structure.product import multiply as multiply_structures
from veenv.structure.structure import Link, Structure

E = TypeVar("E")


class Policy(Protocol[E]):
    """What the edges of an elimination are, and when sums of them become dense.

    Attributes:
      multiplications: multiplications executed, as far as the policy counts them.
      additions: additions of sums formed at once.
    """

    multiplications: int
    additions: int

    def gather(self, several: Sequence[Edge]) -> E:
        """The edge that several partials between the same nodes are together."""
        ...

    def multiply(self, post: E, pre: E) -> E:
        """The product post · pre."""
        ...

    def add(self, a: E, b: E) -> E:
        """The sum of two edges between the same nodes."""
        ...

    def left(self, e: E) -> Terms | Any:
        """An edge that is left at the end, as terms, or as entries where those are sparse."""
        ...

    def stored(self, x: Array, pairs: Sequence[tuple[E, Structure]]) -> E:
        """An array [*out_shape, *in_shape] that stands for a sum of products.

        Args:
          x: the array.
          pairs: the products' left factors, and structures of their right ones.
        """
        ...


class AsCounted:
    """Edges have the structures of the algebra; sums of selections wait until they meet values.

    Attributes:
      wait: False forms every sum at once, which takes as many additions as are counted.
      multiplications: multiplications executed.
      additions: additions with every sum formed at once.
    """

    def __init__(self, *, wait: bool = True):
        self.wait, self.multiplications, self.additions = wait, 0, 0

    def gather(self, several: Sequence[Edge]) -> Edge | Sum:
        """Their sum."""
        return reduce(edge.add, several)

    def multiply(self, post: Edge | Sum, pre: Edge | Sum) -> Edge | Sum:
        """The product post · pre, counted."""
        plan = multiply_structures(post.structure, pre.structure)
        self.multiplications += plan.multiplications
        self.additions += plan.additions
        return multiply(post, pre, plan)

    def add(self, a: Edge | Sum, b: Edge | Sum) -> Edge | Sum:
        """The sum, counted."""
        total = add(a, b) if self.wait else edge.add(formed(a), formed(b))
        self.additions += total.structure.num_values
        return total

    def left(self, e: Edge | Sum) -> Terms:
        """The edge, formed."""
        return (formed(e, last=True),)

    def stored(self, x: Array, pairs: Sequence[tuple[Edge | Sum, Structure]]) -> Edge:
        """The array stored as the algebra has the sum of products."""
        products = [multiply_structures(post.structure, pre).structure for post, pre in pairs]
        s = reduce(algebra.add, products)
        assert s.link is Link.NONE
        x = x.reshape(*s.out_shape, *s.in_shape)
        kept = [*s.out_values, *s.in_values]
        return Edge(s, x[tuple(slice(None) if valued else 0 for valued in kept)], x.dtype)


class Sum:
    """A sum that is not formed yet.

    Attributes:
      structure: structure of the sum as the algebra has it; valued, without link.
      terms: the summands; each can be stored as `structure`.
    """

    def __init__(self, structure: Structure, terms: Sequence[Edge]):
        self.structure = structure
        self.terms = tuple(terms)
        self._formed: Edge | None = None

    def form(self, *, last: bool) -> Edge:
        """The sum as one edge of its structure; made once, and stored if it is used further."""
        if self._formed is None:
            whole = _formed(self.terms, self.structure)
            self._formed = whole if last else replace(whole, values=pin(whole.values))
        return self._formed


def formed(e: Edge | Sum, *, last: bool = False) -> Edge:
    """The edge, or the sum as one edge; `last` if it is an end result."""
    return e.form(last=last) if isinstance(e, Sum) else e


def add(a: Edge | Sum, b: Edge | Sum) -> Edge | Sum:
    """Sum of two edges or sums; left unformed if a known selection is among the terms."""
    every = [*_terms(a), *_terms(b)]
    if not any(map(is_placed, every)):
        return edge.add(formed(a), formed(b))
    return Sum(algebra.add(a.structure, b.structure), _collected(every))


def multiply(post: Edge | Sum, pre: Edge | Sum, plan: Plan) -> Edge | Sum:
    """Product post · pre of a planned structure and number of multiplications."""
    products = None
    if isinstance(post, Sum) and isinstance(pre, Edge):
        pairs = [(term, pre) for term in post.terms]
        products = _free(pairs, pre, plan)
    elif isinstance(pre, Sum) and isinstance(post, Edge):
        pairs = [(post, term) for term in pre.terms]
        products = _free(pairs, post, plan)
    if products is not None:
        return Sum(plan.structure, _collected(products))
    return edge_product.multiply(formed(post), formed(pre))


def _free(pairs: Sequence[tuple[Edge, Edge]], other: Edge, plan: Plan) -> list[Edge] | None:
    """Products of the terms with a unit edge of known places; None unless all cost nothing."""
    if not (other.structure.unit and _has_places(other)):
        return None
    if plan.structure.unit or plan.structure.link is not Link.NONE:
        return None
    if any(multiply_structures(p.structure, q.structure).multiplications for p, q in pairs):
        return None
    return [edge_product.multiply(p, q) for p, q in pairs]


def _has_places(e: Edge) -> bool:
    """Whether the places of an edge's entries are known when tracing."""
    return e.link is None or is_placed(e)


def _terms(e: Edge | Sum) -> tuple[Edge, ...]:
    return e.terms if isinstance(e, Sum) else (e,)


def _collected(several: Sequence[Edge]) -> list[Edge]:
    """The terms, those on one line of places merged, links of unknown places dense."""
    known = [e if _has_places(e) else expand_link(e) for e in several]
    return merged(known, terms.line)


def _formed(several: Sequence[Edge], target: Structure) -> Edge:
    """The sum of terms stored as `target`: selections that do not overlap share one pass."""
    dtypes = [e.dtype if e.values is None else e.values.dtype for e in several]
    dtype = _compat.promoted(*dtypes)
    masked = any(e.mask is not None for e in several)
    several = [with_mask(e) for e in several] if masked else several
    parts: list[Array] = []
    masks: list[Array | None] = []
    selections: dict[object, list[Edge]] = {}
    for e in several:
        if is_placed(e):
            selections.setdefault((e.structure.link_out, e.structure.link_in), []).append(e)
        else:
            whole = edge.expand_to(e, target)
            parts.append(stored_values(whole).astype(dtype))
            masks.append(whole.mask)
    for group in selections.values():
        total, covered = jnp.zeros((), dtype), []
        for e in group:
            mask, values = placed(e, target)
            own = places(e)
            if any(((own == other) & (own >= 0)).any() for other in covered):
                parts.append(total)
                total, covered = jnp.zeros((), dtype), []
            total = masking.select(mask, values.astype(dtype), total)
            covered.append(own)
            masks.append(mask)
        parts.append(total)
    mask = reduce(masking.either, masks) if masked else None
    return Edge(target, reduce(jnp.add, parts), dtype, mask=mask)
