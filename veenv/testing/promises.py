"""How a check fails."""

from __future__ import annotations

from typing import Any


def require(condition: Any, promise: str) -> None:
    """Complains of what does not hold.

    Raises:
      AssertionError: naming the broken promise.
    """
    if not bool(condition):
        raise AssertionError(f"broken promise: {promise}")
