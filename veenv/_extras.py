"""Packages that are not installed are named with the extra that brings them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Says of imports inside which extra of veenv has what is missing.

    Raises:
      ModuleNotFoundError: a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing == "veenv" or "pip install" in str(error):
            raise
        hint = f"needs {missing}: pip install 'veenv[{name}]'"
        raise ModuleNotFoundError(hint, name=error.name) from None
