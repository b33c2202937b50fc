"""Kernels against code that CasADi and SymForce generate for the same: one core, float32."""

from __future__ import annotations

import ctypes
import operator
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import veenv
from scripts.benchmarks.functions import casadi_steps, symforce_steps
from scripts.benchmarks.functions.case import Case, points
from scripts.benchmarks.functions.steps import STEPS
from scripts.benchmarks.programs import compiled
from scripts.benchmarks.tables import Table, has
from veenv.kernel.fusing import trace_point
from veenv.measure.timing import interleaved

Code = tuple[Callable[[], None], np.ndarray]
"""What computes all points once, and where it writes."""
_FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")
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
_BATCH = """
#include <step.h>
extern "C" void batch(const float** arg, float** res, long points, int, const long* sizes) {{
  for (long p = 0; p < points; p++) {{
    auto first = {first};
    for (int k = 1; k < {times}; k++) first = sym::Step<float>(first{rest});
    auto last = sym::Step<float>(first{rest});
    for (int k = 0; k < {rows}; k++) res[0][p * {rows} + k] = last.data()[k];
  }}
}}
"""


def against_generated(seconds: float, batch: int = 4096, repeats: int = 11) -> Iterator[Table]:
    """Nanoseconds a point of kernels and of generated code, of what is installed.

    Raises:
      ImportError: nothing is.
    """
    table = Table("step", "code", "kernel, ns a point", "its own", "ratio")
    yield table
    makes = []
    if has("casadi"):
        steps = casadi_steps.STEPS.items()
        makes += [(name, "CasADi, C", _casadi, function) for name, function in steps]
    if has("symforce"):
        steps = symforce_steps.STEPS.items()
        makes += [(name, "SymForce, C++", _symforce, function) for name, function in steps]
    if not makes:
        raise ImportError("neither CasADi nor SymForce is installed (pip install casadi symforce)")
    for name, code, generated, function in makes:
        step, point = STEPS[name]
        args = points(point, batch)
        kernel = jax.vmap(veenv.fuse(step(veenv.value_and_jacve)))
        with tempfile.TemporaryDirectory() as folder:  # of its own, as a library has its path
            other = generated(function, args, Path(folder))
            other[0]()
            leaves = jax.tree.leaves(jax.jit(kernel)(*args))
            columns = [np.swapaxes(x, 1, -1).reshape(batch, -1) for x in leaves]
            wanted = np.concatenate(columns, 1)
            np.testing.assert_allclose(other[1], wanted, rtol=1e-2, atol=1e-3)
            ours, theirs, ratio = _compared(kernel, args, other, repeats, seconds / repeats / 2)
        table.add(name, code, ours, theirs, f"**{ratio:.2g}**")


def casadi_times(
    case: Case, kernel: Callable[..., Any], args: Any, repeats: int, turn: float
) -> tuple[float, float, float]:
    """Nanoseconds a point of a Jacobian's kernel and of CasADi's C, and the median of their ratios.

    Raises:
      ImportError: without CasADi (`pip install casadi`).
      OSError: without gcc.
    """
    with tempfile.TemporaryDirectory() as folder:
        other = _casadi(lambda casadi: _jacobian(casadi, case), args, Path(folder))
        return _compared(kernel, args, other, repeats, turn)


def _compared(
    kernel: Callable[..., Any], args: Any, other: Code, repeats: int, turn: float
) -> tuple[float, float, float]:
    """Nanoseconds a point of processor time, and the median of the ratios.

    Raises:
      ValueError: there are several cores, of which the other code takes one.
    """
    if len(os.sched_getaffinity(0)) > 1:
        raise ValueError("run this part alone and on one core: taskset -c 0 python scripts/…")
    run = compiled({"": kernel}, args)[""].run
    both = {"ours": lambda: run(*args), "theirs": other[0]}
    times = interleaved(both, (), repeats, shortest=turn, clock=time.process_time)
    ours, theirs = (float(np.median(times[name])) / len(args[0]) * 1e9 for name in both)
    return ours, theirs, float(np.median(times["ours"] / times["theirs"]))


def _jacobian(casadi: Any, case: Case) -> Any:
    """The Jacobian of a task as a function of CasADi's."""
    single = case.single().args
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


def _operation(casadi: Any, name: str, attr: Any, args: list[Any]) -> Any:
    """An operation of a scalar program on CasADi's expressions."""
    if name == "call":
        return getattr(casadi, attr)(*args)
    own = {"abs": casadi.fabs, "select": casadi.if_else, "div": operator.truediv}
    return (own.get(name) or getattr(operator, name, None) or getattr(casadi, name))(*args)


def _casadi(make: Callable[[Any], Any], args: Any, folder: Path) -> Code:
    """CasADi's C, compiled by gcc."""
    import casadi  # pyright: ignore[reportMissingImports]  # not a dependency

    function = make(casadi)
    source = casadi.CodeGenerator("jacobian.c", {"casadi_real": "float", "with_header": False})
    source.add(function)
    source.generate(f"{folder}/")
    rows = function.numel_out()
    loop = _LOOP.format(
        iw=function.sz_iw(), w=function.sz_w(), arg=function.sz_arg(), res=function.sz_res(),
        rows=rows, name=function.name(),
    )  # fmt: skip
    path = folder / "jacobian.c"
    path.write_text(path.read_text() + loop)
    return _loaded(["gcc", *_FLAGS, str(path), "-lm"], folder, args, rows)


def _symforce(make: Callable[[Any], symforce_steps.Step], args: Any, folder: Path) -> Code:
    """SymForce's C++, with the headers of Eigen that it needs from CasADi, compiled by g++."""
    import casadi  # pyright: ignore[reportMissingImports]
    import symforce  # pyright: ignore[reportMissingImports]  # not a dependency

    symforce.set_symbolic_api("symengine")
    symforce.set_epsilon_to_zero()
    import symforce.symbolic as sf  # pyright: ignore[reportMissingImports]
    from symforce import codegen  # pyright: ignore[reportMissingImports]

    step, types, times = make(sf)
    code = codegen.Codegen.function(
        func=step, input_types=types, name="step", config=codegen.CppConfig()
    )
    header = code.generate_function(folder / "symforce").generated_files[0]
    rows = code.outputs.storage_dim()
    given = [
        f"arg[{k}][p]"
        if not hasattr(kind, "SHAPE")
        else f"Eigen::Matrix<float, {kind.SHAPE[0]}, {kind.SHAPE[1]}>(arg[{k}] + p * sizes[{k}])"
        for k, kind in enumerate(types)
    ]
    rest = "".join(f", {x}" for x in given[1:])
    source = folder / "step.cpp"
    source.write_text(_BATCH.format(first=given[0], rest=rest, rows=rows, times=times))
    eigen = Path(str(casadi.__file__)).parent / "include" / "eigen3"
    command = ["g++", *_FLAGS, f"-I{header.parent}", f"-I{eigen}", str(source)]
    return _loaded(command, folder, args, rows)


def _loaded(compiler: list[str], folder: Path, args: Any, rows: int) -> Code:
    """Compiles and loads a function `batch` that writes so many numbers a point."""
    library = folder / "batch.so"
    subprocess.run([*compiler, "-o", str(library)], check=True)
    run = ctypes.CDLL(str(library)).batch
    columns = [np.ascontiguousarray(x, np.float32) for x in args]
    result = np.zeros((len(columns[0]), rows), np.float32)
    sizes = (ctypes.c_long * len(columns))(*(x[0].size for x in columns))
    address = ctypes.c_void_p
    ins = (address * len(columns))(*(x.ctypes.data for x in columns))
    outs = (address * 1)(result.ctypes.data)

    def once() -> None:
        run(ins, outs, ctypes.c_long(len(result)), len(columns), sizes)  # which it keeps alive

    return once, result
