"""Times of a kernel's machine code alone: no call by JAX, all arrays in the first cache."""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Mapping

import jax
import numpy as np

from scripts.benchmarks.cases import Case, singles
from veenv.kernel.cpu.bodies import body
from veenv.kernel.cpu.compile import MachineCode, objects_of
from veenv.kernel.cpu.size import lanes_of
from veenv.kernel.scalar_program import ScalarProgram

_POINTS = 64
_SHORTEST = 2e-4
"""Seconds of one measurement."""
_PLACEMENTS = 4
"""How many places in memory arrays take in turn: where they lie may cost as much as the order."""
_STEP = 1088
"""Bytes between two of these places."""
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
    lanes = lanes_of(program)
    text = body(program, lanes)
    at = text.index("\n!0 =")
    code = MachineCode(objects_of(text[:at] + _LOOP + text[at:]))
    word = ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(None, word, word, ctypes.c_long, ctypes.c_long)
    function = kind(code.address("again"))
    places = itertools.cycle([_Arrays(case, program, lanes, k) for k in range(_PLACEMENTS)])

    def seconds_of(times: int, arrays: _Arrays) -> float:
        assert code  # which owns the function
        began = time.perf_counter()
        function(arrays.in_words.ctypes.data, arrays.out_words.ctypes.data, _POINTS // lanes, times)
        return time.perf_counter() - began

    times = 1
    while seconds_of(times, next(places)) < _SHORTEST:
        times *= 2
    return lambda: seconds_of(times, next(places)) / (times * _POINTS) * 1e9


class _Arrays:
    """What the code reads and writes, and the tables of where that is."""

    def __init__(self, case: Case, program: ScalarProgram, lanes: int, place: int):
        leaves = jax.tree.leaves(singles(case, _POINTS))
        self.ins = [_aligned(np.asarray(x).reshape(_POINTS, -1), place) for x in leaves]
        sizes = [program.outputs[k].size for k in program.written()]
        self.outs = [_aligned(np.zeros((_POINTS, size), np.float32), place) for size in sizes]
        words = [w for x in self.ins for w in (x.ctypes.data, lanes * x[0].nbytes)]
        self.in_words = np.array(words, np.int64)
        self.out_words = np.array([x.ctypes.data for x in self.outs], np.int64)


def _aligned(x: np.ndarray, place: int) -> np.ndarray:
    """A copy that begins with a line of the cache, further back for other places."""
    memory = np.zeros(x.nbytes + 64 + _STEP * place, np.uint8)
    start = -memory.ctypes.data % 64 + _STEP * place
    copy = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy
