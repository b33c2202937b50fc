"""JAX's promotion, for the clients."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def promotion() -> Iterator[None]:
    """Mixed types are promoted as JAX does by default: the clients count on it."""
    with jax.numpy_dtype_promotion("standard"):
        yield
