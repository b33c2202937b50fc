"""Compiles what veenv runs on accelerators for a TPU or GPU that is not there: sizes, a table.

    pip install -e '.[tpu-check]'              # or '.[gpu-check]', for h100
    python scripts/benchmark.py compile-for    # all programs, for a v5e 2x2
    python scripts/benchmark.py compile-for --topologies v6e:2x2 h100 --programs rollouts

Nothing runs: the vendors' compilers take a description of the machine. What they say of code,
memory, registers and schedules is true of the machine; how fast the program is there, they do not
say.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import (
    AbstractDevice,
    AbstractMesh,
    Mesh,
    NamedSharding,
    PartitionSpec,
    SingleDeviceSharding,
)

import veenv
from scripts.benchmarks.exchanged import exchanges
from scripts.benchmarks.operations_program import operations
from scripts.benchmarks.ptx import POINTS, assembled, jacobian, registers
from scripts.benchmarks.tables import Table
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.search import SearchConfig
from veenv.agents.devices import AXIS
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.training.inputs import Played, make_trainer
from veenv.env.random_play import random_episodes
from veenv.kernel.ptx import PtxKernel
from veenv.kernel.scalar_program import CannotFuseError

SCHEDULES = tempfile.TemporaryDirectory(prefix="schedules")
"""Where libtpu writes the schedules of what it compiles."""
SETTINGS = {
    "TPU_SKIP_MDS_QUERY": "1",  # these ask no server in the network which machine this is
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no chip is taken
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "0",  # these print what ptxas says
    "TF_CPP_VMODULE": "subprocess_compilation=5",
}
"""What the compilers read from the environment when they are loaded."""
H100 = """gpu_device_info {
  cuda_compute_capability { major: 9 } core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_block_limit: 65536 registers_per_core_limit: 65536 l2_cache_size: 52428800
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472 device_memory_size: 84942979072 memory_bandwidth: 3352320000000
} platform_name: "CUDA" device_description_str: "NVIDIA H100 80GB HBM3"
dnn_version_info { major: 9 minor: 10 } runtime_version { major: 12 minor: 9 }"""
"""An H100 as XLA's compiler is told of it: NVIDIA's data sheet of the SXM5."""
KERNELS = "kernels/", "operations/"
"""What is compiled for GPUs alone."""
ONCE = "rollouts/LSTM", "ppo/HumanHeartDipole"
"""Programs that are compiled for the first topology only, if none are named."""


def mesh_of(topology: str) -> Mesh:
    """The devices of a topology.

    Raises:
      RuntimeError: the compiler is not installed, or does not know the topology.
    """
    os.environ.update(SETTINGS)
    from jax.experimental import topologies

    kind, _, count = topology.partition(":")
    if kind == "h100":
        gpus = f"1x1x{count or 1}"
        found = topologies.get_topology_desc("", "cuda", target_config=H100, topology=gpus)
    else:
        found = topologies.get_topology_desc(topology, "tpu")
    return Mesh(np.array(found.devices), (AXIS,))


def has_kernels(mesh: Mesh) -> bool:
    """Whether kernels are made for a topology's devices."""
    return mesh.devices.flat[0].platform == "gpu"


def compiled(
    lower: Callable[[Mesh], jax.stages.Lowered], mesh: Mesh, kernel: PtxKernel | None
) -> tuple[str, ...]:
    """Lowers and compiles a program for devices: what the compiler says, as a row of the table."""
    for path in Path(SCHEDULES.name).iterdir():
        path.unlink()
    began = time.perf_counter()
    with _said() as log:
        made = lower(mesh).compile()
    seconds = time.perf_counter() - began
    memory: Any = made.memory_analysis()
    executable: Any = made.runtime_executable()
    said = log.read_text(encoding="utf-8", errors="replace")
    if kernel is not None:
        said += assembled(kernel.text([True] * len(kernel.program.inputs), POINTS), "sm_90")[0]
    used, spilled = registers(said)
    several = exchanges(made.as_text() or "")
    reduced = sum(one.num_bytes for one in several if one.name == "all-reduce")
    others = Counter(one.name for one in several if one.name != "all-reduce")
    moves = [f"all-reduce {reduced / 1000:,.1f} kB"] if reduced else []
    moves += [f"{count} {name}" for name, count in sorted(others.items())]
    code = memory.generated_code_size_in_bytes or len(executable.serialize())
    return (
        *(f"{x / 1000:,.0f}" for x in (code, memory.temp_size_in_bytes)),
        f"{seconds:.1f}",
        *((f"{used}", f"{spilled:,}") if used else ("", "")),
        ", ".join(moves),
    )


@contextlib.contextmanager
def _said() -> Iterator[Path]:
    """A file with what the compilers, which know nothing of `sys.stderr`, print meanwhile."""
    log, usual = Path(SCHEDULES.name) / "stderr", os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield log
        finally:
            os.dup2(usual, 2)
            os.close(usual)


def lowered() -> dict[str, Callable[[Mesh], jax.stages.Lowered]]:
    """What is compiled, by name: each lowers itself for a mesh."""
    found: dict[str, Callable[[Mesh], jax.stages.Lowered]] = {}
    for name in ("RoeFlux_1d", "LSTM"):
        found[f"rollouts/{name}"] = functools.partial(rollouts, name)
    found["policy/RoeFlux_1d"] = functools.partial(policy, "RoeFlux_1d")
    for kind, name in (
        *(("ppo", "RoeFlux_1d"), ("ppo", "HumanHeartDipole"), ("alphazero", "HumanHeartDipole")),
    ):
        found[f"{kind}/{name}"] = functools.partial(train_step, name, kind)
    names = [f"kernels/{name}" for name in veenv.tasks.list()]
    names += [f"operations/{dtype}" for dtype in ("float32", "int32", "int8")]

    def of_kernel(name: str, mesh: Mesh) -> jax.stages.Lowered:
        made = kernel_of(name)
        assert made is not None
        return kernel(made, mesh)

    return found | {name: functools.partial(of_kernel, name) for name in names}


def rollouts(name: str, mesh: Mesh) -> jax.stages.Lowered:
    """Random episodes in 1,024 environments that the devices share."""
    env = veenv.make(name)

    def costs(keys: Any) -> Any:
        return jax.vmap(lambda key: random_episodes(env, key, 1024 // mesh.size).cost)(keys)

    keys = jax.ShapeDtypeStruct(
        (mesh.size,), jax.random.key(0).dtype, sharding=NamedSharding(mesh, PartitionSpec(AXIS))
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


def kernel(made: PtxKernel, mesh: Mesh) -> jax.stages.Lowered:
    """A kernel at a batch, on one device."""
    device = mesh.devices.flat[0]
    one = SingleDeviceSharding(device)
    leaves = [
        jax.ShapeDtypeStruct((POINTS, *leaf.shape), leaf.dtype, sharding=one)
        for leaf in made.program.inputs
    ]
    there = AbstractDevice(device.device_kind, 1, "cuda")
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=there)):
        return jax.jit(made).lower(*leaves)


@functools.cache
def kernel_of(name: str) -> PtxKernel | None:
    """The kernel that a program is; None for other programs."""
    if not name.startswith(KERNELS):
        return None
    kind, what = name.split("/")
    return PtxKernel(operations(what).program if kind == "operations" else jacobian(what))


def compile_for(
    topologies: tuple[str, ...] = ("v5e:2x2",), programs: tuple[str, ...] = ()
) -> Iterator[Table]:
    """Compiles programs for accelerators that are not there.

    Args:
        topologies: TPUs, by kind and chips, such as v5e:2x2, and h100, or h100:4 for four.
        programs: names of programs, or how they begin; all by default.

    Raises:
        SystemExit: a program could not be compiled.
    """
    jax.config.update("jax_platforms", "cpu")  # the plugins would look for their chips
    columns = "topology", "program", "code, kB", "temporaries, kB", "compiled in, s"
    more = "registers", "spilled, bytes", "exchanged"
    table = Table(*columns, *more)
    yield table
    failed = 0
    for topology, (name, lower) in itertools.product(topologies, lowered().items()):
        if programs and not name.startswith(programs):
            continue
        if not programs and topology != topologies[0] and name.startswith(ONCE):
            continue
        mesh = mesh_of(topology)
        if name.startswith(KERNELS) and not has_kernels(mesh):
            continue
        try:
            cells = compiled(lower, mesh, kernel_of(name))
        except Exception as error:
            failed += not isinstance(error, CannotFuseError)
            cells = ("-",) * 5 + (f"{type(error).__name__}: {error!s:.80}",)
        table.add(topology, name, *cells)
    if failed:
        raise SystemExit(1)
