"""Wraps sparse Jacobians as operators of lineax, with a solver that uses their pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx  # pyright: ignore[reportMissingImports]  # optional
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import lu_factor, lu_solve

from veenv import limits
from veenv.engine.api import jacve
from veenv.engine.sparse import SparseTensor
from veenv.engine.sparse.solving import band, blocks, kind

Like = tuple[Any, tuple[jax.ShapeDtypeStruct, ...]]
"""The structure of a pytree and the shapes and dtypes of its leaves, hashable."""


class SparseOperator(lx.AbstractLinearOperator):
    """A sparse matrix between pytrees of arrays, raveled.

    Attributes:
      matrix: [m, n] sparse.
      out_like: the structure of the result.
      in_like: the structure of the argument.
    """

    matrix: SparseTensor
    out_like: Like = eqx.field(static=True)
    in_like: Like = eqx.field(static=True)

    def mv(self, vector: Any) -> Any:
        """Returns the matrix times a vector of `in_structure`'s."""
        flat, _ = ravel_pytree(vector)
        return _unravelled(self.out_like, self.matrix @ flat)

    def as_matrix(self) -> Array:
        """Returns the dense matrix [m, n]."""
        return self.matrix.todense()

    def transpose(self) -> SparseOperator:
        """Returns the transposed operator."""
        return SparseOperator(self.matrix.T, self.in_like, self.out_like)

    def in_structure(self) -> Any:
        """Returns shapes and dtypes of the argument."""
        return jax.tree.unflatten(*self.in_like)

    def out_structure(self) -> Any:
        """Returns shapes and dtypes of the result."""
        return jax.tree.unflatten(*self.out_like)


class Solvable(eqx.Module):
    """A sparse matrix with what its solution needs and no right-hand side changes.

    Attributes:
      operator: the matrix.
      factors: the LU factors of its dense blocks, of which a small system is one; None: others
        are solved from the beginning, or their factors are found again on the host.
      transposed: whether the system is that of the transposed of what the factors are of.
    """

    operator: SparseOperator
    factors: tuple[Array, Array] | None
    transposed: bool = eqx.field(static=True, default=False)


class SparseSolver(lx.AbstractLinearSolver):
    """Solves well-posed systems of any operator of lineax by its sparsity.

    An operator that is a function is made a sparse matrix first: its pattern is found when tracing.
    """

    def init(self, operator: Any, options: dict[str, Any]) -> Solvable:
        """Returns the operator as a sparse matrix, and factors of its blocks."""
        del options
        sparse = as_sparse(operator)
        p, values = sparse.matrix.pattern, sparse.matrix.values()
        how, size = kind(p)
        if how in ("banded", "sparse") and p.sizes[0] <= limits.DENSE:
            how, size = "block-diagonal", p.sizes[0]
        blocked = how == "block-diagonal"
        return Solvable(sparse, lu_factor(blocks(p, values, size)) if blocked else None)

    def compute(
        self, state: Solvable, vector: Any, options: dict[str, Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Returns the solution, whether the solver succeeded, and no statistics."""
        del options
        flat, _ = ravel_pytree(vector)
        if state.factors is None:
            x = state.operator.matrix.solve(flat)
        else:
            sides = flat.reshape(*state.factors[1].shape, 1)
            x = lu_solve(state.factors, sides, int(state.transposed)).reshape(-1)
        return _unravelled(state.operator.in_like, x), lx.RESULTS.successful, {}

    def transpose(self, state: Solvable, options: dict[str, Any]) -> tuple[Any, dict]:
        """Returns the state of the transposed system."""
        whole = state.operator.transpose()
        return Solvable(whole, state.factors, not state.transposed), options

    def conj(self, state: Solvable, options: dict[str, Any]) -> tuple[Any, dict]:
        """Returns the state of the conjugate system."""
        return jax.tree.map(jnp.conj, state), options

    def assume_full_rank(self) -> bool:
        """Returns True: systems are assumed to be well-posed."""
        return True


def operator(fun: Callable[[Any], Any], x: Any, tags: Any = ()) -> Any:
    """Returns the Jacobian of `fun` at x, between raveled pytrees: a `SparseOperator`."""
    flat, unravel = ravel_pytree(x)

    def raveled(flat: Array) -> Array:
        return ravel_pytree(fun(unravel(flat)))[0]

    matrix = jacve(raveled, sparse_representation=True)(flat)
    sparse = SparseOperator(matrix, _like(fun, x), _like(lambda x: x, x))
    return lx.TaggedLinearOperator(sparse, tags) if tags else sparse


def as_sparse(op: Any) -> SparseOperator:
    """Converts any operator of lineax to a sparse one."""
    if isinstance(op, SparseOperator):
        return op
    if isinstance(op, lx.TaggedLinearOperator):
        return as_sparse(op.operator)
    if isinstance(op, lx.JacobianLinearOperator):
        return operator(lambda x: op.fn(x, op.args), op.x)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), op.in_structure())
    return operator(op.mv, zeros)


def _like(fun: Callable[..., Any], *args: Any) -> Like:
    """Returns the structure, shapes and dtypes of a function's result."""
    leaves, tree = jax.tree.flatten(jax.eval_shape(fun, *args))
    return tree, tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves)


def _unravelled(like: Like, flat: Array) -> Any:
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.tree.unflatten(*like))
    return ravel_pytree(zeros)[1](flat)


def _width(op: SparseOperator) -> int:
    p = op.matrix.pattern
    return max(p.bandwidth) if p.sizes[0] == p.sizes[1] else max(p.sizes)


def _tridiagonal(op: SparseOperator) -> tuple[Array, Array, Array]:
    p, values = op.matrix.pattern, op.matrix.values()
    lower, main, upper = (band(p, values, k) for k in (-1, 0, 1))
    return main, lower[1:], upper[:-1]


def _register() -> None:
    """Registers with lineax the properties of a sparse operator: only its pattern."""
    lx.is_diagonal.register(SparseOperator, lambda op: _width(op) == 0)
    lx.is_tridiagonal.register(SparseOperator, lambda op: _width(op) <= 1)
    semidefinite = lx.is_positive_semidefinite, lx.is_negative_semidefinite
    for unknown in (lx.is_symmetric, lx.has_unit_diagonal, *semidefinite):
        unknown.register(SparseOperator, lambda op: False)
    lx.is_lower_triangular.register(SparseOperator, lambda op: op.matrix.bandwidth[1] == 0)
    lx.is_upper_triangular.register(SparseOperator, lambda op: op.matrix.bandwidth[0] == 0)
    lx.linearise.register(SparseOperator, lambda op: op)
    lx.materialise.register(SparseOperator, lambda op: op)
    lx.diagonal.register(SparseOperator, lambda op: op.matrix.diagonal())
    lx.tridiagonal.register(SparseOperator, _tridiagonal)
    lx.conj.register(SparseOperator, lambda op: jax.tree.map(jnp.conj, op))


_register()
