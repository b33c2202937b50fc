"""Tracing and the graph: numbering, pruning, published graphs and counts, orders."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.sampling import thinned
from veenv.env.factory import task_graph

SCALAR_TASKS = ["RoeFlux_1d", "RobotArm_6DOF", "HumanHeartDipole", "PropaneCombustion"]


@pytest.mark.parametrize("name", SCALAR_TASKS)
def test_published_graphs_and_counts(name, reference):
    published, graph = reference(name), task_graph(name)
    assert set(graph.edges) == set(map(tuple, published["edges"]))
    assert list(graph.outputs) == published["outputs"]
    assert graph.num_inputs == published["num_inputs"]
    assert len(graph.eliminable) == published["num_intermediates"]
    counts = published["counts"]
    assert graph.cost(graph.forward()) == counts["forward"]
    assert graph.cost(graph.reverse()) == counts["reverse"]
    assert graph.cost(graph.markowitz()) == counts["markowitz"]
    assert graph.is_scalar


@pytest.mark.parametrize(
    ("order", "name"),
    thinned(itertools.product(["forward", "reverse", "markowitz"], SCALAR_TASKS), 3),
)
def test_published_jacobians(name, order, reference, x64):
    published, task = reference(name), veenv.tasks.get(name)
    jacobian = jax.jit(veenv.jacve(task.fun, order, task.argnums))(*published["point"])
    np.testing.assert_allclose(jacobian, published["jacobian"], rtol=1e-10, atol=1e-10)


def test_vertices_are_numbered_as_equations():
    def f(x):
        a = jnp.sin(x)  # 1
        unused = jnp.cos(a)  # 2, on no path to an output
        constant = jnp.floor(x)  # 3, no derivative
        b = jax.jit(lambda y: y * y)(a)  # 4, inside a call
        return b + constant, unused > 0  # 5, 6

    graph = veenv.make_graph(lambda x: f(x)[0])(1.0)
    assert graph.num_vertices == 6
    assert graph.eliminable == (1, 4)
    assert graph.edges == ((0, 1), (1, 4), (4, 5))
    assert graph.outputs == (5,)


def test_pruned_vertices_may_be_named_or_left_out():
    f = lambda x: (jnp.cos(x), jnp.sin(x) * 2)[1]  # noqa: E731
    graph = veenv.make_graph(f)(1.0)
    assert graph.check_order([1, 2]) == graph.check_order([2]) == (2,)
    assert veenv.jacve(f, [1, 2])(1.0) == veenv.jacve(f, [2])(1.0)


def test_outputs_may_repeat_be_inputs_or_constants():
    graph = veenv.make_graph(lambda x: (x, jnp.sin(x), 1.0, x))(1.0)
    assert graph.outputs == (0, 1, None, 0)
    assert graph.eliminable == ()
    assert graph.cost([]) == 0


def test_several_outputs_of_one_equation_are_vertices_each():
    graph = veenv.make_graph(lambda x: [jnp.sin(p) * 2 for p in jnp.split(x, [1, 3])])(jnp.ones(6))
    assert graph.primitives[:3] == ("split", "split", "split")
    assert {1, 2, 3} <= set(graph.eliminable)


@pytest.mark.parametrize(
    ("order", "message"),
    [([1], "misses 1 of 2 eliminable vertices: 2"),
        ([], "misses 2 of 2 eliminable vertices: 1, 2"),
        (["1", 2], "integer vertex ids, got '1'"), ([1, 2, 2], "repeats vertex 2"),
        ([1, 2, 9], "names vertex 9, but the graph's vertices are 1 .. 3"),
        ([0, 1, 2], "names vertex 0"), ([1.0, 2], "integer vertex ids, got 1.0"),
        ([True, 2], "integer vertex ids, got True")],
)  # fmt: skip
def test_wrong_orders_are_named(order, message):
    def f(x):
        return jnp.exp(jnp.sin(x) * 2)

    with pytest.raises(ValueError, match=message):
        veenv.make_graph(f)(1.0).cost(order)
    with pytest.raises(ValueError, match=message):
        veenv.jacve(f, order)(1.0)


def test_auxiliary_outputs_are_no_part_of_a_graph():
    graph = veenv.make_graph(lambda x: (jnp.sin(x) * x, jnp.exp(x)), has_aux=True)(1.0)
    assert graph.eliminable == (1,)
    with pytest.raises(TypeError, match="has_aux"):
        veenv.make_graph(jnp.sin, has_aux=True)(1.0)


def test_tracing_needs_no_values():
    shape = jax.ShapeDtypeStruct((3, 4), jnp.float32)
    graph = veenv.make_graph(lambda x: jnp.sin(x) @ x.T)(shape)
    assert graph.shapes == ((3, 4), (3, 4), (4, 3), (3, 3))


def test_a_primitive_without_derivative_is_named():
    def f(x):
        out = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(lambda v: v, out, jnp.sin(x)) * 2

    with pytest.raises(NotImplementedError, match=r"'pure_callback' has no derivative.*test_graph"):
        veenv.jacve(f)(1.0)


def test_ten_thousand_equations():
    def f(x):
        for i in range(5000):
            x = jnp.sin(x) * (1 + i % 3)
        return x

    graph = veenv.make_graph(f)(0.3)
    assert len(graph.eliminable) == 9999
    assert graph.cost(graph.reverse()) == graph.cost(graph.markowitz()) == 9999
