"""The JAX primitive of a kernel: batches become the kernel's, derivatives XLA's or kernels."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from veenv import _compat, limits
from veenv._support import attempt
from veenv.kernel.scalar_program import ScalarProgram
from veenv.rules.base import replaced

if TYPE_CHECKING:
    from veenv.kernel.cpu.records import Finished


Again = Callable[[Callable[..., Sequence[Any]], Sequence[Any]], Callable[[int], Any]]
"""From a function of one point and its operands' shapes and dtypes to its `faster_at`."""


class Batched:
    """A function of JAX arrays, written for one point, that sees its batch when it is lowered.

    Attributes:
      inputs: shape and dtype of each operand of one point.
      outputs: shape and dtype of each result.
      xla: the function of one point, from operands to results.
      faster_at: of a number of points, such a function where it is faster on a CPU; None where
        there is no other. With it `xla` is what other machines run, what is exported, and what is
        divided among devices.
      again: makes kernels of its derivatives; None leaves them to XLA.
      pulled: of a derivative that is linear in its last operands its transpose, from the first ones
        and cotangents; None where that is made of `xla`.
    """

    def __init__(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        xla: Callable[..., Sequence[Any]],
        faster_at: Callable[[int], Callable[..., Sequence[Any]] | None] | None,
        again: Again | None = None,
    ):
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.xla = xla
        self.faster_at = faster_at
        self.again = again
        self.pulled: Callable[[Sequence[Any], list[Any]], Sequence[Any]] | None = None

    def derived(
        self, fun: Callable[..., Sequence[Any]], inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Batched:
        """A derivative of it, of one point, as a kernel where it can be one."""
        faster_at = None if self.again is None else self.again(fun, inputs)
        return Batched(inputs, outputs, fun, faster_at, self.again)

    def now(self, *args: Any) -> list[Any]:
        """The results at arrays, outside of any trace."""
        return list(self.batched_xla([jax.typeof(x) for x in args])(*args))

    def batch_of(self, avals: Sequence[Any]) -> tuple[int, ...]:
        """The batch axes that the arguments of a call have in front of those of a point."""
        for aval, leaf in zip(avals, self.inputs, strict=True):
            front = len(aval.shape) - len(leaf.shape)
            if front:
                return tuple(aval.shape[:front])
        return ()

    def batched_xla(
        self, avals: Sequence[Any], fun: Callable[..., Sequence[Any]] | None = None
    ) -> Callable[..., Sequence[Any]]:
        """The function for XLA, or another of one point, for arguments with such batch axes."""
        leaves = zip(avals, self.inputs, strict=True)
        axes = [0 if len(aval.shape) > len(leaf.shape) else None for aval, leaf in leaves]
        batched = self._checked(self.xla if fun is None else fun)
        for _ in self.batch_of(avals):
            batched = jax.vmap(batched, in_axes=axes)
        return batched

    def _checked(self, fun: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """A function of one point, which raises where its results are not this one's."""

        def run(*args: Any) -> Sequence[Any]:
            results = fun(*args)
            found, expected = (
                ", ".join(f"{x.dtype}{list(x.shape)}" for x in leaves)
                for leaves in (results, self.outputs)
            )
            if found != expected:
                raise TypeError(f"a form of a function has results {found}, expected {expected}")
            return results

        return run

    def jaxpr(self, avals: Sequence[Any]) -> Any:
        """The closed jaxpr of the function for XLA at arguments of such shapes."""
        shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
        return jax.make_jaxpr(self.batched_xla(avals))(*shapes)


class Fused(Batched):
    """A scalar program as a function of JAX arrays, and the same function for XLA.

    Equal programs may be of functions with other derivatives, so each has its own `Fused`; what is
    compiled of them is the same.

    Attributes:
      program: the program; it writes at least one output leaf.
    """

    def __init__(
        self,
        program: ScalarProgram | Finished,
        xla: Callable[..., Sequence[Any]],
        faster_at: Callable[[int], Callable[..., Sequence[Any]] | None] | None = None,
        again: Again | None = None,
    ):
        written = [program.outputs[k] for k in program.written()]
        super().__init__(program.inputs, written, xla, faster_at, again)
        self.program = program

    @property
    def compiled(self) -> Callable[..., list[Any]]:
        """The kernel compiled by itself; one for all that compute the same.

        It is not kept here: it refers to this object, and JAX holds what refers to a function as
        long as the function.
        """
        key = self.program.digest(), self.faster_at is None, self.again is None
        with _lock:
            jitted = _recent.pop(key, None) or jax.jit(self._alone)
            _recent[key] = jitted
            dropped = _recent.popitem(last=False) if len(_recent) > limits.KEPT else None
        del dropped
        return jitted

    def now(self, *args: Any) -> list[Any]:
        """The results of the compiled kernel."""
        return self.compiled(*args)

    def _alone(self, *args: Any) -> Sequence[Any]:
        """Compiles the program; JAX runs it eagerly where it looks for NaN, or jit is disabled."""
        if any(map(_compat.is_traced, args)):
            return fused_p.bind(*args, kernel=self)
        return super().now(*args)


_lock = threading.RLock()
_recent: OrderedDict[tuple[str, bool, bool], Callable[..., Any]] = OrderedDict()


def forget() -> None:
    """Drops the kernels that are only remembered."""
    with _lock:
        _recent.clear()


def call(kernel: Batched, *args: Any) -> list[Any]:
    """The results at arrays, inside of transformations too: of a kernel what it writes."""
    return fused_p.bind(*_compat.same_variance(args), kernel=kernel)


def has_batch(equation: Any) -> bool:
    """Whether an equation is a kernel of more than one point."""
    if equation.primitive is not fused_p:
        return False
    return math.prod(equation.params["kernel"].batch_of([v.aval for v in equation.invars])) > 1


fused_p = core.Primitive(_compat.KERNEL)
fused_p.multiple_results = True


def _impl(*args: Any, kernel: Batched) -> list[Any]:
    return kernel.now(*args)


def _abstract(*avals: Any, kernel: Batched) -> list[Any]:
    batch = kernel.batch_of(avals)
    if not avals:
        return [jax.core.ShapedArray(leaf.shape, np.dtype(leaf.dtype)) for leaf in kernel.outputs]
    # The batch lies as the operands' batch does; a point is whole on each device.
    pairs = zip(avals, kernel.inputs, strict=True)
    wide = next((a for a, leaf in pairs if len(a.shape) > len(leaf.shape)), avals[0])
    mesh, front = wide.sharding.mesh, wide.sharding.spec[: len(batch)]

    def result(leaf: Any) -> Any:
        lies = NamedSharding(mesh, PartitionSpec(*front, *[None] * len(leaf.shape)))
        shape, dtype = (*batch, *leaf.shape), np.dtype(leaf.dtype)
        return wide.update(shape=shape, dtype=dtype, weak_type=False, sharding=lies)

    return list(map(result, kernel.outputs))


def _batch(
    args: Sequence[Any], dims: Sequence[int | None], *, kernel: Batched
) -> tuple[list[Any], list[int]]:
    """The new axis comes first; an argument has all batch axes or none."""
    pairs = list(zip(args, dims, strict=True))
    size = next(x.shape[d] for x, d in pairs if d is not None)
    point = [len(leaf.shape) for leaf in kernel.inputs]
    old: tuple[int, ...] = ()
    for (x, d), rank in zip(pairs, point, strict=True):
        shape = x.shape if d is None else x.shape[:d] + x.shape[d + 1 :]
        if len(shape) > rank:
            old = shape[: len(shape) - rank]
    batched = []
    for (x, d), rank in zip(pairs, point, strict=True):
        if d is None:
            lacking = x.ndim > rank
            batched.append(jnp.broadcast_to(x, (size, *x.shape)) if lacking else x)
            continue
        x = jnp.moveaxis(x, d, 0)
        if old and x.ndim == rank + 1:
            wide = x.reshape(size, *(1 for _ in old), *x.shape[1:])
            x = jnp.broadcast_to(wide, (size, *old, *x.shape[1:]))
        batched.append(x)
    return call(kernel, *batched), [0] * len(kernel.outputs)


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, kernel: Batched
) -> tuple[list[Any], list[Any]]:
    """The value, and what moves it; arguments without tangents stay constants."""
    active = [k for k, t in enumerate(tangents) if not isinstance(t, ad.Zero)]
    if kernel.again is not None:
        return call(kernel, *primals), _pushed(primals, tangents, active, kernel)
    fun = kernel.batched_xla([jax.typeof(p) for p in primals])

    def of_active(*values: Any) -> Sequence[Any]:
        return fun(*replaced(primals, active, values))

    outs, slopes = jax.jvp(
        of_active, tuple(primals[k] for k in active), tuple(tangents[k] for k in active)
    )
    zeros = [ad.Zero(jax.typeof(s)) if s.dtype == jax.dtypes.float0 else s for s in slopes]
    return list(outs), zeros


def _pushed(
    primals: Sequence[Any], tangents: Sequence[Any], active: Sequence[int], kernel: Batched
) -> list[Any]:
    """Tangents of the results by a derivative that is linear in those of the operands."""
    count = len(primals)
    active_outputs = [
        k for k, leaf in enumerate(kernel.outputs) if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]

    def along(operands: Sequence[Any]) -> tuple[Callable[..., list[Any]], list[Any]]:
        def of_active(*values: Any) -> list[Any]:
            outs = kernel.xla(*replaced(operands[:count], active, values))
            return [outs[k] for k in active_outputs]

        return of_active, [operands[k] for k in active]

    def pushed(*operands: Any) -> Sequence[Any]:
        return jax.jvp(*along(operands), [*operands[count:]])[1]

    def pulled(operands: Sequence[Any], cotangents: list[Any]) -> Sequence[Any]:
        of_active, point = along(operands)
        return jax.vjp(of_active, *point)[1](cotangents)  # in one trace with the user's own rules

    inputs = [*kernel.inputs, *(kernel.inputs[k] for k in active)]
    derivative = kernel.derived(pushed, inputs, [kernel.outputs[k] for k in active_outputs])
    derivative.pulled = pulled
    derivatives = (
        call(derivative, *primals, *(tangents[k] for k in active)) if active_outputs else []
    )
    slopes = dict(zip(active_outputs, derivatives, strict=True))
    avals = _abstract(*map(jax.typeof, primals), kernel=kernel)
    return [slopes.get(k, ad.Zero(aval.to_tangent_aval())) for k, aval in enumerate(avals)]


def _transpose(cts: Sequence[Any], *args: Any, kernel: Batched) -> list[Any]:
    """Transposes a derivative: cotangents of linear operands, summed where a batch shares them."""
    unknown = [k for k, x in enumerate(args) if ad.is_undefined_primal(x)]
    known = [k for k in range(len(args)) if k not in unknown]
    present = [k for k, ct in enumerate(cts) if not isinstance(ct, ad.Zero)]
    if not present:
        return [ad.Zero(args[k].aval) if k in unknown else None for k in range(len(args))]
    inputs, outputs = kernel.inputs, kernel.outputs

    def pulled(*operands: Any) -> Sequence[Any]:
        values = dict(zip(known, operands, strict=False))
        if kernel.pulled is not None:
            zeros = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in outputs]
            rows = replaced(zeros, present, operands[len(known) :])
            pulled = kernel.pulled([values.get(k) for k in range(len(args))], rows)
            return [pulled[k - len(args)] for k in unknown]

        def linear(*operands: Any) -> Sequence[Any]:
            given_all = {**values, **dict(zip(unknown, operands, strict=True))}
            outs = kernel.xla(*(given_all[k] for k in range(len(args))))
            return [outs[k] for k in present]

        shapes = [jax.ShapeDtypeStruct(inputs[k].shape, inputs[k].dtype) for k in unknown]
        return jax.linear_transpose(linear, *shapes)([*operands[len(known) :]])

    operands = [*(args[k] for k in known), *(cts[k] for k in present)]
    leaves = [*(inputs[k] for k in known), *(outputs[k] for k in present)]
    derivative = kernel.derived(pulled, leaves, [inputs[k] for k in unknown])
    cotangents: list[Any] = [None] * len(args)
    for k, ct in zip(unknown, call(derivative, *operands), strict=True):
        shared = ct.ndim - args[k].aval.ndim  # the batch axes, of an operand that has none
        cotangents[k] = ct.sum(range(shared)) if shared else ct
    return cotangents


def _lower_xla(
    ctx: Any, *operands: Any, kernel: Batched, fun: Callable[..., Sequence[Any]] | None = None
) -> Any:
    batched = kernel.batched_xla(ctx.avals_in, fun)
    return mlir.lower_fun(batched, multiple_results=True)(ctx, *operands)


def _lower_cpu(ctx: Any, *operands: Any, kernel: Batched) -> Any:
    exported = _compat.is_export(ctx)
    asked = isinstance(kernel, Fused) and (kernel.faster_at is None or kernel.again is not None)
    if not asked and (exported or _compat.is_partitioned(ctx)):
        return _lower_xla(ctx, *operands, kernel=kernel)
    if exported:
        raise ValueError(
            "a fused kernel is machine code of this process and cannot be exported; for jax.export "
            'leave veenv.fuse away and take kernel="auto" or "xla", or write C with '
            "veenv.export.to_c; see errors.html#kernels-cannot-be-exported"
        )
    batch = math.prod(kernel.batch_of(ctx.avals_in))
    if batch == 0:
        return _lower_xla(ctx, *operands, kernel=kernel)
    fastest = functools.partial(_lower_fastest, ctx, *operands, kernel=kernel, batch=batch)
    usual = functools.partial(_lower_xla, ctx, *operands, kernel=kernel)
    return fastest() if asked else attempt(fastest, usual)


def _lower_fastest(ctx: Any, *operands: Any, kernel: Batched, batch: int) -> Any:
    """The fastest form at a batch, of a function that has others than the kernel."""
    faster = kernel.faster_at and kernel.faster_at(batch)
    if faster is not None or not isinstance(kernel, Fused):
        return _lower_xla(ctx, *operands, kernel=kernel, fun=faster)
    return _lower_point(ctx, *operands, kernel=kernel)


def _lower_point(ctx: Any, *operands: Any, kernel: Fused) -> Any:
    """Machine code."""
    from veenv.kernel.cpu import (
        kernel_registry,  # llvmlite is loaded when the first kernel is compiled
    )

    try:
        code = kernel_registry.kernel(kernel.program, math.prod(kernel.batch_of(ctx.avals_in)))
    except kernel_registry.UntestedVersionError as error:
        warnings.warn(f"{error}; XLA takes their place", stacklevel=2)
        return _lower_xla(ctx, *operands, kernel=kernel)
    _compat.keep_alive(ctx, code)
    return jax.ffi.ffi_lowering(kernel_registry.TARGET)(ctx, *operands, key=np.int64(code.key))


fused_p.def_impl(_impl)
fused_p.def_abstract_eval(_abstract)
batching.primitive_batchers[fused_p] = _batch
ad.primitive_jvps[fused_p] = _jvp
ad.primitive_transposes[fused_p] = _transpose
mlir.register_lowering(fused_p, _lower_xla)
mlir.register_lowering(fused_p, _lower_cpu, platform="cpu")
