"""`jacve`: Jacobians by vertex elimination, called like `jax.jacrev`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from veenv.engine.choose import Forms, JaxMode, Results, choosing
from veenv.engine.forms import at_own_width, forms_of, name_of
from veenv.graph.program import normalise_argnums, plain_argnums, trace
from veenv.kernel.fusing import KERNEL_MODES, KernelMode, as_kernel
from veenv.linear.barrier import PinMode, with_pins
from veenv.orders.resolve import OrderLike, plain_order


def jacve(
    fun: Callable[..., Any],
    order: OrderLike = "auto",
    argnums: int | Iterable[int] = 0,
    has_aux: bool = False,
    count_ops: bool = False,
    sparse_representation: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    kernel: KernelMode = "auto",
    pin: PinMode = "auto",
) -> Callable[..., Any]:
    """Jacobian of `fun` by vertex elimination in the given order.

    Args:
      fun: function of pytrees of arrays, with output a pytree of arrays.
      order: vertex ids (1-based, in equation order), "forward"/"fwd", "reverse"/"rev", "markowitz",
        "best"/"best-executed" (the cheapest order shipped for this graph, by either count), "auto"
        (that one, or else the cheapest by operations of the classical ones and a few others, the
        same on every machine), `Auto` (searches for some seconds), an `Order`, or the path of an
        order file. In a trace "auto" and "reverse" stand for another order or JAX's own mode where
        that is predicted to be faster and gives the same.
      argnums: which positional arguments to differentiate by: an integer, or several (a tuple, a
        list, a range).
      has_aux: whether `fun` returns ``(output, aux)``.
      count_ops: also return the `Counts` of the elimination.
      sparse_representation: return each block as a `SparseTensor`, and never make a sum of
        different structures dense on the way.
      holomorphic: `fun` is a holomorphic function of complex arguments.
      allow_int: let arguments to differentiate by hold integers and bools; their blocks are
        zeros of dtype float0, as `jax.grad` gives them.
      kernel: "fused" makes the whole Jacobian one loop over the points of a batch, with every
        number in a register (see docs/kernel.md), and raises where it cannot. "xla" emits
        operations that XLA compiles. "auto" is, in a trace on a CPU, the kernel where it can be
        one that is predicted to compile about as fast and to run faster at the batch, else XLA.
        Derivatives of the result take XLA, and so do `jax.export` and several devices with "auto".
      pin: which values XLA is kept from computing again in each place that uses them: "auto" those
        that are expensive and would be repeated, True all that might be, False none. True and
        False ask for XLA, unless a kernel is asked for.

    Returns:
      A function of fun's arguments. Its result has the structure, shapes and (weak) dtypes of
      `jax.jacrev`'s: fun's output tree with, in place of each leaf of shape ``o``, the tree of
      the selected argument(s) with leaves of shape ``o + i``. With `has_aux` the result is
      ``(jacobian, aux)``; with `count_ops` the counts come last.

    The graph is that of the argument's shapes: Python control flow may depend on the values of
    other arguments and captured arrays, but not on what is differentiated by (use `jax.lax.cond`).

    A `jax.custom_vjp` rule that is not provably linear in its cotangent (gradient clipping) is
    applied to the rows of the Jacobian, as reverse mode does; a `jax.custom_jvp` rule that JAX
    cannot transpose to its columns, as forward mode does. Other orders are refused.

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
    order, argnums = plain_order(order), plain_argnums(argnums)

    def alone(form: Sequence[Any]) -> Any:
        value, *rest = form
        parts = [rest[0], value[1], *rest[1:]] if has_aux else rest
        return tuple(parts) if len(parts) > 1 else parts[0]

    def make(fun: Callable[..., Any]) -> Callable[..., Any]:
        forms = forms_of(
            fun, order, argnums, has_aux, count_ops, sparse_representation, holomorphic, allow_int
        )

        return _compiled(_each(alone, forms), fun, order, kernel, pin, argnums, has_aux)

    return at_own_width(make, fun, argnums)


def value_and_jacve(
    fun: Callable[..., Any],
    order: OrderLike = "auto",
    argnums: int | Iterable[int] = 0,
    has_aux: bool = False,
    count_ops: bool = False,
    sparse_representation: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    kernel: KernelMode = "auto",
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
    order, argnums = plain_order(order), plain_argnums(argnums)

    def make(fun: Callable[..., Any]) -> Callable[..., Any]:
        forms = forms_of(
            fun, order, argnums, has_aux, count_ops, sparse_representation, holomorphic, allow_int
        )
        return _compiled(forms, fun, order, kernel, pin, argnums, has_aux)

    return at_own_width(make, fun, argnums)


def jacobian_of_gradient(
    gradient: Callable[..., Any],
    order: OrderLike,
    argnums: int | tuple[int, ...],
    symmetric: Callable[[Any, Any], bool],
    *,
    sparse: bool,
) -> Callable[..., Any]:
    """`jacve` of a function that is the gradient of another, in a trace or one of JAX's modes.

    Args:
      gradient: the function, of the same arguments as the other one.
      order: as for `jacve`.
      argnums: by which arguments it is the gradient.
      symmetric: arguments and keyword arguments to whether its Jacobian is known to be symmetric.
      sparse: return blocks as `SparseTensor`s.

    Example:
      >>> import jax.numpy as jnp
      >>> cubes = lambda x: 3 * x**2  # the gradient of the sum of x**3
      >>> jacobian_of_gradient(cubes, "reverse", 0, lambda *_: True, sparse=True)(jnp.ones(2)).nse
      2
    """

    def make(gradient: Callable[..., Any]) -> Callable[..., Any]:
        flags = False, False, True, False, False
        forms = forms_of(gradient, order, argnums, *flags, symmetric, dense=not sparse)
        alone = _each(lambda form: form[1], forms)
        return _compiled(alone, gradient, (), "xla", "auto", argnums, False)

    return at_own_width(make, gradient, argnums)


def _each(pick: Callable[[Any], Any], forms: Forms) -> Forms:
    """The forms of what is picked of their results."""

    def after(mode: JaxMode) -> JaxMode:
        return mode._replace(run=lambda *args, **kwargs: pick(mode.run(*args, **kwargs)))

    def picked(*call: Any) -> Results:
        eliminations, modes = forms(*call)
        return list(map(pick, eliminations)), list(map(after, modes))

    return picked


def _compiled(
    forms: Forms,
    fun: Callable[..., Any],
    order: OrderLike,
    kernel: KernelMode,
    pin: PinMode,
    argnums: int | Iterable[int],
    has_aux: bool,
) -> Callable[..., Any]:
    """The Jacobian of a function, as one kernel where that is asked for."""
    if kernel not in KERNEL_MODES:
        raise ValueError(f"kernel must be one of {', '.join(KERNEL_MODES)}, got {kernel!r}")

    @functools.wraps(fun, updated=())  # its signature, by which jit knows static arguments
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        return forms(args, kwargs, False)[0][0]

    def wanted(args: Sequence[Any]) -> tuple[int, ...]:
        return normalise_argnums(argnums, len(args))

    plain = with_pins(jacobian, pin)
    if kernel != "fused" and pin == "auto":
        # Beside reverse stands another order where that takes fewer operations; "auto" comes first.
        source = -1 if name_of(order) == "reverse" else 0
        return choosing(jacobian, forms, wanted, kernel=kernel == "auto", source=source)
    if kernel != "fused":
        return plain

    def line(primitive: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        program = trace(fun, args, kwargs, argnums=argnums, has_aux=has_aux)
        lines = (e.source for e in program.equations if e.primitive.name == primitive)
        return next(lines, "")

    return as_kernel(with_pins(jacobian, False), wanted, line)  # a kernel repeats nothing
