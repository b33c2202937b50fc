"""Helpers for every package: context settings, optional extras, and fallbacks."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
_LOGGER = logging.getLogger("veenv")
STRICT = bool(os.environ.get("VEENV_STRICT"))
"""Whether an unexpected failure is an error: in the tests, which set ``VEENV_STRICT=1``."""


def check_flags(**options: Any) -> None:
    """Checks options that are on or off.

    Raises:
      TypeError: naming one that is neither.
    """
    for name, value in options.items():
        if value not in (False, True):
            raise TypeError(f"{name} must be True or False, got {value!r}")


@contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Sets a context variable for the duration of a context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Names the extra of veenv that provides a missing package, in a context around imports.

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
    """Returns the result of `make`, or of `otherwise` where that fails; logs failures at debug.

    Args:
      make: makes or runs an optional form.
      otherwise: does the same with fewer requirements.
      raises: whether an error is expected, or the user's: such errors are raised as they are.
    """
    try:
        return make()
    except Exception as error:
        if STRICT or isinstance(error, MemoryError) or raises(error):
            raise
        failed = error
    try:
        result = otherwise()
        _LOGGER.debug("an optional form failed, another is used", exc_info=failed)
        return result
    finally:
        del failed  # its traceback holds this frame, and tracers
