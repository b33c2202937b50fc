"""Axes along which an operator is diagonal: batch axes, mostly.

A primitive without a rule is one operator over all axes.  Along some of them it may still be a
separate map for every index: a decomposition of a batch of matrices, a loop over a batch of states.
Primitives with batch axes of their own have them by name (`veenv.rules.batch_axes`).  Loops,
branches and solves have them if their bodies do: an axis is followed from an operand through the
partials of the body, around the loop, to a result, and must stay one axis on every way.

Axes are numbered as in a structure, those of size one left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from veenv.graph.flow import FLOWS, BodyOf, Flow, forwards, reachable
from veenv.rules.base import Pairs, Site, find
from veenv.rules.batch_axes import CHOOSE, NAMED
from veenv.rules.dtypes import is_complex
from veenv.structure.structure import FREE


@dataclass(frozen=True)
class Ways:
    """Where the axes of one operand come to.

    Attributes:
      reached: the nodes that depend on the operand.
      mixed: those that do so through a step before their own.
      labels: for each axis of the operand, the one axis of every node that it is paired with, or
        None.
    """

    reached: set[int]
    mixed: set[int]
    labels: Sequence[Mapping[int, int | None]]


def diagonal_axes(site: Site, body: BodyOf) -> Callable[[int, int], Pairs | None]:
    """Finds the axes along which the partials of an equation, left as operators, are diagonal.

    Args:
      site: the equation.
      body: gives the partials inside a closed jaxpr.

    Returns:
      A function of the numbers of a result and of an operand. It gives (out axis, in axis) pairs:
      the partial is zero wherever the indices of a pair differ; None if it is zero everywhere.
    """
    name = site.primitive.name
    if name in FLOWS:
        flow = cache(lambda: _flow(site, body))
        ways = cache(lambda operand: _ways(flow(), operand, _rank(site, operand)))
        return lambda result, operand: _followed(flow(), operand, result, ways)
    rule = find(name)
    if rule is None or name in NAMED:
        return lambda result, operand: _named(site, result, operand)
    rows = cache(lambda: rule(replace(site, diagonal=None)))

    def of_rule(result: int, operand: int) -> Pairs:
        """The δs of real arrays: complex ones have an axis more, behind all others."""
        p = rows()[result][operand]
        pairs = () if p is None else enumerate(p.executed.pairs)
        return tuple((k, j) for k, j in pairs if j != FREE)

    return of_rule


def _named(site: Site, result: int, operand: int) -> Pairs | None:
    name = site.primitive.name
    if name in CHOOSE and operand:
        return None
    named = NAMED.get(name)
    out, shape = site.out_avals[result].shape, site.in_avals[operand].shape
    found = [] if named is None else named(site, result, operand)
    return tuple(
        (_squeezed(out, k), _squeezed(shape, j)) for k, j in found if out[k] == shape[j] != 1
    )


def _squeezed(shape: Sequence[int], axis: int) -> int:
    """Number of an axis when those of size one are left out."""
    return sum(n != 1 for n in shape[:axis])


def _rank(site: Site, operand: int) -> int:
    """Number of axes of an operand that are not of size one, the parts of complex ones included."""
    aval = site.in_avals[operand]
    return sum(n != 1 for n in aval.shape) + (site.realify and is_complex(aval))


def _flow(site: Site, body: BodyOf) -> Flow | None:
    """How derivatives flow through a body; None if that cannot be found.

    A body does not say which of its operands are constant, so all count as variables here, and a
    primitive may have no derivative by those that nobody differentiates by.
    """
    try:
        return FLOWS[site.primitive.name](site, body)
    except NotImplementedError:
        return None


def _ways(flow: Flow | None, operand: int, rank: int) -> Ways:
    """Follows each axis of an operand."""
    if flow is None or operand not in flow.operands:
        return Ways(set(), set(), [])
    source, more = flow.operands[operand]
    ways = forwards(flow.moves)
    reached = reachable(ways, [source])
    mixed = reachable(ways, reached & flow.carried)
    labels: list[dict[int, int | None]] = [{}] * more
    for axis in range(rank - more):
        at: dict[int, int | None] = {source: axis}
        front = [source]
        while front:
            here = front.pop()
            for w, pairs in ways.get(here, ()):
                label = at[here]
                paired = None if label is None else pairs.get(label)
                if w not in at or (at[w] is not None and at[w] != paired):
                    at[w] = None if w in at else paired
                    front.append(w)
        labels.append(at)
    return Ways(reached, mixed, labels)


def _followed(
    flow: Flow | None, operand: int, result: int, ways_of: Callable[[int], Ways]
) -> Pairs | None:
    """The pairs of a result's axes with an operand's; None if nothing goes from here to there."""
    if flow is None:
        return ()
    ways = ways_of(operand)
    target, more = flow.results.get(result, (None, 0))
    if target is None or target not in ways.reached:
        return None
    labels = ((axis, at.get(target)) for axis, at in enumerate(ways.labels))
    found = [(label + more, axis) for axis, label in labels if label is not None]
    if more and flow.operands[operand][1] and target not in ways.mixed:
        found.insert(0, (0, 0))  # each step has its own entry of both
    return tuple(found)
