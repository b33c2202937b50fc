"""The tasks of the set ``hard``: functions of many scalars from the literature, listed by field."""

from __future__ import annotations

from veenv.tasks import bodies, estimates, flows, reactions, unrolled
from veenv.tasks.task import Task

TASKS = tuple(
    Task.at(*entry)
    for family in (bodies, reactions, estimates, flows, unrolled)
    for entry in family.ENTRIES
)
