"""Partials kept as sums of structured terms, so that sums of different structures stay sparse.

The sum of two partials with different structures (a diagonal and a shifted one, say) is dense in
`veenv.structure.add`.  Here it is a pair of terms: products distribute over them, and terms with
the same structure merge.  A banded Jacobian keeps one term for each band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from veenv import edge
from veenv.edge import Edge
from veenv.edge_product import multiply as multiply_edges
from veenv.structure import Link

Terms = tuple[Edge, ...]


def multiply(post: Terms, pre: Terms) -> Terms:
    """Product of two sums, term by term."""
    return collect([multiply_edges(p, q) for p in post for q in pre])


def add(a: Terms, b: Terms) -> Terms:
    """Sum of two sums."""
    return collect([*a, *b])


def collect(terms: Sequence[Edge]) -> Terms:
    """Merges terms of one structure; all of them if together they store as much as a dense one."""
    merged: dict[object, Edge] = {}
    for term in terms:
        if empty(term):
            continue
        key = kind(term)
        merged[key] = _merge(merged[key], term) if key in merged else term
    kept = tuple(merged.values())
    if not kept and terms:
        kept = (terms[0],)
    s = kept[0].structure
    if len(kept) > 1 and sum(map(_entries, kept)) >= prod(s.out_shape) * prod(s.in_shape):
        return (reduce(edge.add, kept),)
    return kept


def empty(e: Edge) -> bool:
    """Whether a selection is known to select nothing."""
    return e.link is not None and getattr(e.link.name, "size", 1) == 0


def kind(e: Edge) -> tuple[object, ...]:
    """What two terms must share to be merged: the places of their entries."""
    s = e.structure
    name = None if e.link is None else e.link.name
    return (s.pairs, s.link, s.link_out, s.link_in, name)


def _entries(e: Edge) -> int:
    """Number of places at which a term has an entry (an operator may have one anywhere)."""
    s = e.structure
    entries = prod(s.out_shape) * prod(n for j, n in enumerate(s.in_shape) if j not in s.pairs)
    if s.link is Link.SELECTION:
        out_size, in_size = s.linked_sizes
        if not out_size * in_size:
            return 0
        entries = entries // (out_size * in_size) * min(out_size, in_size)
    return entries


def _merge(a: Edge, b: Edge) -> Edge:
    """Sum of two terms with entries in the same places."""
    if a.link is None:
        return edge.add(a, b)
    if a.structure.link is Link.OPERATOR:
        if a.structure == b.structure and a.values is not None and b.values is not None:
            return edge.add_values(a, b)
        return edge.add(a, b)
    return edge.add_values(_valued_link(a), _valued_link(b))


def _valued_link(e: Edge) -> Edge:
    """The term with every free axis and the link valued, so that values line up."""
    s = e.structure
    target = replace(
        s,
        out_values=tuple(k not in s.link_out for k in range(len(s.out_shape))),
        in_values=tuple(j not in s.link_in and j not in s.pairs for j in range(len(s.in_shape))),
        link_values=s.link_size > 1,
        unit=False,
    )
    return replace(edge.respread(e, target), link=e.link)
