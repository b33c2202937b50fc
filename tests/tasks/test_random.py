"""Random functions: size, paths, determinism, tame values, and the table they are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.scalar_graph import scalar_graph
from veenv.tasks import random_function
from veenv.tasks.random_ops import ARRAY, BINARY, UNARY


@st.composite
def sizes(draw, max_vertices=25):
    num_inputs = draw(st.integers(1, 6))
    num_outputs = draw(st.integers(1, 5))
    least = max(num_outputs, num_inputs - num_outputs)
    return num_inputs, draw(st.integers(least, max_vertices)), num_outputs


def reachable(edges, start):
    """Vertices that the directed edges lead to, the start included."""
    seen, todo = set(start), list(start)
    while todo:
        vertex = todo.pop()
        for source, target in edges:
            if source == vertex and target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


@given(st.integers(0, 10_000), sizes(), st.floats(1.0, 2.0), st.sampled_from([None, 1, 4]))
def test_scalar_functions_have_the_size_asked_for_and_no_dead_vertex(seed, size, fan_in, window):
    num_inputs, num_vertices, num_outputs = size
    fun, point = random_function(
        seed, num_inputs, num_vertices, num_outputs, fan_in=fan_in, window=window
    )
    edges, outputs, num_equations = scalar_graph(fun, point)
    assert (len(point), num_equations, len(outputs)) == (num_inputs, num_vertices, num_outputs)
    everything = set(range(num_inputs + num_vertices))
    assert reachable(edges, range(num_inputs)) == everything
    assert reachable({(v, u) for u, v in edges}, outputs) == everything
    assert not {source for source, _ in edges} & set(outputs)


@given(st.integers(0, 10_000), sizes())
def test_array_functions_have_the_size_asked_for(seed, size):
    num_inputs, num_vertices, num_outputs = size
    fun, point = random_function(seed, num_inputs, num_vertices, num_outputs, arrays=True)
    jaxpr = jax.make_jaxpr(fun)(*point).jaxpr
    assert len(jaxpr.invars) == len(point) == num_inputs
    assert len(jaxpr.eqns) == num_vertices
    assert len(jaxpr.outvars) == num_outputs
    used = {id(atom) for eqn in jaxpr.eqns for atom in eqn.invars}
    assert all(id(var) in used for var in jaxpr.invars)


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_derivatives_are_finite_and_do_not_vanish(seed, arrays, x64):
    fun, point = random_function(seed, 3, 15, 2, arrays=arrays)
    jacobian = jax.jit(jax.jacrev(fun, (0, 1, 2)))(*point)
    for i, x in enumerate(point):
        total = sum(np.abs(row[i]).reshape(-1, *x.shape).sum(0) for row in jacobian)
        assert np.all(np.isfinite(total))
        assert np.all(total > 1e-4)


@pytest.mark.parametrize("arrays", [False, True])
def test_the_same_seed_makes_the_same_function(arrays):
    made = [random_function(seed, 3, 15, 2, arrays=arrays) for seed in (5, 5, 6)]
    texts = [str(jax.make_jaxpr(fun)(*point)) for fun, point in made]
    assert texts[0] == texts[1] != texts[2]
    for a, b in zip(made[0][1], made[1][1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_fan_in_and_window_do_what_they_say():
    def edges(**kwargs):
        return scalar_graph(*random_function(0, 2, 300, 1, **kwargs))[0]

    assert len(edges(fan_in=1.0)) == 301  # two inputs must be joined once
    assert 1.4 < len(edges(fan_in=1.5)) / 300 < 1.7
    assert len(edges(fan_in=2.0)) > 590
    reach = {w: max(v - u for u, v in edges(window=w)) for w in (2, None)}
    assert reach[2] < reach[None]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((0, 0, 5, 1), {}, "needs an input"),
        ((0, 1, 5, 0), {}, "needs an input"),
        ((0, 1, 2, 3), {}, "an equation for each output"),
        ((0, 9, 3, 2), {}, "3 equations cannot join 9 inputs to 2 outputs"),
        ((0,), {"fan_in": 2.5}, "fan_in"),
        ((0,), {"window": 0}, "window"),
    ],
)
def test_impossible_functions_are_refused(args, kwargs, message):
    with pytest.raises(ValueError, match=message):
        random_function(*args, **kwargs)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_operations_agree_with_jax(name, x64):
    operation = {**UNARY, **BINARY}[name]
    point = [np.array(0.7), np.array(1.3)][: 1 if name in UNARY else 2]
    constant = 0.6 if name in ("scale", "shift") else None
    out = operation.run(*map(jnp.asarray, point), constant)
    np.testing.assert_allclose(out, operation.value(*point, constant), rtol=1e-12)
    if operation.partials is not None:
        grads = jax.grad(lambda *x: operation.run(*x, constant), tuple(range(len(point))))(*point)
        np.testing.assert_allclose(operation.partials(*point, constant), grads, rtol=1e-12)


def test_array_operations_agree_with_jax(x64):
    x, y = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12.0).reshape(3, 2)
    cases = {
        "dot": (x, y, ((1,), (0,))), "sum": (x, 1), "expand": (x, 2), "transpose": (x, (1, 0)),
        "flatten": (x, None), "reverse": (x, 0), "concatenate": (x, x, 1), "slice": (y, 2),
    }  # fmt: skip
    assert set(cases) == set(ARRAY)
    for name, (*args, constant) in cases.items():
        out = ARRAY[name].run(*map(jnp.asarray, args), constant)
        np.testing.assert_array_equal(out, ARRAY[name].value(*args, constant))
