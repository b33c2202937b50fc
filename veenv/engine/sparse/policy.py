"""The policy of a sparse elimination: sums of structured terms, or entries at known places."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np
from jax import Array

from veenv import limits
from veenv.engine import edge, edge_product, sums
from veenv.engine.edge import Edge
from veenv.engine.sparse import entries
from veenv.engine.sparse.entries import Indexed
from veenv.engine.sparse.pattern import num_meetings, placed
from veenv.engine.sparse.summands import term
from veenv.engine.sums import Terms
from veenv.structure import structure as algebra
from veenv.structure.structure import Link, Structure


class Sparse:
    """Edges are terms, over which products distribute, or entries where terms would be too many.

    Attributes:
      multiplications: not counted.
      additions: not counted.
    """

    multiplications = additions = 0

    def gather(self, several: Sequence[Edge]) -> Terms | Indexed:
        """The terms, merged."""
        return collected(several)

    def multiply(self, post: Terms | Indexed, pre: Terms | Indexed) -> Terms | Indexed:
        """Every product of two terms, merged; of entries where one factor has them."""
        if isinstance(post, Indexed) or isinstance(pre, Indexed):
            left, right = _entries(post), _entries(pre)
            if left is not None and right is not None and entries.is_light(left, right):
                return entries.multiply_known(left, right)
            post, pre = structured(post), structured(pre)
        products = [_product(p, q) for p in post for q in pre]
        several: list[Terms | Indexed] = [x for x in products if isinstance(x, Indexed)]
        kept = [x for x in products if not isinstance(x, Indexed)]
        several += [collected(kept)] if kept else []
        return reduce(self.add, several)

    def add(self, a: Terms | Indexed, b: Terms | Indexed) -> Terms | Indexed:
        """The terms of both, merged."""
        if isinstance(a, Indexed) or isinstance(b, Indexed):
            left, right = _entries(a), _entries(b)
            if left is not None and right is not None:
                return entries.add(left, right)
            a, b = structured(a), structured(b)
        return collected([*a, *b])

    def left(self, e: Terms | Indexed) -> Terms | Indexed:
        """The edge as it is."""
        return e

    def terms(self, e: Terms | Indexed) -> Terms:
        """The edge, of which entries become one dense term."""
        return structured(e)

    def stored(self, x: Array, pairs: Sequence[tuple[Terms | Indexed, Structure]]) -> Terms:
        """The array as one dense term."""
        (post, *_), pre = structured(pairs[0][0]), pairs[0][1]
        s = algebra.dense(post.structure.out_shape, pre.in_shape)
        return (Edge(s, x.reshape(s.value_shape), x.dtype),)


def _product(p: Edge, q: Edge) -> Edge | Indexed:
    """The product of two terms; as entries where it would store zeros that a selection has."""
    product = edge_product.multiply(p, q, keep=True)
    links = {e.structure.link for e in (p, q)}
    stored = sums.num_entries(product)
    selects = Link.SELECTION in links and Link.OPERATOR not in links
    more = product.structure.link is Link.NONE or stored > max(map(sums.num_entries, (p, q)))
    if not selects or not more or stored > limits.TABLE:
        return product
    out_shape, in_shape = product.structure.out_shape, product.structure.in_shape
    between = p.structure.in_shape
    left, right = (
        entries.known_of_edge(p, out_shape, between),
        entries.known_of_edge(q, between, in_shape),
    )
    if left is None or right is None or not entries.is_light(left, right):
        return product
    thin = num_meetings(left.pattern, right.pattern) <= limits.MOSTLY * stored
    return entries.multiply_known(left, right) if thin else product


def collected(several: Sequence[Edge]) -> Terms | Indexed:
    """Terms merged; as entries, or one dense term, if together they would store as much as that."""
    kept, full = sums.gathered(several)
    if not full:
        return kept
    if any(t.structure.link is Link.OPERATOR for t in kept):
        return collected(sums.evaluated(kept))
    return _union(kept) or (reduce(edge.add, kept),)


def _union(kept: Terms) -> Indexed | None:
    """The sum of terms as entries; None if it is dense, or has places that are computed."""
    s = kept[0].structure
    size = prod(s.out_shape) * prod(s.in_shape)
    if size > limits.TABLE or any(sums.num_entries(t) >= limits.FULL * size for t in kept):
        return None
    found = [term(t).coordinates() for t in kept]
    there = np.zeros(size, bool)
    width = prod(s.in_shape)
    for places in found:
        if places is None:
            return None
        rows, cols = places
        at = rows.astype(np.int64) * width + cols
        there[at[(rows >= 0) & (cols >= 0)]] = True
    return _entries(kept) if np.count_nonzero(there) < limits.FULL * size else None


def _entries(e: Terms | Indexed) -> Indexed | None:
    """An edge as entries; None where places are computed."""
    if isinstance(e, Indexed):
        return e
    s = e[0].structure
    if sum(map(sums.num_entries, e)) > limits.TABLE:
        return None
    found = [entries.known_of_edge(t, s.out_shape, s.in_shape) for t in sums.evaluated(e)]
    known = [x for x in found if x is not None]
    return entries.total_known(known) if len(known) == len(found) else None


def structured(e: Terms | Indexed) -> Terms:
    """An edge as terms: entries become one dense term."""
    if not isinstance(e, Indexed):
        return e
    p = e.pattern
    s = algebra.dense(p.out_shape, p.in_shape)

    def dense(x: Array) -> Array:
        return placed(x, p).reshape(s.value_shape)

    mask = None if e.mask is None else dense(e.mask)
    return (Edge(s, dense(e.stored().astype(e.dtype)), e.dtype, mask=mask),)
