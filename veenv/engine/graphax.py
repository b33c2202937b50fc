"""The names and conventions of graphax, so that its users change one import.

``from veenv import graphax`` in place of ``import graphax``; ``from veenv.engine.graphax import
jacve`` in place of ``from graphax import jacve``.  The differences from `veenv.jacve`: `argnums`
is a sequence and ``(0,)`` by default; a single argument makes no tuple of blocks; several outputs
come as a flat tuple; `has_aux` puts the function's value in front instead of splitting it; counts
are a dictionary; blocks that vanish are None in the sparse form.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
from jax import Array

from veenv.engine import interop
from veenv.engine.api import value_and_jacve
from veenv.engine.elimination import Counts
from veenv.engine.sparse import SparseTensor
from veenv.graph.program import plain_argnums
from veenv.orders.resolve import OrderLike

__all__ = [
    "SparseTensor",
    "eqx_jacve",
    "filter_jacve",
    "jacve",
    "sparse_tensor_zeros_like",
    "tree_allclose",
    "vertex_elimination_jaxpr",
]


def jacve(
    fun: Callable[..., Any],
    order: OrderLike,
    argnums: int | Iterable[int] = (0,),
    has_aux: bool = False,
    count_ops: bool = False,
    sparse_representation: bool = False,
) -> Callable[..., Any]:
    """Jacobian of `fun` by vertex elimination, in the form in which graphax returns it.

    Args:
      fun: function of arrays (or pytrees) with one or several arrays as output.
      order: as for `veenv.jacve`: ids, or "fwd", "forward", "rev", "reverse", and so on.
      argnums: the positional arguments to differentiate by.
      has_aux: return fun's value in front of the Jacobian.
      count_ops: return a dictionary of counts behind the Jacobian, and no value.
      sparse_representation: return blocks as `SparseTensor`s, None for those that vanish.

    Returns:
      A function of fun's arguments.  By one argument the Jacobian of an output is a block of shape
      ``output + argument``, by several a tuple of blocks.  Several outputs make a tuple of those;
      so does the one output of a function of a single array.  With `has_aux` the result is
      ``(value, jacobian)``, the value packed in the same way; with `count_ops` it is
      ``(jacobian, counts)`` with the keys ``"num_muls"`` (the literature's count), ``"num_adds"``
      and ``"order_counts"``, a list of (vertex, multiplications).

    Raises:
      ValueError: (from the returned function) as `veenv.jacve`.
      TypeError: as `veenv.jacve`.

    Examples:
      >>> import jax.numpy as jnp
      >>> f = lambda x, y: jnp.sin(x) * y
      >>> by_both, counts = jacve(f, "rev", argnums=range(2), count_ops=True)(0.0, 3.0)
      >>> [float(block) for block in by_both], counts["num_muls"], counts["order_counts"]
      ([3.0, 0.0], 1, [(1, 1)])
    """
    selected = _selected(argnums)

    @functools.wraps(fun, updated=())
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        values, rows, counts = _rows(fun, order, selected, sparse_representation, args, kwargs)
        if len(rows) == 1 and len(jax.tree.leaves(args)) > 1:
            return _several(values[0], rows[0], counts, has_aux, count_ops)
        return _several(tuple(values), tuple(rows), counts, has_aux, count_ops)

    return jacobian


def vertex_elimination_jaxpr(
    jaxpr: Any,
    order: OrderLike,
    consts: Sequence[Any],
    *args: Any,
    has_aux: bool = False,
    argnums: int | Iterable[int] = (0,),
    count_ops: bool = False,
    sparse_representation: bool = False,
) -> Any:
    """The Jacobian of a jaxpr, in lists over its outputs.

    Args:
      jaxpr: an open or closed jaxpr.
      order: as for `jacve`.
      consts: values of the jaxpr's constants; ignored for a closed jaxpr that holds its own.
      *args: its arguments, arrays.
      has_aux: as for `jacve`, and so are the others.
      argnums: the arguments to differentiate by.
      count_ops: return counts, too.
      sparse_representation: return blocks as `SparseTensor`s.

    Returns:
      A list with a block for each output, or with a tuple of blocks if there are several
      `argnums`; with `has_aux` or `count_ops` a pair as `jacve` returns it.

    Examples:
      >>> closed = jax.make_jaxpr(lambda x, y: x * y)(2.0, 3.0)
      >>> rows = vertex_elimination_jaxpr(closed.jaxpr, "rev", closed.consts, 2.0, 3.0)
      >>> [float(block) for block in rows]
      [3.0]
    """
    fun = interop.function_of(jaxpr, consts)
    rows = _rows(fun, order, _selected(argnums), sparse_representation, args, {})
    return _several(*rows, has_aux, count_ops)


def filter_jacve(fun: Callable[..., Any] | None = None, **options: Any) -> Callable[..., Any]:
    """Jacobian by the float arrays of the first argument, an `equinox.Module` for instance.

    Args:
      fun: the function; without it a decorator is returned.
      **options: `order`, `count_ops` and `sparse_representation`, as for `jacve`.

    Returns:
      A function of fun's arguments; its result is as that of `veenv.filter_jacve`, with a
      dictionary of counts.

    Raises:
      ValueError: if `argnums` is given.

    Examples:
      >>> import equinox as eqx, jax, jax.numpy as jnp
      >>> layer = eqx.nn.Linear(3, 2, key=jax.random.key(0))
      >>> by_layer = filter_jacve(order="rev")(lambda layer, x: layer(x))
      >>> by_layer(layer, jnp.ones(3)).weight.shape
      (2, 2, 3)
    """
    if options.pop("argnums", None) is not None:
        raise ValueError(
            "filter_jacve takes no argnums: it differentiates by the first argument; to "
            "differentiate by several objects pass them as one tuple"
        )
    if fun is None:
        return functools.partial(filter_jacve, **options)
    inner = interop.filter_jacve(fun, **options)

    def counted(*args: Any, **kwargs: Any) -> Any:
        *results, counts = inner(*args, **kwargs)
        return *results, _dictionary(counts)

    return functools.wraps(fun, updated=())(counted) if options.get("count_ops") else inner


eqx_jacve = filter_jacve
"""What graphax calls the function behind its `filter_jacve`."""


def tree_allclose(tree1: Any, tree2: Any, equal_nan: bool = False) -> Array:
    """Whether two pytrees have one structure and close leaves, at graphax's tolerance.

    Args:
      tree1: a pytree of arrays.
      tree2: another.
      equal_nan: let NaN equal NaN.

    Returns:
      A boolean array of shape (), which may be used inside of `jax.jit`: all leaves have the same
      shapes and agree to 1e-4 of the second one's plus 1e-5.

    Examples:
      >>> import jax.numpy as jnp
      >>> bool(tree_allclose({"x": jnp.ones(2)}, {"x": jnp.ones(2) + 5e-5}))
      True
    """
    return interop.are_close(tree1, tree2, rtol=1e-4, atol=1e-5, equal_nan=equal_nan)


def sparse_tensor_zeros_like(tensor: SparseTensor) -> SparseTensor:
    """The zero `SparseTensor` of another's shapes and dtype.

    Args:
      tensor: any sparse tensor.

    Examples:
      >>> import jax.numpy as jnp
      >>> block = jacve(jnp.sin, "rev", sparse_representation=True)(jnp.ones(2))[0]
      >>> sparse_tensor_zeros_like(block).nse
      0
    """
    return SparseTensor.from_edges((), tensor.out_shape, tensor.in_shape, tensor.dtype)


def _selected(argnums: int | Iterable[int]) -> tuple[int, ...]:
    plain = plain_argnums(argnums)
    return (plain,) if isinstance(plain, int) else plain


def _rows(
    fun: Callable[..., Any],
    order: OrderLike,
    argnums: tuple[int, ...],
    sparse: bool,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> tuple[list[Any], list[Any], Counts]:
    """The value's leaves, their Jacobians (a block, or a tuple of blocks), and the counts."""
    value, jacobian, counts = value_and_jacve(
        fun, order, argnums, count_ops=True, sparse_representation=sparse
    )(*args, **kwargs)
    leaves, tree = jax.tree.flatten(value)
    rows = tree.flatten_up_to(jacobian)
    if sparse:
        rows = jax.tree.map(_none_if_zero, rows, is_leaf=lambda x: isinstance(x, SparseTensor))
    return leaves, [row[0] if len(argnums) == 1 else row for row in rows], counts


def _none_if_zero(block: Any) -> Any:
    return None if isinstance(block, SparseTensor) and not block.terms else block


def _several(value: Any, rows: Any, counts: Counts, has_aux: bool, count_ops: bool) -> Any:
    """What is asked for."""
    if count_ops:
        return rows, _dictionary(counts)
    return (value, rows) if has_aux else rows


def _dictionary(counts: Counts) -> dict[str, Any]:
    per_vertex = zip(counts.order, counts.multiplications_per_vertex, strict=True)
    return {
        "num_muls": counts.multiplications,
        "num_adds": counts.additions,
        "order_counts": list(per_vertex),
    }
