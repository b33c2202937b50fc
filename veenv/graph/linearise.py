"""From a traced program to its graph: which equations matter, and their elemental partials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import prod
from typing import Any

from jax.extend import core

from veenv import rules
from veenv.graph.custom_rules import Inner, inner_program, shape_of
from veenv.graph.diagonal import Body, diagonal_axes
from veenv.graph.graph import COST_MODELS, Graph, eliminate_structure
from veenv.graph.program import Equation, Program, trace
from veenv.rules import Partial, Site
from veenv.rules.dtypes import is_differentiable
from veenv.rules.operator import real_shape
from veenv.structure import structure as algebra
from veenv.structure.structure import FREE, Structure


@dataclass(frozen=True)
class Elemental:
    """One elemental partial: of node `target` by node `source`.

    `inner` is the (source, target) pair of the custom rule's graph whose total edge it is.
    """

    source: int
    target: int
    partial: Partial
    inner: tuple[int, int] | None = None


@dataclass(frozen=True)
class Linearisation:
    """A program with the elemental partials that lie on a path from an input to an output.

    Attributes:
      program: the traced program.
      sites: for each equation its rule's view; None for equations without needed partials.
      elementals: for each equation its needed partials.
      customs: for each equation the rule of its own that gives its partials, if any.
      graph: the graph of structures.
      realify: complex variables are seen as pairs of real numbers.
    """

    program: Program
    sites: tuple[Site | None, ...]
    elementals: tuple[tuple[Elemental, ...], ...]
    customs: tuple[Custom | None, ...]
    graph: Graph
    realify: bool


@dataclass(frozen=True)
class Custom:
    """A custom rule's linear program, linearised."""

    inner: Inner
    linearisation: Linearisation

    def nodes(self, result: int, operand: int) -> tuple[int, int | None]:
        """The (source, target) nodes of its graph that stand for a partial; None: it is zero."""
        graph = self.linearisation.graph
        at, slot = self.inner.results.index(result), self.inner.operands.index(operand)
        source, output = (at, slot) if self.inner.backward else (slot, at)
        return source, graph.outputs[output]


def linearise(program: Program, *, holomorphic: bool = False) -> Linearisation:
    """Finds the elemental partials of a program and builds its graph, without numeric work.

    Args:
      program: the traced program.
      holomorphic: differentiate complex variables as complex numbers; otherwise they are pairs of
        real numbers.
    """
    node_of = {slot: slot for slot in range(program.num_inputs)}
    node_of.update({s: program.num_inputs + i for i, s in enumerate(program.vertex_slots)})
    active = {s for s in range(program.num_inputs) if is_differentiable(program.avals[s])}
    sites: list[Site | None] = []
    found: list[list[Elemental]] = []
    customs: list[Custom | None] = []
    for equation in program.equations:
        site = _site(equation, active, realify=not holomorphic)
        custom, rows = (None, []) if site is None else _rows(site)
        sites.append(site)
        customs.append(custom)
        found.append(_elementals(equation, rows, custom, active, node_of))
    outputs = tuple(
        node_of[o] if isinstance(o, int) and o in active else None for o in program.outputs
    )
    needed = {n for n in outputs if n is not None}
    kept: list[tuple[Elemental, ...]] = []
    for elementals in reversed(found):
        used = tuple(e for e in elementals if e.target in needed)
        needed.update(e.source for e in used)
        kept.append(used)
    kept.reverse()
    sites = [site if used else None for site, used in zip(sites, kept, strict=True)]
    customs = [custom if used else None for custom, used in zip(customs, kept, strict=True)]
    return Linearisation(
        program,
        tuple(sites),
        tuple(kept),
        tuple(customs),
        _graph(program, outputs, kept, not holomorphic),
        not holomorphic,
    )


def _site(equation: Equation, active: set[int], *, realify: bool) -> Site | None:
    """A rule's view of an equation; None if no operand depends on an input."""
    flags = [
        isinstance(i, int) and i in active and is_differentiable(a)
        for i, a in zip(equation.inputs, equation.in_avals, strict=True)
    ]
    if not any(flags):
        return None
    site = Site(
        equation.primitive,
        equation.params,
        equation.in_avals,
        equation.out_avals,
        flags,
        equation.source,
        realify,
    )
    site.diagonal = diagonal_axes(site, partial(_body, realify=realify))
    return site


def _body(closed: Any, *, realify: bool) -> Body:
    """The partials inside a closed jaxpr."""
    args = [shape_of(a) for a in closed.in_avals]
    program = trace(core.jaxpr_as_fun(closed), args, argnums=[*range(len(args))])
    lin = linearise(program, holomorphic=not realify)
    moves = []
    for elemental in (e for used in lin.elementals for e in used):
        p = elemental.partial
        pairs = p.diagonal or enumerate(p.executed.pairs)
        moves.append((elemental.source, elemental.target, {j: k for k, j in pairs if j != FREE}))
    return Body(moves, lin.graph.outputs, lin.graph.num_nodes)


def _elementals(
    equation: Equation,
    rows: Sequence[Sequence[Partial | None]],
    custom: Custom | None,
    active: set[int],
    node_of: dict[int, int],
) -> list[Elemental]:
    """The partials of one equation by node; marks its results that depend on inputs as active."""
    elementals = []
    for k, (slot, row) in enumerate(zip(equation.outputs, rows, strict=False)):
        if slot is None:
            continue
        for i, (operand, elemental) in enumerate(zip(equation.inputs, row, strict=True)):
            if elemental is None:
                continue
            assert isinstance(operand, int)
            inner = None
            if custom is not None:
                source, target = custom.nodes(k, i)
                assert target is not None
                inner = (source, target)
            elementals.append(Elemental(node_of[operand], node_of[slot], elemental, inner))
            active.add(slot)
    return elementals


def _rows(site: Site) -> tuple[Custom | None, Sequence[Sequence[Partial | None]]]:
    """The partials of an equation, through its own derivative rule where that has structure."""
    inner = None if rules.find(site.primitive.name) else inner_program(site)
    if inner is not None:
        custom = Custom(inner, linearise(inner.program))
        rows = _custom_rows(site, custom)
        if rows is not None:
            return custom, rows
    return None, rules.partials(site)


def _custom_rows(site: Site, custom: Custom) -> list[list[Partial | None]] | None:
    """The partials a custom rule's graph comes to; None if they are better left an operator."""
    graph = custom.linearisation.graph
    left = {}
    for cost in COST_MODELS:
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


def _graph(
    program: Program,
    outputs: Sequence[int | None],
    kept: Sequence[Sequence[Elemental]],
    realify: bool,
) -> Graph:
    avals = [*program.avals[: program.num_inputs]]
    avals += [program.avals[s] for s in program.vertex_slots]
    names = [e.primitive.name for e in program.equations for slot in e.outputs if slot is not None]
    parallel: dict[tuple[int, int], list[Partial]] = {}
    for elemental in (e for used in kept for e in used):
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
    )


def make_graph(fun: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Graph]:
    """Returns a function that traces `fun` to its computational graph.

    Args:
      fun: a JAX-traceable function of pytrees of arrays.
      argnums: which positional arguments to differentiate by.

    Returns:
      A function of fun's arguments (arrays or `jax.ShapeDtypeStruct`s), as `jax.make_jaxpr`
      gives one.

    Raises:
      ValueError: (from the returned function) if `argnums` is out of range or repeats.

    Example:
      >>> import jax.numpy as jnp
      >>> graph = make_graph(lambda x: jnp.sin(x) * x)(1.0)
      >>> graph.eliminable, graph.cost(graph.reverse())
      ((1,), 1)
    """

    def traced(*args: Any, **kwargs: Any) -> Graph:
        return linearise(trace(fun, args, kwargs, argnums=argnums)).graph

    return traced
