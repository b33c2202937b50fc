"""Programs for accelerators: compiled for those that are not there, and timed on one that is.

    pip install -e '.[tpu-check]'              # or '.[gpu-check]', for h100
    python scripts/benchmark.py devices        # all programs, compiled for a v5e 2x2
    python scripts/benchmark.py devices --topologies v6e:2x2 h100 --programs rollouts
    python scripts/benchmark.py devices --parts jacobians rollouts training    # on what JAX finds

What the vendors' compilers say of code, memory and registers is true of the machine that
they are told of; how fast the program is there, they do not say.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.sharding import (
    Mesh,
    NamedSharding,
    PartitionSpec,
    SingleDeviceSharding,
)

import veenv
from scripts.benchmarks.agents import course_of
from scripts.benchmarks.cases import find
from scripts.benchmarks.env import episodes, rates
from scripts.benchmarks.programs import MODES, Timings, compiled, difference
from scripts.benchmarks.tables import Table
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.search import SearchConfig
from veenv.agents.config.settings import PRESETS
from veenv.agents.devices import AXIS
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.training.inputs import Played, make_trainer
from veenv.env.random_play import random_episodes

Part = Literal["compile", "jacobians", "rollouts", "training"]
COLUMNS: dict[Part, tuple[str, ...]] = {
    "compile": ("topology", "program", "code, kB", "temporaries, kB", "compiled in, s",
                "registers", "spilled, bytes", "exchanged"),
    "jacobians": ("task", "points", "form", "to the faster mode", "ms", "compiled in, s", "off by"),
    "rollouts": ("task", "games", "steps/s"),
    "training": ("task", "environments", "steps/s", "best", "seconds to the goal",
                 "compiled in, s"),
}  # fmt: skip
TIMED = "RoeFlux_1d", "RobotArm_6DOF", "DoublePendulum_RK4", "RoeFlux_3d"
"""Tasks whose Jacobians are timed on a device."""
GOAL = 300
"""Multiplications on RoeFlux_1d; the best published order takes 320."""
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
        description = topologies.get_topology_desc("", "cuda", target_config=H100, topology=gpus)
    else:
        description = topologies.get_topology_desc(topology, "tpu")
    return Mesh(np.array(description.devices), (AXIS,))


def compiled_for(lower: Callable[[Mesh], jax.stages.Lowered], mesh: Mesh) -> tuple[str, ...]:
    """Lowers and compiles a program for devices: what the compiler says, as a row of the table."""
    with tempfile.TemporaryFile() as log:
        began = time.perf_counter()
        with _stderr_to(log.fileno()):
            program = lower(mesh).compile()
        seconds = time.perf_counter() - began
        log.seek(0)
        said = log.read().decode(errors="replace")
    memory: Any = program.memory_analysis()
    executable: Any = program.runtime_executable()
    used, spilled = registers(said)
    several = exchanges(program.as_text() or "")
    reduced = sum(one.num_bytes for one in several if one.name == "all-reduce")
    exchanged = Counter(one.name for one in several if one.name != "all-reduce")
    moves = [f"all-reduce {reduced / 1000:,.1f} kB"] if reduced else []
    moves += [f"{count} {name}" for name, count in sorted(exchanged.items())]
    code = memory.generated_code_size_in_bytes or len(executable.serialize())
    return (
        *(f"{x / 1000:,.0f}" for x in (code, memory.temp_size_in_bytes)),
        f"{seconds:.1f}",
        *((f"{used}", f"{spilled:,}") if used else ("", "")),
        ", ".join(moves),
    )


@contextlib.contextmanager
def _stderr_to(file: int) -> Iterator[None]:
    """Leads to a file what the compilers, which know nothing of `sys.stderr`, print meanwhile."""
    usual = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(usual, 2)
        os.close(usual)


def lowered() -> dict[str, Callable[[Mesh], jax.stages.Lowered]]:
    """The programs to compile, by name: functions that lower themselves for a mesh."""
    steps = ("ppo", "RoeFlux_1d"), ("ppo", "HumanHeartDipole"), ("alphazero", "HumanHeartDipole")
    return {
        **{f"rollouts/{n}": functools.partial(_rollouts, n) for n in ("RoeFlux_1d", "LSTM")},
        "policy/RoeFlux_1d": functools.partial(_policy, "RoeFlux_1d"),
        **{f"{kind}/{n}": functools.partial(_train_step, n, kind) for kind, n in steps},
    }


def _rollouts(name: str, mesh: Mesh) -> jax.stages.Lowered:
    """Random episodes in 1,024 environments that the devices share."""
    env = veenv.make(name)

    def costs(keys: Any) -> Any:
        return jax.vmap(lambda key: random_episodes(env, key, 1024 // mesh.size).cost)(keys)

    keys = jax.ShapeDtypeStruct(
        (mesh.size,), jax.random.key(0).dtype, sharding=NamedSharding(mesh, PartitionSpec(AXIS))
    )
    return jax.jit(costs).lower(keys)


def _policy(name: str, mesh: Mesh) -> jax.stages.Lowered:
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


def _train_step(name: str, agent: Any, mesh: Mesh) -> jax.stages.Lowered:
    """The train step with the agent's settings, of environments that the devices share."""
    config = PPOConfig(num_envs=16 * mesh.size)
    trainer = make_trainer(agent, config, SearchConfig(), Played.named(name).tasks, 1)
    return trainer.lowered(mesh)


def registers(said: str) -> tuple[int, int]:
    """Registers of a thread, and bytes of them that it keeps in memory."""
    used = map(int, re.findall(r"Used (\d+) registers", said))
    return max(used, default=0), sum(map(int, re.findall(r"(\d+) bytes spill stores", said)))


EXCHANGES = "all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|ragged-all-to-all"
WIDTHS = {"f32": 4, "s32": 4, "u32": 4, "bf16": 2, "pred": 1, "f64": 8, "s64": 8, "s8": 1, "u8": 1}
"""Bytes of a number."""


class Exchange(NamedTuple):
    """An operation by which devices exchange numbers, and the bytes of its results on one."""

    name: str
    num_bytes: int


def exchanges(text: str) -> list[Exchange]:
    """The exchanges of a program in the text of HLO; those of a loop count once.

    >>> exchanges("%x = (f32[2,3]{1,0}, /*index=1*/s32[]) all-reduce-start(%a, %b)")
    [Exchange(name='all-reduce', num_bytes=28)]
    """
    matches = re.findall(rf"= (\S.*?) ({EXCHANGES})(?:-start)?\(", text)
    return [Exchange(name, bytes_of(kind)) for kind, name in matches]


def bytes_of(kind: str) -> int:
    """Bytes of a type of HLO, of all parts of a tuple."""
    parts = re.findall(r"(\w+)\[([\d,]*)\]", kind)
    return sum(WIDTHS.get(t, 0) * math.prod(map(int, filter(None, s.split(",")))) for t, s in parts)


def devices(
    parts: tuple[Part, ...] = ("compile",),
    topologies: tuple[str, ...] = ("v5e:2x2",),
    programs: tuple[str, ...] = (),
    seconds: float = 50.0,
    small: bool = False,
) -> Iterator[Table]:
    """Compiles programs for accelerators that are not there, and times some on one that is.

    Args:
        parts: `compile` by the vendors' compilers; `jacobians`, `rollouts` and `training` on the
            device that JAX finds.
        topologies: TPUs, by kind and chips, such as v5e:2x2, and h100, or h100:4 for four.
        programs: names of programs of `compile`, or how they begin.
        seconds: of `training`.
        small: small batches and one task: whether it runs, not how fast.

    Raises:
        SystemExit: a program could not be compiled.
    """
    rows: dict[Part, Callable[[], Iterator[tuple[Any, ...]]]] = {
        "compile": lambda: compile_for(topologies, programs),
        "jacobians": lambda: jacobians(small),
        "rollouts": lambda: rollouts(small),
        "training": lambda: training(seconds, small),
    }
    if parts == ("compile",):
        os.environ.update(SETTINGS)  # before anything asks JAX for its devices
    for part in parts:
        yield (table := Table(*COLUMNS[part]))
        for row in rows[part]():
            table.add(*row)


def compile_for(
    topologies: tuple[str, ...], programs: tuple[str, ...]
) -> Iterator[tuple[Any, ...]]:
    """Rows of programs compiled for topologies."""
    jax.config.update("jax_platforms", "cpu")  # the plugins would look for their chips
    failed = 0
    for topology, (name, lower) in itertools.product(topologies, lowered().items()):
        if programs and not name.startswith(programs):
            continue
        if not programs and topology != topologies[0] and name.startswith(ONCE):
            continue
        mesh = mesh_of(topology)
        try:
            cells = compiled_for(lower, mesh)
        except Exception as error:
            failed += 1
            cells = ("-",) * 5 + (f"{type(error).__name__}: {error!s:.80}",)
        yield topology, name, *cells
    if failed:
        raise SystemExit(1)


def jacobians(small: bool) -> Iterator[tuple[Any, ...]]:
    """Jacobians of a batch: XLA's elimination and JAX's modes, against float64."""
    for name in TIMED[:1] if small else TIMED:
        case = find(name)
        fun, argnums = case.fun, case.argnums
        few = jax.tree.map(np.float32, case.points(64))
        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
            wide = jax.tree.map(np.float64, few)
            exact = jax.tree.map(np.asarray, jax.jit(jax.vmap(jax.jacrev(fun, argnums)))(*wide))
        for batch in (256,) if small else (65_536, 1_048_576):
            points = case.points(batch)
            forms = {
                "jacve by XLA": veenv.jacve(fun, "reverse", argnums, kernel="xla"),
            } | {mode: make(fun, argnums) for mode, make in MODES.items()}
            forms = {form: jax.vmap(jacobian) for form, jacobian in forms.items()}
            ready = {}
            for form, jacobian in forms.items():
                try:
                    ready |= compiled({form: jacobian}, points)
                except jax.errors.JaxRuntimeError as error:
                    yield name, batch, form, type(error).__name__, "", "", ""
            timed = Timings(ready, points, 5.0, 20)
            faster = timed.seconds(timed.mode)
            for form, program in ready.items():
                off = difference(jax.jit(forms[form])(*few), exact)
                took, ms = f"{program.compile:.1f}", f"{timed.ms(form):.4g}"
                yield name, batch, form, timed.seconds(form) / faster, ms, took, f"{off:.1e}"


def rollouts(small: bool) -> Iterator[tuple[Any, ...]]:
    """Whole random games a second."""
    for name in ("RoeFlux_1d",) if small else ("RoeFlux_1d", "Encoder"):
        for games in (64,) if small else (1_024, 16_384):
            turns = {"": episodes(veenv.make(name), games)}
            yield name, games, rates(turns, 0.5 if small else 5.0, 1)[""]


def training(seconds: float, small: bool) -> Iterator[tuple[Any, ...]]:
    """PPO with the device's preset on RoeFlux_1d: steps a second, and the time to the goal."""
    preset = PRESETS.get(jax.default_backend(), {})
    sizes: dict[str, Any] = {"num_envs": 2, "steps": 2 * 98} if small else preset
    began = time.perf_counter()
    trainer = Trainer(PPOConfig(**sizes), Played.named("RoeFlux_1d").tasks)
    jax.block_until_ready(trainer.step(trainer.init(), 0.0))
    took = f"{time.perf_counter() - began:.1f}"
    course = course_of(trainer, 0, 5.0 if small else seconds)
    reached = next((f"{p.seconds:.1f}" for p in course if p.best <= GOAL), "")
    rate = course[-1].steps / course[-1].seconds
    yield "RoeFlux_1d", trainer.config.num_envs, rate, course[-1].best, reached, took
