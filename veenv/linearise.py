"""From a traced program to its graph: which equations matter, and their elemental partials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from veenv import rules
from veenv import structure as algebra
from veenv.graph import Graph
from veenv.rules import Partial, Site
from veenv.rules.generic import real_shape
from veenv.structure import Structure
from veenv.trace import Equation, Program, is_differentiable, trace


@dataclass(frozen=True)
class Elemental:
    """One elemental partial: of node `target` by node `source`."""

    source: int
    target: int
    partial: Partial


@dataclass(frozen=True)
class Linearisation:
    """A program with the elemental partials that lie on a path from an input to an output.

    Attributes:
      program: the traced program.
      sites: for each equation its rule's view; None for equations without needed partials.
      elementals: for each equation its needed partials.
      graph: the graph of structures.
    """

    program: Program
    sites: tuple[Site | None, ...]
    elementals: tuple[tuple[Elemental, ...], ...]
    graph: Graph


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
    for equation in program.equations:
        site, elementals = _equation_partials(equation, active, node_of, not holomorphic)
        sites.append(site)
        found.append(elementals)
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
    return Linearisation(
        program, tuple(sites), tuple(kept), _graph(program, outputs, kept, not holomorphic)
    )


def _equation_partials(
    equation: Equation, active: set[int], node_of: dict[int, int], realify: bool
) -> tuple[Site | None, list[Elemental]]:
    """The partials of one equation; marks its results as active where they depend on inputs."""
    flags = [isinstance(i, int) and i in active for i in equation.inputs]
    flags = [f and is_differentiable(a) for f, a in zip(flags, equation.in_avals, strict=True)]
    if not any(flags):
        return None, []
    site = Site(
        equation.primitive,
        equation.params,
        equation.in_avals,
        equation.out_avals,
        flags,
        equation.source,
        realify,
    )
    elementals = []
    for slot, row in zip(equation.outputs, rules.partials(site), strict=True):
        if slot is None:
            continue
        for operand, partial in zip(equation.inputs, row, strict=True):
            if partial is not None:
                assert isinstance(operand, int)
                elementals.append(Elemental(node_of[operand], node_of[slot], partial))
                active.add(slot)
    return site, elementals


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


def edges_of(linearisation: Linearisation) -> Iterator[Elemental]:
    """All needed elemental partials in equation order."""
    for used in linearisation.elementals:
        yield from used
