"""What NVIDIA's assembler says of kernels for its GPUs: registers, spills, instructions.

    pip install nvidia-cuda-nvcc-cu12    # the assembler, and CUDA's functions
    python scripts/benchmark.py ptx --chips sm_90 --programs RoeFlux_1d

One PTX serves all chips. Nothing runs, and no GPU is needed.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

import veenv
from scripts.benchmarks.cases import find
from scripts.benchmarks.functions.case import single
from scripts.benchmarks.fuse import ALL
from scripts.benchmarks.tables import Table, named
from veenv.kernel.fusing import trace_point
from veenv.kernel.ptx import PtxKernel, toolkits
from veenv.kernel.scalar_program import ScalarProgram

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


def ptx(chips: tuple[str, ...] = CHIPS, programs: tuple[str, ...] = ()) -> Iterator[Table]:
    """Jacobians of the tasks by reverse elimination, and the steps of `fuse`, for NVIDIA's GPUs.

    Float32, at 65,536 points. Rows that are not made now stay in the file.

    Args:
        chips: GPUs, as the assembler names them.
        programs: names of tasks or steps; all by default.
    """
    makers: dict[str, Callable[[str], ScalarProgram]] = dict.fromkeys(veenv.tasks.list(), jacobian)
    makers |= dict.fromkeys(ALL, step)
    columns = "program", "for", "operations", "PTX in, s", "assembled in, s"
    table = Table(*columns, "registers", "spilled, bytes", "instructions", key=2)
    yield table
    for name in named(programs, makers, "programs"):
        program = makers[name](name)
        began = time.perf_counter()
        text = PtxKernel(program).text([True] * len(program.inputs), POINTS)
        made = time.perf_counter() - began
        for chip in chips:
            began = time.perf_counter()
            said, count = assembled(text, chip)
            took = time.perf_counter() - began
            table.add(
                name, chip, program.size, f"{made:.1f}", f"{took:.1f}", *registers(said), count
            )
