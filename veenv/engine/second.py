"""Computes Hessians by elimination, Laplacians without a matrix, operators for solvers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, ParamSpec, TypeVar, overload

import jax
import jax.numpy as jnp
from jax import Array

from veenv import _compat
from veenv._support import check_flags, extra
from veenv.engine.forward_laplacian import laplacians
from veenv.engine.jacobian import in_chosen_form
from veenv.engine.request import Request
from veenv.engine.sparse import SparseTensor
from veenv.engine.wrappers import anywhere, equal_bodies_once
from veenv.graph.linearisation import linearise
from veenv.graph.program import hiding_aux, is_symbolic, plain_argnums, trace
from veenv.graph.shardings import AsWritten
from veenv.kernel.fusing import KernelMode
from veenv.orders.resolve import OrderLike, plain_order
from veenv.rules import walk
from veenv.rules.table import facts

P = ParamSpec("P")
R = TypeVar("R")


@overload
def hessian(
    fun: Callable[P, Array],
    order: OrderLike = "reverse",
    argnums: int = 0,
    *,
    sparse_representation: Literal[True],
    holomorphic: bool = False,
    kernel: KernelMode = "auto",
) -> Callable[P, SparseTensor]: ...
@overload
def hessian(
    fun: Callable[P, Any],
    order: OrderLike = "reverse",
    argnums: int | Iterable[int] = 0,
    sparse_representation: bool = False,
    has_aux: bool = False,
    holomorphic: bool = False,
    kernel: KernelMode = "auto",
) -> Callable[P, Any]: ...
def hessian(
    fun: Callable[P, Any],
    order: OrderLike = "reverse",
    argnums: int | Iterable[int] = 0,
    sparse_representation: bool = False,
    has_aux: bool = False,
    holomorphic: bool = False,
    kernel: KernelMode = "auto",
) -> Callable[P, Any]:
    """Returns a function that computes the Hessian of `fun`, by eliminating its gradient.

    Below the diagonal of a symmetric Hessian nothing is computed. The Hessian of a function with
    custom derivative rules (`jax.custom_jvp`) may not be symmetric, and is computed whole. In a
    trace `jax.hessian`, reverse mode of the gradient or one kernel is used instead where it is
    predicted to be faster and returns the same. A function without a reverse mode (`while_loop`, a
    rule that cannot be transposed) is differentiated forwards twice, in orders that allow it.

    Args:
      fun: function of pytrees of floating-point arrays, with output a pytree of arrays.
      order: an order of the graph of ``jax.grad(fun)``, or of ``jax.jacrev(fun)`` where the result
        is not one number, as for `jacve`; reverse by default, which keeps the symmetry: others
        gather twice as many entries of a sum over pairs.
      argnums: which positional arguments to differentiate by, twice.
      sparse_representation: return blocks as `SparseTensor`s.
      has_aux: whether `fun` returns ``(output, aux)``; the result is then ``(hessian, aux)``.
      holomorphic: `fun` is a holomorphic function of complex arguments.
      kernel: "fused", "xla" or "auto", as for `jacve`.

    Returns:
      A function of fun's arguments, whose result is as `jax.hessian`'s.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> chain = lambda x: jnp.sum(jnp.cos(x[1:] - x[:-1]))
      >>> veenv.hessian(chain, sparse_representation=True)(jnp.zeros(100)).nse
      298
    """
    check_flags(sparse_representation=sparse_representation, has_aux=has_aux,
                holomorphic=holomorphic)  # fmt: skip
    argnums = plain_argnums(argnums)
    gradient = _gradient(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    parts = "gradient", *("aux",) * has_aux
    blocks = "sparse" if sparse_representation else "scattered"
    request = Request(plain_order(order), argnums, parts, has_aux, blocks, holomorphic,
                      kernel=kernel)  # fmt: skip

    def make(gradient: Callable[..., Any], seen: AsWritten) -> Callable[..., Any]:
        def symmetric(args: Any, kwargs: Any) -> bool:
            return _is_symmetric(seen(fun), args, kwargs, argnums, has_aux)

        return in_chosen_form(replace(request, symmetric=symmetric), gradient)

    return anywhere(make, gradient, request)


def laplacian(fun: Callable[P, R], argnum: int = 0) -> Callable[P, R]:
    """Returns a function that computes the Laplacian of `fun` by one argument.

    It is the sum of the second derivatives by each number. Value, first derivatives and Laplacian
    of every variable are carried forward together; there is no Hessian. Reference: Li et al., *A
    computational framework for neural network-based variational Monte Carlo with Forward Laplacian*
    (2024).

    Args:
      fun: function of pytrees of arrays, with output a pytree of floating-point arrays.
      argnum: the positional argument to differentiate by; its leaves must be floating-point.

    Returns:
      A function of fun's arguments, with a result of the structure and shapes of fun's.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> float(veenv.laplacian(lambda x: jnp.sum(x**3))(jnp.array([1.0, 2.0])))
      18.0
    """

    def of(*args: Any, **kwargs: Any) -> Any:
        program = trace(fun, args, kwargs, argnums=argnum)
        if is_symbolic(program):
            return _by_hessian(program.replay, args, kwargs, argnum)
        if any(_compat.own_rule(e.primitive, e.params) for e in walk.every(program.equations)):
            program = linearise(program).program  # has the values that rules close over
        leaves = jax.tree.leaves(args[argnum])
        with equal_bodies_once():
            values = laplacians(program, leaves)
        return jax.tree.unflatten(program.out_tree, values)

    return of


def _by_hessian(fun: Callable[..., Any], args: Any, kwargs: Any, argnum: int) -> Any:
    """Returns the Laplacian as the sum of the diagonals of the Hessians by each leaf."""
    leaves, tree = jax.tree.flatten(args[argnum])

    def at_leaf(k: int, x: Any) -> Any:
        several = [*leaves[:k], x.reshape(leaves[k].shape), *leaves[k + 1 :]]
        changed = jax.tree.unflatten(tree, several)
        return fun(*args[:argnum], changed, *args[argnum + 1 :], **kwargs)

    def diagonals(k: int) -> Any:
        second = jax.jacfwd(jax.jacfwd(functools.partial(at_leaf, k)))(jnp.ravel(leaves[k]))
        return jax.tree.map(lambda h: jnp.trace(h, axis1=-2, axis2=-1), second)

    return jax.tree.map(lambda *several: sum(several), *map(diagonals, range(len(leaves))))


def linear_operator(fun: Callable[[Any], Any], x: Any, tags: Any = ()) -> Any:
    """Returns the Jacobian of `fun` at x as a sparse `lineax.AbstractLinearOperator`.

    Needs lineax. Its solvers take it, GMRES and CG too; `sparse_solver` solves by its pattern.

    Args:
      fun: function of one pytree of arrays, with output a pytree of arrays.
      x: where to differentiate.
      tags: what is known of the matrix, tags of lineax: `lineax.CG` asks for
        `lineax.positive_semidefinite_tag`.

    Examples:
      >>> operator = linear_operator(lambda x: x**2, jnp.arange(3.0))  # doctest: +SKIP
      >>> operator.mv(jnp.ones(3)).tolist()  # doctest: +SKIP
      [0.0, 2.0, 4.0]
    """
    with extra("ecosystem"):
        from veenv.engine import lineax_operator

    return lineax_operator.operator(fun, x, tags)


def sparse_solver() -> Any:
    """Returns a solver for lineax, optimistix and diffrax that finds and uses sparsity.

    Needs lineax. It takes any operator, a function too: diagonal, tridiagonal and block-diagonal
    systems are solved where the arrays are, others by SciPy's banded and sparse LU on the host.

    Examples:
      >>> newton = optimistix.Newton(  # doctest: +SKIP
      ...     rtol=1e-8, atol=1e-8, linear_solver=sparse_solver()
      ... )
    """
    with extra("ecosystem"):
        from veenv.engine import lineax_operator

    return lineax_operator.SparseSolver()


def _gradient(
    fun: Callable[..., Any], argnums: Any, *, has_aux: bool, holomorphic: bool
) -> Callable[..., Any]:
    """Returns the gradient of a function, or its Jacobian of more than one number."""

    @functools.wraps(fun, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        returned: list[Any] = []
        hidden = hiding_aux(fun, has_aux)

        def noted(*args: Any, **kwargs: Any) -> Any:
            result = hidden(*args, **kwargs)
            returned.append(result[0] if has_aux else result)
            return result

        def by(mode: Callable[..., Any]) -> Any:
            return mode(noted, argnums, has_aux=has_aux, holomorphic=holomorphic)(*args, **kwargs)

        try:
            try:
                return by(jax.grad)
            except TypeError:
                if not returned or (isinstance(returned[-1], jax.Array) and not returned[-1].shape):
                    raise
                return by(jax.jacrev)
        except (AssertionError, RuntimeError, ValueError):  # JAX cannot transpose it
            with suppress(Exception):
                return by(jax.jacfwd)
            raise

    return gradient


def _is_symmetric(
    fun: Callable[..., Any], args: Any, kwargs: Any, argnums: Any, has_aux: bool
) -> bool:
    """Returns whether the Jacobian of a function's gradient is known to be symmetric.

    The function must return one number. A Hessian may lack symmetry where a derivative rule is
    custom, or rests on an assumption.
    """
    hidden = hiding_aux(fun, has_aux)
    program = trace(hidden, args, kwargs, argnums=argnums, has_aux=has_aux)
    if [tuple(aval.shape) for aval in program.out_avals] != [()]:
        return False
    return not any(
        _compat.own_rule(e.primitive, e.params) or facts(e.primitive.name).assumes
        for e in walk.every(program.equations)
    )
