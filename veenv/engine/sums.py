"""Sums of partials, stored as terms as long as a policy says: what merges, what becomes dense.

The sum of two partials with different structures (a diagonal and a shifted one, say) is dense, and
the algebra counts it so.  Forming it at once would write and read a dense array for every term.
Under the policy `AsCounted` a sum of selections waits: terms with entries in the same places merge,
products with unit edges, which cost nothing, reach every term on its own, and only when the sum
meets values, or at the end, is the dense array made, of all terms at once.  Structures and
multiplications are those of the algebra.  Under `veenv.engine.sparse.indexing.Sparse` terms stay
apart: products distribute over them, and a banded Jacobian keeps one term for each band.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from operator import or_
from typing import Any, Protocol, TypeVar

import jax.numpy as jnp
from jax import Array

from veenv import _compat
from veenv.engine import edge, edge_product
from veenv.engine.edge import (
    Edge,
    align,
    diagonal_pairs,
    either,
    entrywise,
    expand_link,
    is_placed,
    keep_diagonal,
    link_on_out,
    placed,
    places,
    respread,
    select,
    stored_values,
    with_mask,
    with_zeros,
)
from veenv.linear.barrier import pin
from veenv.linear.linear_map import LinearMap, Selection, hull
from veenv.structure import structure as algebra
from veenv.structure.product import Plan, labels_of
from veenv.structure.product import multiply as multiply_structures
from veenv.structure.structure import Link, Structure

Terms = tuple[Edge, ...]


def gathered(terms: Sequence[Edge]) -> tuple[Terms, bool]:
    """Merges terms of one kind, and returns whether they store as much as a dense one.

    Terms on one diagonal are merged where one of them already has values all along it.
    """
    lines: dict[Hashable, list[Edge]] = {}
    for term in merged(terms, kind):
        lines.setdefault(line(term), []).append(term)
    terms_left: list[Edge] = []
    for several in lines.values():
        valued = any(term.structure.link_values for term in several)
        terms_left += [reduce(merge, several)] if valued else several
    s = terms_left[0].structure
    size = prod(s.out_shape) * prod(s.in_shape)
    return tuple(terms_left), len(terms_left) > 1 and sum(map(num_entries, terms_left)) >= size


def merged(terms: Sequence[Edge], key: Callable[[Edge], Hashable]) -> list[Edge]:
    """Merges the terms that may have entries by key; one term if there is none."""
    by_key: dict[Hashable, Edge] = {}
    for term in terms:
        if not empty(term):
            name = key(term)
            by_key[name] = merge(by_key[name], term) if name in by_key else term
    return list(by_key.values()) or [terms[0]]


def evaluated(terms: Sequence[Edge]) -> Sequence[Edge]:
    """Makes operators among terms dense, except along the axes where they are diagonal."""
    return [keep_diagonal(t) if t.structure.link is Link.OPERATOR else t for t in terms]


def absorbed(terms: Sequence[Edge]) -> Sequence[Edge]:
    """Adds terms that have all their places in another one, without link, to it.

    For example, a diagonal is added to blocks on it, and a column of blocks to whole blocks.
    """
    separate: list[Edge] = []
    for t in sorted(terms, key=num_entries, reverse=True):
        for n, larger in enumerate(separate):
            total = algebra.add(larger.structure, t.structure)
            if larger.link is None and total.pairs == larger.structure.pairs:
                separate[n] = edge.add(larger, t)
                break
        else:
            separate.append(t)
    return separate


def empty(e: Edge) -> bool:
    """Returns whether a selection is known to select nothing."""
    return isinstance(e.link, Selection) and not e.link.places.size


def line(e: Edge) -> tuple[Hashable, ...]:
    """Returns a key of terms that may be merged, selections of one diagonal among them."""
    diagonal = e.link.places.line if isinstance(e.link, Selection) else None
    return kind(e) if diagonal is None else (*kind(e)[:-1], diagonal)


def kind(e: Edge) -> tuple[Hashable, ...]:
    """Returns a key of terms that have their entries at the same places."""
    s = e.structure
    key = None if e.link is None else e.link.key
    return (s.pairs, s.link, s.link_out, s.link_in, key)


def num_entries(e: Edge) -> int:
    """Returns the number of places at which a term may have an entry."""
    s = e.structure
    if s.link is Link.SELECTION:
        return prod(entrywise(s).value_shape)
    entries = prod(s.out_shape) * prod(n for j, n in enumerate(s.in_shape) if j not in s.pairs)
    for _, j in diagonal_pairs(e):
        entries //= s.in_shape[j] or 1
    return entries


def merge(a: Edge, b: Edge) -> Edge:
    """Adds two terms of one kind or on one line; valued only along what either is."""
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
    """Returns a term on a longer link of its line, stored as `target`; zero on the rest."""
    x = respread(e, target)
    if isinstance(e.link, Selection) and e.link.key != link.key:
        assert x.values is not None
        link_places = e.link.places if link_on_out(target) else e.link.places.T
        on_part = jnp.asarray(link_places.columns() >= 0)
        on_part = align(on_part, [("link", 0)], labels_of(target))
        mask = None if x.mask is None else x.mask & on_part
        x = replace(x, values=select(on_part, x.values, 0), mask=mask)
    return replace(x, link=link)


E = TypeVar("E")


class Policy(Protocol[E]):
    """The representation of edges in an elimination, and the rule when sums become dense.

    Attributes:
      multiplications: multiplications executed, as far as the policy counts them.
      additions: additions of sums formed at once.
    """

    multiplications: int
    additions: int

    def gather(self, several: Sequence[Edge]) -> E:
        """Returns the sum of parallel partials as one edge."""
        ...

    def multiply(self, post: E, pre: E) -> E:
        """Returns the product post · pre."""
        ...

    def add(self, a: E, b: E) -> E:
        """Returns the sum of two edges between the same nodes."""
        ...

    def left(self, e: E) -> Terms | Any:
        """Returns an edge that remains at the end, as terms, or as entries if sparse."""
        ...

    def terms(self, e: E) -> Terms:
        """Returns an edge as terms."""
        ...

    def stored(self, x: Array, pairs: Sequence[tuple[E, Structure]]) -> E:
        """Returns an array [*out_shape, *in_shape] that stands for a sum of products as an edge.

        `pairs` are the products' left factors, and structures of their right ones.
        """
        ...


class AsCounted:
    """Policy: edges have the structures of the algebra; sums of selections are delayed.

    Attributes:
      wait: False forms every sum at once, which takes as many additions as are counted.
      multiplications: multiplications executed.
      additions: additions with every sum formed at once.
    """

    def __init__(self, *, wait: bool = True):
        self.wait, self.multiplications, self.additions = wait, 0, 0

    def gather(self, several: Sequence[Edge]) -> Edge | Sum:
        """Returns the sum of parallel partials."""
        return reduce(edge.add, several)

    def multiply(self, post: Edge | Sum, pre: Edge | Sum) -> Edge | Sum:
        """Returns the product post · pre, and counts it."""
        plan = multiply_structures(post.structure, pre.structure)
        self.multiplications += plan.multiplications
        self.additions += plan.additions
        return multiply(post, pre, plan)

    def add(self, a: Edge | Sum, b: Edge | Sum) -> Edge | Sum:
        """Returns the sum, and counts it."""
        total = add(a, b) if self.wait else edge.add(formed(a), formed(b))
        self.additions += total.structure.num_values
        return total

    def left(self, e: Edge | Sum) -> Terms:
        """Returns the edge, formed."""
        return (formed(e, last=True),)

    terms = left

    def stored(self, x: Array, pairs: Sequence[tuple[Edge | Sum, Structure]]) -> Edge:
        """Returns the array, stored like the algebra's sum of products."""
        products = [multiply_structures(post.structure, pre).structure for post, pre in pairs]
        s = reduce(algebra.add, products)
        assert s.link is Link.NONE
        x = x.reshape(*s.out_shape, *s.in_shape)
        valued_axes = [*s.out_values, *s.in_values]
        return Edge(s, x[tuple(slice(None) if valued else 0 for valued in valued_axes)], x.dtype)


class Sum:
    """A sum of terms that is not formed yet.

    Attributes:
      structure: structure of the sum as the algebra has it; valued, without link.
      terms: the summands; each can be stored as `structure`.
    """

    def __init__(self, structure: Structure, terms: Sequence[Edge]):
        self.structure = structure
        self.terms = tuple(terms)
        self._formed: Edge | None = None

    def form(self, *, last: bool) -> Edge:
        """Returns the sum as one edge of its structure; formed once, and stored if used further."""
        if self._formed is None:
            whole = _formed(self.terms, self.structure)
            self._formed = whole if last else replace(whole, values=pin(whole.values))
        return self._formed


def formed(e: Edge | Sum, *, last: bool = False) -> Edge:
    """Returns the edge, or the sum as one edge; `last` if it is an end result."""
    return e.form(last=last) if isinstance(e, Sum) else e


def add(a: Edge | Sum, b: Edge | Sum) -> Edge | Sum:
    """Adds two edges or sums; the sum stays unformed if a known selection is among the terms."""
    every = [*_terms(a), *_terms(b)]
    if not any(map(is_placed, every)):
        return edge.add(formed(a), formed(b))
    return Sum(algebra.add(a.structure, b.structure), _collected(every))


def multiply(post: Edge | Sum, pre: Edge | Sum, plan: Plan) -> Edge | Sum:
    """Multiplies post · pre, of a planned structure and number of multiplications."""
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
    """Multiplies terms by a unit edge of known places; None unless all products cost nothing."""
    if not (other.structure.unit and _has_places(other)):
        return None
    if plan.structure.unit or plan.structure.link is not Link.NONE:
        return None
    if any(multiply_structures(p.structure, q.structure).multiplications for p, q in pairs):
        return None
    return [edge_product.multiply(p, q) for p, q in pairs]


def _has_places(e: Edge) -> bool:
    """Returns whether the places of an edge's entries are known when tracing."""
    return e.link is None or is_placed(e)


def _terms(e: Edge | Sum) -> tuple[Edge, ...]:
    return e.terms if isinstance(e, Sum) else (e,)


def _collected(several: Sequence[Edge]) -> list[Edge]:
    """Merges terms on one line of places; makes links of unknown places dense."""
    masked = any(e.mask is not None for e in several)
    several = [with_mask(e) if masked and not _has_places(e) else e for e in several]
    return merged([e if _has_places(e) else expand_link(e) for e in several], line)


def _formed(several: Sequence[Edge], target: Structure) -> Edge:
    """Adds terms, stored as `target`: selections that do not overlap share one pass."""
    dtypes = [e.dtype if e.values is None else e.values.dtype for e in several]
    dtype = _compat.promoted(*dtypes)
    several = with_zeros(several, target)
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
            partners = places(e)
            if any(((partners == other) & (partners >= 0)).any() for other in covered):
                parts.append(total)
                total, covered = jnp.zeros((), dtype), []
            total = select(mask, values.astype(dtype), total)
            covered.append(partners)
            masks.append(mask)
        parts.append(total)
    mask = reduce(either, masks)
    return Edge(target, reduce(jnp.add, parts), dtype, mask=mask)
