"""Predicted seconds of a program: features, each with what it takes, fitted once to measurements.

``python scripts/benchmark.py prediction`` measures the forms of many functions on a machine, fits,
and writes ``times.json``: what each feature takes, the measurements, and how far the prediction is
from them.  Another machine is faster or slower; what is compared here are forms of one function.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from veenv import _compat
from veenv.kernel.features import NAMES, WEIGHTS, Features, features_of
from veenv.kernel.program import FREE, ScalarProgram

FILE = Path(__file__).with_name("times.json")
_FITTED: Mapping[str, Any] = MappingProxyType(json.loads(FILE.read_text(encoding="utf-8")))
MICROSECONDS: Mapping[str, float] = MappingProxyType(_FITTED["microseconds"])
"""What one of each feature takes, and what compiling takes: of XLA for an equation, of a kernel for
an operation or a written vector, and for an equation that is traced."""
QUICK = 0.67
"""Share of its time that compiling a kernel takes if it is done quickly."""
SLOWER = 1.5
"""How many times as long a kernel runs that was compiled quickly; those are long ones, which read
and write their intermediate values, too."""
KERNEL = ("kernel", "kernel_code", "kernel_work", "kernel_moved")
"""Features of a kernel: a call, the operations of its code, which each call reads, their weights,
and the entries it reads and writes."""
_PASSED = 1.5
"""How many times as long as its multiplications a pass of JAX's modes takes, at least: it adds, and
it makes entries that it stores or sums up."""
_SIMPLE = "add", "sub", "mul", "neg", "abs", "max", "min", "select"
_COSTS = np.array([MICROSECONDS[name] for name in NAMES])
_KERNEL_COSTS = np.array([MICROSECONDS[name] for name in KERNEL])


def seconds(features: Features, batch: int) -> float:
    """Predicted seconds of a program for XLA at a batch.

    Args:
      features: of the program at one point.
      batch: number of points.
    """
    return 1e-6 * float(_COSTS @ features.at(batch))


def program_seconds(jaxpr: Any, batch: int) -> float:
    """Predicted seconds of a jaxpr of one point at a batch on a CPU; it may call one kernel.

    Args:
      jaxpr: the closed jaxpr.
      batch: number of points.
    """
    for equation in _compat.open_jaxpr(jaxpr).eqns:
        kernel = equation.params.get("kernel")
        if kernel is not None and equation.primitive.name == _compat.KERNEL:
            instead = kernel.instead and kernel.instead(batch)
            if not instead:
                return kernel_seconds(kernel.program, batch)
            shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in kernel.inputs]
            jaxpr = jax.make_jaxpr(instead)(*shapes)
            return seconds(features_of(jaxpr, points=batch), batch)
    return seconds(features_of(jaxpr, points=batch), batch)


def kernel_features(program: ScalarProgram, batch: int) -> np.ndarray:
    """The features of a kernel at a batch: float64 [4], as `KERNEL` names them."""
    written = sum(program.outputs[k].size for k in program.written())
    moved = written + sum(leaf.size for leaf in program.inputs)
    return np.array([1.0, program.size, program.work * batch, moved * batch])


def kernel_seconds(program: ScalarProgram, batch: int, quick: bool = False) -> float:
    """Predicted seconds of one kernel at a batch.

    Args:
      program: the scalar program.
      batch: number of points.
      quick: compiled quickly, to slower code.
    """
    share = SLOWER if quick else 1.0
    call, *rest = _KERNEL_COSTS * kernel_features(program, batch)
    return 1e-6 * float(call + share * sum(rest))


def least_seconds(program: ScalarProgram, batch: int) -> float:
    """Seconds that a program for XLA is expected to take at least at a batch.

    It is called, computes about as many different numbers as the kernel, and writes.

    Args:
      program: the same as one kernel.
      batch: number of points.
    """
    entries = sum(program.outputs[k].size for k in program.written())
    names = Counter(op.name for op in program.ops if op.name not in FREE)
    functions = names["call"] + sum(WEIGHTS[n] * names[n] for n in ("div", "sqrt"))
    each = entries * MICROSECONDS["stored"] + functions * MICROSECONDS["functions"]
    each += sum(names[n] for n in _SIMPLE) * MICROSECONDS["simple"]
    return 1e-6 * (MICROSECONDS["calls"] + MICROSECONDS["loops"] + batch * each)


def least_of_modes(operations: float, batch: int) -> float:
    """Seconds that JAX's own mode of a function is expected to take at least at a batch.

    Args:
      operations: multiplications that it does for a point, at least.
      batch: number of points.
    """
    each = _PASSED * operations * MICROSECONDS["simple"]
    return 1e-6 * (MICROSECONDS["calls"] + MICROSECONDS["loops"] + batch * each)


def compile_seconds(equations: int) -> float:
    """Predicted seconds that tracing and compiling a program of so many equations takes XLA."""
    return 1e-6 * (MICROSECONDS["compile"] + equations * MICROSECONDS["compile_equation"])


def kernel_limit(available: float, equations: int, quick: bool = False) -> int:
    """How large a kernel may be to be traced and compiled in some seconds.

    Args:
      available: the seconds.
      equations: of the program that is traced.
      quick: compiled quickly, to slower code.
    """
    traced = MICROSECONDS["compile_kernel"] + equations * MICROSECONDS["compile_traced"]
    each = MICROSECONDS["compile_operation"] * (QUICK if quick else 1.0)
    return max(0, int((1e6 * available - traced) / each))
