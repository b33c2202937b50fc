"""Linearises a traced program: finds its elemental partials and builds its graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from math import prod
from typing import Any

import jax
from jax.extend import core

from veenv import _compat, limits, rules
from veenv.graph.custom_rules import (
    LINEAR,
    CapturedValueError,
    Cotangents,
    Inner,
    RuleShapeError,
    cotangent_rules,
    definition,
    inner_program,
    proven,
    shape_of,
)
from veenv.graph.diagonal import Body, diagonal_axes
from veenv.graph.graph import LABELLINGS, Graph
from veenv.graph.precedence import ReverseOnly
from veenv.graph.program import (
    Equation,
    Program,
    hiding_aux,
    plain_argnums,
    refuse_symbolic,
    trace,
)
from veenv.graph.tableau import eliminate_counted
from veenv.rules import Partial, Row, Site
from veenv.rules.base import is_complex, is_differentiable, real_shape, signature
from veenv.rules.passes import is_forward_only
from veenv.structure import structure as algebra
from veenv.structure.structure import FREE, Structure

OF_TRACING = jax.errors.UnexpectedTracerError, RuleShapeError
"""Errors of derivative rules that may work if the function is traced in another way."""


@dataclass(frozen=True)
class Within:
    """The context of a program: the custom rules and the equation body that it is part of."""

    # definitions of the functions whose custom rules contain the program
    rules: frozenset[Hashable] = frozenset()
    # the program is (a part of) an equation's body, whose operands all count as variables
    body: bool = False
    plain: bool = False  # treat it as a linear function and ignore derivative rules


ALONE = Within()
"""A program that is part of nothing else."""


@dataclass(frozen=True)
class Custom:
    """A custom rule's linear program, and its `Linearisation`."""

    inner: Inner
    linearisation: Any

    def nodes(self, result: int, operand: int) -> tuple[int, int | None]:
        """Returns the (source, target) nodes of a partial in its graph; target None: it is zero."""
        graph = self.linearisation.graph
        at, operand = self.inner.results.index(result), self.inner.operands.index(operand)
        source, output = (at, operand) if self.inner.backward else (operand, at)
        return source, graph.outputs[output]


@dataclass(frozen=True)
class EquationPartials:
    """The partials of one equation."""

    site: Site | None = None  # the equation; None if no operand depends on an input
    rows: Sequence[Row] = ()  # for each result, for each operand its partial; none without a site
    custom: Custom | None = None  # the custom rule that gives them, if any
    followed: Custom | None = None  # its program, even if the partials stay operators
    # proven properties of its cotangent rule; if not linear, the partials stand for the rule
    cotangents: Cotangents = LINEAR
    # its rule raised an error for all results together; the partials stand for those of the wanted
    # results
    refused: bool = False

    @property
    def reverse_only(self) -> bool:
        """True if these stand for a rule that only some orders can apply."""
        return not self.cotangents.linear

    def pairs(self) -> Iterator[tuple[int, int, Partial]]:
        """Yields (result, operand, partial) of every partial."""
        for k, row in enumerate(self.rows):
            yield from ((k, i, p) for i, p in enumerate(row) if p is not None)

    def active_results(self) -> Iterator[int]:
        """Yields the results with a tangent in JAX: a custom rule's even if it is zero.

        A tangent rule that is told of zeros says itself which of its results have none.
        """
        if self.site is not None:
            call = self.site.primitive, self.site.params
            kind = _compat.own_rule(*call)
            if kind == "vjp" or (kind == "jvp" and not _compat.sees_symbolic_zeros(*call)):
                yield from self.site.results
        yield from (k for k, _, _ in self.pairs())

    def inner(self, result: int, operand: int) -> tuple[int, int] | None:
        """Returns the nodes of the custom rule's graph whose total edge is the partial."""
        if self.followed is None:
            return None
        source, target = self.followed.nodes(result, operand)
        return None if target is None else (source, target)


def find_partials(site: Site, within: Within, linearise: Callable[..., Any]) -> EquationPartials:
    """Finds an equation's partials, through its custom derivative rule where that has structure."""
    try:
        inner = _inner(site, within)
    except CapturedValueError:
        raise
    except Exception:
        # A user's rule may raise any exception for cotangents of unused results.
        if site.wanted is not None:
            raise
        return EquationPartials(site, _dense_rows(site), refused=True)
    known, custom = LINEAR, None
    if inner is not None:
        known = proven(inner)
        site = replace(site, effects=site.effects or known.effects)
        numbers = (*site.in_avals, *site.out_avals)
        if known.linear and inner.is_linear and not any(map(is_complex, numbers)):
            inside = replace(within, rules=within.rules | {definition(site)})
            custom = Custom(inner, linearise(inner.program, within=inside))
            rows = _custom_rows(site, custom)
            if rows is not None:
                return EquationPartials(site, rows, custom, custom)
    elif not within.body and rules.find(site.primitive.name) is None:
        known = cotangent_rules(site)
        site = replace(site, effects=site.effects or known.effects)
        if site.effects and known.linear and is_forward_only(site):
            known = Cotangents(linear=False, forward=True)
    if known.linear or within.body:
        return EquationPartials(site, rules.partials(site), followed=custom)
    return EquationPartials(site, _dense_rows(site), cotangents=known)


def narrowed(
    partials: EquationPartials,
    wanted: Sequence[bool],
    within: Within,
    linearise: Callable[..., Any],
) -> EquationPartials:
    """Returns the partials of the wanted results alone.

    A rule may see which of its results are asked for (`symbolic_zeros`), and need not pull back
    what is not.
    """
    site = partials.site
    if site is None or rules.find(site.primitive.name) or not any(wanted):
        return partials
    if all(wanted[k] for k in site.results) and not partials.refused:
        return partials
    return find_partials(replace(site, wanted=wanted), within, linearise)


def _dense_rows(site: Site) -> list[list[Partial | None]]:
    """Returns full matrices as partials: they stand in a graph for a rule that is not linear."""
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
    """Returns a custom rule's program; None without such a rule, and inside the rule itself.

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
    """Reduces a custom rule's graph to partials; None if they are better left an operator."""
    graph = custom.linearisation.graph
    left = {}
    for cost in LABELLINGS:
        tableau = graph.tableau(cost)
        for vertex in graph.reverse():
            node = graph.node(vertex)
            eliminate_counted(tableau, node, keep=node in graph.output_nodes)
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
    """Returns whether storing this structure takes no more than a few numbers for each entry."""
    return s.num_values <= limits.THIN * max(prod(s.out_shape), prod(s.in_shape))


@dataclass(frozen=True)
class Elemental:
    """One elemental partial: of node `target` by node `source`.

    `inner` is the (source, target) pair of the custom rule's graph whose total edge it is; None
    without one, and where the rule gives nothing.
    """

    source: int
    target: int
    partial: Partial
    inner: tuple[int, int] | None = None


@dataclass(frozen=True)
class Linearisation:
    """A program with the elemental partials that lie on a path from an input to an output."""

    program: Program  # the traced program
    elementals: tuple[tuple[Elemental, ...], ...]  # the needed partials of each equation
    # the custom rule of each equation that gives its partials, if any
    customs: tuple[Custom | None, ...]
    # the same, with rules whose partials stay operators: sparse Jacobians follow those, too
    followed: tuple[Custom | None, ...]
    # position in the graph of each equation's rule, if that is not linear
    reverse_only: tuple[Pulled | None, ...]
    # whether each equation's results and partials must come from one run, as it has effects
    effects: tuple[bool, ...]
    graph: Graph  # the graph of structures
    realify: bool  # complex variables are seen as pairs of real numbers


@dataclass(frozen=True)
class Pulled:
    """An equation whose cotangent rule is not linear, and the rule's nodes in the graph.

    The rule's results and operands are those of the site, in order.
    """

    site: Site
    rule: ReverseOnly


def linearise(
    program: Program, *, holomorphic: bool = False, within: Within = ALONE
) -> Linearisation:
    """Finds the elemental partials of a program and builds its graph, without numeric work.

    Complex variables are pairs of real numbers unless it is `holomorphic`.

    Where a rule closes over what the function computes, the program is traced anew, with values; as
    one equation if the rule then still closes over what is only there while the function runs, or
    gives a tangent of a shape that its function has only while it is differentiated.
    """
    try:
        return _linearised(program, holomorphic, within)
    except OF_TRACING as error:
        refused = error
    for retrace in program.retraces if within == ALONE else program.retraces[:1]:
        with suppress(*OF_TRACING):
            return _linearised(retrace(refused), holomorphic, within)
    raise refused


def _linearised(program: Program, holomorphic: bool, within: Within) -> Linearisation:
    """Linearises a program as it was traced."""
    refuse_symbolic(program)
    node_of = {variable: variable for variable in range(program.num_inputs)}
    node_of.update({s: program.num_inputs + i for i, s in enumerate(program.vertex_variables)})
    active = {s for s in range(program.num_inputs) if is_differentiable(program.avals[s])}
    same = partial(linearise, holomorphic=False)
    partials: list[EquationPartials] = []
    memoised = _Memoised()
    for equation in program.equations:
        site = _site(equation, active, within, realify=not holomorphic)
        if site is None:
            partials.append(EquationPartials())
        else:
            partials.append(memoised(signature(site), partial(find_partials, site, within, same)))
        active_outputs = (equation.outvars[k] for k in partials[-1].active_results())
        active.update(variable for variable in active_outputs if variable is not None)
    outputs = tuple(
        node_of[o] if isinstance(o, int) and o in active else None for o in program.outputs
    )
    needed = {n for n in outputs if n is not None}
    elementals: list[tuple[Elemental, ...]] = []
    for index in reversed(range(len(partials))):
        equation = program.equations[index]
        wanted = [s is not None and node_of[s] in needed for s in equation.outvars]
        narrow = partial(narrowed, partials[index], wanted, within, same)
        partials[index] = memoised((id(partials[index]), *wanted), narrow)
        elementals.append(tuple(_elementals(equation, partials[index], wanted, node_of)))
        needed.update(e.source for e in elementals[-1])
    elementals, outputs = _reached(program, elementals[::-1], outputs)
    pairs = zip(partials, elementals, strict=True)
    partials = [p if used else EquationPartials() for p, used in pairs]
    reverse_only = tuple(
        _reverse_only(equation, p, node_of) if p.reverse_only else None
        for equation, p in zip(program.equations, partials, strict=True)
    )
    return Linearisation(
        program,
        tuple(elementals),
        tuple(p.custom for p in partials),
        tuple(p.followed for p in partials),
        reverse_only,
        tuple(p.site is not None and p.site.effects for p in partials),
        _graph(program, outputs, elementals, reverse_only, not holomorphic),
        not holomorphic,
    )


def _reached(
    program: Program, elementals: Sequence[Sequence[Elemental]], outputs: Sequence[int | None]
) -> tuple[list[tuple[Elemental, ...]], tuple[int | None, ...]]:
    """Keeps the partials and outputs that an input leads to."""
    reached = {*range(program.num_inputs)}
    reachable = []
    for used in elementals:
        reachable.append(tuple(e for e in used if e.source in reached))
        reached.update(e.target for e in reachable[-1])
    return reachable, tuple(n if n in reached else None for n in outputs)


class _Memoised:
    """Memoised search for partials, shared by equal equations unless their rules name a line."""

    def __init__(self) -> None:
        self._known: dict[Hashable, EquationPartials] = {}
        self._all: list[EquationPartials] = []  # alive, as their ids are keys

    def __call__(self, key: Hashable, find: Callable[[], EquationPartials]) -> EquationPartials:
        """Returns the partials stored for a key, or finds them; a key of None is never shared."""
        if key is not None and key in self._known:
            return self._known[key]
        partials = find()
        self._all.append(partials)
        if key is not None and not (partials.reverse_only or partials.refused):
            self._known[key] = partials
        return partials


def _site(equation: Equation, active: set[int], within: Within, *, realify: bool) -> Site | None:
    """Returns a rule's view of an equation; None if no operand is active, or without results."""
    flags = [
        isinstance(i, int) and i in active and is_differentiable(a)
        for i, a in zip(equation.invars, equation.in_avals, strict=True)
    ]
    if not any(flags) or not equation.out_avals:
        return None
    site = Site(
        equation.primitive,
        equation.params,
        equation.in_avals,
        equation.out_avals,
        flags,
        equation.source,
        realify,
        effects=bool(equation.effects),
    )
    body = partial(_body, within=within, realify=realify)
    axes_of = cache(lambda: diagonal_axes(site, body))  # lazy: few rules need it
    return replace(site, diagonal=lambda result, operand: axes_of()(result, operand))


def _body(closed: Any, *, within: Within, realify: bool, derivative: bool = True) -> Body:
    """Finds the partials inside a closed jaxpr.

    Without `derivative` it is taken for a linear function, whatever rules its parts have and
    wherever it stops gradients.
    """
    args = [shape_of(a) for a in closed.in_avals]
    plain = within.plain or not derivative
    program = trace(core.jaxpr_as_fun(closed), args, argnums=[*range(len(args))], plain=plain)
    lin = linearise(
        program, holomorphic=not realify, within=replace(within, body=True, plain=plain)
    )
    moves = []
    for elemental in (e for used in lin.elementals for e in used):
        p = elemental.partial
        pairs = p.diagonal or enumerate(p.executed.pairs)
        moves.append((elemental.source, elemental.target, {j: k for k, j in pairs if j != FREE}))
    return Body(moves, lin.graph.outputs, lin.graph.num_nodes)


def _elementals(
    equation: Equation, partials: EquationPartials, wanted: Sequence[bool], node_of: dict[int, int]
) -> Iterator[Elemental]:
    """Yields the partials of an equation's wanted results, by node.

    A rule that is not linear has one for an operand that occurs several times.
    """
    seen: set[Any] = set()
    for k, i, p in partials.pairs():
        source, target = equation.invars[i], equation.outvars[k]
        repeated = partials.reverse_only and (source, target) in seen
        seen.add((source, target))
        if wanted[k] and not repeated:
            assert isinstance(source, int)
            assert target is not None
            yield Elemental(node_of[source], node_of[target], p, partials.inner(k, i))


def _reverse_only(
    equation: Equation, partials: EquationPartials, node_of: dict[int, int]
) -> Pulled:
    """Locates a rule that is not linear in the graph."""
    site = partials.site
    assert site is not None
    results = [equation.outvars[k] for k in site.results]
    operands = [equation.invars[i] for i in site.operands]
    rule = ReverseOnly(
        _compat.function_source(site.params) or site.primitive.name,
        site.source,
        tuple(node_of[variable] for variable in results if variable is not None),
        tuple(node_of[variable] for variable in operands if isinstance(variable, int)),
        partials.cotangents.zero,
        partials.cotangents.forward,
    )
    return Pulled(site, rule)


def _graph(
    program: Program,
    outputs: Sequence[int | None],
    elementals: Sequence[Sequence[Elemental]],
    reverse_only: Sequence[Pulled | None],
    realify: bool,
) -> Graph:
    avals = [*program.avals[: program.num_inputs]]
    avals += [program.avals[s] for s in program.vertex_variables]
    names = [e.primitive.name for e in program.equations for o in e.outvars if o is not None]
    parallel: dict[tuple[int, int], list[Partial]] = {}
    for elemental in (e for used in elementals for e in used):
        parallel.setdefault((elemental.source, elemental.target), []).append(elemental.partial)

    def total(pick: Callable[[Partial], Structure]) -> dict[tuple[int, int], Structure]:
        return {
            edge: reduce(algebra.add, map(pick, partials)) for edge, partials in parallel.items()
        }

    return Graph(
        program.num_inputs,
        [real_shape(a, realify=realify) for a in avals],
        outputs,
        names,
        {
            "multiplications": total(lambda p: p.literature),
            "executed": total(lambda p: p.executed),
        },
        [pulled.rule for pulled in reverse_only if pulled is not None],
    )


def make_graph(
    fun: Callable[..., Any], argnums: int | Iterable[int] = 0, has_aux: bool = False
) -> Callable[..., Graph]:
    """Returns a function that traces `fun` to its computational graph.

    Args:
      fun: a JAX-traceable function of pytrees of arrays.
      argnums: which positional arguments to differentiate by.
      has_aux: whether `fun` returns ``(output, aux)``; what only aux needs is no part of the graph.

    Returns:
      A function of fun's arguments (arrays or `jax.ShapeDtypeStruct`s), as `jax.make_jaxpr`
      gives one.

    Raises:
      ValueError: (from the returned function) if `argnums` is out of range or repeats.

    Examples:
      >>> import jax.numpy as jnp
      >>> graph = make_graph(lambda x: jnp.sin(x) * x)(1.0)
      >>> graph.eliminable, graph.cost(graph.reverse())
      ((1,), 1)
    """
    argnums = plain_argnums(argnums)

    def traced(*args: Any, **kwargs: Any) -> Graph:
        hidden = hiding_aux(fun, has_aux)
        return linearise(trace(hidden, args, kwargs, argnums=argnums, has_aux=has_aux)).graph

    return traced
