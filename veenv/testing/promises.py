"""The failure of a check."""

from __future__ import annotations

from typing import Any


def require(condition: Any, promise: str) -> None:
    """Raises an AssertionError unless a condition holds.

    Raises:
      AssertionError: naming the broken promise.
    """
    if not bool(condition):
        raise AssertionError(f"broken promise: {promise}")
