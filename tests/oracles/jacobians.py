"""Comparison of Jacobians with JAX's, used by all tests of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

import veenv
from tests.oracles.by_numpy import evaluated

quick_jit = evaluated
"""`jax.jit` for programs that run once, as most of the tests: they are not compiled."""


def assert_same(
    got: Any, expected: Any, tol: float = 1e-9, named: str = "", atol: float | None = None
) -> None:
    """Asserts one pytree structure, and equal shapes, dtypes and values leaf by leaf.

    `tol` is the absolute tolerance, too, unless `atol` is given.
    """
    assert jax.tree.structure(got) == jax.tree.structure(expected), named
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(expected), strict=True
    ):
        where = named + jax.tree_util.keystr(path)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), where
        a, b = (np.asarray(v, np.complex128 if v.dtype.kind == "c" else np.float64) for v in (a, b))
        np.testing.assert_allclose(a, b, tol, tol if atol is None else atol, err_msg=where)


def together(functions: Iterable[Any], *args: Any) -> list[Any]:
    """What each function returns at a point, computed by one program."""
    functions = list(functions)
    return quick_jit(lambda *a: [f(*a) for f in functions])(*args)


def assert_compiled_same(pairs: Iterable[tuple[Any, Any]], *args: Any, **options: Any) -> None:
    """`assert_same` of what each function and its oracle return at a point, in one program."""
    pairs = list(pairs)
    for got, expected in quick_jit(lambda *a: [(f(*a), g(*a)) for f, g in pairs])(*args):
        assert_same(got, expected, **options)


def dense(tree: Any) -> Any:
    """The tree with its sparse tensors as arrays."""
    is_sparse = lambda x: isinstance(x, veenv.SparseTensor)  # noqa: E731
    return jax.tree.map(lambda x: x.todense() if is_sparse(x) else x, tree, is_leaf=is_sparse)


def sparse_beside_dense(
    fun: Any, *args: Any, oracle: Any = jax.jacrev, **options: Any
) -> tuple[veenv.SparseTensor, np.ndarray]:
    """The sparse Jacobian of a function and JAX's dense one, in one program."""
    ours, theirs = veenv.jacve(fun, sparse_representation=True, **options), oracle(fun)
    found, expected = together([ours, theirs], *args)
    return found, np.asarray(expected)


def check_sparse(
    fun: Any, *args: Any, stored: int | None = None, rtol: float = 1e-12, atol: float = 1e-12,
    **options: Any,
) -> tuple[veenv.SparseTensor, np.ndarray]:  # fmt: skip
    """Asserts that `sparse_beside_dense`, which it returns, are equal, and how much is stored.

    Args:
      fun: the function.
      args: its arguments.
      stored: number of stored entries; of None as many as are not zero.
      rtol: relative tolerance.
      atol: absolute tolerance.
      options: those of `sparse_beside_dense`.
    """
    found, expected = sparse_beside_dense(fun, *args, **options)
    np.testing.assert_allclose(np.asarray(found), expected, rtol, atol)
    assert found.nse == (np.count_nonzero(expected) if stored is None else stored)
    return found, expected


def orders(graph: veenv.Graph, num_random: int, seed: int = 0) -> dict[tuple[int, ...], str]:
    """Forward, reverse, Markowitz and seeded random orders, each distinct one once.

    Where a rule of the function forbids some, the nearest ones that the graph allows.
    """
    named = {"forward": graph.forward(), "reverse": graph.reverse()}
    named["markowitz"] = graph.markowitz()
    rng = np.random.default_rng(seed)
    for i in range(num_random):
        named[f"random {i}"] = tuple(rng.permutation(graph.eliminable).tolist())
    return {graph.legal(ids): name for name, ids in reversed(named.items())}


def jitted_jacobians(
    fun: Any, args: Any, argnums: Any, oracle: Any, num_random: int, seed: int = 0
) -> Iterator[tuple[str, Any, Any]]:
    """Compiles the oracle and every order as one program: (order's name, Jacobian, expected)."""
    chosen: dict[tuple[int, ...], str] = {}

    @quick_jit
    def run(*args: Any) -> Any:
        # Inside, where arguments that are not differentiated by are traced, too.
        chosen.update(orders(veenv.make_graph(fun, argnums)(*args), num_random, seed))
        ours = [veenv.jacve(fun, ids, argnums)(*args) for ids in chosen]
        return oracle(fun, argnums)(*args), ours

    expected, ours = run(*args)
    for name, got in zip(chosen.values(), ours, strict=True):
        yield name, got, expected


def assert_orders(
    fun: Any, args: Any, argnums: Any, oracle: Any, num_random: int, *, seed: int = 0,
    tol: float = 1e-9, named: str = "",
) -> Any:  # fmt: skip
    """Asserts `assert_same` of every order and the oracle, whose Jacobian it returns."""
    expected = None
    for order, got, expected in jitted_jacobians(fun, args, argnums, oracle, num_random, seed):
        assert_same(got, expected, tol, f"{named}order {order}")
    return expected
