"""All cases, by family, and as parameters of tests."""

from __future__ import annotations

import pytest

from tests.engine.corpus import (
    batching,
    contraction,
    control,
    custom,
    elementwise,
    fourier,
    indexing,
    linalg,
    nn,
    programs,
    shapes,
    types,
    windows,
)
from tests.sampling import thinned

FAMILIES = {
    "elementwise": elementwise.CASES, "dot": contraction.DOTS, "reduction": contraction.REDUCTIONS,
    "cumulative": contraction.CUMULATIVE, "shape": shapes.SHAPES, "sort": shapes.SORTS,
    "select": shapes.SELECTS, "gather": indexing.GATHERS, "scatter": indexing.SCATTERS,
    "dynamic": indexing.DYNAMIC, "conv": windows.CONVOLUTIONS, "pool": windows.POOLING,
    "types": types.CASES, "loop": control.LOOPS, "branch": control.BRANCHES, "linalg": linalg.CASES,
    "fft": fourier.FFT, "complex": fourier.COMPLEX, "custom_jvp": custom.JVP,
    "custom_vjp": custom.VJP, "call": custom.REMAT, "vmap": batching.CASES, "nn": nn.FUNCTIONS,
    "model": nn.MODELS, "output": programs.OUTPUTS, "nested": programs.NESTED,
    "graph": programs.GRAPHS,
}  # fmt: skip
"""Name of a family → its cases."""


def parameters(every: int = 1, of_each_family: bool = False) -> list:
    """All cases, of which every `every`-th is run by default, or that of each family."""
    families = [
        [
            pytest.param(case, id=f"{family}-{case.name}", marks=[pytest.mark.slow] * case.slow)
            for case in cases
        ]
        for family, cases in FAMILIES.items()
    ]
    if of_each_family:
        return [param for params in families for param in thinned(params, every)]
    return thinned([param for params in families for param in params], every)
