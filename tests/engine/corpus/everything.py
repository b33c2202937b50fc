"""All cases, by family."""

from __future__ import annotations

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
