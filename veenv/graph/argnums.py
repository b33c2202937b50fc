"""By which positional arguments a function is differentiated."""

from __future__ import annotations

import operator
from collections.abc import Iterable


def plain_argnums(argnums: int | Iterable[int]) -> int | tuple[int, ...]:
    """Argnums as an int or a tuple of ints, whatever says them: a range, NumPy integers.

    Raises:
      TypeError: if an argnum is not an integer.
    """
    try:
        return operator.index(argnums)  # type: ignore[arg-type]
    except TypeError:
        pass
    try:
        return tuple(operator.index(a) for a in argnums)  # type: ignore[union-attr]
    except TypeError:
        raise TypeError(f"argnums must be an int or a sequence of ints, got {argnums!r}") from None


def normalise_argnums(argnums: int | Iterable[int], num_args: int) -> tuple[int, ...]:
    """Argnums as a tuple of non-negative ints.

    Raises:
      TypeError: if an argnum is not an int.
      ValueError: if one is out of range or occurs twice.
    """
    plain = plain_argnums(argnums)
    result = []
    for index in (plain,) if isinstance(plain, int) else plain:
        if not -num_args <= index < num_args:
            raise ValueError(
                f"argnums {argnums!r} is out of range for a function called with {num_args} "
                "positional arguments"
            )
        result.append(index % num_args)
    if len(set(result)) != len(result):
        raise ValueError(f"argnums must not repeat an argument, got {argnums!r}")
    return tuple(result)
