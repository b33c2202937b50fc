"""Linear systems that SciPy solves on the host.

A system that is singular, or holds infinity or NaN, has NaN for a solution, as in JAX: a solver
around it then takes a smaller step, or says so.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from veenv.engine.sparse.pattern import Pattern

_KEPT: deque[tuple[Pattern, np.ndarray, Any]] = deque(maxlen=2)
"""Pattern, values and factors of the last systems: a chord method solves with one many times."""


def banded(p: Pattern, values: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x with A x = b by LAPACK's banded LU.

    Args:
      p: the places of A, square.
      values: [nse], the entries there.
      b: [n].

    Returns:
      Array [n] of b's dtype.
    """
    from scipy.linalg import LinAlgError, solve_banded

    if not (np.isfinite(values).all() and np.isfinite(b).all()):
        return np.full_like(b, np.nan)
    below, above = p.bandwidth
    bands = np.zeros((below + above + 1, p.sizes[0]), values.dtype)
    bands[above + p.rows - p.cols, p.cols] = values
    try:
        return solve_banded((below, above), bands, b, check_finite=False).astype(b.dtype)
    except LinAlgError:
        return np.full_like(b, np.nan)


def sparse(p: Pattern, values: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x with A x = b by SuperLU, whose factors of the last two systems are kept.

    Args:
      p: the places of A, square.
      values: [nse], the entries there.
      b: [n].

    Returns:
      Array [n] of b's dtype.
    """
    factors = _factors(p, values)
    return np.full_like(b, np.nan) if factors is None else factors.solve(b).astype(b.dtype)


def _factors(p: Pattern, values: np.ndarray) -> Any:
    """SuperLU's factors, None if there are none."""
    for pattern, known, factors in tuple(_KEPT):
        same = pattern == p and known.dtype == values.dtype
        if same and np.array_equal(known, values):
            return factors
    found = _factorised(p, values) if np.isfinite(values).all() else None
    _KEPT.append((p, values.copy(), found))
    return found


def _factorised(p: Pattern, values: np.ndarray) -> Any:
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import splu

    matrix = csr_array((values, p.cols, p.indptr), shape=p.sizes).tocsc()
    options: dict[str, Any] = {}
    if p.symmetric:  # an ordering for A + Aᵀ fills less in than one for Aᵀ A, by 2 to 10 times
        options = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.1}
        options["options"] = {"SymmetricMode": True}
    try:
        return splu(matrix, **options)
    except RuntimeError:  # exactly singular
        return None
