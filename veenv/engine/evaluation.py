"""Runs a program and computes the elemental partials that its graph needs.

In: a `Linearisation` and its inputs. Out: `Evaluated`: outputs, auxiliary output and edges.

A rule that JAX cannot transpose (a cut in a tangent, say) has no matrix; it is applied to the
columns of the Jacobian. In an order that its graph allows, everything before its operands is
eliminated when it is applied, so its tangents are those of forward mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, cast

import jax
import jax.numpy as jnp

from veenv import _compat
from veenv.engine import edge
from veenv.engine.edge import Edge, Edges
from veenv.engine.elimination import Call, Elimination, elemental_edges, eliminate
from veenv.engine.sparse.entries import Matrix
from veenv.engine.sparse.indexing import as_one, eliminate_sparse, transposed
from veenv.engine.sparse.partials import Around
from veenv.graph.captured import Whole
from veenv.graph.equations import Literal
from veenv.graph.linearisation import Custom, Elemental, Linearisation, Pulled
from veenv.linear.barrier import pin
from veenv.rules import Partial, Values
from veenv.rules.base import from_real, is_differentiable, real_shape, replaced, to_real
from veenv.rules.passes import has_jvp, has_vjp, results_and_pullback
from veenv.rules.table import facts
from veenv.structure import structure as algebra
from veenv.structure.structure import FREE


@dataclass(frozen=True)
class Evaluated:
    """The values of a program: its outputs, auxiliary output and elemental partials.

    A variable that occurs several times in one equation has several partials there; those of rules
    that were followed may be entries.  Rules that are not linear are among `calls`, and an
    elimination needs them as well as the partials.
    """

    outputs: list[Any]
    aux: list[Any]
    parallel: Mapping[tuple[int, int], Sequence[Edge | Matrix]]
    calls: Sequence[Call] = ()

    @property
    def edges(self) -> Edges:
        """The elemental edges, parallel partials added up."""
        several = cast(Mapping[tuple[int, int], Sequence[Edge]], self.parallel)
        return {pair: reduce(edge.add, partials) for pair, partials in several.items()}


def evaluate(
    linearisation: Linearisation,
    inputs: Sequence[Any],
    leading: Sequence[Any] = (),
    around: Around | None = None,
) -> Evaluated:
    """Runs a program and computes the elemental partials that its graph needs.

    A value is dropped after its last use. `leading` replace the program's first constants,
    arguments that are not differentiated by, where it was traced without them. With what is known
    `around` it, the programs of derivative rules are followed entry by entry.
    """
    program = linearisation.program
    arrays = [*inputs, *leading, *program.constants[len(leading) :]]
    values: dict[int, Any] = dict(enumerate(arrays))
    last_use = _last_uses(linearisation)
    parallel: dict[tuple[int, int], list[Edge | Matrix]] = {}
    calls: list[Call] = []

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for index, equation in enumerate(program.equations):
        ins = [read(a) for a in equation.invars]
        run = _run(linearisation, index, ins, around)
        if facts(equation.primitive.name).expensive:
            run = replace(run, results=[pin(value) for value in run.results])
        for variable, value in zip(equation.outvars, run.results, strict=True):
            if variable is not None:
                values[variable] = value
        used = linearisation.elementals[index]
        if run.call is None:
            edges = _equation_edges(linearisation, index, ins, run)
        else:
            calls.append(run.call)
            edges = elemental_edges(run.call, used, linearisation.graph.output_nodes)
        for e, elemental in zip(used, edges, strict=True):
            parallel.setdefault((e.source, e.target), []).append(elemental)
        for variable in last_use.get(index, ()):
            del values[variable]
    aux = [read(a) for a in program.aux[0]] if program.aux else []
    return Evaluated([read(o) for o in program.outputs], aux, parallel, calls)


@dataclass(frozen=True)
class _Run:
    """The results of one equation, and the values that its partials share with them."""

    results: Sequence[Any]  # the results
    # the total partials of its custom rule, if they are needed
    totals: Mapping[tuple[int, int], Edge | Matrix] = field(default_factory=dict)
    call: Call | None = None  # its rule that is not linear, if any
    # values that its partials share, computed on demand
    shared: dict[Any, Any] = field(default_factory=dict)


def _run(linearisation: Linearisation, index: int, ins: Values, around: Around | None) -> _Run:
    """Runs one equation; its results are those of its derivative rule, as in JAX."""
    equation, used = linearisation.program.equations[index], linearisation.elementals[index]
    pulled, custom = linearisation.reverse_only[index], linearisation.customs[index]
    if used and pulled is not None:
        return _pulled(pulled, linearisation.realify, ins)
    followed = linearisation.followed[index]
    if used and around is not None and followed is not None and not _is_diagonal(used):
        return _custom(followed, ins, around.inside(equation, followed.inner.program))
    if used and custom is not None:
        return _custom(custom, ins)
    if used and linearisation.effects[index] and (of := used[0].partial.shared) is not None:
        joint = of(ins, ())
        if joint.results is not None:
            return _Run(joint.results, shared={of: joint})
    return _Run(_compat.bind(equation.primitive, equation.params, ins))


def _equation_edges(
    linearisation: Linearisation, index: int, ins: Values, run: _Run
) -> Iterable[Edge | Matrix]:
    """Computes the needed partials of one equation at its operands and results."""
    for e in linearisation.elementals[index]:
        if e.inner is not None and e.inner in run.totals:
            yield run.totals[e.inner]
        else:
            dtype = _tangent_dtype(e.source, linearisation)
            yield _edge(e.partial, dtype, ins, run.results, run.shared)


def _pulled(pulled: Pulled, realify: bool, ins: Values) -> _Run:
    """Runs an equation whose rule is not linear."""
    site = pulled.site
    results, pull = results_and_pullback(site, ins)
    outs = [site.out_avals[k] for k in site.results]
    operands = [site.in_avals[i] for i in site.operands]
    shape = partial(real_shape, realify=realify)
    dtypes = [jnp.finfo(a.dtype).dtype if realify else a.dtype for a in outs]
    call = Call(pulled.rule, [*map(shape, outs)], [*map(shape, operands)], dtypes, pull)
    return _Run(results, call=call)


def _custom(custom: Custom, ins: Sequence[Any], around: Around | None = None) -> _Run:
    """Runs an equation with a custom rule, whose linear program has the total partials.

    Given the context `around` it, they are computed entry by entry.
    """
    lin, inner = custom.linearisation, custom.inner
    values, order = evaluate(lin, inner.zeros(), ins, around), lin.graph.reverse()
    totals: dict[tuple[int, int], Edge | Matrix] = {}
    if around is None:
        totals |= eliminate(lin, values.edges, order).edges
    else:
        left = eliminate_sparse(lin, values.parallel, order, around).terms
        shapes = lin.graph.shapes
        totals |= {(u, v): as_one(x, shapes[v], shapes[u]) for (u, v), x in left.items()}
    passed = [k for k in lin.graph.output_nodes if k < lin.graph.num_inputs]  # as they are
    avals = inner.program.avals
    unit = {k: algebra.diagonal(avals[k].shape, valued=False) for k in passed}
    totals |= {(k, k): Edge(unit[k], None, avals[k].dtype) for k in passed}
    turned = {pair: transposed(e) for pair, e in totals.items()} if inner.backward else totals
    return _Run(values.aux, turned)


def _is_diagonal(used: Sequence[Elemental]) -> bool:
    """Returns whether, by shapes, each element of the results depends on one of an operand."""
    structures = (e.partial.executed for e in used)
    return all(len({*s.pairs}) == len(s.in_shape) and FREE not in s.pairs for s in structures)


def _last_uses(linearisation: Linearisation) -> dict[int, list[int]]:
    """Returns, for each equation, the variables that are read for the last time there."""
    program = linearisation.program
    later = {a for a in program.returned if isinstance(a, int)}
    uses: dict[int, list[int]] = {}
    for index, equation in reversed([*enumerate(program.equations)]):
        for variable in (*equation.invars, *equation.outvars):
            if isinstance(variable, int) and variable not in later:
                later.add(variable)
                uses.setdefault(index, []).append(variable)
    return uses


def _tangent_dtype(node: int, linearisation: Linearisation) -> Any:
    """Returns the dtype in which a unit partial by this node would be stored."""
    program = linearisation.program
    dtype = program.avals[program.variable(node)].dtype
    real = linearisation.realify and jnp.issubdtype(dtype, jnp.complexfloating)
    return jnp.finfo(dtype).dtype if real else dtype


def _edge(partial: Partial, dtype: Any, ins: Values, outs: Values, shared: dict[Any, Any]) -> Edge:
    """Computes the values of an elemental partial; `dtype`: in which it is stored if it is unit.

    Values that several partials of the equation need are computed once, and cached in `shared`.
    """
    of: tuple[Any, ...] = (ins, outs)
    if partial.shared is not None:
        if partial.shared not in shared:
            shared[partial.shared] = partial.shared(ins, outs)
        of = (*of, shared[partial.shared])
    link = None if partial.link is None else partial.link(*of)
    if partial.values is None:
        return Edge(partial.executed, None, dtype, partial.sign, link)
    values = jnp.asarray(partial.values(*of))
    mask = None if partial.mask is None else partial.mask(*of)
    return Edge(partial.executed, values, values.dtype, partial.sign, link, mask)


def is_pushed(lin: Linearisation) -> bool:
    """Returns whether only a mode of JAX can differentiate a program, as no transpose exists."""
    forward = (one.rule.forward for one in lin.reverse_only if one is not None)
    return whole_of(lin) is not None or any(forward)


def whole_of(lin: Linearisation) -> Whole | None:
    """Returns the function that a program is one equation of, if it is."""
    primitives = (e.primitive for e in lin.program.equations)
    return next((p for p in primitives if isinstance(p, Whole)), None)


def push_forward(lin: Linearisation, inputs: Sequence[Any]) -> tuple[Evaluated, Elimination]:
    """Computes the values of a program, and its dense Jacobian by forward mode.

    A program that is one equation is differentiated by the mode of JAX with fewer passes, if JAX
    has it.
    """
    avals = lin.program.avals[: len(inputs)]
    differentiable = [k for k, aval in enumerate(avals) if is_differentiable(aval)]
    plain = replace(lin, elementals=((),) * len(lin.elementals))

    def outputs(*values: Any) -> tuple[list[Any], tuple[list[Any], list[Any]]]:
        pairs = zip(values, differentiable, strict=True)
        arrays = [from_real(x, avals[k]) if lin.realify else x for x, k in pairs]
        evaluated = evaluate(plain, replaced(inputs, differentiable, arrays))
        outs = list(map(jnp.asarray, evaluated.outputs))
        return [to_real(x) if lin.realify else x for x in outs], (evaluated.outputs, evaluated.aux)

    arguments = [jnp.asarray(inputs[k]) for k in differentiable]
    arguments = [to_real(x) if lin.realify else x for x in arguments]
    numbers, complexes = tuple(range(len(arguments))), not lin.realify
    whole = whole_of(lin)
    modes = [jax.jacfwd] if whole is None else _modes(whole, lambda *x: outputs(*x)[0], arguments)
    for mode in modes:
        jacobian = mode(outputs, numbers, has_aux=True, holomorphic=complexes)
        # the error that follows names its equations
        with suppress(*([] if whole is None else [Exception])):
            columns, (values, aux) = jacobian(*arguments)
            break
    else:
        assert whole is not None
        raise whole.refused
    left: dict[tuple[int, int], Any] = {}
    for node, row in zip(lin.graph.outputs, columns, strict=True):
        for source, x in zip(differentiable, row, strict=True):
            if node is not None:
                dense = algebra.dense(lin.graph.shapes[node], lin.graph.shapes[source])
                left[source, node] = (Edge(dense, x.reshape(dense.value_shape), x.dtype),)
    return Evaluated(values, aux, {}), Elimination(left, (), ())


def _modes(
    whole: Whole, fun: Callable[..., Any], operands: Sequence[Any]
) -> list[Callable[..., Any]]:
    """Returns JAX's modes: those surely available first, of these the one of fewer passes.

    What a rule closes over may be lost where the function is only traced.
    """
    if whole.backward:
        return [jax.jacrev]
    outs = jax.eval_shape(fun, *operands)
    ranked = []
    for mode, has, of in (jax.jacfwd, has_jvp, operands), (jax.jacrev, has_vjp, outs):
        known = False
        with suppress(Exception):  # a user's rule may raise anything
            known = has(fun, operands)
        ranked.append((not known, sum(x.size for x in of), mode))
    return [mode for _, _, mode in sorted(ranked, key=lambda one: one[:2])]
