"""The environment needs no dtype promotion; graphs of tasks are traced once a session."""

from collections.abc import Iterator
from functools import cache

import jax
import pytest

from veenv.env.factory import task_graph

graph_of = cache(task_graph)


@pytest.fixture(autouse=True)
def strict_promotion() -> Iterator[None]:
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="session")
def graph_of_task():
    """``graph_of_task(name)``: the traced graph of a task."""
    return graph_of
