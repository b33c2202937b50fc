"""Orders by the work of the whole program, in which equal operations are one.

`veenv.graph.COST_MODELS` count what an elimination adds, by structures alone. A kernel's program
has no two equal operations: what an elimination forms may be what it has formed elsewhere, or what
the function computes anyway. Here every value is the number of the operation that computes it, and
the work of an order is that of the program that a kernel runs, without tracing it.
"""

from veenv.search.merged.annealing import lightest
from veenv.search.merged.model import Work, work

__all__ = ["Work", "lightest", "work"]
