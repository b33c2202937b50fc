"""What every package needs: a value for a while, a package that is missing, a form that fails."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
_LOGGER = logging.getLogger("veenv")
STRICT = bool(os.environ.get("VEENV_STRICT"))
"""Whether a failure that nobody foresaw is an error: in the tests, which set ``VEENV_STRICT=1``."""


@contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Inside, a context variable has a value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


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


def attempt(
    make: Callable[[], T],
    otherwise: Callable[[], T],
    raises: Callable[[Exception], bool] = lambda error: False,
) -> T:
    """What `make` returns, or `otherwise` where it fails; that is said at log level debug.

    Args:
      make: makes or runs a form that nobody asked for.
      otherwise: does the same in a way that needs less.
      raises: of an error whether it was foreseen, or is the user's; those are raised as they are.
    """
    try:
        return make()
    except Exception as error:
        if STRICT or isinstance(error, MemoryError) or raises(error):
            raise
        failed = error
    try:
        found = otherwise()
        _LOGGER.debug("a form that nobody asked for failed, another was taken", exc_info=failed)
        return found
    finally:
        del failed  # its traceback holds this frame, and tracers
