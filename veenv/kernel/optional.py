"""Forms that nobody asked for: where one cannot be made, the call takes another."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_LOGGER = logging.getLogger("veenv")
STRICT = bool(os.environ.get("VEENV_STRICT"))
"""Whether a failure that nobody foresaw is an error: in the tests, which set ``VEENV_STRICT=1``."""


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
