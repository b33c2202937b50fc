"""Limits and thresholds of the package, each once and with its reason.

Weights of the price model are in `veenv/kernel/price.py`; properties of formats and machines stand
beside what has them.
"""

from __future__ import annotations

FEWER = 2
"""Times fewer passes or operations that are clearly fewer: a pass may take twice another's time."""
UNSURE = 3
"""Times by which an estimate of passes or operations may be wrong."""
FEW = 8
"""Numbers, summands or places taken one by one: so many instructions cost less than one loop."""
MANY = 16
"""Things of one kind kept or gone through one by one: more of them are hardly ever of use."""
WIDE = 64
"""Columns of a block or band, turns of a loop: up to here dense is as fast as indices."""
POINT = 128
"""Numbers of one point: code that takes each by itself grows with the square of more."""
TAPS = 256
"""Numbers of a convolution's kernel, each of which has entries of its own."""
DENSE = 256
"""Unknowns of a system whose dense factors cost less than calls of the host."""
SMALL = 1024
"""Entries of a constant that is written into a program: it is no argument, and soon compared."""
KEPT = 32
"""Compiled kernels, or patterns, that are remembered: each may hold megabytes."""
REMEMBERED = 4096
"""Results of a function that are remembered: as many as JAX keeps programs of single operations."""
LARGE = 1 << 17
"""Entries of a Jacobian: writing them takes longer than to trace it once more."""
LISTED = 1 << 20
"""Entries listed by NumPy while a function is traced: about ten milliseconds."""
TABLE = 1 << 25
"""Entries of a table or sparse matrix that is made while tracing: 32 MB of flags, 0.1 s."""
STEPS = 1 << 12
"""Equations followed one by one while tracing, each turn of a loop counted: about a second."""
EQUATIONS = 12
"""Equations that are worth a program of their own: starting it takes as long as they take."""
THIN = 4
"""Places for each entry from which on entries are placed one by one: each costs about as much."""
LITTLE = 0.02
"""Share of a program's operations that is not worth a loop: its turns take as long."""
MOSTLY = 0.75
"""Share of a whole from which on it is taken whole: leaving the rest out costs as much."""
FULL = 0.95
"""Share from which on a matrix counts as full: index arrays take more than the zeros."""
MAX_OPERATIONS = 60_000
"""Operations of a kernel: more of them take longer than about fifteen seconds to compile."""
BODY = 2000
"""Operations of a loop's body, about, up to which its code is short: it compiles in 0.05 s."""
STACKED = 1 << 18
"""Numbers of a point that loops stack: of a vector of points 16 MB, more than caches hold."""
STACKED_UNASKED = 1 << 16
"""The same in a kernel that nobody asked for: an attempt ends before its steps are made."""
LONG = 10_000
"""Operations that take longer to compile than JAX's modes take to trace."""
LOOKED_AT = 500_000
"""Operations or uses looked at to find a shorter program: about half a second of Python."""
UNKNOWN_STEPS = 20
"""Steps that a loop counts as which ends when a condition does: most tolerances need as many."""
