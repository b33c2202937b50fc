"""Jacobians by the arrays of an Equinox module, and a comparison of pytrees."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv.engine.api import jacve
from veenv.kernel.fusing import KernelMode
from veenv.orders.resolve import OrderLike


def filter_jacve(
    fun: Callable[..., Any],
    order: OrderLike = "auto",
    has_aux: bool = False,
    count_ops: bool = False,
    sparse_representation: bool = False,
    kernel: KernelMode = "auto",
) -> Callable[..., Any]:
    """Differentiates by the float arrays of the first argument, which may hold anything.

    Args:
      fun: function whose first argument is a pytree such as an `equinox.Module`.
      order: as for `jacve`.
      has_aux: as for `jacve`.
      count_ops: as for `jacve`.
      sparse_representation: as for `jacve`.
      kernel: as for `jacve`.

    Returns:
      A function of fun's arguments; in its result the first argument's tree has None in place
      of what is not a floating-point array, as `equinox.filter_jacrev` gives it.

    Examples:
      >>> import equinox as eqx, jax, jax.numpy as jnp
      >>> layer = eqx.nn.Linear(3, 2, key=jax.random.key(0))
      >>> filter_jacve(lambda layer, x: layer(x))(layer, jnp.ones(3)).weight.shape
      (2, 2, 3)
    """
    import equinox as eqx

    @functools.wraps(fun, updated=())
    def jacobian(x: Any, *args: Any, **kwargs: Any) -> Any:
        arrays, static = eqx.partition(x, eqx.is_inexact_array)

        def of_arrays(arrays: Any, *args: Any, **kwargs: Any) -> Any:
            return fun(eqx.combine(arrays, static), *args, **kwargs)

        inner = jacve(of_arrays, order, 0, has_aux, count_ops, sparse_representation, kernel=kernel)
        return inner(arrays, *args, **kwargs)

    return jacobian


def tree_allclose(a: Any, b: Any, rtol: float | None = None, atol: float | None = None) -> bool:
    """Returns whether two pytrees have one structure, and leaves of one shape that are close.

    By default they may differ as correct Jacobians do that were rounded in other places. Sums of
    terms that cancel lose more than the last digit, by the size of their terms.

    Args:
      a: a pytree of arrays.
      b: another.
      rtol: relative tolerance; by default the square root of the machine epsilon of the coarsest
        dtype (float32: 3.5e-4), and 1e-5 at least.
      atol: absolute tolerance; by default ten epsilons of the largest finite number in `b`
        (float32: 1.2e-6 of it), and 1e-8 at least.

    Examples:
      >>> tree_allclose({"x": jnp.ones(2)}, {"x": jnp.ones(2)})
      True
      >>> tree_allclose(jnp.array([1.0, 1e-3]), jnp.array([1.0, 1.01e-3]))
      False
    """
    dtypes = [jnp.result_type(leaf) for leaf in jax.tree.leaves((a, b))]
    rounded = [float(jnp.finfo(t).eps) for t in dtypes if jnp.issubdtype(t, jnp.inexact)]
    eps = max(rounded, default=0.0)
    sizes = [np.abs(np.asarray(leaf)).astype(float) for leaf in jax.tree.leaves(b)]
    largest = [float(np.max(x, initial=0, where=np.isfinite(x))) for x in sizes]
    rtol = max(1e-5, eps**0.5) if rtol is None else rtol
    atol = max(1e-8, 10 * eps * max(largest, default=0.0)) if atol is None else atol
    (leaves, tree), (other_leaves, other_tree) = jax.tree.flatten(a), jax.tree.flatten(b)
    if tree != other_tree or [*map(jnp.shape, leaves)] != [*map(jnp.shape, other_leaves)]:
        return False
    pairs = zip(leaves, other_leaves, strict=True)
    return all(bool(jnp.allclose(x, y, rtol=rtol, atol=atol)) for x, y in pairs)
