"""The shipped orders: counted anew, better than the classical ones, found by their graph."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import pytest

import veenv
from scripts.data import refresh_orders as refresh
from tests.oracles.jacobians import quick_jit
from tests.oracles.scalar_graph import Elimination, scalar_graph
from tests.sampling import spared
from veenv.env.factory import task_graph
from veenv.env.rewards import classical_cost
from veenv.graph.graph import LABELLINGS
from veenv.orders.order import Order, fingerprint
from veenv.orders.shipped import best_for, shipped_orders
from veenv.search import search

TASKS = veenv.tasks.list()
PUBLISHED = {
    "RoeFlux_1d": 320, "RobotArm_6DOF": 231, "HumanHeartDipole": 148, "PropaneCombustion": 88,
    "BlackScholes_Jacobian": 307, "RoeFlux_3d": 784, "mlp": 389, "Encoder": 4656,
}  # fmt: skip


graph_of = lru_cache(task_graph)


def test_every_order_is_for_a_task_and_counts_what_it_says():
    fitting = set()
    for order in shipped_orders():
        graph = graph_of(order.name)
        if order.fingerprint == fingerprint(graph):
            assert order.ids_for(graph) == order.ids
            fitting.add(order.name)
        else:  # the graph that another version of JAX traces
            assert order.jax_version.split(".")[:2] != jax.__version__.split(".")[:2]
    assert fitting == set(TASKS)


@pytest.mark.parametrize("cost", LABELLINGS)  # orders for few operations are not shipped
@pytest.mark.parametrize("name", TASKS)
def test_better_than_every_classical_order_or_proved_optimal(name, cost):
    graph = graph_of(name)
    best = veenv.best_order(name, cost)
    classical = classical_cost(graph, cost)
    assert best.counts[cost] <= classical
    assert best.counts[cost] < classical or best.is_optimal(cost)


@pytest.mark.parametrize("name", PUBLISHED)
def test_at_most_the_best_published(name):
    assert veenv.best_order(name).counts["multiplications"] <= PUBLISHED[name]


@pytest.mark.parametrize(
    "name", ["RoeFlux_1d", "RobotArm_6DOF", "HumanHeartDipole", "PropaneCombustion"]
)
def test_counted_by_other_code_with_equation_numbers(name):
    """Ids number equations from 1, as an eliminator that only sees the jaxpr does."""
    task = veenv.tasks.get(name)
    args = task.example_args()
    edges, outputs, _ = scalar_graph(task.fun, args)
    order = veenv.best_order(name)
    nodes = [len(args) + n - 1 for n in order.ids]
    elimination = Elimination(edges, nodes)
    assert not set(nodes) & set(outputs)
    assert sum(elimination.eliminate(node) for node in nodes) == order.counts["multiplications"]
    assert not elimination.left
    # No nested call shifts the numbers against those of the traced equations.
    jaxpr = jax.make_jaxpr(task.fun)(*args).jaxpr
    assert len(jaxpr.eqns) == order.num_vertices
    assert all(len(eqn.outvars) == 1 for eqn in jaxpr.eqns)


@pytest.mark.parametrize("name", spared(["RoeFlux_1d", "mlp", "Robertson"], "mlp", "Robertson"))
def test_jacve_finds_the_best_order_by_its_graph(name, x64):
    task = veenv.tasks.get(name)
    args = task.example_args()
    expected = quick_jit(jax.jacrev(task.fun, task.argnums))(*args)
    named = {"best": "multiplications"} | {f"best-{c}": c for c in ("executed", "operations")}
    for order, cost in named.items():
        seen = []

        def run(*args, order=order, seen=seen):
            jacobian, counts = veenv.jacve(task.fun, order, task.argnums, count_ops=True)(*args)
            seen.append(counts)
            return jacobian

        found, (counts,) = quick_jit(run)(*args), seen
        assert veenv.tree_allclose(found, expected, rtol=1e-10, atol=1e-10)
        assert getattr(counts, cost) == veenv.best_order(name, cost).counts[cost]
        assert counts.order == veenv.best_order(name, cost).ids


def test_a_function_without_shipped_order_is_refused():
    with pytest.raises(ValueError, match=r"no order is shipped for this graph \(1 eliminable.*sea"):
        veenv.jacve(lambda x: jnp.sin(x) * x, "best")(1.0)
    task = veenv.tasks.get("RoeFlux_1d")

    def nearly(*args):
        return task.fun(*args[:5], jnp.sin(args[5]))

    with pytest.raises(
        ValueError, match=r"of about that size are .*RoeFlux_1d under jax .*: 98 and"
    ):
        veenv.jacve(nearly, "best", task.argnums)(*task.example_args())
    with pytest.raises(ValueError, match="cost must be one of"):
        best_for(graph_of("Robertson"), "flops")
    with pytest.raises(ValueError, match="did you mean RoeFlux"):
        veenv.best_order("RoeFlx_1d")


def test_the_refresh_replaces_only_by_cheaper_orders(tmp_path):
    name = "PropaneCombustion"
    graph = graph_of(name)

    def offered(ids):
        return [Order.from_graph(graph, ids, name, "test")]

    def kept():
        return Order.load(tmp_path / f"{name}.json")

    refresh.update(tmp_path, graph, name, offered(graph.forward()))
    assert kept().ids == graph.forward()
    refresh.update(tmp_path, graph, name, offered(graph.reverse()))
    assert kept().ids == graph.reverse()
    assert kept().counts["multiplications"] == 90
    # Forward was better under the other count: it is kept there.
    executed = [Order.load(p).counts["executed"] for p in tmp_path.iterdir()]
    assert min(executed) == graph.cost(graph.forward(), "executed")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    refresh.update(tmp_path, graph, name, offered(graph.forward()))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


PROVED = "PropaneCombustion LSTM LIF Robertson HumanHeartDipole RobotArm_6DOF mlp".split()
PROVED = [(name, "multiplications") for name in PROVED]
PROVED += [(name, "executed") for name in ("mlp", "HumanHeartDipole", "BlackScholes")]
"""The last four only equal the best classical order."""


@pytest.mark.parametrize(("name", "cost"), spared(PROVED, ("LIF", "multiplications")))
def test_recorded_proofs_are_found_again(name, cost):
    order = veenv.best_order(name, cost)
    assert order.is_optimal(cost)
    result = search(graph_of(name), "exact", cost=cost, budget=2_000_000)
    assert result.lower_bound == order.counts[cost]
