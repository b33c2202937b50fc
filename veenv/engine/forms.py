"""The forms of a Jacobian: by elimination in one order or several, and by JAX's own modes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from veenv import _compat
from veenv.engine.blocks import all_blocks, assembled
from veenv.engine.candidates import Name, modes_of_loops, other_blocks, other_modes
from veenv.engine.choose import Forms, Results
from veenv.engine.counts import counts_of
from veenv.engine.elimination import Elimination, eliminate
from veenv.engine.evaluation import Evaluation, evaluate
from veenv.engine.indexing import eliminate_sparse
from veenv.engine.pushed import is_pushed, push_forward
from veenv.engine.sparse import SparseTensor
from veenv.engine.symmetry import Half, half_of
from veenv.engine.widths import refuse_wide
from veenv.graph.argnums import normalise_argnums, plain_argnums
from veenv.graph.linearisation import Linearisation, linearise
from veenv.graph.program import Program, trace
from veenv.orders.resolve import OrderLike, plain_order, resolve_order
from veenv.rules.dtypes import is_complex, is_differentiable
from veenv.rules.replay import equal_ones_once


def forms_of(
    fun: Callable[..., Any],
    order: OrderLike,
    argnums: int | Iterable[int],
    has_aux: bool,
    count_ops: bool,
    sparse_representation: bool,
    holomorphic: bool,
    allow_int: bool,
    symmetric: Callable[[Any, Any], bool] | None = None,
    dense: bool = False,
) -> Forms:
    """What `value_and_jacve` returns, and the same in other ways.

    Args:
      fun: as for `jacve`, and so are the next seven.
      order: as there.
      argnums: as there.
      has_aux: as there.
      count_ops: as there.
      sparse_representation: as there.
      holomorphic: as there.
      allow_int: as there.
      symmetric: arguments and keyword arguments to whether the Jacobian is known to be symmetric.
      dense: make sparse blocks dense at last, so that JAX's own modes can take their place.
    """
    if not callable(fun):
        raise TypeError(f"fun must be callable, got {fun!r}")
    argnums, order = plain_argnums(argnums), plain_order(order)  # an iterator would be used up
    special = count_ops or sparse_representation or holomorphic or allow_int
    compared = "auto" if dense else None if special else name_of(order)

    @equal_ones_once()
    def forms(args: Sequence[Any], kwargs: dict[str, Any], others: bool) -> Results:
        program = trace(fun, args, kwargs, argnums=argnums, has_aux=has_aux)
        _check_types(program, holomorphic=holomorphic, allow_int=allow_int)
        refuse_wide(program)
        lin = linearise(program, holomorphic=holomorphic)
        program = lin.program
        name = compared if others else None
        modes = other_modes(lin, name, argnums, has_aux=has_aux)
        if alone := modes_of_loops(lin, modes):
            return [], alone
        ids = resolve_order(order, lin.graph)
        inputs = [args[a] for a in normalise_argnums(argnums, len(args))]
        half = half_of(lin) if symmetric is not None and symmetric(args, kwargs) else Half()
        values, done = _eliminated(lin, inputs, ids, half, sparse=sparse_representation)
        blocks = [all_blocks(lin, done.terms, half, sparse=sparse_representation)]
        if not sparse_representation:
            blocks += other_blocks(lin, values.edges, ids, name, modes=bool(modes))
        value = _returned(program, values)
        trees = [assembled(lin, rows, inputs, isinstance(argnums, tuple)) for rows in blocks]
        trees = _dense(trees) if dense else trees
        found: list[Any] = [(value, jax.tree.unflatten(program.out_tree, tree)) for tree in trees]
        if count_ops:
            counted = not (sparse_representation or any(lin.reverse_only))
            counts = counts_of(lin.graph, ids, done if counted else None)
            found = [(*pair, counts) for pair in found]
        return found, [*modes.values()]

    return forms


def _eliminated(
    lin: Linearisation, inputs: Any, ids: Sequence[int], half: Half, *, sparse: bool
) -> tuple[Evaluation, Elimination]:
    """The values of a program, and what is left when the vertices of an order are gone."""
    leaves = jax.tree.leaves(inputs)
    if is_pushed(lin):
        return push_forward(lin, leaves)
    values = evaluate(lin, leaves)
    if sparse:
        return values, eliminate_sparse(lin, values.parallel, ids, values.calls, half)
    return values, eliminate(lin, values.edges, ids, values.calls)


def _returned(program: Program, values: Evaluation) -> Any:
    """What the function returned."""
    outputs = map(_compat.as_weak_as, program.out_avals, map(jnp.asarray, values.outputs))
    value = jax.tree.unflatten(program.out_tree, outputs)
    return (value, jax.tree.unflatten(program.aux[1], values.aux)) if program.aux else value


def _dense(trees: Any) -> Any:
    """Blocks as arrays, whatever they are."""
    sparse = lambda block: isinstance(block, SparseTensor)  # noqa: E731
    return jax.tree.map(lambda b: b.todense() if sparse(b) else b, trees, is_leaf=sparse)


def name_of(order: OrderLike) -> Name | None:
    """The name of an order that other forms may stand for: "auto", or "reverse"."""
    name = order.lower() if isinstance(order, str) else ""
    return "auto" if name == "auto" else "reverse" if name in ("reverse", "rev") else None


def _check_types(program: Program, *, holomorphic: bool, allow_int: bool) -> None:
    """Refuses what `jax.jacrev` refuses: integers, and complex outputs where not holomorphic."""
    inputs = program.avals[: program.num_inputs]
    if allow_int:
        inputs = [aval for aval in inputs if is_differentiable(aval)]
    for kind, avals in (("argument", inputs), ("output", program.out_avals)):
        either = kind == "argument" and not holomorphic
        wanted = "complex" if holomorphic else "floating-point" if either else "real"
        for aval in avals:
            if is_differentiable(aval) and (either or is_complex(aval) == holomorphic):
                continue
            hint = ""
            if kind == "argument" and not is_differentiable(aval):
                hint = "; pass allow_int=True for blocks of dtype float0"
            elif kind == "output" and is_complex(aval):
                hint = "; pass holomorphic=True if the function is holomorphic"
            elif holomorphic:
                hint = " with holomorphic=True"
            raise TypeError(
                f"jacve needs {wanted} {kind}s, got dtype {aval.dtype} of shape "
                f"{tuple(aval.shape)}{hint}"
            )
