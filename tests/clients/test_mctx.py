"""Gumbel MuZero's search in mctx, with the environment as its exact model."""

from __future__ import annotations

import os
import runpy
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

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "mctx_search.py"
EXAMPLE = runpy.run_path(str(SCRIPT))
model, play, value = EXAMPLE["model"], EXAMPLE["play"], EXAMPLE["value"]


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
    env, num_games = veenv.make("Robertson"), 3

    @jax.jit
    def games(key):
        states = play(env, key, num_games, 4)
        start = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_games), env.init())

        def replayed(states, actions):
            output, states = model(env, actions, states)
            return states, (output.reward, output.discount)

        return states, jax.lax.scan(replayed, start, states.order.T)[1]

    states, (rewards, discounts) = jax.device_get(games(jax.random.key(0)))
    for game in range(num_games):
        order = env.final_order(jax.tree.map(lambda leaf, game=game: leaf[game], states))
        assert env.graph.cost(order) == states.cost[game] == -rewards[:, game].sum()
    assert (discounts[-1] == 0).all()
    assert (discounts[:-1] == 1).all()


def test_script_prints_counts_and_order(tmp_path):
    command = [sys.executable, str(SCRIPT), "--task", "Robertson", "--num-simulations", "4"]
    usual = {
        k: v for k, v in os.environ.items() if not k.endswith("_PROMOTION")
    }  # mctx's own needs
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True, env=usual
    )
    first, *_, order = done.stdout.splitlines()
    ids = [int(word) for word in order.removeprefix("order: ").split()]
    graph = veenv.make("Robertson").graph
    assert int(first.removeprefix("Robertson: the games cost ").split()[0]) == graph.cost(ids)
