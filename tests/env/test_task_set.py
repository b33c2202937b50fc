"""Pools of random functions: what they hold, that they play, and that renewing compiles nothing."""

import itertools

import jax
import numpy as np
import pytest

from tests.sampling import spared
from veenv.env.encode import Spec
from veenv.env.factory import task_graph
from veenv.env.random_play import random_episode
from veenv.env.task_set import TaskDistribution
from veenv.graph.graph import COST_MODELS

RANGES = {"vertices": (6, 15), "inputs": (2, 4), "outputs": (1, 3)}


@pytest.mark.parametrize(
    ("arrays", "cost"),
    spared(itertools.product([0.0, 0.5], COST_MODELS), (0.5, "operations")),  # both kinds
)
def test_random_functions_are_played_as_the_host_counts_and_renewed_without_compiling(arrays, cost):
    pool = TaskDistribution.random(0, 6, cost, arrays=arrays, **RANGES)
    traces = []

    @jax.jit
    def play(key, params):
        traces.append(1)
        return random_episode(pool.env, key, pool.sample(key, params))

    for other in (pool, pool.renewed(1)):
        assert other.env is pool.env
        seen = set()
        for seed in range(12):
            key = jax.random.key(seed)
            end, drawn = play(key, other.params), pool.sample(key, other.params)
            matches = [
                k
                for k, graph in enumerate(other.graphs)
                if np.array_equal(other.task(k).static_features, drawn.static_features)
                and len(graph.eliminable) == int(end.num_steps)
            ]
            seen.update(matches)
            order = pool.env.final_order(end, drawn)
            assert int(end.cost) in {other.graphs[k].cost(order, cost) for k in matches}
        assert len(seen) >= 4
    assert len(traces) == 1


def test_sizes_lie_in_their_ranges():
    pool = TaskDistribution.random(3, 40, arrays=0.5, **RANGES)
    fits = Spec.common([Spec.of(g, "multiplications") for g in pool.graphs])
    assert fits.num_actions <= pool.env.spec.num_actions == 14
    assert {g.num_inputs for g in pool.graphs} == {2, 3, 4}
    assert {len(g.outputs) for g in pool.graphs} == {1, 2, 3}
    assert {6, 15} < {g.num_vertices for g in pool.graphs} <= set(range(6, 16))
    assert 10 <= sum(g.is_scalar for g in pool.graphs) <= 30


def test_fan_out_is_what_was_asked_for():
    def mean_fan_out(low, high):
        ranges = {"vertices": (60, 60), "inputs": (4, 4), "outputs": (2, 2)}
        pool = TaskDistribution.random(0, 10, fan_out=(low, high), **ranges)
        return np.mean([len(g.edges) / (60 + 4 - 2) for g in pool.graphs])

    found = [mean_fan_out(f, f) for f in (1.0, 1.3, 1.6)]
    np.testing.assert_allclose(found, [1.0, 1.3, 1.6], atol=0.15)
    assert np.diff(found).min() > 0.2


def test_a_seed_makes_the_same_pool():
    def edges(seed):
        return [g.edges for g in TaskDistribution.random(seed, 3, **RANGES).graphs]

    assert edges(0) == edges(0) != edges(1)
    pool = TaskDistribution.random(5, 3, **RANGES)
    assert [g.edges for g in pool.renewed(0).graphs] == edges(0)
    assert pool.renewed(7).names == ("random 7/0", "random 7/1", "random 7/2")


def test_graphs_by_name():
    graph = task_graph("RoeFlux_1d")
    tasks = TaskDistribution.of({"flux": graph, "arm": task_graph("RobotArm_6DOF")}, "executed")
    assert tasks.names == ("flux", "arm")
    assert tasks.classical[0] == {
        "forward": graph.cost(graph.forward(), "executed"),
        "reverse": graph.cost(graph.reverse(), "executed"),
        "Markowitz": graph.cost(graph.markowitz(), "executed"),
    }
    slots = np.full(tasks.env.num_actions, -1)
    slots[: len(graph.eliminable)] = np.arange(len(graph.eliminable))[::-1]
    assert tasks.vertex_ids(0, slots) == graph.reverse()
