"""Families of cases of which the default suite runs a part, and `pytest -m slow` the rest.

The part that stays has a case of every mechanism; what is left out is never removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

T = TypeVar("T")


def _late(case: Any) -> Any:
    """A case that waits for the long suite; a plain tuple stands for several arguments."""
    if hasattr(case, "marks"):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
    values = case if type(case) is tuple else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases, of which every `every`-th is run by default."""
    return [_late(case) if n % every else case for n, case in enumerate(cases)]


def spared(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """The cases, of which those `kept` are run by default; a name that is no case is an error."""
    cases = list(cases)
    unknown = [case for case in kept if case not in cases]
    if unknown:
        raise ValueError(f"not among the cases: {unknown}")
    return [case if case in kept else _late(case) for case in cases]


def few(number: T, of: T) -> T:
    """A number of random examples, or the like: `number`, or `of` in the full or long profile."""
    return of if os.environ.get("HYPOTHESIS_PROFILE") in ("full", "long") else number


def on_seeds(few: int, many: int) -> Callable[[Callable[[int], None]], Callable[[int], None]]:
    """Makes a test of a check of one seed: on `few` random seeds, on `many` in the long suite."""

    def test_of(check: Callable[[int], None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])
        def test(examples: int) -> None:
            some = settings(max_examples=examples, deadline=None)
            some(given(seed=st.integers(0, 2**32 - 1))(check))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return test_of
