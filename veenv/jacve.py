"""`jacve`: Jacobians by vertex elimination, called like `jax.jacrev`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from veenv import edge, engine
from veenv.counts import Counts
from veenv.graph import Graph
from veenv.linearise import Linearisation, linearise
from veenv.orders import Order
from veenv.trace import is_differentiable, normalise_argnums, trace

OrderLike = str | os.PathLike[str] | Order | Iterable[int]
_NAMED: dict[str, Callable[[Graph], tuple[int, ...]]] = {
    "forward": Graph.forward,
    "fwd": Graph.forward,
    "reverse": Graph.reverse,
    "rev": Graph.reverse,
    "markowitz": Graph.markowitz,
}


def resolve_order(order: OrderLike, graph: Graph) -> tuple[int, ...]:
    """The eliminable vertex ids of an order given in any of the accepted forms.

    Args:
      order: ids, the name of an order, an `Order`, or the path of an order file.
      graph: the graph it is for.

    Raises:
      ValueError: if the order does not fit the graph or the name is unknown.
    """
    if isinstance(order, str) and order.lower() in _NAMED:
        return _NAMED[order.lower()](graph)
    if isinstance(order, (str, os.PathLike)):
        path = os.fspath(order)
        if not path.endswith(".json"):
            raise ValueError(
                f"order must be one of {', '.join(_NAMED)}, a .json order file, an Order or a "
                f"sequence of vertex ids, got {path!r}"
            )
        order = Order.load(path)
    if isinstance(order, Order):
        return order.ids_for(graph)
    return graph.check_order(order)


def jacve(
    fun: Callable[..., Any],
    order: OrderLike = "reverse",
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    count_ops: bool = False,
) -> Callable[..., Any]:
    """Jacobian of `fun` by vertex elimination in the given order.

    Args:
      fun: function of pytrees of arrays, with output a pytree of arrays.
      order: vertex ids (1-based, in equation order), "forward"/"fwd", "reverse"/"rev",
        "markowitz", an `Order`, or the path of an order file.
      argnums: which positional arguments to differentiate by.
      has_aux: whether `fun` returns ``(output, aux)``.
      count_ops: also return the `Counts` of the elimination.

    Returns:
      A function of fun's arguments. Its result has the structure, shapes and dtypes of
      `jax.jacrev`'s: fun's output tree with, in place of each leaf of shape ``o``, the tree of
      the selected argument(s) with leaves of shape ``o + i``. With `has_aux` the result is
      ``(jacobian, aux)``; with `count_ops` the counts come last.

    Raises:
      ValueError: (from the returned function) if the order misses, repeats or invents a vertex,
        or argnums is out of range.
      TypeError: (from the returned function) if an argument to differentiate by or an output is
        not of floating-point type.

    Example:
      >>> import jax.numpy as jnp
      >>> f = lambda x, y: jnp.stack([x * y, jnp.sin(x)])
      >>> jacve(f, order="reverse", argnums=(0, 1))(2.0, 3.0)[0].shape
      (2,)
    """
    return _jacobian(fun, order, argnums, has_aux, count_ops, with_value=False)


def value_and_jacve(
    fun: Callable[..., Any],
    order: OrderLike = "reverse",
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    count_ops: bool = False,
) -> Callable[..., Any]:
    """As `jacve`, with fun's value in front of the Jacobian.

    Returns:
      A function returning ``(value, jacobian)``; with `has_aux` ``((value, aux), jacobian)``.
      With `count_ops` the counts come last.

    Example:
      >>> value, slope = value_and_jacve(lambda x: x * x)(3.0)
      >>> float(value), float(slope)
      (9.0, 6.0)
    """
    return _jacobian(fun, order, argnums, has_aux, count_ops, with_value=True)


def _jacobian(
    fun: Callable[..., Any],
    order: OrderLike,
    argnums: int | Sequence[int],
    has_aux: bool,
    count_ops: bool,
    *,
    with_value: bool,
) -> Callable[..., Any]:
    if not callable(fun):
        raise TypeError(f"fun must be callable, got {fun!r}")
    if not isinstance(order, (str, os.PathLike, Order)):
        order = tuple(order)  # an iterator would be empty at the second call

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        program = trace(fun, args, kwargs, argnums=argnums, has_aux=has_aux)
        lin = linearise(program)
        ids = resolve_order(order, lin.graph)
        wanted = normalise_argnums(argnums, len(args))
        selected = tuple(args[a] for a in wanted)
        inputs, in_tree = jax.tree.flatten(selected)
        _check_types(lin)
        values = engine.evaluate(lin, inputs)
        done = engine.eliminate(lin, values.edges, ids)
        blocks = _assemble(lin, done.edges, in_tree, isinstance(argnums, (tuple, list)))
        result: Any = jax.tree.unflatten(program.out_tree, blocks)
        aux = jax.tree.unflatten(program.aux[1], values.aux) if program.aux else None
        if with_value:
            value = jax.tree.unflatten(program.out_tree, values.outputs)
            result = ((value, aux) if has_aux else value, result)
        elif has_aux:
            result = (result, aux)
        if not count_ops:
            return result
        counts = Counts(ids, lin.graph.costs(ids, "multiplications"), done.executed)
        return (
            (*result, counts)
            if isinstance(result, tuple) and (with_value or has_aux)
            else (
                result,
                counts,
            )
        )

    return jacobian


def _check_types(lin: Linearisation) -> None:
    """Refuses what `jax.jacrev` refuses: integer or complex inputs and outputs."""
    program = lin.program
    for kind, avals in (
        ("argument", program.avals[: program.num_inputs]),
        ("output", program.out_avals),
    ):
        for aval in avals:
            if not is_differentiable(aval) or np.issubdtype(aval.dtype, np.complexfloating):
                raise TypeError(
                    f"jacve needs real floating-point {kind}s, got dtype {aval.dtype} of shape "
                    f"{tuple(aval.shape)}"
                )


def _assemble(lin: Linearisation, edges: engine.Edges, in_tree: Any, several: bool) -> list[Any]:
    """For each output leaf, the tree of blocks by the selected arguments."""
    trees = []
    for output in range(lin.graph.num_outputs):
        leaves = [
            engine.jacobian_leaf(lin, edges, output, i, edge.todense, engine.zero_block)
            for i in range(lin.graph.num_inputs)
        ]
        by_argument = jax.tree.unflatten(in_tree, leaves)
        trees.append(by_argument if several else by_argument[0])
    return trees
