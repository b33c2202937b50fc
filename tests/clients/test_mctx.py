"""Gumbel MuZero's search in mctx, with the environment as its exact model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("promotion")]
pytest.importorskip("mctx")

import veenv
from scripts.play_mctx import PlayArgs, model, play, value

SCRIPT = Path(__file__).parents[2] / "scripts" / "play_mctx.py"


def test_value_is_the_rest_in_reverse_order():
    env = veenv.make("PropaneCombustion")
    slots = np.random.default_rng(0).permutation(env.num_actions)
    state = env.init()
    for done in range(0, env.num_actions, 10):
        rest = sorted(slots[done:].tolist(), reverse=True)
        order = [env.graph.eliminable[slot] for slot in [*slots[:done], *rest]]
        costs = env.graph.costs(order)
        assert float(value(env, state)) == -sum(costs[done:])
        for slot in slots[done : done + 10]:
            state, _, _ = env.transition(state, int(slot))
    assert float(value(env, state)) == 0.0


def test_every_return_is_the_cost_of_its_order():
    env, args = veenv.make("Robertson"), PlayArgs("Robertson", games=3, num_simulations=4)

    @jax.jit
    def games(key):
        states = play(env, key, args)
        start = jax.tree.map(lambda leaf: jnp.stack([leaf] * args.games), env.init())

        def replayed(states, actions):
            output, states = model(env, key, actions, states)
            return states, (output.reward, output.discount)

        return states, jax.lax.scan(replayed, start, states.order.T)[1]

    states, (rewards, discounts) = jax.device_get(games(jax.random.key(0)))
    for game in range(args.games):
        order = env.final_order(jax.tree.map(lambda leaf, game=game: leaf[game], states))
        assert env.graph.cost(order) == states.cost[game] == -rewards[:, game].sum()
    assert (discounts[-1] == 0).all()
    assert (discounts[:-1] == 1).all()


def test_finds_a_better_order_than_random_play(random_best):
    env, args = veenv.make("HumanHeartDipole"), PlayArgs("HumanHeartDipole", games=1)
    states = jax.jit(lambda key: play(env, key, args))(jax.random.key(0))
    state = jax.tree.map(lambda leaf: leaf[0], states)
    best = env.graph.cost(env.order(state))
    assert best == int(state.cost)
    # Every simulation plays the rest of an episode to value its leaf.
    episodes = env.max_steps * (args.num_simulations + 1)
    assert episodes <= 4096
    print(f"mctx {best}, random play {random_best(episodes)}")
    assert best < random_best(episodes)


def test_script_prints_counts_and_order(tmp_path):
    command = [sys.executable, str(SCRIPT), "--task", "Robertson", "--num-simulations", "4"]
    usual = {
        k: v for k, v in os.environ.items() if not k.endswith("_PROMOTION")
    }  # mctx's own needs
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True, env=usual
    )
    *_, count, order = done.stdout.splitlines()
    ids = [int(word) for word in order.removeprefix("order: ").split()]
    graph = veenv.make("Robertson").graph
    assert count.split()[:3] == ["best", "found", "(mctx)"]
    assert int(count.split()[3]) == graph.cost(ids)


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--task", "Roe"], "unknown task"), (["--task", "mlp", "--games", "0"], "games must be")],
)
def test_bad_input_is_one_line(options, message):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
