"""Sums kept as structured terms: which terms merge, and into what.

The sum of two partials with different structures (a diagonal and a shifted one, say) is dense in
`veenv.structure.add`.  Here it is a pair of terms: products distribute over them, and terms with
the same structure merge.  A banded Jacobian keeps one term for each band.  When a sum becomes dense
after all is the matter of `veenv.engine.sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from operator import or_

import jax.numpy as jnp

from veenv.engine import edge
from veenv.engine.links import diagonal_pairs, keep_diagonal, link_on_out
from veenv.engine.masking import select
from veenv.engine.stored import Edge, respread, with_mask
from veenv.linear.linear_map import LinearMap
from veenv.linear.selection import Selection, hull
from veenv.structure import structure as algebra
from veenv.structure.contraction import labels_of
from veenv.structure.structure import Link, Structure

Terms = tuple[Edge, ...]


def gathered(terms: Sequence[Edge]) -> tuple[Terms, bool]:
    """Merges terms of one kind, and says whether together they store as much as a dense one.

    Terms on one diagonal are merged where one of them has values all along it already.
    """
    lines: dict[Hashable, list[Edge]] = {}
    for term in merged(terms, kind):
        lines.setdefault(line(term), []).append(term)
    kept: list[Edge] = []
    for several in lines.values():
        valued = any(term.structure.link_values for term in several)
        kept += [reduce(merge, several)] if valued else several
    s = kept[0].structure
    size = prod(s.out_shape) * prod(s.in_shape)
    return tuple(kept), len(kept) > 1 and sum(map(num_entries, kept)) >= size


def merged(terms: Sequence[Edge], key: Callable[[Edge], Hashable]) -> list[Edge]:
    """The terms that may have entries, those with equal keys as one; one term if there is none."""
    found: dict[Hashable, Edge] = {}
    for term in terms:
        if not empty(term):
            name = key(term)
            found[name] = merge(found[name], term) if name in found else term
    return list(found.values()) or [terms[0]]


def evaluated(terms: Sequence[Edge]) -> Sequence[Edge]:
    """The terms with operators made dense but for the axes along which they are diagonal."""
    operator = Link.OPERATOR
    return [keep_diagonal(t) if t.structure.link is operator else t for t in terms]


def absorbed(terms: Sequence[Edge]) -> Sequence[Edge]:
    """The terms that have all their places in another one, without link, are added to it.

    A diagonal and blocks on it are blocks, and so are columns of blocks and whole blocks.
    """
    kept: list[Edge] = []
    for t in sorted(terms, key=num_entries, reverse=True):
        for n, larger in enumerate(kept):
            total = algebra.add(larger.structure, t.structure)
            if larger.link is None and total.pairs == larger.structure.pairs:
                kept[n] = edge.add(larger, t)
                break
        else:
            kept.append(t)
    return kept


def empty(e: Edge) -> bool:
    """Whether a selection is known to select nothing."""
    return isinstance(e.link, Selection) and not e.link.places.size


def line(e: Edge) -> tuple[Hashable, ...]:
    """What two terms must share to be merged, where selections of one diagonal may be joined."""
    found = e.link.places.line if isinstance(e.link, Selection) else None
    return kind(e) if found is None else (*kind(e)[:-1], found)


def kind(e: Edge) -> tuple[Hashable, ...]:
    """What two terms must share to be merged: the places of their entries."""
    s = e.structure
    key = None if e.link is None else e.link.key
    return (s.pairs, s.link, s.link_out, s.link_in, key)


def num_entries(e: Edge) -> int:
    """Number of places at which a term may have an entry."""
    s = e.structure
    entries = prod(s.out_shape) * prod(n for j, n in enumerate(s.in_shape) if j not in s.pairs)
    if s.link is Link.SELECTION:
        out_size, in_size = s.linked_sizes
        if not out_size * in_size:
            return 0
        return entries // (out_size * in_size) * min(out_size, in_size)
    for _, j in diagonal_pairs(e):
        entries //= s.in_shape[j] or 1
    return entries


def merge(a: Edge, b: Edge) -> Edge:
    """Sum of two terms of one kind or on one line; valued only along what either is."""
    if a.mask is not None or b.mask is not None:
        a, b = with_mask(a), with_mask(b)
    if a.link is None or b.link is None:
        return edge.add(a, b)
    s, t = a.structure, b.structure
    if s.link is Link.OPERATOR:
        if s == t and a.values is not None and b.values is not None:
            return edge.add_values(a, b)
        return edge.add(keep_diagonal(a), keep_diagonal(b))
    link, same = a.link, a.link.key == b.link.key
    if not same:
        assert isinstance(link, Selection)
        assert isinstance(b.link, Selection)
        link = replace(link, places=hull(link.places, b.link.places))
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
    x = respread(e, target)
    if isinstance(e.link, Selection) and e.link.key != link.key:
        assert x.values is not None
        places = e.link.places
        own = (places if link_on_out(target) else places.T).columns() >= 0
        shape = [
            n if a == ("link", 0) else 1
            for a, n in zip(labels_of(target), x.values.shape, strict=True)
        ]
        own = jnp.asarray(own).reshape(shape)
        mask = None if x.mask is None else x.mask & own
        x = replace(x, values=select(own, x.values, 0), mask=mask)
    return replace(x, link=link)
