"""Programs for accelerators: compiled for those that are not there, and timed on one that is.

    pip install -e '.[tpu-check]'              # or '.[gpu-check]', for h100
    python scripts/benchmark.py devices        # all programs, compiled for a v5e 2x2
    python scripts/benchmark.py devices --topologies v6e:2x2 h100 --programs rollouts
    python scripts/benchmark.py devices --parts kernels rollouts training    # on what JAX finds

What the vendors' compilers say of code, memory, registers and schedules is true of the machine that
they are told of; how fast the program is there, they do not say.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import re
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
from scripts.benchmarks.agents import course_of
from scripts.benchmarks.cases import find
from scripts.benchmarks.env import episodes, rates
from scripts.benchmarks.functions.case import single
from scripts.benchmarks.fuse import ALL
from scripts.benchmarks.operations_program import operations
from scripts.benchmarks.programs import MODES, Timings, compiled, difference
from scripts.benchmarks.tables import Table, named
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.search import SearchConfig
from veenv.agents.config.settings import PRESETS
from veenv.agents.devices import AXIS
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.training.inputs import Played, make_trainer
from veenv.env.random_play import random_episodes
from veenv.kernel.fusing import trace_point
from veenv.kernel.ptx import PtxKernel, toolkits
from veenv.kernel.scalar_program import CannotFuseError, ScalarProgram

Part = Literal["compile", "ptx", "kernels", "rollouts", "training"]
COLUMNS: dict[Part, tuple[str, ...]] = {
    "compile": ("topology", "program", "code, kB", "temporaries, kB", "compiled in, s",
                "registers", "spilled, bytes", "exchanged"),
    "ptx": ("program", "for", "operations", "PTX in, s", "assembled in, s", "registers",
            "spilled, bytes", "instructions"),
    "kernels": ("task", "points", "form", "to the faster mode", "ms", "compiled in, s", "off by"),
    "rollouts": ("task", "games", "steps/s"),
    "training": ("task", "environments", "steps/s", "best", "seconds to the goal",
                 "compiled in, s"),
}  # fmt: skip
TIMED = "RoeFlux_1d", "RobotArm_6DOF", "DoublePendulum_RK4", "RoeFlux_3d"
"""Tasks whose kernels are timed on a device."""
GOAL = 300
"""Multiplications on RoeFlux_1d; the best published order takes 320."""
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


def compiled_for(
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
        found[f"rollouts/{name}"] = functools.partial(_rollouts, name)
    found["policy/RoeFlux_1d"] = functools.partial(_policy, "RoeFlux_1d")
    for kind, name in (
        *(("ppo", "RoeFlux_1d"), ("ppo", "HumanHeartDipole"), ("alphazero", "HumanHeartDipole")),
    ):
        found[f"{kind}/{name}"] = functools.partial(_train_step, name, kind)
    names = [f"kernels/{name}" for name in veenv.tasks.list()]
    names += [f"operations/{dtype}" for dtype in ("float32", "int32", "int8")]

    def of_kernel(name: str, mesh: Mesh) -> jax.stages.Lowered:
        made = kernel_of(name)
        assert made is not None
        return _kernel(made, mesh)

    return found | {name: functools.partial(of_kernel, name) for name in names}


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


def _kernel(made: PtxKernel, mesh: Mesh) -> jax.stages.Lowered:
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


POINTS = 65_536
"""Points of a kernel's batch."""
CHIPS = "sm_80", "sm_90", "sm_100"
"""A100, H100 and B200."""
_INSTRUCTION = 16
"""Bytes that each takes since Volta."""


def jacobian(name: str) -> ScalarProgram:
    """The scalar program of a task's Jacobian in reverse order."""
    case = find(name).single()
    fun = veenv.jacve(case.fun, "reverse", case.argnums, kernel="xla")
    return trace_point(fun, case.args, {}, range(len(case.args))).program()


def step(name: str) -> ScalarProgram:
    """The scalar program of a step of the benchmark `fuse`."""
    make, args = ALL[name]
    args = jax.tree.map(single, args)
    fun = make(veenv.value_and_jacve)
    return trace_point(fun, args, {}, range(len(args))).program()


def assembled(text: str, chip: str) -> tuple[str, int]:
    """What the assembler says of PTX, and how many instructions it makes of it.

    Raises:
      ModuleNotFoundError: it is not installed.
    """
    program = next((p for folder in toolkits() if (p := folder / "bin/ptxas").is_file()), None)
    if program is None:
        raise ModuleNotFoundError(name="nvidia-cuda-nvcc-cu12")
    program.chmod(0o755)  # the wheel forgets it
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        command = [program, "-v", f"-arch={chip}", "-", "-o", file.name]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        return done.stderr, _instructions(Path(file.name).read_bytes())


def _instructions(binary: bytes) -> int:
    """Instructions in an ELF file, those that fill up included."""
    (at,), (size, count, names) = (
        struct.unpack_from(kind, binary, place) for kind, place in (("<Q", 40), ("<3H", 58))
    )
    sections = [struct.unpack_from("<IIQQQQ", binary, at + k * size) for k in range(count)]
    texts = binary[sections[names][4] :]
    code = (length for name, *_, length in sections if texts.startswith(b".text", name))
    return sum(code) // _INSTRUCTION


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
    found = re.findall(rf"= (\S.*?) ({EXCHANGES})(?:-start)?\(", text)
    return [Exchange(name, bytes_of(kind)) for kind, name in found]


def bytes_of(kind: str) -> int:
    """Bytes of a type of HLO, of all parts of a tuple."""
    parts = re.findall(r"(\w+)\[([\d,]*)\]", kind)
    return sum(WIDTHS.get(t, 0) * math.prod(map(int, filter(None, s.split(",")))) for t, s in parts)


def devices(
    parts: tuple[Part, ...] = ("compile",),
    topologies: tuple[str, ...] = ("v5e:2x2",),
    chips: tuple[str, ...] = CHIPS,
    programs: tuple[str, ...] = (),
    seconds: float = 50.0,
    small: bool = False,
) -> Iterator[Table]:
    """Compiles programs for accelerators that are not there, and times some on one that is.

    Args:
        parts: `compile` by the vendors' compilers; `ptx`: kernels for NVIDIA's GPUs, Jacobians of
            the tasks by reverse elimination and the steps of `fuse` in float32 at 65,536 points, by
            the assembler of nvidia-cuda-nvcc-cu12; `kernels`, `rollouts` and `training` on the
            device that JAX finds.
        topologies: TPUs, by kind and chips, such as v5e:2x2, and h100, or h100:4 for four.
        chips: GPUs of `ptx`, as the assembler names them.
        programs: names of programs of `compile`, or how they begin; tasks or steps of `ptx`.
        seconds: of `training`.
        small: small batches and one task: whether it runs, not how fast.

    Raises:
        SystemExit: a program could not be compiled.
    """
    rows: dict[Part, Callable[[], Iterator[tuple[Any, ...]]]] = {
        "compile": lambda: compile_for(topologies, programs),
        "ptx": lambda: ptx(chips, programs),
        "kernels": lambda: kernels(small),
        "rollouts": lambda: rollouts(small),
        "training": lambda: training(seconds, small),
    }
    for part in parts:
        yield (table := Table(*COLUMNS[part], key=2 * (part == "ptx")))
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
        if name.startswith(KERNELS) and not has_kernels(mesh):
            continue
        try:
            cells = compiled_for(lower, mesh, kernel_of(name))
        except Exception as error:
            failed += not isinstance(error, CannotFuseError)
            cells = ("-",) * 5 + (f"{type(error).__name__}: {error!s:.80}",)
        yield topology, name, *cells
    if failed:
        raise SystemExit(1)


def ptx(chips: tuple[str, ...], programs: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Rows of kernels for chips: registers, spills, instructions."""
    makers: dict[str, Callable[[str], ScalarProgram]] = dict.fromkeys(veenv.tasks.list(), jacobian)
    makers |= dict.fromkeys(ALL, step)
    for name in named(programs, makers, "programs"):
        program = makers[name](name)
        began = time.perf_counter()
        text = PtxKernel(program).text([True] * len(program.inputs), POINTS)
        made = time.perf_counter() - began
        for chip in chips:
            began = time.perf_counter()
            said, count = assembled(text, chip)
            took = time.perf_counter() - began
            times = f"{made:.1f}", f"{took:.1f}"
            yield name, chip, program.size, *times, *registers(said), count


def kernels(small: bool) -> Iterator[tuple[Any, ...]]:
    """Jacobians of a batch: one kernel, XLA's elimination, JAX's modes; against float64."""
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
                "one kernel": veenv.jacve(fun, "reverse", argnums, kernel="fused"),
                "jacve by XLA": veenv.jacve(fun, "reverse", argnums, kernel="xla"),
            } | {mode: make(fun, argnums) for mode, make in MODES.items()}
            forms = {form: jax.vmap(jacobian) for form, jacobian in forms.items()}
            ready = {}
            for form, jacobian in forms.items():
                try:
                    ready |= compiled({form: jacobian}, points)
                except (CannotFuseError, jax.errors.JaxRuntimeError) as error:
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
