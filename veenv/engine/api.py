"""`jacve`: Jacobians by vertex elimination, called like `jax.jacrev`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from veenv import _compat
from veenv.engine.blocks import all_blocks, assembled
from veenv.engine.choice import Forms, Others, Results, choosing, is_small_kernel
from veenv.engine.counts import counts_of
from veenv.engine.elimination import eliminate
from veenv.engine.emission import Name, other_blocks, own_blocks
from veenv.engine.evaluation import evaluate
from veenv.engine.indexing import eliminate_sparse
from veenv.engine.pins import pinned
from veenv.engine.symmetry import Half, half_of
from veenv.graph.linearisation import linearise
from veenv.graph.program import Program, normalise_argnums, plain_argnums, trace
from veenv.kernel.fusing import KERNEL_MODES, KernelMode, fuse
from veenv.linear.barrier import PinMode
from veenv.orders.cache import Auto
from veenv.orders.order import Order
from veenv.orders.resolve import OrderLike, resolve_order
from veenv.rules.dtypes import is_complex, is_differentiable


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
    pin: PinMode = "auto",
) -> Callable[..., Any]:
    """Jacobian of `fun` by vertex elimination in the given order.

    Args:
      fun: function of pytrees of arrays, with output a pytree of arrays.
      order: vertex ids (1-based, in equation order), "forward"/"fwd", "reverse"/"rev" (in a trace
        the forward one or JAX's own mode, where that is predicted to be faster and gives the same),
        "markowitz", "best"/"best-executed" (the cheapest order shipped for this graph, by either
        count), "auto" (that one, or else the cheapest by operations of the classical ones and a few
        others, the same on every machine; in a trace as with "reverse"), `Auto` (searches for some
        seconds), an `Order`, or the path of an order file.
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
        about as long as XLA takes at most, else XLA. Derivatives of the result take XLA.
      pin: which values XLA is kept from computing again in each place that uses them: "auto" those
        that are expensive and would be repeated, True all that might be, False none.

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
    forms = _forms(
        fun, order, argnums, has_aux, count_ops, sparse_representation, holomorphic, allow_int
    )

    def alone(form: Sequence[Any]) -> Any:
        value, *rest = form
        parts = [rest[0], value[1], *rest[1:]] if has_aux else rest
        return tuple(parts) if len(parts) > 1 else parts[0]

    def without_value(*call: Any) -> Results:
        eliminations, modes = forms(*call)
        return list(map(alone, eliminations)), list(map(alone, modes))

    special = count_ops or sparse_representation or holomorphic or allow_int
    name = None if special else _name(order)
    return _compiled(without_value, fun, kernel, pin, argnums, has_aux, name)


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
    pin: PinMode = "auto",
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
      pin: "auto", True or False.

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
    forms = _forms(
        fun, order, argnums, has_aux, count_ops, sparse_representation, holomorphic, allow_int
    )
    special = count_ops or sparse_representation or holomorphic or allow_int
    return _compiled(forms, fun, kernel, pin, argnums, has_aux, None if special else _name(order))


def jacobian_of_gradient(
    gradient: Callable[..., Any],
    order: OrderLike,
    argnums: int | tuple[int, ...],
    symmetric: Callable[[Any, Any], bool],
) -> Callable[..., Any]:
    """`jacve` with sparse blocks of a function that is the gradient of another.

    Args:
      gradient: the function, of the same arguments as the other one.
      order: as for `jacve`.
      argnums: by which arguments it is the gradient.
      symmetric: arguments and keyword arguments to whether its Jacobian is known to be symmetric.

    Example:
      >>> cubes = lambda x: 3 * x**2  # the gradient of the sum of x**3
      >>> jacobian_of_gradient(cubes, "reverse", 0, lambda *_: True)(jnp.ones(2)).nse
      2
    """
    forms = _forms(gradient, order, argnums, False, False, True, False, False, symmetric)

    def without_value(*call: Any) -> Results:
        return [jacobian for _, jacobian in forms(*call)[0]], []

    return _compiled(without_value, gradient, "xla", "auto", argnums, False, None)


def _forms(
    fun: Callable[..., Any],
    order: OrderLike,
    argnums: int | Iterable[int],
    has_aux: bool,
    count_ops: bool,
    sparse_representation: bool,
    holomorphic: bool,
    allow_int: bool,
    symmetric: Callable[[Any, Any], bool] | None = None,
) -> Forms:
    """What `value_and_jacve` returns, and the same with the blocks of JAX's own modes."""
    argnums = plain_argnums(argnums)
    if not callable(fun):
        raise TypeError(f"fun must be callable, got {fun!r}")
    if not isinstance(order, (str, os.PathLike, Order, Auto)):
        order = tuple(order)  # an iterator would be empty at the second call

    def forms(args: Sequence[Any], kwargs: dict[str, Any], others: Others) -> Results:
        program = trace(fun, args, kwargs, argnums=argnums, has_aux=has_aux)
        _check_types(program, holomorphic=holomorphic, allow_int=allow_int)
        lin = linearise(program, holomorphic=holomorphic)
        ids = resolve_order(order, lin.graph)
        inputs = [args[a] for a in normalise_argnums(argnums, len(args))]
        leaves = jax.tree.leaves(inputs)
        values = evaluate(lin, leaves)
        half = half_of(lin) if symmetric is not None and symmetric(args, kwargs) else Half()
        if sparse_representation:
            done = eliminate_sparse(lin, values.parallel, ids, values.calls, half)
        else:
            done = eliminate(lin, values.edges, ids, values.calls)
        alone = others == "none" or (others == "beside a kernel" and is_small_kernel(lin, ids))
        own = functools.partial(own_blocks, lin, fun, argnums, args, kwargs, has_aux=has_aux)
        orders, modes = other_blocks(lin, values.edges, ids, None if alone else _name(order), own)
        first = all_blocks(lin, done.terms, half, sparse=sparse_representation)
        blocks, eliminations = [first, *orders, *modes], 1 + len(orders)
        outputs = map(_compat.as_weak_as, program.out_avals, map(jnp.asarray, values.outputs))
        value = jax.tree.unflatten(program.out_tree, outputs)
        if program.aux:
            value = value, jax.tree.unflatten(program.aux[1], values.aux)
        trees = [assembled(lin, rows, inputs, isinstance(argnums, tuple)) for rows in blocks]
        results = [jax.tree.unflatten(program.out_tree, tree) for tree in trees]
        found: list[Any] = [(value, result) for result in results]
        if count_ops:
            counted = not (sparse_representation or values.calls)
            counts = counts_of(lin.graph, ids, done if counted else None)
            found = [(*pair, counts) for pair in found]
        return found[:eliminations], found[eliminations:]

    return forms


def _compiled(
    forms: Forms,
    fun: Callable[..., Any],
    kernel: KernelMode,
    pin: PinMode,
    argnums: int | Iterable[int],
    has_aux: bool,
    name: str | None,
) -> Callable[..., Any]:
    """The Jacobian of a function, as one kernel where that is asked for."""
    if kernel not in KERNEL_MODES:
        raise ValueError(f"kernel must be one of {', '.join(KERNEL_MODES)}, got {kernel!r}")

    @functools.wraps(fun, updated=())  # its signature, by which jit knows static arguments
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        return forms(args, kwargs, "none")[0][0]

    def wanted(args: Sequence[Any]) -> tuple[int, ...]:
        return normalise_argnums(argnums, len(args))

    chosen = (kernel == "xla" and name == "reverse") or (kernel != "fused" and name == "auto")
    if chosen and pin == "auto":
        auto = kernel == "auto"
        return choosing(jacobian, forms, wanted, kernel=auto, kept=name == "reverse")
    compiled = pinned(jacobian, pin)
    if kernel == "xla":
        return compiled
    if kernel == "fused":
        compiled = pinned(jacobian, False)  # a kernel repeats nothing

    def line(primitive: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        program = trace(fun, args, kwargs, argnums=argnums, has_aux=has_aux)
        lines = (e.source for e in program.equations if e.primitive.name == primitive)
        return next(lines, "")

    return fuse(compiled, kernel, wanted, line)


def _name(order: OrderLike) -> Name | None:
    """The name of an order that stands for the fastest program, or for the default."""
    name = order.lower() if isinstance(order, str) else ""
    return "auto" if name == "auto" else "reverse" if name in ("reverse", "rev") else None


def _check_types(program: Program, *, holomorphic: bool, allow_int: bool) -> None:
    """Refuses what `jax.jacrev` refuses: integers, and complex outputs where not holomorphic."""
    inputs = program.avals[: program.num_inputs]
    if allow_int:
        inputs = [aval for aval in inputs if is_differentiable(aval)]
    for kind, avals in (("argument", inputs), ("output", program.out_avals)):
        either = kind == "argument" and not holomorphic
        wanted = "complex" if holomorphic else "floating-point" if either else "real"
        for aval in avals:
            fits = either or is_complex(aval) == holomorphic
            if not (is_differentiable(aval) and fits):
                raise TypeError(
                    f"jacve needs {wanted} {kind}s, got dtype {aval.dtype} of shape "
                    f"{tuple(aval.shape)}"
                )
