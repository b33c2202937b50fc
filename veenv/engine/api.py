"""`jacve`: Jacobians by vertex elimination, called like `jax.jacrev`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from veenv import _compat
from veenv.engine import edge, elimination, evaluation, indexing, terms
from veenv.engine.counts import Counts
from veenv.engine.edge import Edge
from veenv.engine.product import multiply
from veenv.engine.sparse import SparseTensor
from veenv.engine.sparse.indexed import Indexed
from veenv.graph.linearise import Linearisation, linearise
from veenv.graph.program import Program, normalise_argnums, plain_argnums, trace
from veenv.kernel.fuse import KERNEL_MODES, KernelMode, fuse
from veenv.orders.cache import Auto
from veenv.orders.order import Order
from veenv.orders.resolve import OrderLike, resolve_order
from veenv.rules.dtypes import is_complex, is_differentiable
from veenv.structure import structure as algebra


def jacve(
    fun: Callable[..., Any],
    order: OrderLike = "reverse",
    argnums: int | Iterable[int] = 0,
    has_aux: bool = False,
    count_ops: bool = False,
    sparse_representation: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    kernel: KernelMode = "xla",
) -> Callable[..., Any]:
    """Jacobian of `fun` by vertex elimination in the given order.

    Args:
      fun: function of pytrees of arrays, with output a pytree of arrays.
      order: vertex ids (1-based, in equation order), "forward"/"fwd", "reverse"/"rev",
        "markowitz", "best"/"best-executed" (the cheapest order shipped for this graph, by either
        count), "auto" (that one, or one remembered or searched for a few seconds; `Auto` has its
        settings), an `Order`, or the path of an order file.
      argnums: which positional arguments to differentiate by: an integer, or several (a tuple, a
        list, a range).
      has_aux: whether `fun` returns ``(output, aux)``.
      count_ops: also return the `Counts` of the elimination.
      sparse_representation: return each block as a `SparseTensor`, and never make a sum of
        different structures dense on the way.
      holomorphic: `fun` is a holomorphic function of complex arguments.
      allow_int: let arguments to differentiate by hold integers and bools; their blocks are
        zeros of dtype float0, as `jax.grad` gives them.
      kernel: "xla" emits operations that XLA compiles. "fused" makes the whole Jacobian one loop
        over the points of a batch, with every number in a register (CPU; see docs/kernel.md), and
        raises where it cannot. "auto" takes the kernel where it can and where compiling it takes
        a few seconds at most, else XLA. Derivatives of the result take XLA in any case.

    Returns:
      A function of fun's arguments. Its result has the structure, shapes and (weak) dtypes of
      `jax.jacrev`'s: fun's output tree with, in place of each leaf of shape ``o``, the tree of
      the selected argument(s) with leaves of shape ``o + i``. With `has_aux` the result is
      ``(jacobian, aux)``; with `count_ops` the counts come last.

    The graph is that of the argument's shapes: Python control flow may depend on the values of
    other arguments and captured arrays, but not on what is differentiated by (use `jax.lax.cond`).

    A `jax.custom_vjp` rule that is not provably linear in its cotangent (gradient clipping) is
    applied to the rows of the Jacobian, as reverse mode does; orders that would need it elsewhere
    are refused.

    Raises:
      ValueError: (from the returned function) if the order misses, repeats or invents a vertex,
        or argnums is out of range.
      TypeError: (from the returned function) if an argument to differentiate by or an output is
        not of floating-point type (outputs real, or all complex with `holomorphic`; see
        `allow_int`).
      CannotFuseError: (a ValueError, from the returned function) with ``kernel="fused"``, naming
        the primitive and the line that cannot be part of a kernel.

    Example:
      >>> import jax.numpy as jnp
      >>> f = lambda x, y: jnp.stack([x * y, jnp.sin(x)])
      >>> jacve(f, order="reverse", argnums=(0, 1))(2.0, 3.0)[0].shape
      (2,)
    """
    options = _Options(
        plain_argnums(argnums),
        has_aux,
        count_ops,
        sparse_representation,
        holomorphic,
        allow_int,
        with_value=False,
    )
    return _jacobian(fun, order, options, kernel)


def value_and_jacve(
    fun: Callable[..., Any],
    order: OrderLike = "reverse",
    argnums: int | Iterable[int] = 0,
    has_aux: bool = False,
    count_ops: bool = False,
    sparse_representation: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    kernel: KernelMode = "xla",
) -> Callable[..., Any]:
    """As `jacve`, with fun's value in front of the Jacobian.

    Args:
      fun: as for `jacve`, and so are all others.
      order: vertex ids or how to find them.
      argnums: which positional arguments to differentiate by.
      has_aux: whether `fun` returns ``(output, aux)``.
      count_ops: also return the `Counts`.
      sparse_representation: return each block as a `SparseTensor`.
      holomorphic: `fun` is a holomorphic function of complex arguments.
      allow_int: let arguments to differentiate by hold integers and bools.
      kernel: "xla", "fused" or "auto".

    Returns:
      A function returning ``(value, jacobian)``; with `has_aux` ``((value, aux), jacobian)``.
      With `count_ops` the counts come last.

    Raises:
      ValueError: as `jacve`.
      TypeError: as `jacve`.

    Example:
      >>> value, slope = value_and_jacve(lambda x: x * x)(3.0)
      >>> float(value), float(slope)
      (9.0, 6.0)
    """
    options = _Options(
        plain_argnums(argnums),
        has_aux,
        count_ops,
        sparse_representation,
        holomorphic,
        allow_int,
        with_value=True,
    )
    return _jacobian(fun, order, options, kernel)


@dataclass(frozen=True)
class _Options:
    """What `jacve` and its kin were asked for."""

    argnums: int | tuple[int, ...]
    has_aux: bool
    count_ops: bool
    sparse: bool
    holomorphic: bool
    allow_int: bool
    with_value: bool


def _jacobian(
    fun: Callable[..., Any], order: OrderLike, options: _Options, kernel: KernelMode
) -> Callable[..., Any]:
    if not callable(fun):
        raise TypeError(f"fun must be callable, got {fun!r}")
    if kernel not in KERNEL_MODES:
        raise ValueError(f"kernel must be one of {', '.join(KERNEL_MODES)}, got {kernel!r}")
    if not isinstance(order, (str, os.PathLike, Order, Auto)):
        order = tuple(order)  # an iterator would be empty at the second call

    @functools.wraps(fun, updated=())  # its signature, by which jit knows static arguments
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        argnums = options.argnums
        program = trace(fun, args, kwargs, argnums=argnums, has_aux=options.has_aux)
        _check_types(program, options)
        lin = linearise(program, holomorphic=options.holomorphic)
        ids = resolve_order(order, lin.graph)
        wanted = normalise_argnums(argnums, len(args))
        inputs, in_tree = jax.tree.flatten(tuple(args[a] for a in wanted))
        values = evaluation.evaluate(lin, inputs)
        several = isinstance(argnums, tuple)
        if options.sparse:
            left = indexing.eliminate(lin, values.parallel, ids, values.calls)
            done = None
            blocks = _assemble(lin, _sparse(left, lin), in_tree, several)
        else:
            done = elimination.eliminate(lin, values.edges, ids, values.calls)
            blocks = _assemble(lin, _dense(done.edges, lin), in_tree, several)
        result = jax.tree.unflatten(program.out_tree, blocks)
        parts = [*_with_extras(result, program, values, options)]
        if options.count_ops:
            parts.append(_counts(lin, ids, None if values.calls else done))
        return tuple(parts) if len(parts) > 1 else parts[0]

    return jacobian if kernel == "xla" else _fused(fun, jacobian, options, kernel)


def _fused(
    fun: Callable[..., Any], jacobian: Callable[..., Any], options: _Options, kernel: KernelMode
) -> Callable[..., Any]:
    """The Jacobian as one kernel."""

    def line(primitive: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        program = trace(fun, args, kwargs, argnums=options.argnums, has_aux=options.has_aux)
        lines = (e.source for e in program.equations if e.primitive.name == primitive)
        return next(lines, "")

    return fuse(jacobian, kernel, lambda args: normalise_argnums(options.argnums, len(args)), line)


def _with_extras(
    result: Any, program: Program, values: evaluation.Evaluation, options: _Options
) -> tuple[Any, ...]:
    """The parts of the result: Jacobian, with value and auxiliary output where asked for."""
    aux = jax.tree.unflatten(program.aux[1], values.aux) if program.aux else None
    if options.with_value:
        outputs = map(_compat.as_weak_as, program.out_avals, map(jnp.asarray, values.outputs))
        value = jax.tree.unflatten(program.out_tree, outputs)
        return ((value, aux) if options.has_aux else value, result)
    return (result, aux) if options.has_aux else (result,)


def _counts(
    lin: Linearisation, ids: tuple[int, ...], done: elimination.Elimination | None
) -> Counts:
    """What an elimination counted; by the graph where it could not (`done` is None)."""
    graph = lin.graph
    literature = graph.costs(ids)
    if done is None:
        return Counts(ids, literature, graph.costs(ids, "executed"), graph.additions(ids))
    return Counts(ids, literature, done.executed, done.additions)


@dataclass(frozen=True)
class _Form:
    """How the blocks of a Jacobian are made of what an elimination leaves."""

    edges: Mapping[tuple[int, int], Any]
    build: Callable[..., Any]
    zero: Callable[..., Any]
    single: Callable[[Edge], Any]


def _dense(edges: evaluation.Edges, lin: Linearisation) -> _Form:
    def build(e: Edge, out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any) -> Array:
        if lin.realify and jnp.issubdtype(dtype, jnp.complexfloating):
            e = multiply(e, _parts(in_shape, dtype))
        return edge.todense(e, out_shape, in_shape, dtype)

    return _Form(edges, build, elimination.zero_block, lambda e: e)


def _sparse(edges: Mapping[tuple[int, int], Any], lin: Linearisation) -> _Form:
    def build(
        some: terms.Terms | Indexed, out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any
    ) -> SparseTensor:
        if isinstance(some, Indexed):
            return SparseTensor.from_entries(some, dtype)
        if lin.realify and jnp.issubdtype(dtype, jnp.complexfloating):
            some = terms.multiply(some, (_parts(in_shape, dtype),))
        return SparseTensor.from_edges(some, out_shape, in_shape, dtype)

    return _Form(edges, build, _sparse_zero, lambda e: (e,))


def _parts(shape: Sequence[int], dtype: Any) -> Edge:
    """From partials by real and imaginary part, ∂x and ∂y, to ∂x - i ∂y, as `jax.grad` has it."""
    rank = len(shape)
    pairs = [(k, k) for k in range(rank)]
    structure = algebra.make((*shape, 2), shape, pairs, out_values=[rank])
    return Edge(structure, jnp.asarray([1, -1j], dtype), dtype)


def _sparse_zero(out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any) -> Any:
    if not jnp.issubdtype(dtype, jnp.inexact):
        return elimination.zero_block(out_shape, in_shape, dtype)  # float0
    return SparseTensor.from_edges((), out_shape, in_shape, dtype)


def _check_types(program: Program, options: _Options) -> None:
    """Refuses what `jax.jacrev` refuses: integers, and complex outputs where not holomorphic."""
    inputs = program.avals[: program.num_inputs]
    if options.allow_int:
        inputs = [aval for aval in inputs if is_differentiable(aval)]
    for kind, avals in (("argument", inputs), ("output", program.out_avals)):
        either = kind == "argument" and not options.holomorphic
        wanted = "complex" if options.holomorphic else "floating-point" if either else "real"
        for aval in avals:
            fits = either or is_complex(aval) == options.holomorphic
            if not (is_differentiable(aval) and fits):
                raise TypeError(
                    f"jacve needs {wanted} {kind}s, got dtype {aval.dtype} of shape "
                    f"{tuple(aval.shape)}"
                )


def _assemble(lin: Linearisation, form: _Form, in_tree: Any, several: bool) -> list[Any]:
    """For each output leaf, the tree of blocks by the selected arguments."""
    trees = []
    for output in range(lin.graph.num_outputs):
        leaves = [
            _compat.as_weak_as(
                lin.program.avals[i],
                elimination.jacobian_leaf(
                    lin, form.edges, output, i, form.build, form.zero, form.single
                ),
            )
            for i in range(lin.graph.num_inputs)
        ]
        by_argument = jax.tree.unflatten(in_tree, leaves)
        trees.append(by_argument if several else by_argument[0])
    return trees
