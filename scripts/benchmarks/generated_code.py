"""Fused steps against code that CasADi and SymForce generate for the same: one core, float32."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.casadi_code import FLAGS, generated, in_turns, loaded, refuse_many_cores
from scripts.benchmarks.compiled import compiled
from scripts.benchmarks.functions import casadi_steps, symforce_steps
from scripts.benchmarks.functions.steps import STEPS
from scripts.benchmarks.machine import machine
from scripts.benchmarks.record import cells, kept
from veenv.measure.timing import near

Code = tuple[Callable[[], float], np.ndarray]
"""What computes all points once and returns its processor time, and where it writes."""
_COLUMNS = "step", "code", "kernel, ns a point", "its own", "ratio"
_BATCH = """
#include <step.h>
extern "C" void batch(const float** arg, float** res, long points, int, const long* sizes) {{
  for (long p = 0; p < points; p++) {{
    auto first = {first};
    {again}
    auto last = sym::Step<float>(first{rest});
    for (int k = 0; k < {rows}; k++) res[0][p * {rows} + k] = last.data()[k];
  }}
}}
"""


def against_generated(seconds: float, out: Path, batch: int = 4096, repeats: int = 11) -> None:
    """Nanoseconds a point of kernels and of generated code, of what is installed."""
    refuse_many_cores()
    print(f"{machine()}\n\n| {' | '.join(_COLUMNS)} |\n| --- | --- |" + " ---: |" * 3)
    rows = []
    for name, code, make in _codes():
        with tempfile.TemporaryDirectory() as folder:  # of its own, as a library has its path
            step, point = STEPS[name]
            args = jax.tree.map(jnp.asarray, near(point, [0], batch))
            kernel = compiled(jax.vmap(veenv.fuse(step(veenv.value_and_jacve))), args)
            run, result = make(args, Path(folder))
            run()
            leaves = jax.tree.leaves(kernel(*args))
            columns = [np.swapaxes(x, 1, -1).reshape(batch, -1) for x in leaves]
            np.testing.assert_allclose(result, np.concatenate(columns, 1), rtol=1e-2, atol=1e-3)
            ours, theirs, ratio = in_turns(kernel, args, run, repeats, seconds / repeats / 2)
            line = f"| {name} | {code} | {ours:.3g} | {theirs:.3g} | **{ratio:.2g}** |"
            print(line, flush=True)
            rows.append(cells(line))
    kept(out, "python scripts/benchmark.py fuse --parts generated", _COLUMNS, rows)


def _codes() -> Iterator[tuple[str, str, Callable[[Any, Path], Code]]]:
    """Steps and what generates code of them, where that is installed.

    Raises:
      ImportError: neither is.
    """
    found = 0
    try:
        import casadi  # pyright: ignore[reportMissingImports]  # not a dependency

        for name, function in casadi_steps.STEPS.items():
            found += 1
            yield (
                name,
                "CasADi, C",
                lambda args, folder, f=function: generated(casadi, f(casadi), args, folder),
            )
    except ImportError:
        pass
    try:
        import symforce  # pyright: ignore[reportMissingImports]  # not a dependency

        symforce.set_symbolic_api("symengine")
        symforce.set_epsilon_to_zero()
        for name, step in symforce_steps.STEPS.items():
            found += 1
            yield name, "SymForce, C++", lambda args, folder, s=step: _symforce(s, args, folder)
    except ImportError:
        pass
    if not found:
        raise ImportError("neither CasADi nor SymForce is installed (pip install casadi symforce)")


def _symforce(make: Callable[[Any], symforce_steps.Step], args: Any, folder: Path) -> Code:
    """SymForce's C++, with the headers of Eigen that it needs from CasADi, compiled by g++."""
    import casadi  # pyright: ignore[reportMissingImports]
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
    source, library = folder / "step.cpp", folder / "step.so"
    again = f"for (int k = 1; k < {times}; k++) first = sym::Step<float>(first{rest});"
    again = again if times > 1 else ""
    source.write_text(_BATCH.format(first=given[0], rest=rest, rows=rows, again=again))
    eigen = Path(str(casadi.__file__)).parent / "include" / "eigen3"
    paths = f"-I{header.parent}", f"-I{eigen}"
    command = ["g++", *FLAGS, *paths, str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return loaded(library, args, rows)
