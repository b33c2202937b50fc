"""All cases, by family."""

from __future__ import annotations

from tests.engine.corpus import contraction, elementwise, indexing, shapes

FAMILIES = {
    "elementwise": elementwise.CASES,
    "dot": contraction.DOTS,
    "reduction": contraction.REDUCTIONS,
    "cumulative": contraction.CUMULATIVE,
    "shape": shapes.SHAPES,
    "sort": shapes.SORTS,
    "select": shapes.SELECTS,
    "gather": indexing.GATHERS,
    "scatter": indexing.SCATTERS,
    "dynamic": indexing.DYNAMIC,
}
"""Name of a family → its cases."""
