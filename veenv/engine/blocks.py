"""From what an elimination leaves to blocks in the shape of `jax.jacrev`'s result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from veenv import _compat
from veenv.engine.edge import Edge
from veenv.engine.edge_product import multiply
from veenv.engine.elimination import dense
from veenv.engine.sparse import SparseTensor
from veenv.engine.sparse.entries import Entries, Indexed, Matrix, as_computed
from veenv.engine.sparse.indexing import SymmetricBlocks
from veenv.engine.sparse.pattern import Numbers, collected
from veenv.engine.sums import Terms
from veenv.graph.linearisation import Linearisation
from veenv.graph.program import Program
from veenv.linear.linear_map import canonical
from veenv.rules.base import is_complex, real_shape
from veenv.rules.shape import selected
from veenv.structure import structure as algebra

Left: TypeAlias = Mapping[tuple[int, int], Terms | Matrix]
"""What an elimination leaves of each edge from an input to an output."""


def all_blocks(
    lin: Linearisation, left: Left, symmetric: SymmetricBlocks, *, sparse: bool
) -> list[tuple[Any, ...]]:
    """For each output leaf its blocks by the input leaves; half of them are others' transposes."""

    def one(output: int, source: int) -> Any:
        if (source, lin.graph.outputs[output]) in symmetric.omitted:
            return block_of(lin, left, source, output, sparse=sparse).T
        return block_of(lin, left, output, source, sparse=sparse)

    inputs = range(lin.graph.num_inputs)
    return [tuple(one(o, i) for i in inputs) for o in range(lin.graph.num_outputs)]


def assembled(
    program: Program, rows: Sequence[tuple[Any, ...]], inputs: Sequence[Any], several: bool
) -> list[Any]:
    """For each output leaf, the tree of blocks by the selected arguments."""
    avals = program.avals[: program.num_inputs]
    trees, in_tree = [], jax.tree.structure(inputs)
    for row in rows:
        leaves = [_weak_as(aval, x) for aval, x in zip(avals, row, strict=True)]
        by_argument = tuple(jax.tree.unflatten(in_tree, leaves))
        trees.append(by_argument if several else by_argument[0])
    return trees


def _weak_as(aval: Any, x: Any) -> Any:
    """A block, weakly typed if the input is."""
    if isinstance(x, SparseTensor):
        return replace(x, weak_type=aval.weak_type)
    return _compat.as_weak_as(aval, x)


def block_of(
    lin: Linearisation,
    left: Left,
    output: int,
    source: int,
    *,
    sparse: bool = False,
) -> Any:
    """The block of output leaf `output` by input leaf `source`, of shape output + input.

    Inputs that hold integers give zeros of dtype float0, as in JAX.
    """
    out_aval, in_aval = lin.program.out_avals[output], lin.program.avals[source]
    out_shape, in_shape, dtype = out_aval.shape, in_aval.shape, in_aval.dtype
    node = lin.graph.outputs[output]
    if not jnp.issubdtype(dtype, jnp.inexact):
        return np.zeros((*out_shape, *in_shape), jax.dtypes.float0)
    of_parts = lin.realify and is_complex(in_aval)
    if node == source:
        terms: Terms | Matrix = (Edge(algebra.diagonal(out_shape, valued=False), None, dtype),)
    else:
        terms = () if node is None else left.get((source, node), ())
    if isinstance(terms, (Indexed, Entries)):
        shapes = real_shape(out_aval, realify=lin.realify), out_shape, in_shape
        terms = _by_complex(terms, *shapes, dtype) if of_parts else terms
        return SparseTensor.from_entries(terms, dtype, out_shape, in_shape)
    if of_parts and node != source:
        terms = tuple(multiply(e, _parts(in_shape, dtype), keep=sparse) for e in terms)
        if is_complex(out_aval):
            real = _real_part(out_shape, dtype)
            terms = tuple(multiply(real, e, keep=sparse) for e in terms)
    if sparse:
        return SparseTensor.from_edges(terms, out_shape, in_shape, dtype)
    if not terms:
        return jnp.zeros((*out_shape, *in_shape), dtype)
    return dense(terms, out_shape, in_shape, dtype)


def _by_complex(
    x: Matrix,
    real_shape: Sequence[int],
    out_shape: Sequence[int],
    in_shape: Sequence[int],
    dtype: Any,
) -> Matrix:
    """From partials by real and imaginary part, ∂x and ∂y, to ∂x - i ∂y, as `jax.grad` has it.

    Those of the real part are taken of a complex result, which `real_shape` has as parts.
    """
    parts = 1 + (tuple(real_shape) != tuple(out_shape))
    if isinstance(x, Indexed) and x.mask is None:
        p = x.pattern
        kept = np.flatnonzero(p.rows % parts == 0)
        rows, cols = p.rows[kept] // parts, p.cols[kept]
        pattern, collect = collected(rows, cols // 2, out_shape, in_shape)
        values = x.stored()[kept].astype(dtype) * jnp.asarray(np.where(cols % 2, -1j, 1), dtype)
        return Indexed(pattern, Numbers(values).collected(collect), dtype)
    x = as_computed(x)
    factor = jnp.where(jnp.asarray(x.cols) % 2 == 1, -1j, 1).astype(dtype)
    rows, cols = x.rows // parts, x.cols // 2  # no place, -1, stays none
    if parts > 1:
        taken = jnp.asarray(x.rows) % parts == 0
        rows, cols = jnp.where(taken, rows, -1), jnp.where(taken, cols, -1)
    return Entries.at(x.values.astype(dtype) * factor, rows, cols, out_shape, in_shape)


def _parts(shape: Sequence[int], dtype: Any) -> Edge:
    """From partials by real and imaginary part, ∂x and ∂y, to ∂x - i ∂y, as `jax.grad` has it."""
    rank = len(shape)
    pairs = [(k, k) for k in range(rank)]
    structure = algebra.make((*shape, 2), shape, pairs, out_values=[rank])
    return Edge(structure, jnp.asarray([1, -1j], dtype), dtype)


def _real_part(shape: Sequence[int], dtype: Any) -> Edge:
    """What takes real parts: of a function of complex numbers they say the derivative."""
    pairs = [(k, k) for k in range(len(shape))]
    one = selected(shape, (*shape, 2), pairs, canonical(1, 2, 0, 1, 0, 1, 1))
    assert one.link is not None
    return Edge(one.executed, None, dtype, link=one.link((), ()))
