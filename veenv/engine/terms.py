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
from operator import or_

import jax.numpy as jnp

from veenv.engine import edge
from veenv.engine.edge import Edge
from veenv.engine.product import multiply as multiply_edges
from veenv.linear.linear_map import LinearMap, selection
from veenv.linear.selection import hull
from veenv.structure.structure import Link, Structure

Terms = tuple[Edge, ...]


def multiply(post: Terms, pre: Terms) -> Terms:
    """Product of two sums, term by term."""
    return collect([multiply_edges(p, q, keep=True) for p in post for q in pre])


def add(a: Terms, b: Terms) -> Terms:
    """Sum of two sums."""
    return collect([*a, *b])


def collect(terms: Sequence[Edge]) -> Terms:
    """Merges terms of one kind; all of them if together they store as much as a dense one.

    Terms on one diagonal are merged where one of them has values all along it already.
    """
    merged: dict[object, Edge] = {}
    for term in terms:
        if empty(term):
            continue
        key = kind(term)
        merged[key] = merge(merged[key], term) if key in merged else term
    lines: dict[object, list[Edge]] = {}
    for term in merged.values():
        lines.setdefault(line(term), []).append(term)
    kept: list[Edge] = []
    for several in lines.values():
        valued = any(term.structure.link_values for term in several)
        kept += [reduce(merge, several)] if valued else several
    kept = kept or [terms[0]]
    s = kept[0].structure
    if len(kept) > 1 and sum(map(_entries, kept)) >= prod(s.out_shape) * prod(s.in_shape):
        if any(term.structure.link is Link.OPERATOR for term in kept):
            return collect(evaluated(kept))
        return (reduce(edge.add, kept),)
    return tuple(kept)


def evaluated(terms: Sequence[Edge]) -> Sequence[Edge]:
    """The terms with operators made dense but for the axes along which they are diagonal."""
    operator = Link.OPERATOR
    return [edge.keep_diagonal(t) if t.structure.link is operator else t for t in terms]


def empty(e: Edge) -> bool:
    """Whether a selection is known to select nothing."""
    return e.link is not None and getattr(e.link.name, "size", 1) == 0


def line(e: Edge) -> tuple[object, ...]:
    """What two terms must share to be merged, where selections of one diagonal may be joined."""
    found = getattr(e.link.name, "line", None) if e.link is not None else None
    return kind(e) if found is None else (*kind(e)[:-1], found)


def kind(e: Edge) -> tuple[object, ...]:
    """What two terms must share to be merged: the places of their entries."""
    s = e.structure
    name = None if e.link is None else e.link.name
    return (s.pairs, s.link, s.link_out, s.link_in, name)


def _entries(e: Edge) -> int:
    """Number of places at which a term may have an entry."""
    s = e.structure
    entries = prod(s.out_shape) * prod(n for j, n in enumerate(s.in_shape) if j not in s.pairs)
    if s.link is Link.SELECTION:
        out_size, in_size = s.linked_sizes
        if not out_size * in_size:
            return 0
        return entries // (out_size * in_size) * min(out_size, in_size)
    for _, j in edge.diagonal_pairs(e):
        entries //= s.in_shape[j] or 1
    return entries


def merge(a: Edge, b: Edge) -> Edge:
    """Sum of two terms of one kind or on one line; valued only along what either is."""
    if a.mask is not None or b.mask is not None:
        a, b = edge.with_mask(a), edge.with_mask(b)
    if a.link is None or b.link is None:
        return edge.add(a, b)
    s, t = a.structure, b.structure
    if s.link is Link.OPERATOR:
        if s == t and a.values is not None and b.values is not None:
            return edge.add_values(a, b)
        return edge.add(edge.keep_diagonal(a), edge.keep_diagonal(b))
    link, same = a.link, a.link.name == b.link.name
    if not same:
        link = selection(hull(edge.places(a), edge.places(b)), link.out_shape, link.in_shape)
    target = replace(
        s,
        out_values=tuple(map(or_, s.out_values, t.out_values)),
        in_values=tuple(map(or_, s.in_values, t.in_values)),
        link_values=s.link_values or t.link_values or not same,
        unit=False,
    )
    return edge.add_values(*(_stretched(e, target, link) for e in (a, b)))


def _stretched(e: Edge, target: Structure, link: LinearMap) -> Edge:
    """A term stored as `target` on a link whose line it has a part of; zero on the rest."""
    assert e.link is not None
    x = edge.respread(e, target)
    if e.link.name != link.name:
        assert x.values is not None
        places = edge.places(e)
        own = (places if edge.link_on_out(target) else places.T).columns() >= 0
        shape = [
            n if a == ("link", 0) else 1
            for a, n in zip(edge.labels_of(target), x.values.shape, strict=True)
        ]
        own = jnp.asarray(own).reshape(shape)
        mask = None if x.mask is None else x.mask & own
        x = replace(x, values=edge.select(own, x.values, 0), mask=mask)
    return replace(x, link=link)
