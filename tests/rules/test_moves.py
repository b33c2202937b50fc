"""Partials of what moves, sums or contracts elements, against the function's own differences.

Each function is linear in each of its arguments alone, or piecewise so, and its columns are
differences of its values; no derivative of JAX takes part.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles import by_numpy
from veenv import _compat
from veenv.engine.known import Known
from veenv.graph.program import trace
from veenv.rules import indexmap
from veenv.structure import Link

pytestmark = pytest.mark.usefixtures("x64")

STEP = 2.0**-12


def array(*shape: int, seed: int = 0) -> np.ndarray:
    """Distinct numbers between 0.2 and 1.4 in random order: reductions have no ties."""
    size = int(np.prod(shape))
    numbers = np.linspace(0.2, 1.4, size) if size > 1 else np.full(size, 0.7)
    return np.random.default_rng(seed).permutation(numbers).reshape(shape)


def dots(contracted: Any, batch: Any = ((), ())) -> Callable:
    return lambda x, y: lax.dot_general(x, y, (contracted, batch))


def put(x: jax.Array, at: Any, y: jax.Array, **options: Any) -> jax.Array:
    return x.at[at].set(y, unique_indices=True, **options)


def in_order(sizes: tuple[int, ...], order: tuple[int, ...]) -> Callable:
    return lambda x: lax.reshape(x, sizes, order)


def sums_of_batches(x: jax.Array, y: jax.Array) -> Any:
    return jax.vmap(lambda a, b: lax.psum((a, b * 2), "i"), axis_name="i")(x, y)


PLACES = np.array([2, 0, 5, -1, 2], np.int32)
CASES: dict[str, tuple[Callable, tuple[np.ndarray, ...]]] = {
    "broadcast": (lambda x: lax.broadcast_in_dim(x, (2, 3, 2), (1, 2)), (array(3, 2),)),
    "broadcast of ones": (lambda x: jnp.broadcast_to(x, (2, 3, 4)), (array(2, 1, 4),)),
    "transpose": (lambda x: x.transpose(2, 0, 1), (array(2, 3, 2),)),
    "squeeze": (lambda x: x.squeeze((0, 2)), (array(1, 3, 1, 2),)),
    "merged": (lambda x: x.reshape(2, 6, 2), (array(2, 2, 3, 2),)),
    "merged last": (lambda x: x.reshape(2, 6), (array(2, 2, 3),)),
    "split axis": (lambda x: x.reshape(3, 1, 2, 2), (array(6, 2),)),
    "regrouped": (lambda x: x.reshape(4, 3, 1), (array(3, 4),)),
    "column by column": (lambda x: x.reshape(3, 4, order="F"), (array(2, 2, 3),)),
    "in another order": (in_order((6, 2), (1, 0, 2)), (array(2, 3, 2),)),
    "in the same order": (in_order((6, 2), (0, 1, 2)), (array(2, 3, 2),)),
    "slice": (lambda x: x[:, 1:6:2], (array(2, 7),)),
    "slice of two": (lambda x: x[1:, :, :2], (array(3, 2, 3),)),
    "reversed": (lambda x: lax.rev(x, (1,)), (array(2, 3),)),
    "reversed twice": (lambda x: lax.rev(x, (2, 0)), (array(2, 3, 2),)),
    "pad": (lambda x, y: lax.pad(x, y, ((0, 0, 0), (1, 2, 1))), (array(2, 3), array())),
    "pad of two": (lambda x, y: lax.pad(x, y, ((1, 0, 0), (0, 1, 2))), (array(2, 2), array())),
    "cut by pad": (lambda x, y: lax.pad(x, y, ((-1, 2, 0), (0, 0, 0))), (array(3, 2), array())),
    "cut behind": (lambda x, y: lax.pad(x, y, ((1, -1, 1),)), (array(4), array())),
    "interior": (lambda x, y: lax.pad(x, y, ((0, 0, 2),)), (array(3), array())),
    "cumsum": (lambda x: lax.cumsum(x, 1), (array(2, 3, 2),)),
    "cumsum back": (lambda x: lax.cumsum(x, 0, reverse=True), (array(3, 2),)),
    "tile": (lambda x: jnp.tile(x, (1, 2, 3)), (array(2, 1, 2),)),
    "tile of ones": (lambda x: jnp.tile(x, (3, 1)), (array(1, 2),)),
    "concatenate": (lambda x, y, z: jnp.concatenate([x, y, z], 1),
        (array(2, 1), array(2, 3), array(2, 2, seed=1))),
    "concatenate with nothing": (lambda x: jnp.concatenate([x, jnp.zeros((0, 2)), x[:1]]),
        (array(2, 2),)),
    "split": (lambda x: lax.split(x, (1, 3, 2), 1), (array(2, 6),)),
    "split into one": (lambda x: lax.split(x, (3,), 0), (array(3, 2),)),
    "dynamic slice": (lambda x: lax.dynamic_slice(x, (0, 2), (2, 2)), (array(2, 5),)),
    "clamped": (lambda x: lax.dynamic_slice(x, (1, 9, -3), (1, 2, 2)), (array(2, 4, 3),)),
    "update": (lambda x, y: lax.dynamic_update_slice(x, y, (1, 9)),
        (array(3, 4), array(2, 2, seed=1))),
    "update of one axis": (lambda x, y: lax.dynamic_update_slice(x, y, (0, 1)),
        (array(2, 4), array(2, 2, seed=1))),
    "update of all": (lambda x, y: x * 1.0 + lax.dynamic_update_slice(x, y, (0, 0)),
        (array(2, 2), array(2, 2, seed=1))),
    "stack": (lambda x, y, z: jnp.stack([x, y, z], -1),
        (array(2, 2), array(2, 2, seed=1), array(2, 2, seed=2))),
    "unstack": (lambda x: jnp.unstack(x, axis=1), (array(2, 3, 2),)),
    "unstack of the first": (lambda x: jnp.unstack(x), (array(2, 3),)),
    "sum": (lambda x: x.sum((0, 2)), (array(2, 3, 2),)),
    "sum of ones": (lambda x: x.sum((1, 2)), (array(2, 1, 2),)),
    "sum of batches": (sums_of_batches, (array(2, 2), array(2, 3))),
    "maximum": (lambda x: x.max((2, 0)), (array(2, 3, 2),)),
    "minimum": (lambda x: x.min(1), (array(2, 3),)),
    "product": (lambda x: x.prod((0, 2)), (array(2, 2, 3),)),
    "reduce": (lambda x: lax.reduce(x, 0.0, lax.add, (1,)), (array(2, 3),)),
    "dot": (dots(((1,), (0,))), (array(2, 3), array(3, 2, seed=1))),
    "matrix by cube": (dots(((1,), (0,))), (array(2, 3), array(3, 2, 2, seed=1))),
    "dot of two": (dots(((2, 0), (0, 1))), (array(2, 3, 2), array(2, 2, 4, seed=1))),
    "crossed": (dots(((0, 2), (2, 0))), (array(2, 3, 4), array(4, 2, 2, seed=1))),
    "batch": (dots(((2,), (0,)), ((1,), (2,))), (array(3, 2, 4), array(4, 3, 2, seed=1))),
    "batches": (dots(((), ()), ((0, 1), (1, 0))), (array(2, 3), array(3, 2, seed=1))),
    "rows": (lambda x: x[PLACES], (array(6, 2),)),
    "filled": (lambda x: x.at[:, PLACES].get(mode="fill", fill_value=0.0,
        wrap_negative_indices=False), (array(2, 4),)),
    "clipped": (lambda x: x.at[PLACES + 3, 1].get(mode="clip"), (array(6, 3),)),
    "along an axis": (lambda x: jnp.take_along_axis(x, PLACES[None, :3] % 2, 1), (array(1, 3),)),
    "added": (lambda x, y: x.at[PLACES].add(y), (array(6, 2), array(5, 2, seed=1))),
    "added in a corner": (lambda x, y: x.at[1:, PLACES[:3]].add(y, mode="drop"),
        (array(3, 4), array(2, 3, seed=1))),
    "put": (lambda x, y: put(x, PLACES[1:4], y), (array(7, 2), array(3, 2, seed=1))),
    "put or dropped": (lambda x, y: put(x, PLACES[:3], y, mode="drop"),
        (array(4), array(3, seed=1))),
}  # fmt: skip


def columns(fun: Callable, args: tuple[np.ndarray, ...]) -> list[list[np.ndarray]]:
    """For each result the differences by each element of each argument, as matrices."""
    at = by_numpy.traced(lambda *x: jax.tree.leaves(fun(*x)), *args)
    first, blocks = at(*args), []
    for i, x in enumerate(args):
        steps = STEP * np.eye(x.size).reshape(-1, *x.shape)
        moved = [at(*args[:i], x + step, *args[i + 1 :]) for step in steps]
        blocks.append(
            [np.stack([m.ravel() for m in several], 1) for several in zip(*moved, strict=True)]
        )
    rows = zip(*blocks, strict=True)
    return [
        [(block - y.reshape(-1, 1)) / STEP for block in row]
        for y, row in zip(first, rows, strict=True)
    ]


@pytest.mark.parametrize("name", CASES)
def test_alone_and_between_other_functions(name):
    fun, args = CASES[name]
    jacobian = functools.partial(veenv.jacve, argnums=tuple(range(len(args))), kernel="xla")

    def between(*x):
        return [y * y for y in jax.tree.leaves(fun(*map(jnp.sin, x)))]

    def every(*x):
        return jacobian(fun, "reverse")(*x), jacobian(between, "forward")(*x)

    alone = columns(fun, args)
    inner = tuple(np.asarray(np.sin(x)) for x in args)
    values = jax.tree.leaves(by_numpy.run(fun, *inner))
    rows = zip(values, columns(fun, inner), strict=True)
    outside = [np.cos(x).ravel() for x in args]
    around = [
        [2 * y.reshape(-1, 1) * block * w for block, w in zip(row, outside, strict=True)]
        for y, row in rows
    ]
    for k, got in enumerate(by_numpy.run(every, *args)):
        expected = jax.tree.leaves(around if k else alone)
        for block, right in zip(jax.tree.leaves(got), expected, strict=True):
            np.testing.assert_allclose(block.reshape(right.shape), right, atol=1e-10)


BY_INDICES = {"gather", "scatter", "scatter-add", "dynamic_slice", "dynamic_update_slice"}


def elements(x: Any, places: np.ndarray) -> np.ndarray:
    """The elements at some places, zero for a place of -1."""
    return np.append(np.ravel(x), 0)[places]


@pytest.mark.parametrize("name", CASES)
def test_each_element_is_the_one_that_it_is_said_to_be(name):
    fun, args = CASES[name]
    program = trace(fun, args, argnums=tuple(range(len(args))))
    known, rng = Known(program), np.random.default_rng(0)
    for equation in program.equations:
        ins = [known(a) for a in equation.invars]
        for i, aval in enumerate(equation.in_avals):
            numbers = rng.permutation(aval.size).reshape(aval.shape) + 1.0
            ins[i] = numbers if ins[i] is None else ins[i]
        every = [indexmap.sources_in(equation, i, known) for i in range(len(ins))]
        found = indexmap.sources(equation, known)
        if found is None and all(taken is None for taken in every):
            assert equation.primitive.name not in BY_INDICES
            continue
        given = [jnp.asarray(x) for x in ins]
        outs = _compat.bind(equation.primitive, equation.params, given)
        flat = np.concatenate([np.ravel(x) for x in ins])
        for out, places in zip(outs, found or (), strict=found is not None):
            np.testing.assert_array_equal(out, elements(flat, places))
        if equation.primitive.name == "scatter-add":
            total, at = ins[0].ravel().copy(), every[2]
            assert every[0].ravel().tolist() == [*range(total.size)]
            np.add.at(total, at[at >= 0], ins[2][at >= 0])
            np.testing.assert_array_equal(outs[0].ravel(), total)
        elif len(outs) == 1:
            pairs = zip(ins, every, strict=True)
            np.testing.assert_array_equal(
                outs[0], sum(elements(x, t) for x, t in pairs if t is not None)
            )


STRUCTURES = {
    "broadcast of ones": "ijk,ik:unit", "transpose": "ijk,jki:unit",
    "merged": "i[j]k,i[l][m]k:unit", "merged last": "i[j],i[k][l]:unit",
    "split axis": "[i][j]k,[l]k:unit", "slice of two": "[i]j[k],[l]j[m]:unit",
    "pad": "i[j],i[k]:unit ij,:ij", "cut by pad": "[i]j,[k]j:unit ij,:ij",
    "cumsum": "i[j]k,i[l]k:unit", "tile": "i[j][k],i[l]:unit", "tile of ones": "ij,j:unit",
    "concatenate": "i[j],i:unit i[j],i[k]:unit i[j],i[k]:unit",
    "split into one": "ij,ij:unit", "dynamic slice": "i[j],i[k]:unit",
    "stack": "ij[k],ij:unit ij[k],ij:unit ij[k],ij:unit",
    "sum": "i,jik:unit", "maximum": "i,jik:ijk", "dot of two": "ij,kil:jkl ij,klj:ikl",
    "batch": "ijk,jil:ikl ijk,lki:ijl",
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURES)
def test_axes_that_are_left_alone_are_paired(name):
    fun, args = CASES[name]
    graph = veenv.make_graph(fun, tuple(range(len(args))))(*args)
    found = graph.structures("executed").values()
    assert " ".join(s.describe() for s in found) == STRUCTURES[name]
    if name == "sum":  # the literature stores its ones
        (stored,) = graph.structures("multiplications").values()
        assert stored.describe() == "i,jik:jk"
    adds_up = name in ("cumsum", "tile")
    assert all((s.link is Link.OPERATOR) == adds_up for s in found)
