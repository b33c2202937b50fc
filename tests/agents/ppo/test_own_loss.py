"""A loss of the user's own takes the place of PPO's, and all that a run has stays."""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents.conftest import wide
from veenv import agents
from veenv.agents.cli.session import run_training
from veenv.agents.config.args import parse_training
from veenv.agents.nn.encoding import GraphInputs
from veenv.agents.ppo.losses import weighted_mean
from veenv.agents.ppo.ppo import make_loss

SMALL = agents.PPOConfig(num_envs=2, steps=20, hidden=4)


def value_alone(outputs, batch, config, progress):
    """No policy is learned; `halved` is for the metrics."""
    error = weighted_mean(jnp.square(outputs.value - batch.target), batch.weight)
    return error, {"halved": 0.5 * error}


def twice(outputs, batch, config, progress):
    """PPO's own, and a term more."""
    loss, stats = agents.ppo_loss(outputs, batch, config, progress)
    return loss + 0.1 * weighted_mean(outputs.log_prob, batch.weight), stats


def bare(outputs, batch, config, progress):
    """A number alone."""
    return -weighted_mean(outputs.log_prob * batch.advantage, batch.weight)


@pytest.fixture(scope="module")
def lesson():
    """Fresh parameters, and two steps among three vertices."""
    network = agents.GraphNetwork(4, key=jax.random.key(0))
    nodes = jax.random.normal(jax.random.key(1), (2, 3, 33))
    inputs = GraphInputs(nodes, jnp.ones((2, 3), bool))
    numbers = jax.random.normal(jax.random.key(2), (4, 2))
    return network, agents.Batch(inputs, jnp.array([0, 2]), *numbers, jnp.ones(2))


def test_a_loss_says_what_is_minimised_and_what_is_shown(lesson):
    network, batch = lesson
    of, own, more, alone = (
        make_loss(SMALL, jnp.float32(0.5), loss)(network, (batch,))
        for loss in (agents.ppo_loss, value_alone, twice, bare)
    )
    log_prob = jax.vmap(lambda x: jax.nn.log_softmax(network(x)[0]))(batch.inputs)
    taken = np.take_along_axis(np.asarray(log_prob), np.asarray(batch.action)[:, None], 1)
    np.testing.assert_allclose(more[0] - of[0], 0.1 * taken.mean(), rtol=1e-4)
    np.testing.assert_allclose(alone[0], -(taken[:, 0] * batch.advantage).mean(), rtol=1e-4)
    assert (more[1].keys(), alone[1], own[1]) == (of[1].keys(), {}, {"halved": own[0] / 2})


@pytest.mark.parametrize("wrong", [jnp.ones(3), (1.0, jnp.ones(2)), (1.0, {"kl": jnp.ones(2)})])
def test_what_is_no_loss_is_refused(lesson, wrong):
    network, batch = lesson
    with pytest.raises(TypeError, match="expected of a loss a number, or that and a dict"):
        make_loss(SMALL, jnp.float32(0), lambda *_: wrong)(network, (batch,))


@pytest.mark.parametrize("wrong", [3, lambda outputs: outputs, "ppo"])
def test_what_cannot_be_called_as_a_loss_is_refused_before_compiling(wrong):
    with pytest.raises(ValueError, match="loss must be a function of outputs, batch, config"):
        agents.train(wide, SMALL, args=(1.0, 2.0), loss=wrong)


def test_a_run_goes_on_in_its_folder_with_its_loss(tmp_path):
    """What no loss reads stays as it was: the policy's head, where only the value is learned."""
    given = {"args": (1.0, 2.0), "loss": value_alone, "folder": tmp_path / "run"}
    run = agents.train(wide, SMALL, **given)
    assert run.history[-1]["stats"]["halved"] > 0
    more = agents.train(wide, agents.PPOConfig(num_envs=2, steps=40, hidden=4), **given)
    assert more.history[0]["update"] == len(run.history) + 1
    before, after = run.network, more.network
    np.testing.assert_array_equal(before.policy.outer.weight, after.policy.outer.weight)
    assert not np.array_equal(before.critic.outer.weight, after.critic.outer.weight)
    with pytest.raises(ValueError, match="loss takes the place of PPO's"):
        agents.train(wide, SMALL, agent="alphazero", args=(1.0, 2.0), loss=bare)


@pytest.mark.slow
def test_the_command_names_a_loss(tmp_path):
    args = "--task Robertson --num-envs 2 --steps 20 --hidden 4 --timing 0".split()
    args += ["--loss", f"{__name__}:value_alone", "--folder", str(tmp_path / "run")]
    out = io.StringIO()
    assert run_training(parse_training(args), out) == 0, out.getvalue()
    assert "halved" in (tmp_path / "run" / "metrics.jsonl").read_text()
