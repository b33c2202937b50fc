"""How the partials of one equation are found: by a rule, its own rule's program, or JAX."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from veenv import _compat, rules
from veenv.graph.custom_rules import (
    LINEAR,
    CapturedValueError,
    Cotangents,
    Inner,
    cotangent_rules,
    definition,
    inner_program,
    proven,
)
from veenv.graph.graph import LABELLINGS
from veenv.graph.tableau import eliminate_structure
from veenv.rules import Partial, Row, Site
from veenv.rules.dtypes import is_complex, real_shape
from veenv.rules.passes import is_forward_only
from veenv.structure import structure as algebra
from veenv.structure.structure import Structure


@dataclass(frozen=True)
class Within:
    """What a program is a part of.

    Attributes:
      rules: the definitions of the functions whose own derivative rules it is a part of.
      body: it is (a part of) the body of an equation, whose operands all count as variables.
      plain: it is seen as a linear function, not through derivative rules.
    """

    rules: frozenset[Hashable] = frozenset()
    body: bool = False
    plain: bool = False


ALONE = Within()
"""Nothing: a program of its own."""


@dataclass(frozen=True)
class Custom:
    """A custom rule's linear program, and its `Linearisation`."""

    inner: Inner
    linearisation: Any

    def nodes(self, result: int, operand: int) -> tuple[int, int | None]:
        """The (source, target) nodes of its graph that stand for a partial; None: it is zero."""
        graph = self.linearisation.graph
        at, operand = self.inner.results.index(result), self.inner.operands.index(operand)
        source, output = (at, operand) if self.inner.backward else (operand, at)
        return source, graph.outputs[output]


@dataclass(frozen=True)
class EquationPartials:
    """The partials of one equation.

    Attributes:
      site: the equation; None if no operand depends on an input.
      rows: for each result, for each operand its partial; none without a site.
      custom: the rule of its own that gives them, if any.
      cotangents: what is proven of its cotangent rule; the partials stand for one that is not
        linear.
      refused: its rule would not be applied to all its results; the partials stand for what it
        gives for those that are asked for.
    """

    site: Site | None = None
    rows: Sequence[Row] = ()
    custom: Custom | None = None
    cotangents: Cotangents = LINEAR
    refused: bool = False

    @property
    def reverse_only(self) -> bool:
        """Whether the partials stand for a rule that not every order can apply."""
        return not self.cotangents.linear

    def pairs(self) -> Iterator[tuple[int, int, Partial]]:
        """(result, operand, partial) of every partial."""
        for k, row in enumerate(self.rows):
            yield from ((k, i, p) for i, p in enumerate(row) if p is not None)

    def moved(self) -> Iterator[int]:
        """The results that JAX has a tangent for: those of a rule of its own even if it is zero.

        A tangent rule that is told of zeros says itself which of its results have none.
        """
        if self.site is not None:
            own = self.site.primitive, self.site.params
            kind = _compat.own_rule(*own)
            if kind == "vjp" or (kind == "jvp" and not _compat.sees_symbolic_zeros(*own)):
                yield from self.site.results
        yield from (k for k, _, _ in self.pairs())

    def inner(self, result: int, operand: int) -> tuple[int, int] | None:
        """The nodes of the custom rule's graph that a partial is the total edge between."""
        if self.custom is None:
            return None
        source, target = self.custom.nodes(result, operand)
        assert target is not None
        return source, target


def find_partials(site: Site, within: Within, linearise: Callable[..., Any]) -> EquationPartials:
    """The partials of an equation, through its own derivative rule where that has structure.

    Args:
      site: the equation.
      within: what it is a part of.
      linearise: (program, within=...) → its `Linearisation`.
    """
    try:
        inner = _inner(site, within)
    except CapturedValueError:
        raise
    except Exception:
        # A user's rule may refuse, with any exception, cotangents of results that nobody uses.
        if site.wanted is not None:
            raise
        return EquationPartials(site, _dense_rows(site), refused=True)
    known = LINEAR
    if inner is not None:
        known = proven(inner)
        site = replace(site, effects=site.effects or known.effects)
        if known.linear and not any(is_complex(a) for a in (*site.in_avals, *site.out_avals)):
            inside = replace(within, rules=within.rules | {definition(site)})
            custom = Custom(inner, linearise(inner.program, within=inside))
            rows = _custom_rows(site, custom)
            if rows is not None:
                return EquationPartials(site, rows, custom)
    elif not within.body and rules.find(site.primitive.name) is None:
        known = cotangent_rules(site)
        site = replace(site, effects=site.effects or known.effects)
        if site.effects and known.linear and is_forward_only(site):
            known = Cotangents(linear=False, forward=True)
    if known.linear or within.body:
        return EquationPartials(site, rules.partials(site))
    return EquationPartials(site, _dense_rows(site), cotangents=known)


def narrowed(
    found: EquationPartials, wanted: Sequence[bool], within: Within, linearise: Callable[..., Any]
) -> EquationPartials:
    """The partials of some results alone.

    A rule may see which of its results are asked for (`symbolic_zeros`), and need not pull back
    what is not.
    """
    site = found.site
    if site is None or rules.find(site.primitive.name) or not any(wanted):
        return found
    if all(wanted[k] for k in site.results) and not found.refused:
        return found
    return find_partials(replace(site, wanted=wanted), within, linearise)


def _dense_rows(site: Site) -> list[list[Partial | None]]:
    """What stands in a graph for a rule that is not linear: a full matrix for each partial."""
    rows: list[list[Partial | None]] = [[None] * len(site.in_avals) for _ in site.out_avals]
    for k in site.results:
        for i in site.operands:
            out = real_shape(site.out_avals[k], realify=site.realify)
            shape = real_shape(site.in_avals[i], realify=site.realify)
            if prod(out) and prod(shape):
                full = algebra.dense(out, shape)
                rows[k][i] = Partial(full, full)
    return rows


def _inner(site: Site, within: Within) -> Inner | None:
    """The program of a rule that comes with the function; None for one met inside itself.

    A body does not say which of its operands are constant, so all count as variables there, and a
    user's rule may refuse those that nobody differentiates by, with any exception.
    """
    if rules.find(site.primitive.name) or definition(site) in within.rules:
        return None
    try:
        return inner_program(site)
    except CapturedValueError:
        raise
    except Exception:
        if not within.body:
            raise
        return None


def _custom_rows(site: Site, custom: Custom) -> list[list[Partial | None]] | None:
    """The partials a custom rule's graph comes to; None if they are better left an operator."""
    graph = custom.linearisation.graph
    left = {}
    for cost in LABELLINGS:
        tableau = graph.tableau(cost)
        for vertex in graph.reverse():
            node = graph.node(vertex)
            eliminate_structure(tableau, node, keep=node in graph.output_nodes)
        left[cost] = tableau.preds
    rows: list[list[Partial | None]] = [[None] * len(site.in_avals) for _ in site.out_avals]
    for k in custom.inner.results:
        for i in custom.inner.operands:
            source, target = custom.nodes(k, i)
            if target is None:
                continue
            if source == target:  # the rule passes a tangent on
                unit = algebra.diagonal(site.in_avals[i].shape, valued=False)
                executed = literature = unit
            elif source in left["executed"][target]:
                executed = left["executed"][target][source]
                literature = left["multiplications"][target][source]
            else:
                continue
            if custom.inner.backward:
                executed, literature = map(algebra.transpose, (executed, literature))
            if not _worthwhile(executed):
                return None
            rows[k][i] = Partial(executed, literature)
    return rows


def _worthwhile(s: Structure) -> bool:
    """Whether storing this structure is no more than a few numbers for each entry."""
    return s.num_values <= 4 * max(prod(s.out_shape), prod(s.in_shape))
