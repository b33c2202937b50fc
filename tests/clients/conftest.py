"""What every client has to beat, uniformly random play of HumanHeartDipole; and JAX's promotion."""

from collections.abc import Callable, Iterator

import jax
import numpy as np
import pytest

import veenv
from veenv.env.random_play import random_episodes

TASK = "HumanHeartDipole"


@pytest.fixture(scope="session")
def random_best() -> Callable[[int], int]:
    """The best count of so many random episodes: ``random_best(episodes)``."""
    env = veenv.make(TASK)
    costs = jax.jit(lambda key: random_episodes(env, key, 4096).cost)(jax.random.key(0))
    return lambda episodes: int(np.asarray(costs)[:episodes].min())


@pytest.fixture
def promotion() -> Iterator[None]:
    """Mixed types are promoted as JAX does by default: the clients count on it."""
    with jax.numpy_dtype_promotion("standard"):
        yield
