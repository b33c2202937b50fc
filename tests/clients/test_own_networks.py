"""Networks of flax are trained by our PPO: linen as it is, nnx as two functions."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("promotion")]
pytest.importorskip("flax")

from flax import nnx

import veenv
from veenv import agents

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "flax_ppo.py"


@pytest.mark.filterwarnings("default")
def test_the_example_trains_evaluates_and_leaves_weights_to_read(tmp_path, monkeypatch, capsys):
    evaluate, sets = veenv.evaluate, []

    def few(policy, chosen, **options):
        sets.append(chosen)
        chosen = veenv.sets(chosen)
        small = sorted(chosen.graphs, key=lambda graph: len(graph.eliminable))[:2]
        return evaluate(policy, small, **options)

    monkeypatch.setattr(veenv, "evaluate", few)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "1"])
    monkeypatch.chdir(tmp_path)
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 40
    left = runpy.run_path(str(SCRIPT), run_name="__main__")
    assert sets == ["scalar-small", "hard"]
    assert capsys.readouterr().out.count("own flax network to classical: ") == 2
    net, run = left["Net"](), left["run"]
    env = veenv.make("Robertson")
    seen, _ = env.reset()
    variables = net.init(jax.random.key(1), seen)
    read = agents.load_weights("runs/flax", like=variables)
    for ours, theirs in zip(run.network(seen), net.apply(read, seen), strict=True):
        assert jnp.allclose(ours, theirs)


def test_a_module_of_nnx_is_two_functions():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.layer = nnx.Linear(8, 2, rngs=rngs)

        def __call__(self, seen):
            scores = self.layer(seen.features)
            return scores[:, 0], scores[:, 1].sum()

    graph, first = nnx.split(Net(nnx.Rngs(0)))
    pair = (lambda key, seen: first), (lambda state, seen: nnx.merge(graph, state)(seen))
    env = veenv.make("Robertson")
    network = agents.OwnNetwork.of(pair, env, jax.random.key(0))
    seen, _ = env.reset()
    gradient = eqx.filter_grad(lambda net: net(seen)[1])(network)
    assert any(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(gradient))
