"""The published tasks: values, Jacobians, graphs and classical counts of the reference files."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles.jacobians import quick_jit
from tests.oracles.scalar_graph import Elimination, scalar_graph
from tests.sampling import spared
from veenv import tasks
from veenv.env.factory import task_graph
from veenv.orders.shipped import best_for

SCALAR = ["RoeFlux_1d", "RobotArm_6DOF", "HumanHeartDipole", "PropaneCombustion"]
PUBLISHED = [*SCALAR, "RoeFlux_3d", "MLP", "Encoder"]


def arrays(point):
    return tuple(np.asarray(x, dtype=np.float64) for x in point)


def assert_nested(actual, expected, *, tol):
    """Compares a tree of tuples with the nested lists of a JSON file."""
    if isinstance(actual, tuple | list):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert_nested(a, e, tol=tol)
    else:
        assert np.shape(actual) == np.shape(expected)
        np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


@pytest.mark.parametrize("name", spared(PUBLISHED, "RoeFlux_1d", "PropaneCombustion", "MLP"))
def test_value_and_jacobian(name, reference, x64):
    task, ref = tasks.get(name), reference(name)
    args = arrays(ref["point"])
    value, jacobian = quick_jit(lambda *a: (task.fun(*a), jax.jacrev(task.fun, task.argnums)(*a)))(
        *args
    )
    assert_nested(value, ref["value"], tol=1e-10)
    assert_nested(jacobian, ref["jacobian"], tol=1e-10)


@pytest.mark.parametrize("name", PUBLISHED)
def test_float32_stays_float32_and_agrees(name, reference):
    task, ref = tasks.get(name), reference(name)
    out = quick_jit(task.fun)(*jax.tree.map(jnp.asarray, arrays(ref["point"])))
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(out))
    assert_nested(out, ref["value"], tol=2e-5)


@pytest.mark.parametrize("name", SCALAR)
def test_point_graph_and_classical_counts_are_the_published_ones(name, reference, precision):
    ref, task = reference(name), tasks.get(name)
    assert [float(x) for x in task.example_args()] == ref["point"]
    edges, outputs, num_equations = scalar_graph(task.fun, task.example_args())
    assert edges == {tuple(edge) for edge in ref["edges"]}
    assert outputs == ref["outputs"]
    assert num_equations == ref["num_intermediates"] + ref["num_outputs"]
    num_inputs = ref["num_inputs"]
    mids = [v for v in range(num_inputs, num_inputs + num_equations) if v not in outputs]
    assert len(mids) == ref["num_intermediates"]
    assert Elimination(edges, mids).forward() == ref["counts"]["forward"]
    assert Elimination(edges, mids).reverse() == ref["counts"]["reverse"]
    # The published Markowitz counts take the first of several vertices of equal degree.
    assert Elimination(edges, mids).markowitz() == ref["counts"]["markowitz"]
    assert Elimination(edges, mids).markowitz(last=True) < ref["counts"]["markowitz"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_table_of_published_orders_has_what_is_counted_here(name):
    page = (Path(__file__).parents[2] / "docs/tasks.md").read_text(encoding="utf-8").splitlines()
    [at] = [k for k, line in enumerate(page) if line.startswith(f"| {name} | published ")]
    here = [int(x.replace(",", "")) for x in re.findall(r" ([\d,]*\d)[ ,]", page[at + 1])]
    graph = task_graph(name)
    best = best_for(graph).ids_for(graph)
    orders = (graph.forward(), graph.reverse(), graph.markowitz(), best)
    assert [graph.cost(order) for order in orders] == here
    if name in SCALAR:
        published = [int(x) for x in re.findall(r" (\d+) ", page[at])]
        assert published[:3] == here[:3]
        assert here[3] <= min(published[3:])
