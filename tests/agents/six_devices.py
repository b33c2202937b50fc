"""Trains on several devices and writes what came out to files; for `test_devices`.

By default on six, with the settings that tests share; with the argument ``tpu`` nothing is trained,
but the train step is compiled for four chips of a v5e.
"""

import dataclasses
import sys
from pathlib import Path

import jax
import numpy as np

from scripts.benchmarks.devices import mesh_of
from tests.agents.conftest import SHARED, chain, wide
from veenv import make_graph
from veenv.agents.devices import AXIS, own_key, place
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.ppo.updates import TrainState
from veenv.env import TaskDistribution


def run(trainer: Trainer, state: TrainState) -> dict[str, np.ndarray]:
    """Three train steps; parameters, costs and orders by name."""
    names = {f"start{i}": x for i, x in enumerate(jax.tree.leaves(state.network))}
    for step in range(3):
        state, update = trainer.step(state, 0.3 * step)
        names |= {f"order{step}": update.best_order, f"mean{step}": update.mean_cost}
    names |= {f"end{i}": x for i, x in enumerate(jax.tree.leaves(state.network))}
    names["shards"] = np.array(
        len({s.device for s in trainer._params.vertex_ids.addressable_shards})
    )
    return {name: np.asarray(x) for name, x in names.items()}


def make_tasks() -> TaskDistribution:
    graphs = {"wide": make_graph(wide, (0, 1))(1.0, 2.0), "chain": make_graph(chain)(1.0)}
    return TaskDistribution.of(graphs, normalise=True)


def write_several(out: Path, trainer: Trainer) -> None:
    np.savez(out / "several.npz", **run(trainer, trainer.init()))
    other = Trainer(dataclasses.replace(trainer.config, seed=1), make_tasks(), 1)
    np.savez(out / "other.npz", **run(trainer, other.init()))


def main(out: Path) -> None:
    """Writes ``several.npz``, ``other.npz`` (another seed), ``text.npz`` and ``placements.npz``."""
    trainer = Trainer(SHARED, make_tasks(), 6)
    state = trainer.placement.copy(trainer.init())
    trainer._step = trainer._step.lower(state, np.float32(0.0), trainer._params).compile()
    np.savez(out / "text.npz", text=trainer._step.as_text())
    write_several(out, trainer)
    found = [place(num_envs).mesh.size for num_envs in (16, 12, 7)]
    errors = []
    for num_envs, devices in ((12, 8), (16, 9), (4, 8)):
        try:
            place(num_envs, devices)
        except ValueError as error:
            errors.append(str(error))
    draw = place(6).apart(
        lambda key: jax.lax.all_gather(jax.random.bits(own_key(key)), AXIS), [None]
    )
    draws = jax.jit(draw)(jax.random.key(0))
    np.savez(out / "placements.npz", found=found, errors=errors, draws=draws)


def write_tpu(out: Path) -> None:
    """Writes ``text.npz``."""
    trainer = Trainer(dataclasses.replace(SHARED, num_envs=8), make_tasks(), 1)
    step = trainer.lowered(mesh_of("v5e:2x2")).compile()
    np.savez(out / "text.npz", text=step.as_text())


if __name__ == "__main__":
    (write_tpu if "tpu" in sys.argv else main)(Path(sys.argv[1]))
