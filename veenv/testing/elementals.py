"""Checks the rule of a primitive: values, structure, masks, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv.engine.api import jacve
from veenv.graph.linearisation import make_graph
from veenv.measure.proof import error
from veenv.measure.timing import near
from veenv.measure.validation import count
from veenv.rules.base import find
from veenv.tasks import Task
from veenv.testing.promises import require


def check_rule(
    primitive: Any,
    *args: Any,
    params: dict[str, Any] | None = None,
    derivative: Callable[..., Any] | None = None,
    points: int = 2,
    tolerance: float = 1e-6,
) -> None:
    """Checks the rule of a primitive (`veenv.defelemental`) at its operands, in float64.

    Checked are, at several points: the values and, with them, the structure that they are spread
    by, against a reference; that a select behind the primitive shuts its partials out; and, between
    other operations and for the forward and the reverse order, that the multiplications that the
    structures promise are those of the environment, of the engine and of the program it emits.

    Args:
      primitive: the primitive, with an implementation (``def_impl``).
      *args: its operands, at a point where it is smooth; those of floating-point numbers are
        differentiated by.
      params: its parameters.
      derivative: the reference, from the operands to the Jacobian by all differentiated ones, as
        `jax.jacrev` gives it; by default JAX's own derivative, or where it has none, central
        differences.
      points: number of points, the given one and random ones near it.
      tolerance: largest relative error of values; one that is right to rounding passes 1e-9, if
        the reference does, but central differences are right to 1e-8 only.

    Raises:
      AssertionError: saying what is wrong.
      ValueError: the primitive has no rule.

    Examples:
      >>> check_rule(jax.lax.mul_p, jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))  # no complaint
    """
    name = getattr(primitive, "name", str(primitive))
    if find(name) is None:
        raise ValueError(f"primitive {name!r} has no rule; add one with veenv.defelemental")
    arrays = tuple(np.asarray(x) for x in args)
    wanted = tuple(i for i, x in enumerate(arrays) if np.issubdtype(x.dtype, np.floating))

    def apply(*operands: Any) -> Any:
        return primitive.bind(*operands, **(params or {}))

    with jax.enable_x64(True):
        wide = tuple(x.astype(np.float64) if i in wanted else x for i, x in enumerate(arrays))
        reference = derivative or _reference(apply, wanted, wide)
        for index in range(points):
            point = near(wide, None if index == 0 else [index])
            _check_values(name, apply, wanted, point, reference(*point), tolerance)
        _check_counts(name, apply, wanted, wide)


def _reference(
    apply: Callable[..., Any], wanted: tuple[int, ...], point: Any
) -> Callable[..., Any]:
    """Returns JAX's derivative, or central differences where there is none."""
    try:
        jax.eval_shape(jax.jacfwd(apply, wanted), *point)
    except Exception:  # JAX raises many kinds of errors for a missing derivative
        return lambda *at: _differences(apply, wanted, at)
    return jax.jacfwd(apply, wanted)


def _differences(apply: Callable[..., Any], wanted: tuple[int, ...], at: Any) -> Any:
    """Computes central differences, in the tree of `jax.jacrev`'s result."""
    outs, tree = jax.tree.flatten(apply(*at))
    blocks: list[list[np.ndarray]] = [[] for _ in outs]
    for i in wanted:
        columns = []
        for place in np.ndindex(at[i].shape):
            step = 1e-6 * max(1.0, abs(at[i][place]))
            ends = []
            for sign in (1.0, -1.0):
                shifted = at[i].copy()
                shifted[place] += sign * step
                ends.append(jax.tree.leaves(apply(*at[:i], shifted, *at[i + 1 :])))
            columns.append(
                [(np.asarray(a) - np.asarray(b)) / (2 * step) for a, b in zip(*ends, strict=True)]
            )
        for k, out in enumerate(outs):
            block = np.stack([column[k] for column in columns], -1)
            blocks[k].append(block.reshape(np.shape(out) + at[i].shape))
    return jax.tree.unflatten(tree, [tuple(block) for block in blocks])


def _check_values(
    name: str,
    apply: Callable[..., Any],
    wanted: tuple[int, ...],
    point: Any,
    expected: Any,
    tolerance: float,
) -> None:
    """Checks the Jacobian, and that of a select of half of the results."""

    def half(*operands: Any) -> Any:
        outs = apply(*operands)
        return jax.tree.map(lambda y: jnp.where(_every_other(y), y, jnp.zeros_like(y)), outs)

    outs = apply(*point)
    masked = jax.tree.map(
        lambda y, blocks: jax.tree.map(
            lambda b: np.where(
                np.reshape(_every_other(y), y.shape + (1,) * (b.ndim - y.ndim)), b, 0
            ),
            blocks,
        ),
        outs,
        expected,
    )
    for order in ("forward", "reverse"):
        for fun, right, what in ((apply, expected, "values"), (half, masked, "a select's values")):
            actual = jacve(fun, order, wanted)(*point)
            worst = error(actual, right)
            require(
                worst <= tolerance,
                f"{name}: {what} under the {order} order differ from the reference by {worst:.1e}",
            )


def _every_other(y: Any) -> np.ndarray:
    """Returns a mask: True for every other entry."""
    return (np.arange(np.size(y)) % 2 == 0).reshape(np.shape(y))


def _check_counts(name: str, apply: Callable[..., Any], wanted: tuple[int, ...], at: Any) -> None:
    """Checks the counts of the primitive between other operations."""

    def between(*operands: Any) -> Any:
        inputs = [x * jnp.cos(x) if i in wanted else x for i, x in enumerate(operands)]
        return jax.tree.map(lambda y: jnp.sin(y) * y, apply(*inputs))

    task = Task(name, between, lambda: at, wanted, "", "")
    graph = make_graph(between, wanted)(*at)
    for ids in (graph.forward(), graph.reverse(), graph.markowitz()):
        for cost, counted in count({}, task, graph, ids).items():
            require(
                counted.consistent,
                f"{name}: under cost={cost!r} the structures promise {counted.environment}, the "
                f"engine counts {counted.engine}, its program holds {counted.emitted}",
            )
