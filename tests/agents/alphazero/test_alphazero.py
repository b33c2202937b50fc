"""AlphaZero: the search's model, its lessons, and that it learns."""

import dataclasses
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents.conftest import trained_beside_random
from veenv.agents.config.args import parse_training
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.search import SearchConfig
from veenv.agents.nn.distributions import MASKED_LOGIT
from veenv.agents.ppo.trainer import PPO
from veenv.agents.training.inputs import make_trainer as choose_trainer
from veenv.env import TaskDistribution
from veenv.env.random_play import random_episodes

pytest.importorskip("mctx")

from veenv.agents.alphazero.alphazero import (
    loss_fn,
    make_lessons,
    make_trainer,
    search_batch,
)
from veenv.agents.alphazero.planning import make_model, self_play

CONFIG = PPOConfig(num_envs=4, steps=100, hidden=8, gae_lambda=1.0)
SEARCH = SearchConfig(num_simulations=6, max_considered=4)


@pytest.fixture(scope="module")
def trainer(both):
    return make_trainer(CONFIG, SEARCH, both)


@pytest.fixture(scope="module", params=[0, 3], ids=["all slots", "a window"])
def played(trainer, request):
    """Searches and episodes of the untrained network, with the params they had."""
    play = jax.jit(partial(self_play, trainer.tasks.env, config=SEARCH, window=request.param))
    return play(trainer._params, trainer.init().network, jax.random.key(1))


def test_model_is_the_environment(trainer, both):
    """Through whole episodes: rewards add up to the graph's cost, and nothing follows the end."""
    network = trainer.init().network
    model = jax.jit(make_model(both.env, trainer._params))
    state = jax.vmap(both.env.init)(trainer._params)
    orders = [graph.reverse() for graph in both.graphs for _ in range(2)]
    returns, discounts = np.zeros(4), np.ones(4)
    for step in range(both.env.num_actions):
        slots = [
            both.graphs[row // 2].eliminable.index(order[step]) if step < len(order) else 0
            for row, order in enumerate(orders)
        ]
        output, (state, _) = model(network, jax.random.key(0), jnp.array(slots), (state, None))
        returns += discounts * output.reward * trainer._params.scale
        discounts *= output.discount
        over = [step + 1 >= len(order) for order in orders]
        np.testing.assert_array_equal(output.discount, np.where(over, 0.0, 1.0))
        np.testing.assert_array_equal(np.asarray(output.value) == 0.0, over)
        illegal = np.asarray(output.prior_logits) == np.float32(MASKED_LOGIT)
        np.testing.assert_array_equal(illegal, ~np.asarray(state.action_mask))
    costs = [graph.cost(graph.reverse()) for graph in both.graphs for _ in range(2)]
    np.testing.assert_allclose(returns, -np.array(costs), rtol=1e-6)


def test_self_play(trainer, both, played):
    searches, episodes = played
    assert episodes.complete.all()
    for row, graph in enumerate(graph for graph in both.graphs for _ in range(2)):
        ids = both.vertex_ids(row // 2, np.asarray(episodes.order[row]))
        assert graph.cost(ids) == episodes.cost[row]
        np.testing.assert_array_equal(
            searches.active[:, row], np.arange(both.env.num_actions) < len(graph.eliminable)
        )
    returns = searches.reward.sum(0) * trainer._params.scale
    np.testing.assert_allclose(returns, -episodes.cost.astype(float), rtol=1e-6)
    active = np.asarray(searches.active) == 1
    weights = np.asarray(searches.action_weights)[active]
    legal = np.asarray(searches.inputs.mask)[active]
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
    assert (weights[~legal] == 0).all()
    assert (np.asarray(searches.value)[~active] == 0).all()


@pytest.mark.slow
def test_long_searches_find_the_cheapest_order(wide_graph):
    """On a graph small enough to try every order, whatever the untrained network says."""
    tasks = TaskDistribution.of({"wide": wide_graph}, normalise=True)
    orders = itertools.permutations(wide_graph.eliminable)
    cheapest = min(wide_graph.cost(order) for order in orders)
    trainer = make_trainer(dataclasses.replace(CONFIG, num_envs=4), SEARCH, tasks)
    config = SearchConfig(num_simulations=200, max_considered=16)
    play = jax.jit(partial(self_play, tasks.env, config=config))
    network = trainer.init().network
    _, episodes = play(trainer._params, network, jax.random.key(0))
    assert (episodes.cost == cheapest).all()
    random = random_episodes(tasks.env, jax.random.key(0), 4)
    assert (random.cost > cheapest).any()


def test_loss(trainer, played):
    network = trainer.init().network
    lessons = make_lessons(played[0], CONFIG.gae_lambda)
    flat = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), lessons)
    loss, stats = jax.jit(loss_fn)(network, (flat,), 0.5)
    logits, values = jax.jit(jax.vmap(network))(flat.inputs)
    logits = logits if flat.prior is None else logits + flat.prior
    total_policy, total_value, total = 0.0, 0.0, 0
    for row in range(flat.weight.shape[0]):
        if flat.weight[row] == 0:
            continue
        legal = np.asarray(flat.inputs.mask[row])
        policy = np.exp(np.asarray(logits[row], float)[legal])
        policy /= policy.sum()
        target = np.asarray(flat.action_weights[row], float)[legal]
        terms = [t * np.log(t / p) for t, p in zip(target, policy, strict=True) if t > 0]
        total_policy += sum(terms)
        total_value += 0.5 * (float(values[row]) - float(flat.target[row])) ** 2
        total += 1
    np.testing.assert_allclose(stats["policy_loss"], total_policy / total, rtol=1e-4)
    np.testing.assert_allclose(stats["value_loss"], total_value / total, rtol=1e-4)
    np.testing.assert_allclose(loss, (total_policy + 0.5 * total_value) / total, rtol=1e-4)


def test_targets_are_returns(played):
    searches, _ = played
    lessons = make_lessons(searches, 1.0)
    rewards = np.asarray(searches.reward)
    to_go = rewards[::-1].cumsum(0)[::-1]
    np.testing.assert_allclose(lessons.target, to_go, atol=1e-5)


def test_a_window_is_what_the_network_reads(both):
    trainer = make_trainer(dataclasses.replace(CONFIG, window=3), SEARCH, both)
    assert trainer.config.window == 3
    state = trainer.init()
    lessons = jax.eval_shape(
        lambda state: search_batch(
            both.env, trainer._params, state, state.key, trainer.config, search=SEARCH
        )[0][0],
        state,
    )
    assert lessons.action_weights.shape == (both.env.num_actions, 4, 3)
    after, update = trainer.step(state, 0.0)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    for k, graph in enumerate(both.graphs):
        ids = both.vertex_ids(k, np.asarray(update.best_order[k]))
        assert graph.cost(ids) == update.min_cost[k]


@pytest.mark.slow
def test_alphazero_beats_best_of_n_random_play(tangle_task):
    config = PPOConfig(num_envs=8, steps=1_500, hidden=16)
    trainer = make_trainer(config, SearchConfig(8, 8), tangle_task)
    best, mean, random_best, random_mean = trained_beside_random(trainer)
    assert best.cost("tangle") < random_best
    assert mean < 0.5 * random_mean + 0.5 * random_best
    assert tangle_task.graphs[0].cost(best["tangle"].ids) == best.cost("tangle")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"num_simulations": 0}, "num_simulations must be an integer of at least 1, got 0"),
        ({"max_considered": 1.5}, "max_considered must be an integer of at least 1, got 1.5"),
        ({"gumbel_scale": -1.0}, "gumbel_scale must be a number of at least 0, got -1.0"),
    ],
)
def test_settings_are_checked(settings, text):
    with pytest.raises(ValueError, match=text):
        SearchConfig(**settings)


def test_the_command_line_chooses_the_agent(both):
    args = parse_training(["--task=LIF", "--agent=alphazero", "--num-simulations=3", "--seed=7"])
    trainer = choose_trainer(args.agent, args.ppo, args.search, both)
    assert trainer.agent.play.func is search_batch
    assert trainer.agent.play.keywords == {"search": SearchConfig(num_simulations=3)}
    assert trainer.config.seed == 7
    args = parse_training(["--task=LIF"])
    assert choose_trainer(args.agent, args.ppo, args.search, both).agent is PPO


def test_what_only_ppo_does_is_refused(both):
    for name in ("ent_coef", "final_ent_coef", "clip_eps", "target_kl"):
        with pytest.raises(ValueError, match=f"{name} is a setting of PPO's loss"):
            make_trainer(dataclasses.replace(CONFIG, **{name: 0.3}), SEARCH, both)


@pytest.mark.parametrize(("said", "share"), [(None, 1.0), (0.25, 0.25), (1.0, 1.0)])
def test_a_learned_share_counts_as_it_is_said(said, share, both):
    config = dataclasses.replace(CONFIG, learned_share=said)
    trainer = make_trainer(config, SEARCH, both)
    assert trainer.config == dataclasses.replace(CONFIG, learned_share=share, window=0)
    ppo = choose_trainer("ppo", config, SearchConfig(), both)
    assert ppo.config.learned_share == (0.25 if said is None else share)
