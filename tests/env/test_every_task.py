"""Every task, both cost models: each step of the environment is a step of the host's algebra."""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env.games import expected_adjacency, new_game
from veenv.env import Spec, VertexEnv
from veenv.graph.graph import COST_MODELS
from veenv.tasks import list_tasks

EPISODES = 100
AT_ONCE = 5  # episodes whose states are held in memory together

built_in = list_tasks()


def host_steps(graph, cost, slots, spec) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Price, edges and mask of every step of an episode, in the layout of `spec`."""
    game = new_game(graph, cost)
    mask = np.arange(spec.num_actions) < len(graph.eliminable)
    for slot in slots:
        price = game.eliminate(graph.node(graph.eliminable[slot]))
        mask[slot] = False
        yield price, expected_adjacency(game, spec), mask.copy()


def specs_of(graph, cost) -> list[Spec]:
    """The graph's own sizes, larger ones, and those of the array rules, which play scalars too."""
    own = Spec.of(graph, cost)
    padded = own.padded(
        num_inputs=own.num_inputs + 3,
        num_actions=own.num_actions + 37,
        num_outputs=own.num_outputs + 2,
    )
    other = Spec.common([own, Spec(1, 1, 1, scalar=False, rank=2, links=True)])
    return [own, padded, other] if graph.is_scalar else [own, padded]


def relaid(codes, own, spec):
    """Edges in the layout of larger sizes; the first axes are any."""
    rows = [*range(own.num_inputs), *range(spec.num_inputs, spec.num_inputs + own.num_actions)]
    ends = range(spec.num_actions, spec.num_actions + own.num_outputs)
    full = np.zeros((*codes.shape[:-2], spec.rows, spec.columns), np.int32)
    full[..., np.array(rows)[:, None], [*range(own.num_actions), *ends]] = codes
    return full


def player(env):
    """Plays orders [B, T] side by side as one program; all steps of all episodes, [B, T, ...]."""

    @jax.jit
    @jax.vmap
    def play(order):
        def step(state, slot):
            obs, state, reward, terminated, truncated, info = env.step(None, state, slot)
            ends = jnp.stack([terminated, truncated, info["illegal"]])
            seen = obs.adjacency, state.action_mask, reward, info["cost"], info["total"], ends
            return state, seen

        return jax.lax.scan(step, env.init(), order)[1]

    return play


def check_episodes(graph, cost, specs, orders):
    """Compares every step of every order, played under each of the specs, with the host."""
    envs = [VertexEnv(graph, cost, spec=spec) for spec in specs]
    players = [player(env) for env in envs]
    worst = {float(env.default_params.worst_total) for env in envs}
    own, steps = specs[0], orders.shape[1]
    last = np.arange(steps) == steps - 1
    for some in np.split(orders, range(AT_ONCE, len(orders), AT_ONCE)):
        found = [jax.device_get(play(jnp.asarray(some))) for play in players]
        for i, order in enumerate(some):
            prices, codes, masks = (
                np.array(x) for x in zip(*host_steps(graph, cost, order, own), strict=True)
            )
            assert prices.sum() < min(worst)  # what an illegal move costs
            for spec, (adjacency, mask, reward, paid, total, ends) in zip(
                specs, found, strict=True
            ):
                np.testing.assert_array_equal(adjacency[i], relaid(codes, own, spec))
                np.testing.assert_array_equal(mask[i, :, : own.num_actions], masks)
                assert not mask[i, :, own.num_actions :].any()
                np.testing.assert_array_equal(reward[i], -prices)
                np.testing.assert_array_equal(paid[i], prices)
                np.testing.assert_array_equal(total[i], np.cumsum(prices))
                np.testing.assert_array_equal(ends[i], np.outer(last, [1, 0, 0]))


def random_orders(graph, num, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([rng.permutation(len(graph.eliminable)) for _ in range(num)], np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("cost", COST_MODELS)
@pytest.mark.parametrize("name", built_in)
def test_every_step_of_many_random_episodes(name, cost, graph_of_task):
    graph = graph_of_task(name)
    check_episodes(graph, cost, specs_of(graph, cost), random_orders(graph, EPISODES))


WITHOUT_ADDITIONS = "multiplications", "executed"


@pytest.mark.parametrize("scalar", [True, False])
def test_every_task_is_played_as_on_the_host(scalar, graph_of_task):
    """Tasks of numbers, or of arrays, each under the next of two cost models."""
    graphs = [graph for graph in map(graph_of_task, built_in) if graph.is_scalar == scalar]
    play_in_one_program([*zip(graphs, itertools.cycle(WITHOUT_ADDITIONS), strict=False)])


@pytest.mark.slow
@pytest.mark.parametrize("costs", [WITHOUT_ADDITIONS, ("operations",)])
@pytest.mark.parametrize("scalar", [True, False])
def test_every_task_in_one_program(scalar, costs, graph_of_task):
    """Every task, of numbers by the rules for arrays as well, under every cost model."""
    pairs = [(graph_of_task(name), cost) for name in built_in for cost in costs]
    play_in_one_program([(graph, c) for graph, c in pairs if graph.is_scalar or not scalar])


def play_in_one_program(pairs):
    """One random episode of each graph and cost model, all side by side in one compiled step.

    Models that count additions and those that do not are different programs.
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
