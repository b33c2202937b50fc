"""Compiles what veenv runs on accelerators for a TPU that is not there: sizes, times, a table.

    pip install -e '.[tpu-check]'
    python scripts/compile_for.py                     # all programs, for a v5e 2x2
    python scripts/compile_for.py --topology v6e:2x2 --programs rollouts pallas/RoeFlux_1d

Nothing runs: the compiler of the TPU's vendor, libtpu, takes a description of the machine. What it
says of code and memory is true of the machine; how fast the program is there, it does not say.
"""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
import os
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import veenv
from agents.config.ppo import PPOConfig
from agents.config.search import SearchConfig
from agents.devices import AXIS
from agents.nn.networks import GraphNetwork
from agents.training.played import Played, make_trainer
from scripts.result_file import Table, write_result
from veenv.env.random_play import random_episodes
from veenv.kernel.fusing import trace_point
from veenv.kernel.pallas import PallasKernel

SETTINGS = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
}
"""Without them libtpu asks a server in the network which machine this is."""
POINTS = 65_536
"""Points of a kernel's batch."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Compiles programs for a TPU and writes a table."""

    topology: str = "v5e:2x2"
    """The TPU: kind and chips."""
    programs: tuple[str, ...] = ()
    """Names of programs, or how they begin; all by default."""
    out: str | None = None
    """File to write the result to, as JSON."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of a program.

    Attributes:
      code: bytes of code.
      temporaries: bytes of temporary memory on one chip.
      seconds: of lowering and compiling.
      text: the program after all of the compiler's passes.
    """

    code: int
    temporaries: int
    seconds: float
    text: str

    def reduced(self) -> int:
        """Bytes of all results of all-reduce, of one run of the code in which they stand."""
        found = re.findall(r"= (\(?[^=\n]*?) all-reduce(?:-start)?\(", self.text)
        return sum(_bytes(kind) for kind in found)

    def moves(self) -> list[str]:
        """The other operations by which chips exchange numbers."""
        names = "all-gather|all-to-all|collective-permute|ragged-all-to-all"
        return re.findall(rf" ({names})(?:-start)?\(", self.text)


_WIDTHS = {"f32": 4, "s32": 4, "u32": 4, "bf16": 2, "pred": 1, "f64": 8, "s8": 1, "u8": 1}


def _bytes(kind: str) -> int:
    """Bytes of a type of HLO, of all parts of a tuple."""
    parts = re.findall(r"(\w+)\[([\d,]*)\]", kind)
    return sum(_WIDTHS[t] * int(np.prod([int(n) for n in shape.split(",") if n] or [1]))
               for t, shape in parts if t in _WIDTHS)  # fmt: skip


def mesh_of(topology: str) -> Mesh:
    """The devices of a topology.

    Raises:
      RuntimeError: libtpu is not installed, or does not know the topology.
    """
    os.environ.update({k: os.environ.get(k, v) for k, v in SETTINGS.items()})
    from jax.experimental import topologies

    devices = topologies.get_topology_desc(topology, "tpu").devices
    return Mesh(np.array(devices), (AXIS,))


def compiled(lower: Callable[[Mesh], jax.stages.Lowered], mesh: Mesh) -> Compiled:
    """Lowers and compiles a program for devices."""
    began = time.perf_counter()
    made = lower(mesh).compile()
    seconds = time.perf_counter() - began
    memory: Any = made.memory_analysis()
    return Compiled(
        memory.generated_code_size_in_bytes,
        memory.temp_size_in_bytes,
        seconds,
        made.as_text() or "",
    )


def programs() -> dict[str, Callable[[Mesh], jax.stages.Lowered]]:
    """What is compiled, by name: each lowers itself for a mesh."""
    found: dict[str, Callable[[Mesh], jax.stages.Lowered]] = {
        "rollouts/RoeFlux_1d": lambda mesh: rollouts("RoeFlux_1d", mesh),
        "rollouts/LSTM": lambda mesh: rollouts("LSTM", mesh),
        "policy/RoeFlux_1d": lambda mesh: policy("RoeFlux_1d", mesh),
        "ppo/RoeFlux_1d": lambda mesh: train_step("RoeFlux_1d", "ppo", mesh),
        "ppo/HumanHeartDipole": lambda mesh: train_step("HumanHeartDipole", "ppo", mesh),
        "alphazero/HumanHeartDipole": lambda mesh: train_step(
            "HumanHeartDipole", "alphazero", mesh
        ),
    }
    for name in veenv.tasks.list():
        found[f"pallas/{name}"] = lambda mesh, name=name: kernel(name, mesh)
    return found


def rollouts(name: str, mesh: Mesh) -> jax.stages.Lowered:
    """Random episodes in 1,024 environments that the devices share."""
    env = veenv.make(name)

    def costs(keys: Any) -> Any:
        return jax.vmap(lambda key: random_episodes(env, key, 1024 // mesh.size).cost)(keys)

    keys = jax.ShapeDtypeStruct(
        (mesh.size,),
        jax.random.key(0).dtype,
        sharding=NamedSharding(mesh, PartitionSpec(AXIS)),
    )
    return jax.jit(costs).lower(keys)


def policy(name: str, mesh: Mesh) -> jax.stages.Lowered:
    """One action of a network in each of 256 environments, on one device."""
    env = veenv.make(name)
    network = GraphNetwork(hidden=32, key=jax.random.key(0))
    play = network.as_policy(env)
    one = SingleDeviceSharding(mesh.devices.flat[0])
    seen = jax.eval_shape(lambda: env.reset(jax.random.key(0))[0])
    batch = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((256, *x.shape), x.dtype, sharding=one), seen
    )
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=one)
    return jax.jit(lambda key, seen: play(key, seen, seen.action_mask)).lower(key, batch)


def train_step(name: str, agent: Any, mesh: Mesh) -> jax.stages.Lowered:
    """The train step with the agent's settings, of environments that the devices share."""
    config = PPOConfig(num_envs=16 * mesh.size)
    trainer = make_trainer(agent, config, SearchConfig(), Played.named(name).tasks, 1)
    return trainer.lowered(mesh)


def kernel(name: str, mesh: Mesh) -> jax.stages.Lowered:
    """The Jacobian by reverse elimination in float32 as a Pallas kernel, on one device."""
    task = veenv.tasks.get(name)
    args = jax.tree.map(_single, task.example_args())
    jacobian = veenv.jacve(task.fun, "reverse", task.argnums, kernel="xla")
    program = trace_point(jacobian, args, {}, range(len(args))).program()
    one = SingleDeviceSharding(mesh.devices.flat[0])
    leaves = [
        jax.ShapeDtypeStruct((POINTS, *leaf.shape), leaf.dtype, sharding=one)
        for leaf in program.inputs
    ]
    return jax.jit(PallasKernel(program, "tpu")).lower(*leaves)


def _single(x: Any) -> Any:
    x = jnp.asarray(x)
    return np.asarray(x, np.float32) if jnp.issubdtype(x.dtype, jnp.floating) else np.asarray(x)


def main(config: Config) -> int:
    """Compiles, prints the table and writes it."""
    mesh = mesh_of(config.topology)
    table = Table(("program", "code, kB", "temporaries, kB", "compiled in, s", "exchanged"))
    table.begin()
    failed = 0
    for name, lower in programs().items():
        if config.programs and not name.startswith(config.programs):
            continue
        try:
            found = compiled(lower, mesh)
        except Exception as error:
            failed += 1
            table.add(name, "-", "-", "-", f"{type(error).__name__}: {error!s:.80}")
            continue
        exchanged = f"all-reduce {found.reduced() / 1000:,.1f} kB" if found.reduced() else ""
        moves = "".join(f", {found.moves().count(m)} {m}" for m in sorted({*found.moves()}))
        table.add(
            name,
            f"{found.code / 1000:,.0f}",
            f"{found.temporaries / 1000:,.0f}",
            f"{found.seconds:.1f}",
            (exchanged + moves).lstrip(", "),
        )
    if config.out is not None:
        write_result(config.out, "scripts.compile_for", table)
    return 1 if failed else 0


if __name__ == "__main__":
    run_script(lambda: main(tyro.cli(Config)))
