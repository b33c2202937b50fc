"""Sets of functions that are timed, by name."""

from __future__ import annotations

from scripts.benchmarks.functions.case import Cases
from scripts.benchmarks.functions.loops import LOOPS
from scripts.benchmarks.functions.points import POINTS
from scripts.benchmarks.functions.realistic import REALISTIC

SETS: dict[str, Cases] = {"realistic": REALISTIC, "loops": LOOPS, "points": POINTS}
"""Functions with a point each."""
