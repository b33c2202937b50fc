"""What scalar operations take, in multiplications and additions: fits the table of weights."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from scripts.benchmarks.programs import compiled
from scripts.benchmarks.tables import Table
from veenv.kernel.fusing import fuse
from veenv.measure.timing import interleaved, machine
from veenv.orders.documents import write_text
from veenv.rules.operations import FILE

_INPUTS = 8
_SHORTEST = 0.005
"""Seconds of a measurement."""
_CALLS = 24
"""How often an operation is done beyond what surrounds it."""
_AROUND = 60, 180
"""Steps, of two multiplications and an addition each, of the programs that give the unit."""
Unary = Callable[[Any], Any]

OPERATIONS: Mapping[str, Unary] = {
    "div": lambda x: (x + 0.1) / (x + 0.2),
    "sqrt": jnp.sqrt,
    "rem": lambda x: lax.rem(x + 1.3, x + 0.2),
    "select": lambda x: jnp.where(x + 0.1 > 0.5, x + 0.2, x),
    "max": lambda x: jnp.maximum(x + 0.1, 0.5),
    "floor": lambda x: jnp.floor(x + 0.1),
    "acosh": lambda x: lax.acosh(x + 1.1),
    "atan2": lambda x: lax.atan2(x + 0.1, x + 0.2),
    "pow": lambda x: lax.pow(x + 0.1, x + 0.2),
    "nextafter": lambda x: lax.nextafter(x + 0.1, x + 0.2),
    "sincos": lambda x: lax.sin(x) * lax.cos(x),
    **{
        name: getattr(lax, name)
        for name in (
            "exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh atanh "
            "cbrt erf erfc lgamma"
        ).split()
    },
}
"""For each operation a function that does it once."""
_BESIDE = {
    "div": 2, "rem": 2, "select": 2, "max": 1, "floor": 1, "acosh": 1, "atan2": 2, "pow": 2,
    "nextafter": 2, "sincos": 1,
}  # fmt: skip
"""Additions in these functions that are not what is measured."""


def weights(batch: int = 8192, repeats: int = 25, weights: Path = FILE) -> Iterator[Table]:
    """Fits the weights of divisions and functions, in multiplications and additions; float32.

    Each is measured within a program of multiplications and additions, as the difference that
    twenty-four of it make to the processor's time, on one core. The unit is what a multiplication
    or addition more takes in the same program. Weights are medians, rounded to whole operations.

    Args:
        batch: points of a call.
        repeats: measurements of each program, interleaved.
        weights: the table; the package reads its own.
    """
    if hasattr(os, "sched_setaffinity"):  # one thread, so that nothing waits for another
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    table = Table("operation", "weight")
    yield table
    rng = np.random.default_rng(0)
    points = [jnp.asarray(rng.uniform(0.2, 0.9, batch), jnp.float32) for _ in range(_INPUTS)]
    few, many = _AROUND
    methods = {str(n): _program(n, None) for n in (few, many)}
    methods["calls"] = _program(few, lambda x: x)
    methods |= {name: _program(few, operation) for name, operation in OPERATIONS.items()}
    runs = {name: program.run for name, program in compiled(methods, points).items()}
    seconds = interleaved(runs, points, repeats, shortest=_SHORTEST, clock=time.process_time)
    unit = np.median(seconds[str(many)] - seconds[str(few)]) / (3 * (many - few))
    found = {}
    for name in OPERATIONS:
        more = np.median(seconds[name] - seconds["calls"]) / _CALLS
        found[name] = max(1, round(float(more / unit)) - _BESIDE.get(name, 0))
        table.add(name, found[name])
    document = {"machine": machine(), "unit_ns": unit / batch * 1e9, "weights": found}
    write_text(weights, json.dumps(document, indent=1) + "\n")


def _program(steps: int, operation: Unary | None) -> Callable[..., Any]:
    """Means of earlier values, and the sum of an operation on some of them."""

    def fun(*inputs: Any) -> Any:
        rng = np.random.default_rng(1)
        values = list(inputs)
        for _ in range(steps):
            i, j = rng.integers(max(0, len(values) - 30), len(values), 2)
            share = float(rng.uniform(0.3, 0.7))
            values.append(values[int(i)] * share + values[int(j)] * (1.01 - share))
        total = values[-1] + values[-2]
        for k in range(_CALLS if operation else 0):
            assert operation is not None
            total = total + operation(values[-3 - k]) * (0.5 + k)
        return total

    return jax.vmap(fuse(fun))
