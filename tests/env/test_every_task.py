"""Every task, both cost models: each step of the environment is a step of the host's algebra."""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env.games import expected_adjacency, new_game
from veenv.env import Spec, VertexEnv
from veenv.tasks import list_tasks

built_in = list_tasks()


def host_steps(graph, cost, slots, spec) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Price, edges and mask of every step of an episode, in the layout of `spec`."""
    game = new_game(graph, cost)
    mask = np.arange(spec.num_actions) < len(graph.eliminable)
    for slot in slots:
        price = game.eliminate(graph.node(graph.eliminable[slot]))
        mask[slot] = False
        yield price, expected_adjacency(game, spec), mask.copy()


WITHOUT_ADDITIONS = "multiplications", "executed"


@pytest.mark.parametrize("scalar", [True, False])
def test_every_task_is_played_as_on_the_host(scalar, task_graph):
    """Tasks of numbers, or of arrays, each under the next of two cost models."""
    graphs = [graph for graph in map(task_graph, built_in) if graph.is_scalar == scalar]
    play_in_one_program([*zip(graphs, itertools.cycle(WITHOUT_ADDITIONS), strict=False)])


@pytest.mark.slow
@pytest.mark.parametrize("costs", [WITHOUT_ADDITIONS, ("operations",)])
@pytest.mark.parametrize("scalar", [True, False])
def test_every_task_in_one_program(scalar, costs, task_graph):
    """Every task, of numbers by the rules for arrays as well, under every cost model."""
    pairs = [(task_graph(name), cost) for name in built_in for cost in costs]
    pairs = [(graph, cost) for graph, cost in pairs if graph.is_scalar or not scalar]
    play_in_one_program(5 * pairs, every=5)


def play_in_one_program(pairs, every=20):
    """One random episode of each graph and cost model, all side by side in one compiled step.

    Models that count additions and those that do not are different programs. What is shown is
    compared every few steps, and at the end.
    """
    spec = Spec.common([Spec.of(graph, cost) for graph, cost in pairs])
    envs = [VertexEnv(graph, cost, spec=spec) for graph, cost in pairs]
    params = jax.tree.map(lambda *x: jnp.stack(x), *[env.default_params for env in envs])
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(graph.eliminable)) for graph, _ in pairs]
    hosts = [host_steps(*pair, order, spec) for pair, order in zip(pairs, orders, strict=True)]
    step = jax.jit(jax.vmap(envs[0].transition))
    observe = jax.jit(lambda state, params: envs[0].observe(state, params).adjacency)
    state = jax.jit(jax.vmap(envs[0].init))(params)
    for t in range(max(map(len, orders))):
        slots = [order[t] if t < len(order) else 0 for order in orders]
        state, *results = step(state, jnp.asarray(slots, jnp.int32), params)
        rewards, info, ended = jax.device_get((*results, state.terminated))
        for i, host in enumerate(hosts):
            price, codes, mask = next(host, (0, None, None))
            assert rewards[i] == -price
            assert info["cost"][i] == price
            assert not info["illegal"][i]
            assert ended[i] == (t >= len(orders[i]) - 1)
            if codes is not None and (t % every == 3 or not mask.any()):
                one = jax.tree.map(lambda leaf, i=i: leaf[i], (state, params))
                np.testing.assert_array_equal(observe(*one), codes)
                np.testing.assert_array_equal(one[0].action_mask, mask)
    for i, (graph, cost) in enumerate(pairs):
        ids = [graph.eliminable[slot] for slot in orders[i]]
        assert int(state.cost[i]) == graph.cost(ids, cost)
