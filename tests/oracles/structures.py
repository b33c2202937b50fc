"""Random structured edges and their dense meaning, spelled out index by index."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod

import jax.numpy as jnp
import numpy as np

from veenv.engine.edge import Edge
from veenv.linear.linear_map import Affine, Operator, Selection, canonical
from veenv.structure.structure import FREE, Link, Structure


def matrix_map(matrix: np.ndarray, out_shape, in_shape, diagonal=()) -> Operator:
    """A linear map given by its matrix, and the axes along which it is known to be diagonal."""
    m = jnp.asarray(matrix)
    return Operator(
        tuple(out_shape),
        tuple(in_shape),
        lambda x: (m @ x.reshape(-1)).reshape(out_shape),
        lambda x: (m.T @ x.reshape(-1)).reshape(in_shape),
        diagonal=diagonal,
    )


def random_diagonal(rng: np.random.Generator, matrix: np.ndarray, out_shape, in_shape):
    """A matrix made diagonal along some pairs of axes of its sides, and those pairs."""
    whole, pairs = matrix.reshape(*out_shape, *in_shape), []
    for k, n in enumerate(out_shape):
        for j in rng.permutation(len(in_shape)).tolist():
            if n == in_shape[j] and j not in [b for _, b in pairs] and rng.random() < 0.5:
                pairs.append((k, j))
                shape = [n if a in (k, len(out_shape) + j) else 1 for a in range(whole.ndim)]
                whole = whole * np.eye(n).reshape(shape)
                break
    return whole.reshape(matrix.shape), tuple(pairs)


def random_structure(rng: np.random.Generator, out_shape, in_shape) -> Structure:
    """A random valid structure between two shapes without axes of size one."""
    out_axes, in_axes = list(range(len(out_shape))), list(range(len(in_shape)))
    rng.shuffle(out_axes)
    rng.shuffle(in_axes)
    pairs = [FREE] * len(out_shape)
    for k in out_axes:
        for j in in_axes:
            if out_shape[k] == in_shape[j] and j not in pairs and rng.random() < 0.6:
                pairs[k] = j
                break
    free_out = [k for k, j in enumerate(pairs) if j == FREE]
    free_in = [j for j in range(len(in_shape)) if j not in pairs]
    link, link_out, link_in = Link.NONE, (), ()
    if rng.random() < 0.5 and (free_out or free_in):
        kinds = [Link.SELECTION]
        link_out = tuple(k for k in free_out if rng.random() < 0.7)
        link_in = tuple(j for j in free_in if rng.random() < 0.7)
        if link_out and link_in:
            kinds.append(Link.OPERATOR)
        if link_out or link_in:
            link = kinds[rng.integers(len(kinds))]
    unit = bool(rng.random() < 0.3)
    flag = lambda: not unit and bool(rng.random() < 0.5)  # noqa: E731
    out_values = tuple(k not in link_out and flag() for k in range(len(out_shape)))
    in_values = tuple(j not in link_in and j not in pairs and flag() for j in range(len(in_shape)))
    shapes, values = (tuple(out_shape), tuple(in_shape)), (out_values, in_values)
    s = Structure(*shapes, tuple(pairs), *values, unit, link, link_out, link_in, False)
    return replace(s, link_values=link is Link.SELECTION and s.link_size > 1 and flag())


def random_edge(rng: np.random.Generator, s: Structure) -> tuple[Edge, np.ndarray]:
    """Random values for a structure: the edge, and the dense tensor it stands for."""
    values = None if s.unit else rng.normal(size=s.value_shape)
    sign = int(rng.choice([-1, 1]))
    out_link = [s.out_shape[k] for k in s.link_out]
    in_link = [s.in_shape[j] for j in s.link_in]
    matrix, link = None, None
    if s.link is not Link.NONE:
        rows, cols = prod(out_link), prod(in_link)
        name, diagonal = None, ()
        if s.link is Link.OPERATOR:
            matrix = rng.normal(size=(rows, cols))
            matrix, diagonal = random_diagonal(rng, matrix, out_link, in_link)
        elif len(out_link) <= 1 and len(in_link) <= 1 and rng.random() < 0.5:
            matrix, name = random_affine(rng, rows, cols)
        else:
            matrix = np.zeros((rows, cols))
            n = min(rows, cols)
            chosen = rng.permutation(n)[: rng.integers(1, n + 1)]
            matrix[rng.permutation(rows)[:n][chosen], rng.permutation(cols)[:n][chosen]] = 1
        link = matrix_map(matrix, out_link, in_link, diagonal)
        link = link if name is None else Selection(name, link.out_shape, link.in_shape)
    edge = Edge(s, None if values is None else jnp.asarray(values), np.float64, sign, link)
    return edge, sign * dense_meaning(s, values, matrix)


def random_affine(rng: np.random.Generator, rows: int, cols: int) -> tuple[np.ndarray, Affine]:
    """The matrix and the name of a stretch of a diagonal or of an antidiagonal."""
    size = int(rng.integers(1, min(rows, cols) + 1))
    top, left = int(rng.integers(rows - size + 1)), int(rng.integers(cols - size + 1))
    steps = np.arange(size)
    matrix = np.zeros((rows, cols))
    if rng.random() < 0.5:
        matrix[top + steps, left + steps] = 1
        return matrix, canonical(rows, cols, top, 1, left, 1, size)
    matrix[top + steps, left + size - 1 - steps] = 1
    return matrix, canonical(rows, cols, top, 1, left + size - 1, -1, size)


def dense_meaning(s: Structure, values, matrix) -> np.ndarray:
    """The dense tensor of a structure with values and link matrix, entry by entry."""
    result = np.zeros(s.out_shape + s.in_shape)
    out_link = [s.out_shape[k] for k in s.link_out]
    in_link = [s.in_shape[j] for j in s.link_in]
    for index in itertools.product(*map(range, result.shape)):
        o, i = index[: len(s.out_shape)], index[len(s.out_shape) :]
        if any(j != FREE and o[k] != i[j] for k, j in enumerate(s.pairs)):
            continue
        entry = 1.0
        row = np.ravel_multi_index([o[k] for k in s.link_out], out_link) if out_link else 0
        col = np.ravel_multi_index([i[j] for j in s.link_in], in_link) if in_link else 0
        if matrix is not None:
            entry = matrix[row, col]
        if values is not None:
            at = [o[k] for k, v in enumerate(s.out_values) if v]
            if s.link_values:
                at.append(row if prod(out_link) <= prod(in_link) else col)
            at += [i[j] for j, v in enumerate(s.in_values) if v]
            entry = entry * values[tuple(at)]
        result[index] = entry
    return result
