"""Dense linear algebra in kernels, beside the same as XLA has it, which calls LAPACK."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.programs import Timings, at_batch, compiled
from scripts.benchmarks.tables import Table, named

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Cholesky": lambda a, x: jnp.linalg.cholesky(a),
    "solve": lambda a, x: jnp.linalg.solve(a, x),
    "QR": lambda a, x: jnp.linalg.qr(a),
}
"""Of a positive definite matrix and a vector."""
_ROUND = 1.0
"""Seconds of the rounds of one size, dtype and batch, at most: there are a hundred of these."""


def linear_algebra(
    function: Sequence[str], size: Sequence[int], batch: Sequence[int], seconds: float
) -> Iterator[Table]:
    """Ratios of fused functions of a matrix to XLA's, of a call and of the first one."""
    table = Table("matrices", "rows", "dtype", "batch", "XLA, µs", "ratio", "first call", key=4)
    yield table
    names = named(function, FUNCTIONS, "matrices")
    cases = itertools.product(names, size, ("float32", "float64"), batch)
    with jax.enable_x64(True):
        compiled({"": veenv.fuse(jnp.linalg.det)}, (np.eye(2),))  # loads what compiles
        for name, n, kind, points in cases:
            rng = np.random.default_rng(n)
            a = rng.normal(size=(points, n, n))
            a = a @ np.swapaxes(a, 1, 2) / n + np.eye(n)
            args = [jnp.asarray(x, kind) for x in (a, rng.normal(size=(points, n)))]
            args = args if points > 1 else [x[0] for x in args]
            methods = {"XLA": FUNCTIONS[name], "fused": veenv.fuse(FUNCTIONS[name])}
            programs = compiled(at_batch(methods, points), args)
            timed = Timings(programs, args, min(seconds, _ROUND))
            ratio, us = f"**{timed.ratio('fused', 'XLA'):.2g}**", 1e6 * timed.seconds("XLA")
            table.add(name, n, kind, points, us, ratio, timed.first("fused", "XLA"))
