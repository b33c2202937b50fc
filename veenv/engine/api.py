"""`jacve`: Jacobians by vertex elimination, called like `jax.jacrev`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, ParamSpec, TypedDict, Unpack, overload

import jax
import jax.numpy as jnp
from jax import Array

from veenv import _compat, limits
from veenv._support import attempt
from veenv.engine.blocks import all_blocks, assembled
from veenv.engine.candidates import (
    Name,
    by_jax,
    meets_infinity,
    modes_alone,
    num_passes,
    other_modes,
    other_orders,
)
from veenv.engine.choose import Forms, JaxMode, NotTracedError, Results, choosing
from veenv.engine.edge import meeting_infinity
from veenv.engine.elimination import Elimination, counts_of, eliminate
from veenv.engine.evaluation import Evaluated, evaluate, is_pushed, push_forward, whole_of
from veenv.engine.repeated.parts import with_points
from veenv.engine.sparse import SparseTensor
from veenv.engine.sparse.indexing import SymmetricBlocks, eliminate_sparse, symmetric_blocks
from veenv.engine.sparse.partials import Around
from veenv.engine.surroundings import anywhere, check_types, equal_bodies_once
from veenv.graph.linearisation import OF_TRACING, Linearisation, linearise
from veenv.graph.program import (
    Program,
    is_symbolic,
    normalise_argnums,
    plain_argnums,
    refuse_symbolic,
    trace,
)
from veenv.graph.shardings import AsWritten
from veenv.kernel.fusing import KERNEL_MODES, KernelMode, as_kernel
from veenv.linear.barrier import PinMode, with_pins
from veenv.orders.resolve import OrderLike, plain_order, resolve_order
from veenv.rules.base import memoised
from veenv.rules.complex import are_analytic

P = ParamSpec("P")


class _Options(TypedDict, total=False):
    """Arguments of `jacve` that say nothing about the type of its result."""

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
        zeros of dtype float0, as of `jax.grad` (`jax.jacrev` has zeros of the argument's dtype).
      kernel: "fused" makes the whole Jacobian one loop over the points of a batch, with every
        number in a register (see kernel.html), and raises where it cannot. "xla" emits
        operations that XLA compiles. "auto" is, in a trace on a CPU, the kernel where it can be
        one that is predicted to compile about as fast and to run faster at the batch, else XLA.
        Derivatives of the result take XLA, and so do `jax.export` and several devices with "auto".
      pin: which values XLA is kept from computing again in each place that uses them: "auto" those
        that are expensive and would be repeated, True all that might be, False none. True and
        False ask for XLA, unless a kernel is asked for.

    Returns:
      A function of fun's arguments. Its result has the structure, shapes, (weak) dtypes and, on a
      mesh with explicit axes, shardings of `jax.jacrev`'s: fun's output tree with, in place of each
      leaf of shape ``o``, the tree of the selected argument(s) with leaves of shape ``o + i``. With
      `has_aux` the result is ``(jacobian, aux)``; with `count_ops` the counts come last.

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

    Examples:
      >>> import jax.numpy as jnp
      >>> f = lambda x, y: jnp.stack([x * y, jnp.sin(x)])
      >>> jacve(f, order="reverse", argnums=(0, 1))(2.0, 3.0)[0].shape
      (2,)
    """
    wanted = _Wanted(plain_order(order), plain_argnums(argnums), has_aux, count_ops,
                     sparse_representation, holomorphic, allow_int, kernel, pin)  # fmt: skip
    names = ["jacobian", *["aux"] * has_aux, *["counts"] * count_ops]
    return wanted.transformed(fun, names, alone=True)


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

    Examples:
      >>> value, slope = value_and_jacve(lambda x: x * x)(3.0)
      >>> float(value), float(slope)
      (9.0, 6.0)
    """
    wanted = _Wanted(plain_order(order), plain_argnums(argnums), has_aux, count_ops,
                     sparse_representation, holomorphic, allow_int, kernel, pin)  # fmt: skip
    names = ["value", "jacobian", *["counts"] * count_ops]
    return wanted.transformed(fun, names, alone=False)


def jacobian_of_gradient(
    gradient: Callable[..., Any],
    order: OrderLike,
    argnums: int | tuple[int, ...],
    symmetric: Callable[[AsWritten], Callable[[Any, Any], bool]],
    *,
    has_aux: bool = False,
    sparse: bool = False,
    holomorphic: bool = False,
    kernel: KernelMode = "auto",
) -> Callable[..., Any]:
    """`jacve` of a function that is the gradient of another, in a trace or one of JAX's modes.

    Args:
      gradient: the function, of the same arguments as the other one.
      order: as for `jacve`.
      argnums: by which arguments it is the gradient.
      symmetric: from how functions of the user's are traced to whether the Jacobian is known to be
        symmetric, of arguments and keyword arguments.
      has_aux: whether the gradient comes as ``(gradient, aux)``.
      sparse: return blocks as `SparseTensor`s.
      holomorphic: it is the gradient of a holomorphic function.
      kernel: as for `jacve`.

    Examples:
      >>> import jax.numpy as jnp
      >>> cubes = lambda x: 3 * x**2  # the gradient of the sum of x**3
      >>> always = lambda _: lambda args, kwargs: True
      >>> jacobian_of_gradient(cubes, "reverse", 0, always, sparse=True)(jnp.ones(2)).nse
      2
    """
    flags = has_aux, False, True, holomorphic, False, kernel, "auto", not sparse
    wanted = _Wanted(plain_order(order), argnums, *flags)

    def make(gradient: Callable[..., Any], seen: AsWritten) -> Callable[..., Any]:
        return replace(wanted, symmetric=symmetric(seen)).compiled(gradient, alone=True)

    names = ["gradient", *["aux"] * has_aux]
    return anywhere(make, gradient, argnums, names, has_aux=has_aux, sparse=sparse)


def _alone(forms: Forms, has_aux: bool) -> Forms:
    """The forms of a Jacobian without the function's value."""

    def pick(form: Sequence[Any]) -> Any:
        value, *rest = form
        parts = [rest[0], value[1], *rest[1:]] if has_aux else rest
        return tuple(parts) if len(parts) > 1 else parts[0]

    def after(mode: JaxMode) -> JaxMode:
        return mode._replace(run=lambda *args, **kwargs: pick(mode.run(*args, **kwargs)))

    def picked(*call: Any) -> Results:
        eliminations, modes = forms(*call)
        return Results(list(map(pick, eliminations)), list(map(after, modes)))

    return picked


_FORESEEN = (NotTracedError, NotImplementedError, *OF_TRACING)
"""What says what the user can do, or what the package does not do."""


@dataclass(frozen=True)
class _Wanted:
    """What is asked for of a function: options of `jacve`, the order and argnums as plain ones."""

    order: OrderLike
    argnums: int | tuple[int, ...]
    has_aux: bool
    count_ops: bool
    sparse: bool
    holomorphic: bool
    allow_int: bool
    kernel: KernelMode
    pin: PinMode
    # sparse blocks become dense at last, so that JAX's own modes can take their place
    dense: bool = False
    # of arguments and keyword arguments whether the Jacobian is known to be symmetric
    symmetric: Callable[[Any, Any], bool] | None = None

    @property
    def compared(self) -> Name | None:
        """The name of an order that other forms may stand for."""
        if self.dense and not self.holomorphic:
            return "auto"
        special = self.count_ops or self.sparse or self.holomorphic or self.allow_int
        return None if special else _name_of(self.order)

    def transformed(
        self, fun: Callable[..., Any], names: Sequence[str], *, alone: bool
    ) -> Callable[..., Any]:
        """What a function of the user's becomes, with results of these names."""

        def make(fun: Callable[..., Any], _: AsWritten) -> Callable[..., Any]:
            return self.compiled(fun, alone=alone)

        return anywhere(make, fun, self.argnums, names, has_aux=self.has_aux, sparse=self.sparse)

    def compiled(self, fun: Callable[..., Any], *, alone: bool) -> Callable[..., Any]:
        """The Jacobian, `alone` or behind the value, as one kernel where that is asked for."""
        if not callable(fun):
            raise TypeError(f"fun must be callable, got {fun!r}")
        kernel = self.kernel

        def forms_of(fun: Callable[..., Any]) -> Forms:
            forms = functools.partial(self.forms, fun)
            return _alone(forms, self.has_aux) if alone else forms

        forms = forms_of(fun)
        if kernel not in KERNEL_MODES:
            raise ValueError(f"kernel must be one of {', '.join(KERNEL_MODES)}, got {kernel!r}")

        @functools.wraps(fun, updated=())  # its signature, by which jit knows static arguments
        def jacobian(*args: Any, **kwargs: Any) -> Any:
            return forms(args, kwargs, False).eliminations[0]

        def wanted(args: Sequence[Any]) -> tuple[int, ...]:
            return normalise_argnums(self.argnums, len(args))

        plain = with_pins(jacobian, self.pin)
        if kernel != "fused" and self.pin == "auto":
            # Beside reverse stands another order of fewer operations; "auto" comes first.
            source = -1 if self.compared == "reverse" else 0
            return choosing(jacobian, forms_of, fun, wanted, kernel=kernel == "auto", source=source)
        if kernel != "fused":
            return plain

        def line(primitive: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
            program = trace(fun, args, kwargs, argnums=self.argnums, has_aux=self.has_aux)
            lines = (e.source for e in program.equations if e.primitive.name == primitive)
            return next(lines, "")

        return as_kernel(with_pins(jacobian, False), wanted, line)  # a kernel repeats nothing

    @memoised()
    def forms(
        self,
        fun: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        others: bool,
    ) -> Results:
        """What `value_and_jacve` returns for some arguments, and the same in other ways."""
        program = trace(fun, args, kwargs, argnums=self.argnums, has_aux=self.has_aux)
        inputs = {a: args[a] for a in normalise_argnums(self.argnums, len(args))}
        check_types(program, inputs, holomorphic=self.holomorphic, allow_int=self.allow_int)
        if is_symbolic(program):
            return self._uncounted(program, args, kwargs, others)
        by_order = functools.partial(self._by_order, program, args, kwargs, others)
        if self.compared != "auto" or self.dense:
            return by_order()
        own = by_jax(program, self.argnums, has_aux=self.has_aux)
        by_mode = lambda: Results([own(*args, **kwargs)], [])  # noqa: E731
        return attempt(by_order, by_mode, lambda error: isinstance(error, _FORESEEN))

    def _by_complex(self, program: Program) -> bool:
        """Whether all partials are complex numbers; otherwise variables are pairs of real ones."""
        return self.holomorphic and are_analytic(program.equations)

    def _uncounted(
        self, program: Program, args: Sequence[Any], kwargs: dict[str, Any], others: bool
    ) -> Results:
        """Returns one of JAX's modes of a program with axes of symbolic size."""
        forward = str(self.order).lower() in ("forward", "fwd")
        if replace(self, order="auto").compared is None or (not forward and self.compared is None):
            refuse_symbolic(program)
        if others:
            raise NotTracedError
        mode = by_jax(program, self.argnums, has_aux=self.has_aux, forward=forward)
        return Results([mode(*args, **kwargs)], [])

    def _by_order(
        self, program: Program, args: Sequence[Any], kwargs: dict[str, Any], others: bool
    ) -> Results:
        """The elimination; with `others` the other forms, too, or an error that asks for none."""
        lin = attempt(lambda: self._in_parts(program, args), lambda: None) or linearise(
            program, holomorphic=self._by_complex(program)
        )
        if others and whole_of(lin) is not None:
            raise NotTracedError
        ids = resolve_order(self.order, lin.graph, 0 if self.argnums else len(args))
        made = functools.partial(self._eliminated, args, kwargs, lin, ids)
        return attempt(lambda: made(others, plain=False), lambda: made(False, plain=True))

    def _in_parts(self, program: Program, args: Sequence[Any]) -> Linearisation | None:
        """The linearisation with what is the same at many points as one equation, if that helps."""
        large = self.compared is not None and prod(num_passes(program)) >= limits.LARGE
        other = self.count_ops or self.dense or _name_of(self.order) != "auto"
        if other or not (self.sparse or large):
            return None
        found = _in_parts(program)
        if found is program:
            return None
        lin = linearise(found, holomorphic=self._by_complex(found))
        inputs = [args[a] for a in normalise_argnums(self.argnums, len(args))]
        return lin if self.sparse or _thin(lin, inputs, lin.graph.reverse()) else None

    def _eliminated(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        lin: Linearisation,
        ids: tuple[int, ...],
        others: bool,
        *,
        plain: bool,
    ) -> Results:
        """The same of a linearisation; if `plain`, of what is optional nothing is tried."""
        program, name = lin.program, self.compared if others else None
        modes = {} if plain else other_modes(lin, name, self.argnums, has_aux=self.has_aux)
        inputs = [args[a] for a in normalise_argnums(self.argnums, len(args))]
        halves = not plain and self.symmetric is not None and self.symmetric(args, kwargs)
        symmetric = symmetric_blocks(lin) if halves else SymmetricBlocks()
        thin = not (plain or self.dense) and self.compared is not None and _thin(lin, inputs, ids)
        if not (plain or thin) and (alone := modes_alone(lin, ids, modes)):
            return Results([], alone)
        sparse = self.sparse or thin
        with equal_bodies_once(), meeting_infinity(meets_infinity(lin)):
            values, done = _eliminated(lin, inputs, ids, symmetric, sparse=sparse)
            blocks = [all_blocks(lin, done.terms, symmetric, sparse=sparse)]
            if not (plain or sparse):
                for one in other_orders(lin, ids, name, modes=bool(modes)):
                    left = eliminate(lin, values.edges, one).terms
                    blocks.append(all_blocks(lin, left, symmetric, sparse=False))
            blocks = _dense(blocks) if self.dense or thin else blocks
            several = isinstance(self.argnums, tuple)
            trees = [assembled(program, rows, inputs, several) for rows in blocks]
            value = _returned(program, values.outputs, values.aux)
        found: list[Any] = [(value, jax.tree.unflatten(program.out_tree, tree)) for tree in trees]
        if self.count_ops:
            counted = None if sparse or any(lin.reverse_only) else done
            found = [(*pair, counts_of(lin.graph, ids, counted)) for pair in found]
        return Results(found, [*modes.values()])


def _in_parts(program: Program) -> Program:
    """A program with what is the same at many points as functions of one, kernels where it can."""

    def jacobian(point: Callable[..., Any], argnums: tuple[int, ...]) -> Callable[..., Any]:
        return value_and_jacve(point, argnums=argnums, has_aux=True, allow_int=True)

    return with_points(program, jacobian)


def _thin(lin: Linearisation, inputs: Any, ids: Sequence[int]) -> bool:
    """Whether a Jacobian is large and has few entries that are not zero; nothing is computed."""
    some, every = entries_of(lin, inputs, ids)
    return limits.THIN * some <= every


def entries_of(lin: Linearisation, inputs: Any, ids: Sequence[int]) -> tuple[int, int]:
    """How many entries of a large Jacobian can be nonzero, and how many it has.

    All, where it is small or it takes an elimination with values to know.

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
        with memoised():
            _, done = _eliminated(lin, inputs, ids, SymmetricBlocks(), sparse=True)
            rows = all_blocks(lin, done.terms, SymmetricBlocks(), sparse=True)
        several = (block for row in rows for block in row if isinstance(block, SparseTensor))
        stored = sum(block.nse for block in several)

    jax.eval_shape(count, inputs)
    return stored, every


def _eliminated(
    lin: Linearisation, inputs: Any, ids: Sequence[int], symmetric: SymmetricBlocks, *, sparse: bool
) -> tuple[Evaluated, Elimination]:
    """The values of a program, and what is left when the vertices of an order are gone."""
    given = jax.tree.leaves(inputs)
    # Rules compute with JAX's arithmetic: a Python number raises where it is divided by zero.
    leaves = [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in given]
    if is_pushed(lin):
        return push_forward(lin, leaves)
    if sparse:
        around = Around.alone(lin)
        values = evaluate(lin, leaves, around=around)
        return values, eliminate_sparse(lin, values.parallel, ids, values.calls, symmetric, around)
    values = evaluate(lin, leaves)
    return values, eliminate(lin, values.edges, ids, values.calls)


def _returned(program: Program, outputs: Sequence[Any], aux: Sequence[Any]) -> Any:
    """What the function returned, of values of its leaves."""
    values = map(_compat.as_weak_as, program.out_avals, map(jnp.asarray, outputs))
    value = jax.tree.unflatten(program.out_tree, values)
    if not program.aux:
        return value
    _, avals, tree = program.aux
    others = map(_compat.as_weak_as, avals, map(jnp.asarray, aux))
    return value, jax.tree.unflatten(tree, others)


def _dense(trees: Any) -> Any:
    """Blocks as arrays, whatever they are."""
    sparse = lambda block: isinstance(block, SparseTensor)  # noqa: E731
    return jax.tree.map(lambda b: b.todense() if sparse(b) else b, trees, is_leaf=sparse)


def _name_of(order: OrderLike) -> Name | None:
    """The name of an order that other forms may stand for: "auto", or "reverse"."""
    name = order.lower() if isinstance(order, str) else ""
    return "auto" if name == "auto" else "reverse" if name in ("reverse", "rev") else None
