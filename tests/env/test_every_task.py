"""Every task, both cost models: each step of the environment is a step of the host's algebra."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env.games import expected_adjacency, new_game
from veenv.env import Spec, VertexEnv
from veenv.graph import COST_MODELS
from veenv.tasks import list_tasks

EPISODES = 100
AT_ONCE = 5  # episodes whose states are held in memory together

built_in = list_tasks()


def host_steps(graph, cost, slots, spec) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Price, edges and mask of every step of an episode, in the layout of `spec`."""
    game = new_game(graph, cost)
    for slot in slots:
        price = game.eliminate(graph.node(graph.eliminable[slot]))
        mask = np.zeros(spec.num_actions, bool)
        mask[: len(graph.eliminable)] = [graph.node(v) in game.left for v in graph.eliminable]
        yield price, expected_adjacency(game, spec), mask


def specs_of(graph, cost) -> dict[str, Spec]:
    own = Spec.of(graph, cost)
    padded = own.padded(
        num_inputs=own.num_inputs + 3,
        num_actions=own.num_actions + 37,
        num_outputs=own.num_outputs + 2,
    )
    # The array rules play scalar graphs too, when they share a program with others.
    other = {"arrays": Spec.common([own, Spec(1, 1, 1, False, False, 2, True)])}
    return {"own": own, "padded": padded} | (other if graph.is_scalar else {})


def check_episodes(graph, cost, spec, orders):
    """Plays orders side by side, as one program, and compares every step with the host."""
    env = VertexEnv(graph, cost, spec=spec)

    @jax.jit
    @jax.vmap
    def play(order):
        def step(state, slot):
            obs, state, reward, terminated, truncated, info = env.step(None, state, slot)
            ends = jnp.stack([terminated, truncated, info["illegal"]])
            return state, (obs.adjacency, state.action_mask, reward, info["cost"], ends)

        return jax.lax.scan(step, env.init(), order)

    for some in np.split(orders, range(AT_ONCE, len(orders), AT_ONCE)):
        end, (adjacency, masks, rewards, costs, ends) = jax.device_get(play(jnp.asarray(some)))
        for i, order in enumerate(some):
            total = 0
            for t, (price, codes, mask) in enumerate(host_steps(graph, cost, order, spec)):
                total += price
                assert (rewards[i, t], costs[i, t]) == (-price, price)
                np.testing.assert_array_equal(adjacency[i, t], codes)
                np.testing.assert_array_equal(masks[i, t], mask)
                assert ends[i, t].tolist() == [t == len(order) - 1, False, False]
            assert end.cost[i] == total
            np.testing.assert_array_equal(end.order[i, : len(order)], order)


def random_orders(graph, num, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([rng.permutation(len(graph.eliminable)) for _ in range(num)], np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["own", "padded", "arrays"])
@pytest.mark.parametrize("cost", COST_MODELS)
@pytest.mark.parametrize("name", built_in)
def test_every_step_of_many_random_episodes(name, cost, kind, graph_of_task):
    graph = graph_of_task(name)
    specs = specs_of(graph, cost)
    if kind not in specs:
        pytest.skip("a graph of arrays has no other rules")
    check_episodes(graph, cost, specs[kind], random_orders(graph, EPISODES))


@pytest.mark.slow
@pytest.mark.parametrize("cost", COST_MODELS)
@pytest.mark.parametrize("name", built_in)
def test_single_compiled_steps_equal_batched_ones(name, cost, graph_of_task):
    graph = graph_of_task(name)
    env = VertexEnv(graph, cost)
    step = jax.jit(env.step)
    for order in random_orders(graph, 3, seed=1):
        _, state = env.reset()
        for slot, (price, codes, mask) in zip(
            order, host_steps(graph, cost, order, env.spec), strict=True
        ):
            obs, state, reward, *_ = step(None, state, slot)
            assert float(reward) == -price
            np.testing.assert_array_equal(obs.adjacency, codes)
            np.testing.assert_array_equal(state.action_mask, mask)


@pytest.mark.parametrize("scalar", [True, False])
def test_every_task_in_one_program(scalar, graph_of_task):
    """One random episode of each task and cost model, all side by side in one compiled step."""
    pairs = [(graph_of_task(name), cost) for name in built_in for cost in COST_MODELS]
    pairs = [(graph, cost) for graph, cost in pairs if graph.is_scalar or not scalar]
    spec = Spec.common([Spec.of(graph, cost) for graph, cost in pairs])
    envs = [VertexEnv(graph, cost, spec=spec) for graph, cost in pairs]
    params = jax.tree.map(lambda *x: jnp.stack(x), *[env.default_params for env in envs])
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(graph.eliminable)) for graph, _ in pairs]
    hosts = [host_steps(*pair, order, spec) for pair, order in zip(pairs, orders, strict=True)]
    step = jax.jit(jax.vmap(envs[0].transition))
    observe = jax.jit(lambda state, params: envs[0].observe(state, params).adjacency)
    state = jax.vmap(envs[0].init)(params)
    for t in range(max(map(len, orders))):
        slots = [order[t] if t < len(order) else 0 for order in orders]
        state, rewards, info = step(state, jnp.asarray(slots, jnp.int32), params)
        for i, host in enumerate(hosts):
            price, codes, mask = next(host, (0, None, None))
            assert rewards[i] == -price
            assert not info["illegal"][i]
            if codes is not None and (t % 20 == 3 or not mask.any()):
                one = jax.tree.map(lambda leaf, i=i: leaf[i], (state, params))
                np.testing.assert_array_equal(observe(*one), codes)
                np.testing.assert_array_equal(one[0].action_mask, mask)
    for i, (graph, cost) in enumerate(pairs):
        ids = [graph.eliminable[slot] for slot in orders[i]]
        assert int(state.cost[i]) == graph.cost(ids, cost)
