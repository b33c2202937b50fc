"""The kernel against the C that CasADi generates for the same Jacobian: one core, float32."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scripts.benchmarks.cases import Case, find, orders_of, points
from scripts.benchmarks.compiled import compiled, fused
from veenv.kernel.fusing import trace_point

_TASKS = ("RoeFlux_1d", "RobotArm_6DOF")
FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")
_LOOP = """
void batch(const float** arg, float** res, long points, int inputs, const long* sizes) {{
  long long iw[{iw} + 1]; float w[{w} + 1];
  for (long p = 0; p < points; p++) {{
    const float* a[{arg}]; float* r[{res}];
    for (int k = 0; k < inputs; k++) a[k] = arg[k] + p * sizes[k];
    r[0] = res[0] + p * {rows};
    {name}(a, r, iw, w, 0);
  }}
}}
"""


def casadi_rows(batch: int, repeats: int, turn: float) -> list[dict[str, Any]]:
    """Nanoseconds a point of the kernel and of CasADi's C, for two tasks.

    Raises:
      ImportError: without CasADi (`pip install casadi`).
      OSError: without gcc.
    """
    refuse_many_cores()
    import casadi  # pyright: ignore[reportMissingImports]  # not a dependency

    rows = []
    for name in _TASKS:
        case = find(name)
        args = points(case, batch)
        (ids,) = orders_of(case, ("best-operations",)).values()
        kernel = compiled(fused(case, ids), args)
        with tempfile.TemporaryDirectory() as folder:
            other, _ = generated(casadi, _jacobian(casadi, case), args, Path(folder))
            ours, theirs, ratio = in_turns(kernel, args, other, repeats, turn)
        rows.append({"function": name, "kernel_ns": ours, "casadi_ns": theirs, "ratio": ratio})
        print(f"| {name} | {ours:.1f} | {theirs:.1f} | **{ratio:.2f}** |", flush=True)
    return rows


def refuse_many_cores() -> None:
    """Refuses to compare with code that has one thread where a kernel would have more."""
    if len(os.sched_getaffinity(0)) > 1:
        raise ValueError("run this part alone and on one core: taskset -c 0 python scripts/…")


def in_turns(
    kernel: Any, args: Any, other: Callable[[], float], repeats: int, turn: float
) -> tuple[float, float, float]:
    """Nanoseconds a point of a kernel and of other code, and the median of their ratios."""
    both = functools.partial(_seconds, kernel, args), other
    times = np.array([[_mean(timed, turn) for timed in both] for _ in range(repeats)])
    ours, theirs = np.median(times, axis=0) / len(args[0]) * 1e9
    return float(ours), float(theirs), float(np.median(times[:, 0] / times[:, 1]))


def _mean(timed: Callable[[], float], turn: float) -> float:
    """The mean processor time of a call, of those in a turn of so many seconds."""
    total, calls = 0.0, 0
    while total < turn:
        total, calls = total + timed(), calls + 1
    return total / calls


def _seconds(kernel: Any, args: Any) -> float:
    began = time.process_time()
    jax.block_until_ready(kernel(*args))
    return time.process_time() - began


def _jacobian(casadi: Any, case: Case) -> Any:
    """The Jacobian of a task as a function of CasADi's."""
    single = jax.tree.map(lambda x: np.asarray(x, np.float32), case.args)
    program = trace_point(case.fun, single, {}, tuple(range(len(single)))).program()
    inputs = [casadi.SX.sym(f"x{k}") for k in range(len(program.inputs))]
    values: list[Any] = []
    for op in program.ops:
        if op.name == "input":
            values.append(inputs[op.attr[0]])
        elif op.name == "const":
            values.append(casadi.SX(float(op.attr)))
        else:
            values.append(_operation(casadi, op.name, op.attr, [values[a] for a in op.args]))
    outputs = casadi.vertcat(*(values[i] for ids in program.results for i in ids))
    dense = casadi.densify(casadi.jacobian(outputs, casadi.vertcat(*inputs)))
    return casadi.Function("jacobian", inputs, [dense])


def generated(
    casadi: Any, function: Any, args: Any, folder: Path
) -> tuple[Callable[[], float], np.ndarray]:
    """What computes all points once and returns its processor time, and where it writes."""
    options = {"casadi_real": "float", "with_header": False}
    source = casadi.CodeGenerator("jacobian.c", options)
    source.add(function)
    source.generate(f"{folder}/")
    rows = function.numel_out()
    loop = _LOOP.format(
        iw=function.sz_iw(), w=function.sz_w(), arg=function.sz_arg(), res=function.sz_res(),
        rows=rows, name=function.name(),
    )  # fmt: skip
    path = folder / "jacobian.c"
    path.write_text(path.read_text() + loop)
    library = folder / "jacobian.so"
    subprocess.run(["gcc", *FLAGS, str(path), "-o", str(library), "-lm"], check=True)
    return loaded(library, args, rows)


def loaded(library: Path, args: Any, rows: int) -> tuple[Callable[[], float], np.ndarray]:
    """As `generated`, of a library's function `batch` that writes so many numbers a point."""
    run = ctypes.CDLL(str(library)).batch
    columns = [np.ascontiguousarray(x, np.float32) for x in args]
    result = np.zeros((len(columns[0]), rows), np.float32)
    sizes = (ctypes.c_long * len(columns))(*(x[0].size for x in columns))
    address = ctypes.c_void_p
    ins = (address * len(columns))(*(x.ctypes.data for x in columns))
    outs = (address * 1)(result.ctypes.data)

    def timed() -> float:
        began = time.process_time()
        run(ins, outs, ctypes.c_long(len(result)), len(columns), sizes)  # which it keeps alive
        return time.process_time() - began

    return timed, result


def _operation(casadi: Any, name: str, attr: Any, args: list[Any]) -> Any:
    """An operation of a scalar program on CasADi's expressions."""
    arithmetic = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
        "neg": lambda x: -x,
        "abs": casadi.fabs,
        "select": casadi.if_else,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
    }
    function = arithmetic.get(name) or getattr(casadi, attr if name == "call" else name)
    return function(*args)
