"""Computes Jacobians of a request: traces, eliminates, assembles, in several forms.

In: a `Request`, a function, its arguments. Out: the results of the requested elimination, in the
shape of `jax.jacrev`'s, or all forms that may take its place (`veenv.engine.form_selection` chooses
one).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np

from veenv import _compat, limits
from veenv._support import attempt
from veenv.engine.alternatives import (
    Candidates,
    by_jax,
    meets_infinity,
    modes_alone,
    num_passes,
    other_modes,
    other_orders,
)
from veenv.engine.edge import Edge, meeting_infinity
from veenv.engine.edge_product import multiply
from veenv.engine.elimination import Elimination, counts_of, dense, eliminate
from veenv.engine.evaluation import Evaluated, evaluate, is_pushed, push_forward, whole_of
from veenv.engine.form_selection import choosing
from veenv.engine.repeated.outlining import outline_regions
from veenv.engine.request import Blocks, Request
from veenv.engine.sparse import SparseTensor
from veenv.engine.sparse.entries import Entries, Indexed, Matrix, Shapes, as_computed
from veenv.engine.sparse.indexing import SymmetricBlocks, eliminate_sparse, symmetric_blocks
from veenv.engine.sparse.partials import Around
from veenv.engine.sparse.pattern import Numbers, collected
from veenv.engine.sums import Terms
from veenv.engine.wrappers import anywhere, check_types, equal_bodies_once
from veenv.graph.linearisation import OF_TRACING, Linearisation, linearise
from veenv.graph.program import Program, is_symbolic, normalise_argnums, refuse_symbolic, trace
from veenv.kernel.fusing import KernelMode, as_kernel
from veenv.linear.barrier import with_pins
from veenv.linear.linear_map import canonical
from veenv.orders.resolve import resolve_order
from veenv.rules.base import equal_equations_once, is_complex
from veenv.rules.shape import selected
from veenv.structure import structure as algebra

T = TypeVar("T")
_FORESEEN = (NotImplementedError, *OF_TRACING)
"""Errors that tell users what to do, or what is not supported."""


def transformed(request: Request, fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what a request asks for of a function, for arrays on any mesh and any width."""
    return anywhere(lambda fun, _: in_chosen_form(request, fun), fun, request)


def in_chosen_form(request: Request, fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what is asked for of a function, in the form that was asked for or the fastest."""
    if not callable(fun):
        raise TypeError(f"fun must be callable, got {fun!r}")
    if request.kernel not in (modes := get_args(KernelMode)):
        raise ValueError(
            f"kernel must be one of {', '.join(modes)} ('xla' makes no kernel), "
            f"got {request.kernel!r}"
        )

    @functools.wraps(fun, updated=())  # its signature, by which jit knows static arguments
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        return requested(request, fun, args, kwargs)

    def wanted(args: Sequence[Any]) -> tuple[int, ...]:
        return normalise_argnums(request.argnums, len(args))

    def line(primitive: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        program = trace(fun, args, kwargs, argnums=request.argnums, has_aux=request.has_aux)
        lines = (e.source for e in program.equations if e.primitive.name == primitive)
        return next(lines, "")

    pinned = with_pins(jacobian, request.pin)
    if request.kernel == "fused":
        return as_kernel(with_pins(jacobian, False), wanted, line)  # a kernel repeats nothing
    if request.pin != "auto":
        return pinned
    return choosing(request, jacobian, functools.partial(candidates, request, fun))


@equal_equations_once()
def requested(
    request: Request, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Returns the result by the requested elimination, or by JAX where only that can."""
    point = _Point.of(request, fun, args, kwargs)
    if is_symbolic(point.program):
        return point.by_symbols()
    return point.or_by_jax(lambda: point.eliminable().result(), lambda result: result)


@equal_equations_once()
def candidates(
    request: Request, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Candidates | None:
    """Returns all forms that may stand for the requested one; None where only that can be run."""
    point = _Point.of(request, fun, args, kwargs)
    if is_symbolic(point.program):
        return None
    return point.or_by_jax(
        lambda: point.eliminable().candidates(), lambda result: Candidates([result], [])
    )


@dataclass(frozen=True)
class _Point:
    """A function, traced at its arguments."""

    request: Request
    program: Program
    args: Sequence[Any]
    kwargs: dict[str, Any]

    @classmethod
    def of(
        cls, request: Request, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> _Point:
        """Traces a function, and refuses what cannot be differentiated."""
        program = trace(fun, args, kwargs, argnums=request.argnums, has_aux=request.has_aux)
        point = cls(request, program, args, kwargs)
        inputs = dict(zip(point.argnums, point.inputs, strict=True))
        check_types(program, inputs, holomorphic=request.holomorphic, allow_int=request.allow_int)
        return point

    @property
    def argnums(self) -> tuple[int, ...]:
        """The argument numbers to differentiate by."""
        return normalise_argnums(self.request.argnums, len(self.args))

    @property
    def inputs(self) -> list[Any]:
        """The arguments that are differentiated by."""
        return [self.args[a] for a in self.argnums]

    def by_symbols(self) -> Any:
        """Returns the result by one of JAX's modes, of axes of symbolic size."""
        forward = str(self.request.order).lower() in ("forward", "fwd")
        other = replace(self.request, order="auto") if forward else self.request
        if other.compared is None:
            refuse_symbolic(self.program)
        mode = by_jax(self.program, self.request, "jacfwd" if forward else "jacrev")
        return mode(*self.args, **self.kwargs)

    def or_by_jax(self, make: Callable[[], T], of_mode: Callable[[Any], T]) -> T:
        """Returns what is made; where that fails and any order will do, the result by JAX."""
        if self.request.compared != "auto" or self.request.blocks != "dense":
            return make()

        def by_mode() -> T:
            return of_mode(by_jax(self.program, self.request)(*self.args, **self.kwargs))

        return attempt(make, by_mode, lambda error: isinstance(error, _FORESEEN))

    def eliminable(self) -> _Eliminable:
        """Returns the graph, and the ids of the order."""
        request, program = self.request, self.program
        outlined = attempt(self._by_regions, lambda: None)
        lin = outlined or linearise(program, holomorphic=request.by_complex(program))
        ids = resolve_order(request.order, lin.graph, 0 if request.argnums else len(self.args))
        return _Eliminable(self, lin, ids)

    def _by_regions(self) -> Linearisation | None:
        """Returns the linearisation with batched regions as one equation each, if that helps."""
        request, name = self.request, str(self.request.order).lower()
        large = request.compared is not None and prod(num_passes(self.program)) >= limits.LARGE
        if "counts" in request.parts or request.blocks == "scattered" or name != "auto":
            return None
        if not (large or request.blocks == "sparse"):
            return None
        program = with_regions(self.program, request)
        if program is self.program:
            return None
        lin = linearise(program, holomorphic=request.by_complex(program))
        if request.blocks == "sparse" or _thin(lin, self.inputs, lin.graph.reverse()):
            return lin
        return None


@dataclass(frozen=True)
class _Eliminable:
    """The graph of a function at a point, and an order of it."""

    point: _Point
    lin: Linearisation
    ids: tuple[int, ...]

    def result(self) -> Any:
        """Returns the result by the order."""
        optional = lambda: self._results(self._blocks(), self._symmetric(), [])  # noqa: E731
        return attempt(optional, self._plain)[0]

    def candidates(self) -> Candidates | None:
        """Returns the results by the order and by others, and JAX's modes.

        None where a rule closes over values of the function, which must then be run as it is.
        """
        if whole_of(self.lin) is not None:
            return None
        return attempt(self._candidates, lambda: Candidates(self._plain(), []))

    def _candidates(self) -> Candidates:
        request, lin = self.point.request, self.lin
        modes = other_modes(lin, request)
        symmetric, blocks = self._symmetric(), self._blocks()
        if blocks == request.blocks and (alone := modes_alone(lin, self.ids, modes)):
            return Candidates([], alone)
        orders = other_orders(lin, self.ids, request.compared, modes) if blocks == "dense" else []
        return Candidates(self._results(blocks, symmetric, orders), [*modes.values()])

    def _plain(self) -> list[Any]:
        """Returns the result without anything that is optional."""
        return self._results(self.point.request.blocks, SymmetricBlocks(), [])

    def _blocks(self) -> Blocks:
        """Returns the mode of the blocks: dense ones of few nonzero entries are scattered."""
        request = self.point.request
        can_be_thin = request.blocks == "dense" and request.compared is not None
        thin = can_be_thin and _thin(self.lin, self.point.inputs, self.ids)
        return "scattered" if thin else request.blocks

    def _symmetric(self) -> SymmetricBlocks:
        """Returns the blocks that need not be computed, as others are their transposes."""
        is_symmetric = self.point.request.symmetric(self.point.args, self.point.kwargs)
        return symmetric_blocks(self.lin) if is_symmetric else SymmetricBlocks()

    def _results(
        self, blocks: Blocks, symmetric: SymmetricBlocks, orders: Sequence[tuple[int, ...]]
    ) -> list[Any]:
        """Returns the results by the order, then by other ones."""
        lin, point, sparse = self.lin, self.point, blocks != "dense"
        request, program, inputs = point.request, lin.program, point.inputs
        with equal_bodies_once(), meeting_infinity(meets_infinity(lin)):
            values, done = _eliminated(lin, inputs, self.ids, symmetric, blocks)
            rows = [all_blocks(lin, done.terms, symmetric, sparse=sparse)]
            for order in orders:
                left = eliminate(lin, values.edges, order).terms
                rows.append(all_blocks(lin, left, symmetric, sparse=False))
            rows = _as_arrays(rows) if blocks == "scattered" else rows
            several = isinstance(request.argnums, tuple)
            jacobians = [assembled(program, each, inputs, several) for each in rows]
            returned = _returned(program, values.outputs, values.aux)
        counts = None
        if "counts" in request.parts:
            counted = None if sparse or any(lin.reverse_only) else done
            counts = counts_of(lin.graph, self.ids, counted)
        return [request.result(returned, jacobian, counts) for jacobian in jacobians]


def with_regions(program: Program, request: Request) -> Program:
    """Returns a program with batched regions as one equation each, kernels if they may be."""
    options = Request("auto", 0, ("value", "jacobian"), has_aux=True, allow_int=True)
    if request.kernel != "fused":  # else they are part of its kernel
        options = replace(options, kernel=request.kernel, pin=request.pin)

    def jacobian(point: Callable[..., Any], argnums: tuple[int, ...]) -> Callable[..., Any]:
        return transformed(replace(options, argnums=argnums), point)

    return outline_regions(program, jacobian)


def _thin(lin: Linearisation, inputs: Any, ids: Sequence[int]) -> bool:
    """Returns whether a Jacobian is large and has few nonzero entries; nothing is computed."""
    nonzero, every = entries_of(lin, inputs, ids)
    return limits.THIN * nonzero <= every


def entries_of(lin: Linearisation, inputs: Any, ids: Sequence[int]) -> tuple[int, int]:
    """Counts the entries of a large Jacobian that can be nonzero, and all of them.

    Both counts are equal where the Jacobian is small, or where only an elimination with values
    shows its zeros.

    Args:
      lin: the function.
      inputs: the arguments that are differentiated by, or their shapes.
      ids: an order.

    Examples:
      >>> program = trace(lambda x: x * x, (jnp.ones(400),))
      >>> entries_of(linearise(program), [jnp.ones(400)], (1,))
      (400, 160000)
    """
    every = prod(num_passes(lin.program))
    if every < limits.LARGE or any(lin.reverse_only) or is_pushed(lin):
        return every, every
    stored = 0

    def count(inputs: Any) -> None:
        nonlocal stored
        with equal_equations_once():
            _, done = _eliminated(lin, inputs, ids, SymmetricBlocks(), "sparse")
            rows = all_blocks(lin, done.terms, SymmetricBlocks(), sparse=True)
        several = (block for row in rows for block in row if isinstance(block, SparseTensor))
        stored = sum(block.nse for block in several)

    jax.eval_shape(count, inputs)
    return stored, every


def _eliminated(
    lin: Linearisation, inputs: Any, ids: Sequence[int], symmetric: SymmetricBlocks, blocks: Blocks
) -> tuple[Evaluated, Elimination]:
    """Evaluates a program, and eliminates the vertices of an order."""
    arrays = jax.tree.leaves(inputs)
    # Rules compute with JAX's arithmetic: a Python number raises where it is divided by zero.
    leaves = [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in arrays]
    if is_pushed(lin):
        return push_forward(lin, leaves)
    if blocks != "dense":
        around = Around.of_whole(lin)
        values = evaluate(lin, leaves, around=around)
        return values, eliminate_sparse(lin, values.parallel, ids, around, values.calls, symmetric)
    values = evaluate(lin, leaves)
    return values, eliminate(lin, values.edges, ids, values.calls)


def _returned(program: Program, outputs: Sequence[Any], aux: Sequence[Any]) -> Any:
    """Returns the function's output, of values of its leaves."""
    values = map(_compat.as_weak_as, program.out_avals, map(jnp.asarray, outputs))
    value = jax.tree.unflatten(program.out_tree, values)
    if not program.aux:
        return value
    _, avals, tree = program.aux
    auxiliary = map(_compat.as_weak_as, avals, map(jnp.asarray, aux))
    return value, jax.tree.unflatten(tree, auxiliary)


def _as_arrays(trees: Any) -> Any:
    """Returns blocks as arrays."""
    sparse = lambda block: isinstance(block, SparseTensor)  # noqa: E731
    return jax.tree.map(lambda b: b.todense() if sparse(b) else b, trees, is_leaf=sparse)


Left: TypeAlias = Mapping[tuple[int, int], Terms | Matrix]
"""The remaining edge of each input and output after an elimination."""


def all_blocks(
    lin: Linearisation, left: Left, symmetric: SymmetricBlocks, *, sparse: bool
) -> list[tuple[Any, ...]]:
    """Returns, for each output leaf, its blocks by the input leaves; omitted ones transposed."""

    def one(output: int, source: int) -> Any:
        if (source, lin.graph.outputs[output]) in symmetric.omitted:
            return block_of(lin, left, source, output, sparse=sparse).T
        return block_of(lin, left, output, source, sparse=sparse)

    inputs = range(lin.graph.num_inputs)
    return [tuple(one(o, i) for i in inputs) for o in range(lin.graph.num_outputs)]


def assembled(
    program: Program, rows: Sequence[tuple[Any, ...]], inputs: Sequence[Any], several: bool
) -> Any:
    """Returns the output's tree with, for each leaf, that of blocks by the selected arguments."""
    avals = program.avals[: program.num_inputs]
    trees, in_tree = [], jax.tree.structure(inputs)
    for row in rows:
        leaves = [_weak_as(aval, x) for aval, x in zip(avals, row, strict=True)]
        by_argument = tuple(jax.tree.unflatten(in_tree, leaves))
        trees.append(by_argument if several else by_argument[0])
    return jax.tree.unflatten(program.out_tree, trees)


def _weak_as(aval: Any, x: Any) -> Any:
    """Returns a block, weakly typed if the input is."""
    if isinstance(x, SparseTensor):
        return replace(x, weak_type=aval.weak_type)
    return _compat.as_weak_as(aval, x)


def block_of(
    lin: Linearisation, left: Left, output: int, source: int, *, sparse: bool = False
) -> Any:
    """Returns the block of output leaf `output` by input leaf `source`, of shape output + input.

    Inputs that hold integers give zeros of dtype float0, as in JAX.
    """
    out_aval, in_aval = lin.program.out_avals[output], lin.program.avals[source]
    out_shape, in_shape, dtype = out_aval.shape, in_aval.shape, in_aval.dtype
    node = lin.graph.outputs[output]
    if not jnp.issubdtype(dtype, jnp.inexact):
        return np.zeros((*out_shape, *in_shape), jax.dtypes.float0)
    of_parts = lin.realify and is_complex(in_aval)
    if node == source:
        terms: Terms | Matrix = (Edge(algebra.diagonal(out_shape, valued=False), None, dtype),)
    else:
        terms = () if node is None else left.get((source, node), ())
    if isinstance(terms, (Indexed, Entries)):
        parts, shapes = 1 + is_complex(out_aval), (out_shape, in_shape)
        terms = _by_complex(terms, parts, shapes, dtype) if of_parts else terms
        return SparseTensor.from_entries(terms, dtype, *shapes)
    if of_parts and node != source:
        terms = tuple(multiply(e, _parts(in_shape, dtype), keep=sparse) for e in terms)
        if is_complex(out_aval):
            real = _real_part(out_shape, dtype)
            terms = tuple(multiply(real, e, keep=sparse) for e in terms)
    if sparse:
        return SparseTensor.from_edges(terms, out_shape, in_shape, dtype)
    if not terms:
        return jnp.zeros((*out_shape, *in_shape), dtype)
    return dense(terms, out_shape, in_shape, dtype)


def _by_complex(x: Matrix, parts: int, shapes: Shapes, dtype: Any) -> Matrix:
    """Converts partials by real and imaginary part, ∂x and ∂y, to ∂x - i ∂y, as `jax.grad` does.

    Of a complex result, which has two `parts`, the partials of the real part are used.
    """
    if isinstance(x, Indexed) and x.mask is None:
        p = x.pattern
        real_rows = np.flatnonzero(p.rows % parts == 0)
        rows, cols = p.rows[real_rows] // parts, p.cols[real_rows]
        pattern, collect = collected(rows, cols // 2, *shapes)
        factors = np.where(cols % 2, -1j, 1)
        values = x.stored()[real_rows].astype(dtype) * jnp.asarray(factors, dtype)
        return Indexed(pattern, Numbers(values).collected(collect), dtype)
    x = as_computed(x)
    factor = jnp.where(jnp.asarray(x.cols) % 2 == 1, -1j, 1).astype(dtype)
    rows, cols = x.rows // parts, x.cols // 2  # no place, -1, stays none
    if parts > 1:
        is_real = jnp.asarray(x.rows) % parts == 0
        rows, cols = jnp.where(is_real, rows, -1), jnp.where(is_real, cols, -1)
    return Entries.at(x.values.astype(dtype) * factor, rows, cols, *shapes)


def _parts(shape: Sequence[int], dtype: Any) -> Edge:
    """Returns the factor that makes partials ∂x and ∂y into ∂x - i ∂y, as `jax.grad` has it."""
    rank = len(shape)
    pairs = [(k, k) for k in range(rank)]
    structure = algebra.make((*shape, 2), shape, pairs, out_values=[rank])
    return Edge(structure, jnp.asarray([1, -1j], dtype), dtype)


def _real_part(shape: Sequence[int], dtype: Any) -> Edge:
    """Returns the edge from a complex result to its real part, which says the derivative."""
    pairs = [(k, k) for k in range(len(shape))]
    one = selected(shape, (*shape, 2), pairs, canonical(1, 2, 0, 1, 0, 1, 1))
    assert one.link is not None
    return Edge(one.executed, None, dtype, link=one.link((), ()))
