"""Blocks of a Jacobian, made of what an elimination leaves: dense arrays or `SparseTensor`s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv.engine.product import multiply
from veenv.engine.pulled import dense
from veenv.engine.sparse import SparseTensor
from veenv.engine.sparse.computed import Computed
from veenv.engine.sparse.indexed import Indexed
from veenv.engine.stored import Edge
from veenv.engine.terms import Terms
from veenv.graph.linearisation import Linearisation
from veenv.structure import structure as algebra


def block(
    lin: Linearisation,
    left: Mapping[tuple[int, int], Terms | Indexed | Computed],
    output: int,
    source: int,
    *,
    sparse: bool = False,
) -> Any:
    """The block of the Jacobian of output leaf `output` by input leaf `source`.

    Args:
      lin: the program.
      left: what the elimination left.
      output: number of the output leaf.
      source: number of the input leaf.
      sparse: make a `SparseTensor`.

    Returns:
      Array of the output's shape followed by the input's, or a sparse one. Inputs that hold
      integers give zeros of dtype float0, as in JAX.
    """
    out_aval, in_aval = lin.program.out_avals[output], lin.program.avals[source]
    out_shape, in_shape, dtype = out_aval.shape, in_aval.shape, in_aval.dtype
    node = lin.graph.outputs[output]
    if node == source:
        terms: Terms | Indexed | Computed = (
            Edge(algebra.diagonal(out_shape, valued=False), None, dtype),
        )
    else:
        terms = () if node is None else left.get((source, node), ())
    if not jnp.issubdtype(dtype, jnp.inexact):
        return np.zeros((*out_shape, *in_shape), jax.dtypes.float0)
    if isinstance(terms, (Indexed, Computed)):
        return SparseTensor.from_entries(terms, dtype, out_shape, in_shape)
    if lin.realify and jnp.issubdtype(dtype, jnp.complexfloating):
        terms = tuple(multiply(e, _parts(in_shape, dtype), keep=sparse) for e in terms)
    if sparse:
        return SparseTensor.from_edges(terms, out_shape, in_shape, dtype)
    if not terms:
        return jnp.zeros((*out_shape, *in_shape), dtype)
    return dense(terms, out_shape, in_shape, dtype)


def _parts(shape: Sequence[int], dtype: Any) -> Edge:
    """From partials by real and imaginary part, ∂x and ∂y, to ∂x - i ∂y, as `jax.grad` has it."""
    rank = len(shape)
    pairs = [(k, k) for k in range(rank)]
    structure = algebra.make((*shape, 2), shape, pairs, out_values=[rank])
    return Edge(structure, jnp.asarray([1, -1j], dtype), dtype)
