"""Makes the helpers of this folder importable, and traces tasks once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from veenv import tasks
from veenv.graph import Graph
from veenv.linearise import make_graph


@lru_cache
def _trace(name: str) -> Graph:
    task = tasks.get(name)
    return make_graph(task.fun, task.argnums)(*task.example_args())


@pytest.fixture(scope="session")
def task_graph() -> Callable[[str], Graph]:
    """The graph of a task: ``task_graph(name)``."""
    return _trace
