"""Linearisation of an equation with several results and operands, whose passes are shared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from veenv import limits
from veenv.linear.linear_map import Operator, along_several, drop_ones

Pairs = Sequence[tuple[int, int]]


@dataclass(eq=False, repr=False)
class Joint:
    """Linearisation of an equation with several results and operands.

    Attributes:
      out_shapes: shape of each result.
      in_shapes: shape of each operand.
      dtype: dtype of the entries.
      forward: (operand, tangent) → the tangent of every result.
      backward: (result, cotangent) → the cotangent of every operand.
      results: of the equation, where they were computed with the linearisation.
      before_pull: called with a result before its cotangents are pulled back.
    """

    out_shapes: Sequence[tuple[int, ...]]
    in_shapes: Sequence[tuple[int, ...]]
    dtype: Any
    forward: Callable[[int, Array], tuple[Array, ...]]
    backward: Callable[[int, Array], tuple[Array, ...]]
    results: Sequence[Any] | None = None
    before_pull: Callable[[int], None] | None = None
    _last: dict[tuple[bool, int], dict[object, tuple[Array, ...]]] = field(
        default_factory=dict, init=False
    )

    def map(
        self,
        result: int,
        operand: int,
        diagonal: tuple[tuple[int, int], ...] = (),
        counts: bool = False,
    ) -> Operator:
        """Returns the partial of one result by one operand, on axes that are not of size one."""
        outs, ins = self.out_shapes[result], self.in_shapes[operand]
        squeezed_out, squeezed_in = drop_ones(outs), drop_ones(ins)
        return Operator(
            squeezed_out,
            squeezed_in,
            lambda t: self.forward(operand, t.reshape(ins))[result].reshape(squeezed_out),
            lambda g: self.backward(result, g.reshape(outs))[operand].reshape(squeezed_in),
            self.dtype,
            (self, result, operand),
            diagonal=diagonal,
            counts=counts,
        )

    def push(self, operand: int, x: Array, axes: Sequence[int], key: object) -> tuple[Array, ...]:
        """Returns tangents of all results for tangents of one operand along `axes` of x."""
        return self._along(True, operand, x, axes, key)

    def pull(self, result: int, x: Array, axes: Sequence[int], key: object) -> tuple[Array, ...]:
        """Returns cotangents of all operands for cotangents of one result along `axes` of x."""
        if self.before_pull is not None:
            self.before_pull(result)
        return self._along(False, result, x, axes, key)

    def _along(
        self, forward: bool, number: int, x: Array, axes: Sequence[int], key: object
    ) -> tuple[Array, ...]:
        """Applies one direction, without axes of size one, along `axes` of x."""
        run, sources, targets = self.forward, self.in_shapes, self.out_shapes
        if not forward:
            run, sources, targets = self.backward, targets, sources
        shape = sources[number]

        def action(v: Array) -> tuple[Array, ...]:
            results = zip(run(number, v.reshape(shape)), targets, strict=True)
            return tuple(y.reshape(drop_ones(s)) for y, s in results)

        compute = functools.partial(along_several, action, x, axes, drop_ones(shape))
        return self._once((forward, number), (key, tuple(axes), x.shape), compute)

    def _once(
        self, way: tuple[bool, int], key: object, compute: Callable[[], tuple[Array, ...]]
    ) -> tuple[Array, ...]:
        """Computes a pass, memoised for the last keys of each direction and argument."""
        last = self._last.setdefault(way, {})
        if key not in last:
            if len(last) == limits.FEW:
                del last[next(iter(last))]
            last[key] = compute()
        return last[key]

    def without_forward(self) -> Joint:
        """Returns the same linearisation with a forward direction computed by the backward one."""

        def forward(operand: int, t: Array) -> tuple[Array, ...]:
            tangents = []
            for k, shape in enumerate(self.out_shapes):
                rows = lambda g, k=k: (self.backward(k, g)[operand],)  # noqa: E731
                every = _copied(drop_ones(shape), ())
                [matrix] = _columns(rows, shape, self.dtype, every)
                tangents.append(_combined(matrix, shape, t, ()))
            return tuple(tangents)

        return replace(self, forward=forward, before_pull=None)

    def without_backward(
        self, diagonal: Callable[[int, int], tuple[tuple[int, int], ...] | None]
    ) -> Joint:
        """Returns the same linearisation with a backward direction computed by the forward one.

        The columns of an operand are computed once for all results, before (and outside of) the
        pass that a result's cotangents are pulled back in.
        """
        columns: dict[tuple[int, tuple[int, ...]], tuple[Array, ...]] = {}

        def columns_of(result: int, operand: int, *, keep: bool) -> Array | None:
            pairs, shape = diagonal(result, operand), self.in_shapes[operand]
            if pairs is None:
                return None
            key = operand, _copied(drop_ones(shape), pairs)
            matrices = columns.get(key)
            if matrices is None:
                matrices = _columns(lambda t: self.forward(operand, t), shape, self.dtype, key[1])
                if keep:
                    columns[key] = matrices
            return matrices[result]

        def prepare(result: int) -> None:
            for operand in range(len(self.in_shapes)):
                columns_of(result, operand, keep=True)

        def backward(result: int, g: Array) -> tuple[Array, ...]:
            pulled = []
            for operand, shape in enumerate(self.in_shapes):
                matrix = columns_of(result, operand, keep=False)
                if matrix is None:
                    pulled.append(jnp.zeros(shape, self.dtype))
                else:
                    pulled.append(_combined(matrix, shape, g, diagonal(result, operand) or ()))
            return tuple(pulled)

        return replace(self, backward=backward, before_pull=prepare)


def _copied(ins: Sequence[int], diagonal: Pairs) -> tuple[int, ...]:
    """Returns the axes of which each index needs a column; diagonal axes share one column."""
    same = {j for _, j in diagonal}
    return tuple(j for j in range(len(ins)) if j not in same)


def _columns(
    action: Callable[[Array], tuple[Array, ...]],
    shape: Sequence[int],
    dtype: Any,
    copied: Sequence[int],
) -> tuple[Array, ...]:
    """Applies a linear function with several results to the basis along the copied axes."""
    ins = drop_ones(shape)
    count = prod(ins[j] for j in copied)
    position = jnp.arange(count).reshape([1, *(n if j in copied else 1 for j, n in enumerate(ins))])
    basis = jnp.broadcast_to(
        position == jnp.arange(count).reshape(-1, *(1 for _ in ins)), (count, *ins)
    )
    return tuple(jax.vmap(action)(basis.astype(dtype).reshape((count, *shape))))


def _combined(columns: Array, shape: Sequence[int], g: Array, diagonal: Pairs) -> Array:
    """Applies the transpose to `g`, by the columns."""
    ins, outs = drop_ones(shape), drop_ones(g.shape)
    same = {j: k for k, j in diagonal}
    copied = _copied(ins, diagonal)
    columns = columns.reshape((columns.shape[0], *outs))
    gone = tuple(1 + k for k in range(len(outs)) if k not in same.values())
    y = (columns * g.astype(columns.dtype).reshape((1, *outs))).sum(gone)
    y = y.reshape([*(ins[j] for j in copied), *y.shape[1:]])
    have = [*copied, *sorted(same, key=lambda j: same[j])]
    return y.transpose([have.index(j) for j in range(len(ins))]).reshape(shape)
