"""The count of the graph = the count of the engine = the arithmetic of the emitted program.

The environment's side of the invariant is in tests/env; here the cost models are held against
the jaxpr that the engine emits, which is counted by code that knows nothing of structures.
"""

from __future__ import annotations

import random
from itertools import product

import jax
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

import veenv
from tests.oracles.jacobians import quick_jit
from tests.oracles.multiplications import count_additions, count_multiplications
from tests.sampling import spared
from veenv.engine import edge, elimination, evaluation, jacobian
from veenv.graph.linearisation import linearise
from veenv.graph.program import trace
from veenv.structure.structure import Link

TASKS = ["RoeFlux_1d", "RobotArm_6DOF", "HumanHeartDipole", "PropaneCombustion", "mlp"]
LONG = [*TASKS, "RoeFlux_3d", "Encoder"]


def prepared(fun, args, argnums):
    """A function's linearisation and its edges under both cost models."""
    lin = linearise(trace(fun, args, argnums=argnums))
    selected = [args[a] for a in argnums] if isinstance(argnums, tuple) else [args[argnums]]
    executed = evaluation.evaluate(lin, jax.tree.leaves(selected)).edges
    structures = lin.graph.structures("multiplications")
    literature = {pair: edge.expand_to(e, structures[pair]) for pair, e in executed.items()}
    return lin, {"executed": executed, "multiplications": literature}


def orders_of(graph, num_random, seed=0):
    rng = random.Random(seed)
    orders = [graph.forward(), graph.reverse(), graph.markowitz()]
    for _ in range(num_random):
        orders.append(tuple(rng.sample(graph.eliminable, len(graph.eliminable))))
    return orders


def assert_emitted_counts(fun, args, argnums, num_random):
    lin, edges = prepared(fun, args, argnums)
    for order in orders_of(lin.graph, num_random):
        for cost in ("multiplications", "executed"):
            jaxpr = elimination.elimination_jaxpr(lin, edges[cost], order)
            assert count_multiplications(jaxpr) == lin.graph.cost(order, cost), (cost, order)
        assert_emitted_operations(lin, edges["executed"], order)


def assert_emitted_operations(lin, edges, order):
    """Operations, exactly where every sum is formed at once, and so without selections."""
    expected = lin.graph.cost(order, "operations")
    assert expected == lin.graph.cost(order, "executed") + sum(lin.graph.additions(order))
    structures = lin.graph.structures("operations").values()
    linked = any(s.link is Link.SELECTION for s in structures)
    for keep_sums in (False,) if linked else (False, True):
        jaxpr = elimination.elimination_jaxpr(lin, edges, order, keep_sums=keep_sums)
        assert count_multiplications(jaxpr) + count_additions(jaxpr) == expected, order


@pytest.mark.parametrize(
    ("name", "number"),
    [*product(TASKS[3:], [1]), *(pytest.param(name, 50, marks=pytest.mark.slow) for name in LONG)],
)
def test_counts_equal_emitted_multiplications(name, number):
    task = veenv.tasks.get(name)
    assert_emitted_counts(task.fun, task.example_args(), task.argnums, number)


def test_what_is_emitted_computes_the_jacobian(x64):
    def fun(x):
        return jax.numpy.sin(x) @ jax.numpy.cos(x)

    x = np.linspace(0.0, 1.0, 4)
    lin, edges = prepared(fun, (x,), 0)
    values = [e.values for e in edges["executed"].values() if e.values is not None]
    for order in orders_of(lin.graph, 2):
        emitted = elimination.elimination_jaxpr(lin, edges["executed"], order)
        (found,) = jaxpr_as_fun(emitted)(*values)
        np.testing.assert_allclose(found, np.cos(2 * x), rtol=1e-12)


@pytest.mark.parametrize("name", spared(TASKS, "HumanHeartDipole", "mlp"))
def test_engine_reports_the_graphs_counts(name):
    task = veenv.tasks.get(name)
    args = task.example_args()
    graph = veenv.make_graph(task.fun, task.argnums)(*args)
    for order in orders_of(graph, 2):
        found = {}

        def run(*args, order=order, found=found):
            jacobian, counts = veenv.jacve(task.fun, order, task.argnums, count_ops=True)(*args)
            found["counts"] = counts
            return jacobian

        jax.eval_shape(run, *args)
        counts = found["counts"]
        assert counts.order == order
        assert counts.multiplications_per_vertex == graph.costs(order)
        assert counts.executed_per_vertex == graph.costs(order, "executed")
        assert counts.operations_per_vertex == graph.costs(order, "operations")
        assert counts.operations == graph.cost(order, "operations")


@pytest.mark.parametrize("name", spared(TASKS, "PropaneCombustion", "mlp"))
def test_every_order_gives_the_jacobian(name, x64):
    task = veenv.tasks.get(name)
    args = [np.asarray(a, np.float64) for a in task.example_args()]

    @quick_jit
    def run(*args):
        lin = linearise(trace(task.fun, args, argnums=task.argnums))
        edges = evaluation.evaluate(lin, args).edges
        expected = jax.tree.leaves(jax.jacrev(task.fun, task.argnums)(*args), is_leaf=_is_row)
        pairs = []
        for order in orders_of(lin.graph, 3):
            left = elimination.eliminate(lin, edges, order).terms
            for o, by_argument in enumerate(expected):
                for i, block in enumerate(by_argument):
                    pairs.append((jacobian.block_of(lin, left, o, i), block))
        return pairs

    pairs = run(*args)
    assert len(pairs) >= 6
    for found, block in pairs:
        np.testing.assert_allclose(found, block, rtol=1e-10, atol=1e-10)


def _is_row(x):
    return isinstance(x, tuple) and all(hasattr(leaf, "shape") for leaf in x)
