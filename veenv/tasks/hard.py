"""The tasks of the set ``hard``: functions of many scalars from the literature, listed by field."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from veenv.tasks import bodies, estimates, flows, reactions, unrolled
from veenv.tasks.task import Task

Entry = tuple[str, Callable[..., Any], Iterable[float], str, str]
"""Name, function of scalars, point, description and source."""


def _task(name: str, fun: Callable[..., Any], point: Iterable[float], *texts: str) -> Task:
    numbers = tuple(point)
    every = tuple(range(len(numbers)))
    return Task(name, fun, lambda: tuple(np.array(float(x)) for x in numbers), every, *texts)


TASKS = tuple(
    _task(*entry)
    for family in (bodies, reactions, estimates, flows, unrolled)
    for entry in family.ENTRIES
)
