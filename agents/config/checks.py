"""Checks of the fields of settings; errors name the field, what it must be, and what it is."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


def check_integers(record: Any, names: str, low: int = 1, high: float = math.inf) -> None:
    """Checks that fields are integers from `low` to `high`, or their default, None.

    Raises:
      ValueError: naming the first field that is not.
    """
    expected = f"an integer from {low} to {high}" if high < math.inf else _at_least("integer", low)
    _check(record, names, expected, lambda x: type(x) is int and low <= x <= high)


def check_numbers(record: Any, names: str, low: float = 0.0, high: float = math.inf) -> None:
    """Checks that fields are finite numbers from `low` to `high`.

    Raises:
      ValueError: naming the first field that is not.
    """
    expected = f"a number from {low} to {high}" if high < math.inf else _at_least("number", low)
    _check(record, names, expected, lambda x: _is_finite(x) and low <= x <= high)


def check_positive(record: Any, names: str) -> None:
    """Checks that fields are finite numbers above 0.

    Raises:
      ValueError: naming the first field that is not.
    """
    _check(record, names, "a number above 0", lambda x: _is_finite(x) and x > 0)


def _check(record: Any, names: str, expected: str, accepts: Any) -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(record)}
    for name in names.split():
        value = getattr(record, name)
        if not (accepts(value) or (value is None and defaults[name] is None)):
            raise ValueError(f"{name} must be {expected}, got {value!r}")


def _at_least(kind: str, low: float) -> str:
    return f"{'an' if kind == 'integer' else 'a'} {kind} of at least {low:g}"


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
