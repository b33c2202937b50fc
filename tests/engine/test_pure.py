"""A linearisation holds no values: it may be evaluated at as many points as one likes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.sampling import thinned
from veenv.engine.edge import todense
from veenv.engine.elimination import eliminate
from veenv.engine.evaluation import evaluate
from veenv.graph.linearisation import linearise
from veenv.graph.program import trace

pytestmark = pytest.mark.usefixtures("x64")

POINTS = [np.array([0.3, -0.7, 1.1]), np.array([1.3, 0.4, -0.2])]


def loop(x):
    return lax.scan(lambda c, _: (c * jnp.sin(c[::-1]), c.sum()), x, None, length=4)[0]


def call(x):
    scale = lambda r, v: r * v  # noqa: E731
    stopped = lax.stop_gradient(x)
    return jax.custom_derivatives.linear_call(scale, scale, stopped, jnp.sin(x))


@jax.custom_jvp
def own(x):
    return jnp.sin(x)


@own.defjvp
def _(primals, tangents):
    return own(*primals), tangents[0] * lax.scan(lambda c, _: (c * c, None), *primals, length=2)[0]


CASES = {
    "scan": loop,
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: 1 + c * c, jnp.abs(x)),
    "linear_call": call,
    "quotient": lambda x: x / (2 + x[::-1]),
    "dynamic slice": lambda x: lax.dynamic_slice(x, [(x[0] > 1).astype(int)], [2]) ** 2,
    "complex": lambda x: jnp.abs(jnp.fft.fft(jnp.exp(lax.complex(x, x))))[1:],
    "custom rule": own,
}


@pytest.mark.parametrize("name", thinned(CASES, 2))
def test_one_linearisation_at_two_points(name):
    fun = CASES[name]
    lin = linearise(trace(fun, [POINTS[0]]))
    for point in (*POINTS, POINTS[0]):
        values = evaluate(lin, [point])
        left = eliminate(lin, values.edges, lin.graph.reverse()).edges
        # Column by column: a linear call has no batching rule.
        columns = [jax.jvp(fun, (point,), (e,))[1] for e in np.eye(3)]
        expected = jnp.stack(columns, axis=-1)
        got = todense(left[0, lin.graph.outputs[0]], expected.shape[:1], (3,), expected.dtype)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
