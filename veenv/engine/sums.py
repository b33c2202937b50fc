"""Sums of partials whose terms are kept apart until they are multiplied.

The sum of two different selections (a slice and another one, say) is dense, and the algebra counts
it so.  Forming it at once would write and read a dense array for every term.  Here such a sum
waits: terms with entries in the same places merge, products with unit edges, which cost nothing,
reach every term on its own, and only when the sum meets values, or at the end, is the dense array
made, of all terms at once.  Structures and multiplications are those of the algebra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import jax.numpy as jnp
from jax import Array

from veenv import _compat
from veenv.engine import edge, masking, terms
from veenv.engine import product as edge_product
from veenv.engine.edge import Edge
from veenv.linear.barrier import pin
from veenv.structure import structure as algebra
from veenv.structure.product import Product
from veenv.structure.product import multiply as multiply_structures
from veenv.structure.structure import Link, Structure


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
    if not any(map(edge.is_known, every)):
        return edge.add(formed(a), formed(b))
    return Sum(algebra.add(a.structure, b.structure), _collected(every))


def multiply(post: Edge | Sum, pre: Edge | Sum, predicted: Product) -> Edge | Sum:
    """Product post · pre with the predicted structure and number of multiplications."""
    products = None
    if isinstance(post, Sum) and isinstance(pre, Edge):
        pairs = [(term, pre) for term in post.terms]
        products = _free(pairs, pre, predicted)
    elif isinstance(pre, Sum) and isinstance(post, Edge):
        pairs = [(post, term) for term in pre.terms]
        products = _free(pairs, post, predicted)
    if products is not None:
        return Sum(predicted.structure, _collected(products))
    return edge_product.multiply(formed(post), formed(pre))


def _free(pairs: Sequence[tuple[Edge, Edge]], other: Edge, predicted: Product) -> list[Edge] | None:
    """Products of the terms with a unit edge of known places; None unless all cost nothing."""
    if not other.structure.unit or (other.link is not None and not edge.is_known(other)):
        return None
    if predicted.structure.unit or predicted.structure.link is not Link.NONE:
        return None
    if any(multiply_structures(p.structure, q.structure).multiplications for p, q in pairs):
        return None
    return [edge_product.multiply(p, q) for p, q in pairs]


def _terms(e: Edge | Sum) -> tuple[Edge, ...]:
    return e.terms if isinstance(e, Sum) else (e,)


def _collected(several: Sequence[Edge]) -> list[Edge]:
    """The terms, those on one line of places merged, links of unknown places dense."""
    merged: dict[object, Edge] = {}
    for e in several:
        if e.link is not None and not edge.is_known(e):
            e = edge.expand_link(e)
        key = terms.line(e)
        if not terms.empty(e):
            merged[key] = terms.merge(merged[key], e) if key in merged else e
    return list(merged.values()) or list(several[:1])


def _formed(several: Sequence[Edge], target: Structure) -> Edge:
    """The sum of terms stored as `target`: selections that do not overlap share one pass."""
    dtypes = [e.dtype if e.values is None else e.values.dtype for e in several]
    dtype = _compat.promoted(*dtypes)
    masked = any(e.mask is not None for e in several)
    several = [edge.with_mask(e) for e in several] if masked else several
    parts: list[Array] = []
    masks: list[Array | None] = []
    selections: dict[object, list[Edge]] = {}
    for e in several:
        if edge.is_known(e):
            axes = e.structure.link_out, e.structure.link_in
            selections.setdefault(axes, []).append(e)
        else:
            whole = edge.expand_to(e, target)
            parts.append(edge.stored_values(whole).astype(dtype))
            masks.append(whole.mask)
    for group in selections.values():
        total, covered = jnp.zeros((), dtype), []
        for e in group:
            mask, values = edge.placed(e, target)
            columns = edge.places(e).columns()
            if any(((columns == other) & (columns >= 0)).any() for other in covered):
                parts.append(total)
                total, covered = jnp.zeros((), dtype), []
            total = edge.select(mask, values.astype(dtype), total)
            covered.append(columns)
            masks.append(mask)
        parts.append(total)
    mask = reduce(masking.either, masks) if masked else None
    return Edge(target, reduce(jnp.add, parts), dtype, mask=mask)
