"""`jacve`: Jacobians by vertex elimination, called like `jax.jacrev`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, ParamSpec, TypedDict, Unpack, overload

from jax import Array

from veenv._support import check_flags
from veenv.engine.jacobian import transformed
from veenv.engine.request import Request
from veenv.engine.sparse import SparseTensor
from veenv.graph.program import plain_argnums
from veenv.kernel.fusing import KernelMode
from veenv.linear.barrier import PinMode
from veenv.orders.resolve import OrderLike, plain_order

P = ParamSpec("P")


class _Options(TypedDict, total=False):
    """The arguments of `jacve` that do not decide the type of its result."""

    holomorphic: bool
    allow_int: bool
    kernel: KernelMode
    pin: PinMode


@overload
def jacve(
    fun: Callable[P, Array],
    order: OrderLike = "auto",
    argnums: int = 0,
    *,
    sparse_representation: Literal[True],
    **options: Unpack[_Options],
) -> Callable[P, SparseTensor]: ...
@overload
def jacve(
    fun: Callable[P, Any],
    order: OrderLike = "auto",
    argnums: int | Iterable[int] = 0,
    has_aux: bool = False,
    count_ops: bool = False,
    sparse_representation: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    kernel: KernelMode = "auto",
    pin: PinMode = "auto",
) -> Callable[P, Any]: ...
def jacve(
    fun: Callable[P, Any],
    order: OrderLike = "auto",
    argnums: int | Iterable[int] = 0,
    has_aux: bool = False,
    count_ops: bool = False,
    sparse_representation: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    kernel: KernelMode = "auto",
    pin: PinMode = "auto",
) -> Callable[P, Any]:
    """Jacobian of `fun` by vertex elimination in the given order.

    The second argument is the order: where JAX has ``jax.jacrev(f, (0, 1))`` write
    ``jacve(f, argnums=(0, 1))``. Numbers in its place that are an order of the graph are taken
    for one.

    Args:
      fun: function of pytrees of arrays, with output a pytree of arrays.
      order: vertex ids (1-based, in equation order), "forward"/"fwd", "reverse"/"rev", "markowitz",
        "best"/"best-executed"/"best-operations" (the order shipped for this graph with the fewest
        multiplications, executed multiplications or operations), "auto" ("best-operations" where
        there is one, or else the cheapest by operations of the classical ones and a few others, the
        same on every machine), `Auto` (searches for some seconds), an `Order`, or the path of an
        order file. Under `jit` or `vmap`, "auto" and "reverse" may use another order, or JAX's own
        mode, if that is predicted to be faster. The result is the same.
      argnums: which positional arguments to differentiate by: an integer, or several (a tuple, a
        list, a range).
      has_aux: whether `fun` returns ``(output, aux)``.
      count_ops: also return the `Counts` of the elimination.
      sparse_representation: return each block as a `SparseTensor`, and never make a sum of
        different structures dense on the way.
      holomorphic: `fun` is a holomorphic function of complex arguments.
      allow_int: let arguments to differentiate by hold integers and bools; their blocks are
        zeros of dtype float0, as of `jax.grad` (`jax.jacrev` has zeros of the argument's dtype).
      kernel: "fused" makes the whole Jacobian one loop over the points of a batch, with every
        number in a register (see jacobians.html), and raises where it cannot. "xla" emits
        operations that XLA compiles. "auto" is, in a trace on a CPU, the kernel where it can be
        one that is predicted to compile about as fast and to run faster at the batch, else XLA.
        Derivatives of the result take XLA, and so do `jax.export` and several devices with "auto".
      pin: which values XLA is kept from computing again in each place that uses them: "auto" those
        that are expensive and would be repeated, True all that might be, False none. True and
        False ask for XLA, unless a kernel is asked for.

    Returns:
      A function of fun's arguments. Its result has the structure, shapes, (weak) dtypes and, on a
      mesh with explicit axes, shardings of `jax.jacrev`'s: each output leaf of shape ``o`` is
      replaced by the tree of the selected argument(s). Each leaf of that tree has shape ``o + i``,
      where ``i`` is the shape of the argument's leaf. With `has_aux` the result is
      ``(jacobian, aux)``; with `count_ops` the counts come last.

    The graph is that of the argument's shapes: Python control flow may depend on the values of
    other arguments and captured arrays, but not on what is differentiated by (use `jax.lax.cond`).

    A `jax.custom_vjp` rule that is not provably linear in its cotangent (gradient clipping) is
    applied to the rows of the Jacobian, as reverse mode does; a `jax.custom_jvp` rule that JAX
    cannot transpose to its columns, as forward mode does. Other orders are refused.

    Raises:
      ValueError: (from the returned function) if the order misses, repeats or invents a vertex,
        or argnums is out of range.
      TypeError: if an option that is on or off is neither, and (from the returned function) if an
        argument to differentiate by or an output is
        not of floating-point type (outputs real, or all complex with `holomorphic`; see
        `allow_int`).
      CannotFuseError: (a ValueError, from the returned function) with ``kernel="fused"``, naming
        the primitive and the line that cannot be part of a kernel.

    Examples:
      >>> import jax.numpy as jnp
      >>> f = lambda x, y: jnp.stack([x * y, jnp.sin(x)])
      >>> jacve(f, order="reverse", argnums=(0, 1))(2.0, 3.0)[0].shape
      (2,)
    """
    check_flags(has_aux=has_aux, count_ops=count_ops, sparse_representation=sparse_representation,
                holomorphic=holomorphic, allow_int=allow_int)  # fmt: skip
    blocks = "sparse" if sparse_representation else "dense"
    parts = "jacobian", *("aux",) * has_aux, *("counts",) * count_ops
    request = Request(plain_order(order), plain_argnums(argnums), parts, has_aux, blocks,
                      holomorphic, allow_int, kernel, pin)  # fmt: skip
    return transformed(request, fun)


@overload
def value_and_jacve(
    fun: Callable[P, Array],
    order: OrderLike = "auto",
    argnums: int = 0,
    *,
    sparse_representation: Literal[True],
    **options: Unpack[_Options],
) -> Callable[P, tuple[Array, SparseTensor]]: ...
@overload
def value_and_jacve(
    fun: Callable[P, Any],
    order: OrderLike = "auto",
    argnums: int | Iterable[int] = 0,
    has_aux: bool = False,
    count_ops: bool = False,
    sparse_representation: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    kernel: KernelMode = "auto",
    pin: PinMode = "auto",
) -> Callable[P, Any]: ...
def value_and_jacve(
    fun: Callable[P, Any],
    order: OrderLike = "auto",
    argnums: int | Iterable[int] = 0,
    has_aux: bool = False,
    count_ops: bool = False,
    sparse_representation: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    kernel: KernelMode = "auto",
    pin: PinMode = "auto",
) -> Callable[P, Any]:
    """Returns a function of fun's value and its Jacobian, which `jacve` computes.

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

    Examples:
      >>> value, slope = value_and_jacve(lambda x: x * x)(3.0)
      >>> float(value), float(slope)
      (9.0, 6.0)
    """
    check_flags(has_aux=has_aux, count_ops=count_ops, sparse_representation=sparse_representation,
                holomorphic=holomorphic, allow_int=allow_int)  # fmt: skip
    blocks = "sparse" if sparse_representation else "dense"
    parts = "value", "jacobian", *("counts",) * count_ops
    request = Request(plain_order(order), plain_argnums(argnums), parts, has_aux, blocks,
                      holomorphic, allow_int, kernel, pin)  # fmt: skip
    return transformed(request, fun)
