"""Axes of equations: in another order of their indices the results are in that order, too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from veenv.graph.program import trace
from veenv.rules import walk
from veenv.rules.axes import axis_mappings

RNG = np.random.default_rng(0)
X, Y = jnp.asarray(RNG.normal(size=(2, 3, 4))), jnp.asarray(RNG.normal(size=(2, 4, 5)))
A = jnp.eye(4)[None] * 5 + jnp.asarray(RNG.normal(size=(3, 4, 4)))
PLACES = jnp.asarray(RNG.integers(0, 4, size=(2, 3, 4)))
BAND = jnp.asarray(RNG.normal(size=(2, 4))).at[:, 0].set(0.0).at[:, -1].set(0.0)
CASES = {
    "product": (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), (X, Y), 4),
    "entries": (lax.add, (X, X), 3),
    "cases": (lambda x: lax.select_n(x > 0, x, 2 * x), (X,), 3),
    "sum": (lambda x: x.sum(axis=1), (X,), 3),
    "place of the largest": (lambda x: lax.argmax(x, 2, np.int32), (X,), 2),
    "running": (lambda x: lax.cumsum(x, 1), (X,), 2),
    "sort": (lambda x, y: lax.sort((x, y), dimension=1), (X, 2 * X), 2),
    "largest": (lambda x: lax.top_k(x, 2), (X,), 2),
    "windows": (lambda x: lax.cummax(x, 2), (X,), 2),
    "decomposition": (jnp.linalg.cholesky, (A @ A.mT,), 1),
    "solve": (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), (A, A + 1), 2),
    "solve from the right": (lambda a, b: lax.linalg.triangular_solve(a, b), (A, A + 1), 2),
    "tridiagonal": (lambda b: lax.linalg.tridiagonal_solve(BAND, BAND + 9, BAND, b), (Y,), 2),
    "transform": (jnp.fft.fft, (X,), 2),
    "image": (lambda x, k: lax.conv(x, k, (1,), "SAME"), (X, jnp.ones((5, 3, 2))), 2),
    "transpose": (lambda x: x.transpose(2, 0, 1), (X,), 3),
    "joined": (lambda x, y: jnp.concatenate([x, y], axis=1), (X, X), 2),
    "padded": (lambda x: lax.pad(x, 0.0, [(0, 0, 0), (1, 0, 0), (0, 0, 0)]), (X,), 2),
    "repeated": (lambda x: jnp.broadcast_to(x[:, None], (2, 7, 3, 4)), (X,), 4),
    "taken": (lambda x: jnp.take_along_axis(x, PLACES, axis=2, mode="clip"), (X,), 2),
    "added": (jax.vmap(lambda a, k, b: a.at[k].add(b)), (X, PLACES[:, :, 0] % 3, X), 2),
}


@pytest.mark.parametrize("name", CASES)
def test_an_axis_in_another_order_leaves_results_in_that_order(name):
    fun, args, least = CASES[name]
    program = trace(fun, args)
    found = []

    def step(equation, operands):
        outs = walk.apply(equation, operands)
        ties = axis_mappings(equation) if np.size(outs[0]) else []
        for tie in ties:
            sized = [(x, j) for x, j in zip(operands, tie.ins, strict=True) if j is not None]
            length = (
                jnp.shape(outs[0])[tie.out]
                if tie.out is not None
                else sized[0][0].shape[sized[0][1]]
            )
            order = np.roll(np.arange(length), 1)
            turned = [
                x if j is None or jnp.shape(x)[j] != length else jnp.take(x, order, axis=j)
                for x, j in zip(operands, tie.ins, strict=True)
            ]
            for before, after in zip(outs, walk.apply(equation, turned), strict=True):
                same = before if tie.out is None else jnp.take(before, order, axis=tie.out)
                np.testing.assert_allclose(after, same, rtol=1e-4, atol=1e-5)
        found.append(len(ties))
        return outs

    walk.run(program.equations, dict(enumerate((*args, *program.constants))), step)
    assert max(found) >= least
