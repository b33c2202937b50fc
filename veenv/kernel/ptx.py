"""A scalar program as PTX, NVIDIA's assembly: one thread computes one point.

The instructions are those of `veenv.kernel.cpu.bodies`, for vectors of one lane. Leaves lie as
``[*shape, batch]``, so that neighbouring threads read neighbouring numbers, and XLA is asked for
that layout. Arrays of the program are memory of a thread. Functions are those of libdevice, which
comes with NVIDIA's compiler. LLVM writes the PTX; XLA has it compiled for the GPU that is there.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from llvmlite import binding as llvm

from veenv.kernel.cpu.arrays import ALIGNED, Stored, memory
from veenv.kernel.cpu.bodies import Instructions
from veenv.kernel.cpu.compile import in_threads
from veenv.kernel.cpu.emitter import element, scalar_symbol
from veenv.kernel.ordering import few_alive
from veenv.kernel.scalar_program import ScalarProgram
from veenv.rules.operations import OPERATIONS

TARGET = "__gpu$xla.gpu.ptx"
"""What XLA's compiler for CUDA calls a kernel that is given as PTX."""
NAME = "veenv_kernel"
"""What the compilers call it."""
BLOCK = 128
"""Threads of a block: a multiprocessor has four schedulers, each for a warp of 32."""
CAPABILITY = 7.5
"""Of the oldest GPUs that CUDA 13 compiles for; newer ones take their PTX, too."""
_CHIP = f"sm_{10 * CAPABILITY:.0f}"
_TRIPLE = "nvptx64-nvidia-cuda"
_SIZES = (1, 2, 4, 8)
_GLOBAL = "ptr addrspace(1)"
"""LLVM's type of an address in the memory of all threads; that of one thread has space 5."""
_BRANCHED = frozenset({"sin", "cos"})
"""Functions whose calls are hardly ever reached: they stay calls, which keeps the code short."""


@dataclass(frozen=True)
class PtxKernel:
    """A scalar program as a function of batches on a GPU of NVIDIA.

    Attributes:
      program: the program.

    Raises:
      FileNotFoundError: the program calls functions, and libdevice is not installed.
      NotImplementedError: the GPU of this process is older than the PTX.
    """

    program: ScalarProgram

    def __post_init__(self) -> None:
        for device in jax.local_devices():
            found = str(getattr(device, "compute_capability", ""))  # AMD's are names
            if found.replace(".", "").isdigit() and float(found) < CAPABILITY:
                raise NotImplementedError(
                    f"kernels are for GPUs of compute capability {CAPABILITY} and later, and "
                    f"{device.device_kind} has {found}"
                )
        if self.program.count("rem", *(name for name, op in OPERATIONS.items() if op.function)):
            libdevice()

    def __call__(self, *leaves: Any) -> list[jax.Array]:
        """The written output leaves ``[B, *shape]``, from such input leaves, or some without B."""
        pairs = list(zip(leaves, self.program.inputs, strict=True))
        batched = [x.ndim > len(leaf.shape) for x, leaf in pairs]
        batch = next(x.shape[0] for x, each in zip(leaves, batched, strict=True) if each)
        outputs = [self.program.outputs[k] for k in self.program.written()]
        numbers = {"grid_x": -(-batch // BLOCK), "block_x": BLOCK, "shared_mem_bytes": 0}
        numbers |= dict.fromkeys(("grid_y", "grid_z", "block_y", "block_z"), 1)

        def last(rank: int, moves: bool = True) -> tuple[int, ...]:
            return (*range(1, rank + 1), 0) if moves else tuple(range(rank))

        made: Any = jax.ffi.ffi_call(
            TARGET,
            [jax.ShapeDtypeStruct((batch, *leaf.shape), leaf.dtype) for leaf in outputs],
            input_layouts=[
                last(len(leaf.shape), each)
                for (_, leaf), each in zip(pairs, batched, strict=True)
                if leaf.size
            ],
            output_layouts=[last(len(leaf.shape)) for leaf in outputs],
        )
        return made(
            *(x for x, leaf in pairs if leaf.size),
            name=NAME,
            kernel_type="ptx",
            kernel_data=self.text(batched, batch),
            **{name: np.int32(n) for name, n in numbers.items()},
        )

    def text(self, batched: Sequence[bool], batch: int) -> str:
        """The PTX for so many points; input leaves that are not `batched` are one for all."""
        return in_threads(_written, [module(few_alive(self.program), batched, batch)])[0]


def module(program: ScalarProgram, batched: Sequence[bool], batch: int) -> str:
    """LLVM IR of the kernel; its arguments are the input leaves, then the written output leaves."""
    made = _Instructions(program, batched, batch)
    text, size = made.text(), memory(program, 1)[1]
    names = [f"in{k}" for k, leaf in enumerate(program.inputs) if leaf.size]
    names += [f"out{k}" for k in program.written()]
    given = ", ".join(f"{_GLOBAL} noalias %{name}" for name in names)
    registers = {name: f"@llvm.nvvm.read.ptx.sreg.{name}.x()" for name in ("tid", "ctaid", "ntid")}
    lines = [
        f'target triple = "{_TRIPLE}"',
        *(f"declare i32 {function}" for function in registers.values()),
        *made.declared.values(),
        f"define ptx_kernel void @{NAME}({given}) nounwind {{\nentry:",
        # cast, as LLVM would take the address of memory in space 5 itself for a generic one
        f"%stack = alloca [{size} x i8], align {ALIGNED}",
        "%kept = addrspacecast ptr %stack to ptr addrspace(5)",
        *(f"%{name} = call i32 {function}" for name, function in registers.items()),
        "%before = mul i32 %ctaid, %ntid",
        "%number = add i32 %before, %tid",
        "%point = zext i32 %number to i64",
        # as PTX, whose compiler adds in the same instruction
        *(
            f'%bytes{n} = call i64 asm "mul.wide.u32 $0, $1, {n};", "=l,r"(i32 %number)'
            for n in _SIZES
        ),
        "%never = icmp slt i64 %point, 0",
        f"%inside = icmp ult i64 %point, {batch}",
        "br i1 %inside, label %first, label %exit",
        "first:",
        text,
        "br label %exit",
        "exit:",
        "ret void",
        "}",
        "!0 = !{}",
        '!1 = !{!"branch_weights", i32 1, i32 1000000}',
    ]
    return "\n".join(lines)


class _Instructions(Instructions):
    """The instructions of a thread, which reads leaf k at `%in{k}` and writes it at `%out{k}`."""

    pointer, tables = "ptr addrspace(5) %kept", " addrspace(1)"

    def __init__(self, program: ScalarProgram, batched: Sequence[bool], batch: int):
        inputs = [
            Stored(
                f"{_GLOBAL} %in{k}",
                leaf.dtype,
                stride=batch if each else 1,
                shared=not each,
                loads=", !invariant.load !0",
            )
            for k, (leaf, each) in enumerate(zip(program.inputs, batched, strict=True))
        ]
        super().__init__(program, 1, range(len(program.ops)), {}, inputs=inputs)
        self.joins = True
        self._outputs: dict[int, list[tuple[Stored, int]]] = {}
        for k in program.written():
            leaf = Stored(f"{_GLOBAL} %out{k}", program.outputs[k].dtype, stride=batch)
            for entry, i in enumerate(program.results[k]):
                self._outputs.setdefault(i, []).append((leaf, entry))

    def text(self) -> str:
        """The instructions; an entry of an output is written as soon as it is known."""
        for position in self.span:
            self.run([position])
            for leaf, entry in self._outputs.get(position, ()):
                self.put(leaf, entry, self.operand(position))
        return "\n".join(self.lines)

    def call(self, function: str, dtype: str, args: Sequence[str]) -> str:
        """Calls a function of libdevice."""
        of, kind = element(dtype), self.vector(dtype)
        there = f"__nv_{scalar_symbol(function, dtype)}"
        self.declare(there, f"declare {of} @{there}({', '.join([of] * len(args))})")
        numbers = [self.emit(f"extractelement {kind} {x}, i64 0") for x in args]
        values = ", ".join(f"{of} {x}" for x in numbers)
        kept = "noinline" if function in _BRANCHED else ""
        found = self.emit(f"call {of} @{there}({values}) {kept}")
        return self.emit(f"insertelement {kind} poison, {of} {found}, i64 0")

    def _address(self, array: Stored, index: str | int) -> str:
        """Where an entry is; addresses of leaves are made anew, as registers are scarce."""
        if array.pointer.startswith(f"{_GLOBAL} %") and not array.shared:
            first = f"i64 %bytes{np.dtype(array.dtype).itemsize}"
            place = self.emit(f"getelementptr i8, {array.pointer}, {first}")
            array = replace(array, pointer=f"{_GLOBAL} {place}")
        return super()._address(array, index)


def _written(text: str) -> str:
    """PTX of LLVM IR, with the functions of libdevice that it calls.

    Its instructions stay in their order, as NVIDIA's compiler orders them anew: LLVM's own orders
    take more than linear time.
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(cpu=_CHIP, opt=0)
    context = llvm.create_context()
    made = llvm.parse_assembly(text, context)
    if "@__nv_" in text:
        library = llvm.parse_bitcode(libdevice(), context)
        library.triple = _TRIPLE
        made.link_in(library)
        for one in (*made.functions, *made.global_variables):
            if not one.is_declaration and one.name != NAME:
                one.linkage = llvm.Linkage.internal
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(made, passes)
    return machine.emit_assembly(made)


@functools.cache
def libdevice() -> bytes:
    """LLVM's bitcode of CUDA's functions.

    Raises:
      FileNotFoundError: it is not installed.
    """
    places = (folder / "nvvm/libdevice/libdevice.10.bc" for folder in toolkits())
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        raise FileNotFoundError(
            "a kernel for a GPU calls functions of CUDA's libdevice, which is not installed; "
            "pip install nvidia-cuda-nvcc-cu12, or set CUDA_HOME"
        )
    return found.read_bytes()


def toolkits() -> Iterator[Path]:
    """Folders in which CUDA's compiler may be: its own, those of wheels, the usual one."""
    yield from (Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ)
    nvidia = importlib.util.find_spec("nvidia")
    for folder in (nvidia.submodule_search_locations if nvidia else None) or ():
        yield from sorted(Path(folder).iterdir())
    yield Path("/usr/local/cuda")
