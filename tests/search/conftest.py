"""Traces tasks once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest

from veenv import tasks
from veenv.graph.graph import Graph
from veenv.graph.linearisation import make_graph


@lru_cache
def _trace(name: str) -> Graph:
    task = tasks.get(name)
    return make_graph(task.fun, task.argnums)(*task.example_args())


@pytest.fixture(scope="session")
def task_graph() -> Callable[[str], Graph]:
    """The graph of a task: ``task_graph(name)``."""
    return _trace
