"""Limits that several modules share or users meet, each once and with its reason.

Weights of the price model are in `veenv/kernel/price.py`; properties of formats and machines stand
beside what has them.
"""

from __future__ import annotations

FEWER = 2
"""Factor by which passes or operations are clearly fewer: a pass may cost twice another."""
SLOWER = 1.3
"""Times a kernel of one point is slower than XLA: prices of less are a third too high at most."""
UNSURE = 3
"""Factor by which an estimate of passes or operations may be wrong."""
SEVERAL = 4
"""Times a kernel's allowed length up to which loops over axes are looked for: more rarely fit."""
FEW = 8
"""Numbers, terms or positions handled one by one: so many instructions cost less than a loop."""
MANY = 16
"""Items of one kind stored or tried one by one: more are hardly ever of use."""
WIDE = 64
"""Columns of a block or band, iterations of a loop: up to here dense is as fast as indices."""
POINT = 128
"""Numbers of one point handled one by one: code grows with their square."""
TAPS = 256
"""Numbers of a convolution's kernel that are listed as entries one by one."""
DENSE = 256
"""Unknowns of a system for which dense factors cost less than calls of the host."""
SMALL = 1024
"""Entries of a constant embedded in a program, where it is quick to compare."""
KEPT = 32
"""Compiled kernels, or patterns, in a cache: each may hold megabytes."""
REMEMBERED = 4096
"""Results in a function's cache: as many as JAX keeps programs of single operations."""
LARGE = 1 << 17
"""Entries of a Jacobian that takes longer to write than to trace once more."""
LISTED = 1 << 20
"""Entries listed by NumPy while a function is traced: about ten milliseconds."""
TABLE = 1 << 25
"""Entries of a table or sparse matrix built while tracing: 32 MB of flags, 0.1 s."""
STEPS = 1 << 12
"""Equations analysed while tracing, each iteration of a loop counted: about a second."""
EQUATIONS = 12
"""Equations worth a separate program: starting one takes as long as they do."""
THIN = 4
"""Positions per entry from which on entries are scattered one by one: the costs are equal."""
LITTLE = 0.02
"""Share of a program's operations that is not worth a loop, whose overhead is as large."""
MOSTLY = 0.75
"""Share from which on everything is used: selecting costs as much as the rest."""
FULL = 0.95
"""Share of nonzeros from which on a matrix counts as dense: indices cost more than zeros."""
MAX_OPERATIONS = 60_000
"""Operations of a kernel: more take over fifteen seconds to compile."""
BODY = 2000
"""Operations, about, of a loop's body that is short: it compiles in 0.05 s."""
STACKED = 1 << 18
"""Numbers that loops stack for a point: 16 MB for a vector of points, more than caches hold."""
STACKED_UNASKED = 1 << 16
"""Numbers stacked by a kernel that is optional: an attempt ends before it unrolls steps."""
LONG = 10_000
"""Operations that take longer to compile than JAX's modes take to trace."""
LOOKED_AT = 500_000
"""Operations or uses examined to shorten a program: about half a second of Python."""
UNKNOWN_STEPS = 20
"""Assumed iterations of a loop that ends on a condition: most tolerances need as many."""
