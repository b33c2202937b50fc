"""Times of a kernel's machine code alone: no call by JAX, all arrays in the first cache."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping

import jax
import numpy as np
from benchmark_cases import Case, points

from veenv.kernel.cpu.bodies import body
from veenv.kernel.cpu.compile import MachineCode, host
from veenv.kernel.program import ScalarProgram

_POINTS = 64
_SHORTEST = 2e-4
"""Seconds of one measurement."""
_LOOP = """
declare void @llvm.x86.sse.ldmxcsr(ptr)

define void @again(ptr %ins, ptr %outs, i64 %vectors, i64 %times) {
entry:
  %flags = alloca i32
  store i32 40896, ptr %flags
  call void @llvm.x86.sse.ldmxcsr(ptr %flags)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %n, %loop ]
  call void @body(ptr %ins, ptr %outs, i64 %vectors)
  %n = add i64 %i, 1
  %done = icmp eq i64 %n, %times
  br i1 %done, label %exit, label %loop
exit:
  store i32 8064, ptr %flags
  call void @llvm.x86.sse.ldmxcsr(ptr %flags)
  ret void
}
"""
"""Runs it some times with denormal numbers as zeros, as XLA does."""


def times_alone(
    case: Case, programs: Mapping[str, ScalarProgram], rounds: int, seconds: float
) -> dict[str, float]:
    """Nanoseconds a point of each program, the least of interleaved rounds (ten at least).

    Args:
      case: the function, for its points.
      programs: scalar programs of its Jacobian in float32.
      rounds: how many rounds, at most.
      seconds: time after which they end.
    """
    runs = {name: _run(case, program) for name, program in programs.items()}
    least = dict.fromkeys(runs, np.inf)
    began = time.perf_counter()
    for turn in range(rounds):
        for name, run in runs.items():
            least[name] = min(least[name], run())
        if turn >= 10 and time.perf_counter() - began > seconds:
            break
    return least


def _run(case: Case, program: ScalarProgram) -> Callable[[], float]:
    """A function that runs the code for a moment and returns the nanoseconds of a point."""
    lanes = host().lanes(program)
    text = body(program, lanes)
    at = text.index("\n!0 =")
    code = MachineCode(text[:at] + _LOOP + text[at:])
    word = ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(None, word, word, ctypes.c_long, ctypes.c_long)
    function = kind(code.address("again"))
    leaves = jax.tree.leaves(points(case, _POINTS))
    ins = [_aligned(np.asarray(x).reshape(_POINTS, -1)) for x in leaves]
    sizes = [program.outputs[k].size for k in program.written()]
    outs = [_aligned(np.zeros((_POINTS, size), np.float32)) for size in sizes]
    in_words = np.array([w for x in ins for w in (x.ctypes.data, lanes * x[0].nbytes)], np.int64)
    out_words = np.array([x.ctypes.data for x in outs], np.int64)

    def seconds_of(times: int) -> float:
        assert all((code, ins, outs))  # which the code is, reads and writes
        began = time.perf_counter()
        function(in_words.ctypes.data, out_words.ctypes.data, _POINTS // lanes, times)
        return time.perf_counter() - began

    times = 1
    while seconds_of(times) < _SHORTEST:
        times *= 2
    return lambda: seconds_of(times) / (times * _POINTS) * 1e9


def _aligned(x: np.ndarray) -> np.ndarray:
    """A copy that begins with a line of the cache."""
    memory = np.zeros(x.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy
