"""A function of pytrees as one kernel: traced at one point, unrolled, called as a primitive."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from veenv import _compat, limits
from veenv._support import attempt, setting
from veenv.graph.identity import digest_of_jaxpr
from veenv.graph.shardings import AsWritten, loosened, with_automatic_axes
from veenv.kernel import primitive
from veenv.kernel.building.callbacks import Carried, carried_out
from veenv.kernel.building.unrolling import UNLIKE_XLA, called_by, leaf_of, unroll
from veenv.kernel.cpu.size import size_of
from veenv.kernel.price import (
    counts_of,
    equations_of,
    kernel_seconds,
    kernel_size,
    seconds,
    unrolled,
)
from veenv.kernel.scalar_program import CannotFuseError, ScalarProgram
from veenv.rules import walk
from veenv.rules.base import is_differentiable, is_key, merge_leaves, replaced, split_leaves
from veenv.rules.definitions import with_definitions

if TYPE_CHECKING:
    from veenv.kernel.cpu.records import Finished

P = ParamSpec("P")
R = TypeVar("R")
KernelMode = Literal["auto", "xla", "fused"]
_largest: ContextVar[int] = ContextVar("largest kernel", default=limits.MAX_OPERATIONS)
_ARRAYS = (jax.Array, np.ndarray, np.generic)
_NEEDS_VALUES = (TypeError, IndexError)  # what JAX raises where the value of a tracer is needed


def _as_plain(x: Any) -> Any:
    """Keys of random numbers as integers, complex numbers as pairs of real ones, along an axis."""
    if not (is_key(x) or jnp.iscomplexobj(x)):
        return x
    plain = jax.random.key_data if is_key(x) else lambda z: jnp.stack([z.real, z.imag], -1)
    return jax.eval_shape(plain, x) if isinstance(x, jax.ShapeDtypeStruct) else plain(x)


def _from_plain(x: Any, like: Any) -> Any:
    """Integers or pairs as the keys or complex numbers that they stand for, where `like` are."""
    if is_key(like):
        return jax.random.wrap_key_data(x, impl=_compat.generator(like.dtype))
    return jax.lax.complex(x[..., 0], x[..., 1]) if jnp.iscomplexobj(like) else x


class _Depends(walk.Flags):
    """A dependence analysis of values on the operands."""

    def primitive(self, equation: Any, ins: list[bool]) -> list[bool]:
        """Results of what depends do."""
        return [any(ins)] * len(equation.outvars)

    def chosen(self, test: Callable[[], bool], results: list[bool]) -> list[bool]:
        """Returns the dependence of a choice: that of its condition, too."""
        return [True] * len(results) if test() else results


@dataclass(frozen=True)
class Traced:
    """A function traced at one point."""

    closed: Any  # its jaxpr; constants of an outer trace and large ones are its last arguments
    # values of the leaves that are arguments, then of those constants
    operands: tuple[Any, ...]
    tree: Any  # structure of the result
    avals: tuple[Any, ...]  # of the leaves of the result that are arrays, keys as keys
    static: dict[int, Any]  # leaves of the result that are no arrays, by their number
    dynamic: tuple[int, ...]  # numbers of the leaves that are arguments
    # the function itself, of its arguments' leaves; its rules belong to the trace that it is run in
    direct: Callable[..., list[Any]]
    name: str = ""  # that of JAX's mode which it is

    @property
    def lifted(self) -> tuple[Any, ...]:
        """Values of the constants that are arguments."""
        return self.operands[len(self.dynamic) :]

    @functools.cached_property
    def carried(self) -> Carried:
        """Computes the kernel's results; callbacks that raise are made after it."""
        return carried_out(self.closed, called_by)

    def program(self, limit: int = limits.MAX_OPERATIONS) -> ScalarProgram:
        """The scalar program, unrolled, of so many operations at most."""
        largest = _largest.get()
        alone = self._kernel()
        if alone is not None and alone.size <= min(limit, largest):
            brief = kernel_size(equations_of(self.closed)) // limits.UNSURE
            with suppress(CannotFuseError):  # what is known to be zero outside, a kernel stores
                program = unroll(self.carried.closed, brief, axes=False)
                return program if size_of(program) <= brief else alone
            return alone
        size = largest if largest < limits.MAX_OPERATIONS else inf
        return unroll(self.carried.closed, min(limit, largest), size)

    def _kernel(self) -> ScalarProgram | None:
        """The program of the kernel that this is, such as of a Jacobian; None of others."""
        jaxpr = _compat.open_jaxpr(self.closed)
        match [(e.params.get("kernel"), e.invars, e.outvars) for e in jaxpr.eqns]:
            case [(primitive.Fused(program=ScalarProgram() as known), jaxpr.invars, jaxpr.outvars)]:
                return known if len(known.outputs) == len(jaxpr.outvars) else None
        return None

    def remembered(self) -> ScalarProgram | Finished:
        """The same without a limit, or what another process has left of it on disk.

        What is on disk is known by the text of this jaxpr and by JAX's settings.
        """
        cached = _compat.compilation_cache()[1] and jax.default_backend() == "cpu"
        limited = _largest.get() < limits.MAX_OPERATIONS
        text = digest_of_jaxpr(self.closed) if cached and not limited else None
        if text is None:
            return self.program()
        from veenv.kernel.cpu import records  # it loads llvmlite

        name = f"fused {_compat.settings()} {text}"
        jaxpr, kernel = _compat.open_jaxpr(self.closed), records.find(name)
        if kernel is not None and (kernel.inputs, kernel.outputs) == tuple(
            tuple(leaf_of(v.aval) for v in variables) for variables in (jaxpr.invars, jaxpr.outvars)
        ):
            return kernel
        program = self.program()
        records.keep(name, program)
        return program

    @property
    def is_constant(self) -> bool:
        """Whether no result depends on the operands, and nothing else is done."""
        jaxpr = _compat.open_jaxpr(self.closed)
        return not (jaxpr.effects or any(_Depends().jaxpr(self.closed, [True] * len(jaxpr.invars))))

    def program_within(self, limit: int) -> ScalarProgram | None:
        """The scalar program where `"auto"` may take a kernel of this `size_of`; None elsewhere."""
        try:
            return self.automatic(limit)
        except CannotFuseError:
            return None

    def automatic(self, limit: int) -> ScalarProgram:
        """The same, or a `CannotFuseError` that says why there is none."""
        jaxpr = _compat.open_jaxpr(self.closed)
        if jax.default_backend() != "cpu":
            raise CannotFuseError("without being asked for, kernels are for CPUs only")
        unlike = next((e for e in walk.every(jaxpr) if e.primitive.name in UNLIKE_XLA), None)
        if unlike is not None:
            reason = f"without being asked for, {unlike.primitive.name!r} is left to XLA"
            raise CannotFuseError(reason, unlike.primitive.name, _compat.source_line(unlike))
        if any(map(primitive.has_batch, walk.every(jaxpr))):
            raise CannotFuseError("a kernel of many points is inside")
        # Loops over axes seldom make a kernel of more, and looking for them takes seconds.
        axes = sum(map(unrolled, walk.every(jaxpr))) <= limits.SEVERAL * limit
        return unroll(self.carried.closed, min(limit, limits.MAX_OPERATIONS), limit, axes=axes)

    def xla(self, wanted: Sequence[int]) -> Callable[..., list[Any]]:
        """The function from operands to some results, for XLA."""
        jaxpr, consts = _compat.open_jaxpr(self.closed), self.closed.consts

        def for_xla(*operands: Any) -> list[Any]:
            outs = jax.core.eval_jaxpr(jaxpr, consts, *operands)
            return [outs[k] for k in wanted]

        return for_xla

    def differentiable(self, wanted: Sequence[int]) -> Callable[..., list[Any]]:
        """Does `xla`, traced anew where custom rules are, which may close over their trace."""
        jaxpr = _compat.open_jaxpr(self.closed)
        lifted = any(map(_compat.is_traced, self.lifted))
        if lifted or not any(map(_ruled, walk.every(jaxpr))):
            return self.xla(wanted)

        def run(*operands: Any) -> list[Any]:
            avals = [v.aval for v in jaxpr.invars]
            outs = self.direct(*map(_compat.as_weak_as, avals[: len(self.dynamic)], operands))
            return [outs[k] for k in wanted]

        return run

    def result(self, leaves: Sequence[Any]) -> Any:
        """The result with these arrays as its leaves."""
        arrays = map(_compat.as_weak_as, self.avals, map(_from_plain, leaves, self.avals))
        return jax.tree.unflatten(self.tree, merge_leaves(self.static, list(arrays)))


def _ruled(equation: Any) -> bool:
    """Tells whether an equation is a call with a derivative rule of its own."""
    return _compat.own_rule(equation.primitive, equation.params) is not None


def kernels_within(size: int) -> AbstractContextManager[None]:
    """Refuses kernels of a larger `size_of`, for who has no time to compile them."""
    return setting(_largest, min(size, limits.MAX_OPERATIONS))


def trace_point(
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    argnums: Sequence[int],
    abstract: bool = False,
) -> Traced:
    """Traces `fun` at the shapes of its arguments.

    Arrays become arguments of the kernel, of `argnums` everything; where fun needs the values of
    others, they become constants. If `abstract`, `jax.ShapeDtypeStruct`s and Python numbers stand
    for arrays, too.
    """
    leaves, tree = jax.tree.flatten((tuple(args), kwargs))
    owner = [i for i, argument in enumerate(args) for _ in jax.tree.leaves(argument)]
    selected = [k for k, o in enumerate(owner) if o in argnums]
    kinds = (*_ARRAYS, jax.ShapeDtypeStruct, int, float) if abstract else _ARRAYS
    arrays = [k for k, x in enumerate(leaves) if k in selected or isinstance(x, kinds)]
    try:
        return trace_leaves(fun, leaves, tree, arrays)
    except _NEEDS_VALUES:
        if arrays == selected:
            raise
        return trace_leaves(fun, leaves, tree, selected)


def trace_leaves(
    fun: Callable[..., Any], leaves: Sequence[Any], tree: Any, dynamic: Sequence[int]
) -> Traced:
    """Traces `fun` by the leaves of its arguments that are dynamic; the others are constants."""
    leaves_of: list[Any] = []

    @functools.wraps(fun)  # JAX's errors name the user's function, its line and its arguments
    def flat(*args: Any, **kwargs: Any) -> list[Any]:
        values = map(_from_plain, jax.tree.leaves((args, kwargs)), (leaves[k] for k in dynamic))
        args, kwargs = jax.tree.unflatten(tree, replaced(leaves, dynamic, values))
        outs, out_tree = jax.tree.flatten(fun(*args, **kwargs))
        static, arrays = split_leaves(outs)
        leaves_of.append((out_tree, tuple(map(jax.typeof, arrays)), static))
        return list(map(_as_plain, arrays))

    operands = [_as_plain(leaves[k]) for k in dynamic]
    given = dict(zip(dynamic, operands, strict=True))
    positional, named = _plain(tree, map(given.get, range(len(leaves))))
    closed = with_definitions(loosened(jax.make_jaxpr(flat)(*positional, **named)))
    lifted = [
        (v, c) for v, c in zip(_compat.open_jaxpr(closed).constvars, closed.consts, strict=True)
        if _compat.is_traced(c) or (np.size(c) > limits.SMALL and is_differentiable(c))
    ]  # fmt: skip
    held = [c for _, c in lifted]
    out_tree, avals, static = leaves_of[-1]
    closed = walk.part_of(closed, arguments=[v for v, _ in lifted])
    if any(_as_plain(c) is not c for c in held):
        inner, count = closed, len(operands)

        def plain(*args: Any) -> list[Any]:
            values = *args[:count], *map(_from_plain, args[count:], held)
            return jax.core.eval_jaxpr(_compat.open_jaxpr(inner), inner.consts, *values)

        closed = jax.make_jaxpr(plain)(*operands, *map(_as_plain, held))
    operands += map(_as_plain, held)

    def direct(*operands: Any) -> list[Any]:
        values = dict(zip(dynamic, operands, strict=True))
        positional, named = _plain(tree, map(values.get, range(len(leaves))))
        return flat(*positional, **named)

    return Traced(closed, tuple(operands), out_tree, avals, static, tuple(dynamic), direct)


def _plain(tree: Any, leaves: Iterator[Any]) -> Any:
    """Leaves, or None, as a tree of dicts and tuples: other containers may check what they hold."""
    node = tree.node_data()
    if node is None:
        return next(leaves)
    children = [_plain(child, leaves) for child in tree.children()]
    return dict(zip(node[1], children, strict=True)) if node[0] is dict else tuple(children)


def fuse(
    fun: Callable[P, R],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
) -> Callable[P, R]:
    """`fun`, a function of one point, as one kernel: a loop over the points of a batch.

    Derivatives inside (`jacve`, `hessian`, `jax.grad`, `jax.jvp` and the like) are part of the
    kernel; the batch is what `jax.vmap` makes of it, in any nesting. Derivatives of the result are
    kernels of their own where they can be. It is compiled at the first call for each shape, as by
    `jax.jit`, inside of which it can be used too; where there are no kernels XLA compiles it, and
    where XLA's program is predicted to be faster at one point.

    Args:
      fun: a function of pytrees of arrays and numbers, at one point.
      static_argnums: positional arguments that are hashable Python values, as for `jax.jit`.
      static_argnames: names of such arguments.

    Returns:
      A function as `fun`; its results differ from XLA's by rounding alone, vectors of `eigh` and
      `svd` also by their sign.

    Raises:
      TypeError: if `fun` cannot be called.
      ValueError: if `fun` has no such argument.
      CannotFuseError: (a ValueError, from the returned function) naming the primitive and the line
        that cannot be part of a kernel.

    Examples:
      >>> @fuse
      ... def newton(x, a):
      ...     return x - (x**3 - a) / jax.grad(lambda x: x**3)(x)
      >>> jax.vmap(newton, (0, None))(jnp.ones(2), 4.0).tolist()
      [2.0, 2.0]
    """
    if not callable(fun):
        raise TypeError(f"fuse takes a function of one point, got {fun!r}")

    def make(fun: Callable[..., Any], _: AsWritten) -> Callable[..., Any]:
        return functools.wraps(fun)(functools.partial(_run_point, fun))

    point = with_automatic_axes(make, fun, lambda result, args, returned: returned)
    return jax.jit(
        point, static_argnums=static_argnums, static_argnames=static_argnames, inline=True
    )


def _run_point(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`fun` as one kernel, which has kernels of its derivatives."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    traced = [k for k, x in enumerate(leaves) if _compat.is_traced(x)]
    arrays = [k for k, x in enumerate(leaves) if isinstance(x, _ARRAYS)]  # without jit
    dynamic = traced or arrays
    shapes = list(leaves)  # of a point on any device: in a mesh, too, nothing in it varies
    for k in dynamic:
        aval = jax.typeof(leaves[k])
        weak = getattr(aval, "weak_type", False)
        shapes[k] = jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=weak)
    trace = trace_leaves(fun, shapes, tree, dynamic)
    operands = [_as_plain(leaves[k]) for k in dynamic]
    trace = replace(trace, operands=(*operands, *trace.lifted))
    if trace.is_constant:
        return trace.result(trace.xla(range(len(trace.avals)))(*trace.operands))
    try:
        program = trace.remembered()
    except CannotFuseError as error:
        inner, place = inspect.unwrap(fun), ""
        if inner is not fun and error.primitive:  # such as a Jacobian of what the user wrote
            with suppress(Exception):  # it may take other arguments, and a line is all it is for
                closed = trace_leaves(inner, shapes, tree, dynamic).closed
                place = _line_of(error.primitive, closed)
        raise error.at(place or _place(fun)) from None
    results = [k for k in program.written() if k < len(trace.closed.out_avals)]
    xla = trace.differentiable(results)
    faster_at = lambda n: xla if n == 1 and is_slow_alone(trace, program) else None  # noqa: E731
    return run_kernel(trace, program, xla, faster_at, _again)


def is_slow_alone(traced: Traced, program: ScalarProgram | Finished) -> bool:
    """Whether a kernel is predicted to take longer at one point than XLA's program."""
    kernel = kernel_seconds(program, 1) if isinstance(program, ScalarProgram) else program.seconds
    return attempt(
        lambda: kernel > limits.SLOWER * seconds(counts_of(traced.closed), 1), lambda: False
    )


def _line_of(primitive: str, jaxpr: Any, call: str = "") -> str:
    """The user's line of a primitive, or that of a call in which it is; empty if not found."""
    for equation in walk.equations(jaxpr):
        line = _compat.source_line(equation) or call
        if equation.primitive.name == primitive:
            return line
        for body in _compat.bodies(equation.params):
            if line_of := _line_of(primitive, body, line):
                return line_of
    return ""


def _place(fun: Callable[..., Any]) -> str:
    """Returns the place where a user's function begins, wrappers removed; empty if unknown."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    code = getattr(inspect.unwrap(fun), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno} ({code.co_name})" if code else ""


def _again(fun: Callable[..., Any], inputs: Sequence[Any]) -> Callable[[int], Any]:
    """For any number of points a function of arrays as a kernel; None where it cannot be one."""

    @functools.cache
    def compiled(alone: bool) -> Callable[..., list[Any]] | None:
        leaves = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in inputs]
        tree = jax.tree.structure((tuple(leaves), {}))
        traced = trace_leaves(fun, leaves, tree, range(len(leaves)))
        try:
            program = attempt(traced.remembered, lambda: None)
        except CannotFuseError:
            return None
        if program is None or (alone and is_slow_alone(traced, program)):
            return None

        def run(*operands: Any) -> list[Any]:
            return run_kernel(replace(traced, operands=(*operands, *traced.lifted)), program)

        return run

    return lambda points: compiled(points == 1)


def as_kernel(
    fun: Callable[..., Any],
    argnums: Callable[[Sequence[Any]], Sequence[int]],
    source: Callable[[str, Sequence[Any], dict[str, Any]], str],
) -> Callable[..., Any]:
    """`fun` as one kernel, whose derivatives are XLA's; by itself it raises `CannotFuseError`.

    Args:
      fun: a function of pytrees, of one point.
      argnums: of the positional arguments those whose leaves are always the kernel's.
      source: of a primitive's name and fun's arguments the user's line, for the error.
    """

    @functools.wraps(fun)
    def fused(*args: Any, **kwargs: Any) -> Any:
        traced = trace_point(fun, args, kwargs, argnums(args))
        try:
            program = traced.remembered()
        except CannotFuseError as error:
            line = source(error.primitive, args, kwargs) if error.primitive else ""
            raise CannotFuseError(error.reason, error.primitive, line or error.source) from None
        return run_kernel(traced, program)

    return fused


def run_kernel(
    traced: Traced,
    program: ScalarProgram | Finished,
    xla: Callable[..., list[Any]] | None = None,
    faster_at: Callable[[int], Callable[..., Any] | None] | None = None,
    again: primitive.Again | None = None,
) -> Any:
    """Calls the kernel; constants and copies of arguments are none of its business.

    Args:
      traced: the function.
      program: its scalar program.
      xla: for XLA, the function from operands to the leaves of the result that are written; by
        default the traced one.
      faster_at: for a number of points such a function where that is faster than the kernel.
      again: makes kernels of the kernel's derivatives.
    """
    avals, written = traced.closed.out_avals, program.written()
    results = [k for k in written if k < len(avals)]  # the others tell of callbacks
    leaves: dict[int, Any] = {}
    if written:
        pairs = zip(traced.operands, program.inputs, strict=True)
        operands = [jnp.asarray(x, leaf.dtype) for x, leaf in pairs]
        xla, faster_at = _as_kernel_dtypes(traced, program, xla or traced.xla(results), faster_at)
        kernel = primitive.Fused(program, xla, faster_at, again)
        leaves = dict(zip(written, primitive.call(kernel, *operands), strict=True))
    for k, leaf in enumerate(program.outputs):
        if k in leaves:
            continue
        copied = program.copied_leaf(k)
        if copied is not None:
            leaves[k] = jnp.asarray(traced.operands[copied], leaf.dtype).reshape(leaf.shape)
        else:
            value = program.constant_leaf(k)
            leaves[k] = jnp.asarray(np.zeros(leaf.shape, leaf.dtype) if value is None else value)
    if [program.outputs[k].shape for k in range(len(avals))] != [a.shape for a in avals]:
        raise TypeError(f"a kernel has results {program.outputs}, expected {avals}")
    wide = [leaves[k].astype(aval.dtype) for k, aval in enumerate(avals)]
    if len(leaves) > len(avals):
        wide = traced.carried.raised([leaves[k] for k in range(len(avals), len(leaves))], wide)
    return traced.result(list(map(_compat.as_weak_as, avals, wide)))


def run_at_batch(
    traced: Traced,
    xla: Callable[..., list[Any]],
    faster_at: Callable[[int], Callable[..., list[Any]] | None],
) -> Any:
    """Calls a function for XLA in a form that depends on the batch.

    Args:
      traced: the function.
      xla: from operands to the leaves of the result, where the batch is not known.
      faster_at: for a number of points such a function, where there is another.
    """
    avals = traced.closed.out_avals
    batched = primitive.Batched(list(map(jax.typeof, traced.operands)), avals, xla, faster_at)
    leaves = primitive.call(batched, *map(jnp.asarray, traced.operands))
    return traced.result(list(map(_compat.as_weak_as, avals, leaves)))


def _as_kernel_dtypes(
    traced: Traced,
    program: ScalarProgram | Finished,
    xla: Callable[..., list[Any]],
    faster_at: Callable[[int], Callable[..., Any] | None] | None,
) -> tuple[Callable[..., list[Any]], Callable[[int], Callable[..., Any] | None] | None]:
    """Functions of the traced one's dtypes as functions of those that the kernel computes in."""
    avals = traced.closed.out_avals
    dtypes = [v.aval.dtype for v in _compat.open_jaxpr(traced.closed).invars]
    written = program.written()
    to = [program.outputs[k] for k in written]
    if dtypes == [leaf.dtype for leaf in program.inputs] and [leaf.dtype for leaf in to] == [
        avals[k].dtype if k < len(avals) else None for k in written
    ]:
        return xla, faster_at

    def converted(fun: Callable[..., Any]) -> Callable[..., list[Any]]:
        def run(*operands: Any) -> list[Any]:
            outs = fun(*(x.astype(dtype) for x, dtype in zip(operands, dtypes, strict=True)))
            none = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in to[len(outs) :]]
            return [*(y.astype(leaf.dtype) for y, leaf in zip(outs, to, strict=False)), *none]

        return run

    if faster_at is None:
        return converted(xla), None
    return converted(xla), lambda points: (f := faster_at(points)) and converted(f)
