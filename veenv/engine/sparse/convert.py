"""Sparse tensors in the formats of SciPy and JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from veenv.engine.sparse.summands import host_values

if TYPE_CHECKING:  # it loads SciPy, which takes long
    from jax.experimental import sparse as jax_sparse

Tensor = Any
"""A `SparseTensor`, whose methods these functions are."""


def to_scipy(j: Tensor, format: str) -> Any:
    """The matrix, without batch and outside of jit, as an array of `scipy.sparse`."""
    from scipy import sparse

    if j.batch_shape:
        raise ValueError(f"SciPy has no batches of matrices, got one of shape {j.batch_shape}")
    p, collect = j.layout
    values = host_values(j.terms, collect, j.dtype)
    if format == "csc":
        order, starts = p.by_column
        matrix = sparse.csc_array((values[order], p.rows[order], starts.copy()), shape=p.sizes)
        matrix.has_canonical_format = True
        return matrix
    if format == "coo":
        return sparse.coo_array((values, (p.rows, p.cols)), shape=p.sizes)
    matrix = sparse.csr_array((values, p.cols.copy(), p.indptr.copy()), shape=p.sizes)
    matrix.has_canonical_format = True
    return matrix.asformat(format)


def to_bcoo(j: Tensor) -> jax_sparse.BCOO:
    """The tensor, without batch, as a BCOO."""
    from jax.experimental import sparse as jax_sparse

    if j._layout is None:
        return _padded(j)
    p = j.pattern
    sides = ((p.rows, p.out_shape), (p.cols, p.in_shape))
    columns = [c for flat, shape in sides for c in (np.unravel_index(flat, shape) if shape else ())]
    places = np.stack(columns, axis=-1) if columns else np.zeros((p.nse, 0))
    return jax_sparse.BCOO(
        (j.values(), jnp.asarray(places, jnp.int32)),
        shape=p.out_shape + p.in_shape,
        indices_sorted=True,
        unique_indices=True,
    )


def _padded(j: Tensor) -> jax_sparse.BCOO:
    """As `to_bcoo` where places are computed: zeros at place zero for entries that are none."""
    from jax.experimental import sparse as jax_sparse

    shape = j.out_shape + j.in_shape
    data, places = [], []
    for t in j.terms:
        rows, cols = t.traced_coordinates()
        data.append(jnp.where(rows >= 0, t.entries().astype(j.dtype), 0))
        sides = ((rows, j.out_shape), (cols, j.in_shape))
        columns = [
            c
            for flat, side in sides
            for c in (jnp.unravel_index(jnp.maximum(flat, 0), side) if side else ())
        ]
        places.append(jnp.stack(columns, axis=-1).astype(jnp.int32))
    return jax_sparse.BCOO((jnp.concatenate(data), jnp.concatenate(places)), shape=shape)


def to_bcsr(j: Tensor) -> jax_sparse.BCSR:
    """The matrix, without batch, as a BCSR."""
    from jax.experimental import sparse as jax_sparse

    p = j.pattern
    arrays = (j.values(), jnp.asarray(p.cols), jnp.asarray(p.indptr))
    return jax_sparse.BCSR(arrays, shape=p.sizes, indices_sorted=True, unique_indices=True)
