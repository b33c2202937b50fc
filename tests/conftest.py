"""Fixtures that every test shares: the platform, float64, the published reference data."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The strictest arithmetic: no array is silently widened in rank or dtype, here and in the
# processes that tests start. A test of promotion itself uses `jax.numpy_dtype_promotion` or
# `jax.numpy_rank_promotion` where it does.
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"

import jax
import pytest
from hypothesis import HealthCheck, settings

DATA = Path(__file__).parent / "data"

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", settings.get_profile("default"))  # all of `tests.sampling.few`
settings.register_profile("long", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def x64() -> Iterator[None]:
    """Runs one test with 64-bit types; without it JAX's default (float32) holds."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=[False, True], ids=["float32", "float64"])
def precision(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs one test twice, in float32 and in float64; the value is the float type's name."""
    with jax.enable_x64(request.param):
        yield "float64" if request.param else "float32"


@pytest.fixture(scope="session")
def reference() -> Callable[[str], dict[str, Any]]:
    """Reads the published point, value, Jacobian (and graph) of a task: ``reference(name)``."""
    return lambda name: json.loads((DATA / f"{name}.json").read_text())


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs() -> Iterator[None]:
    """Drops a module's compiled programs at its end, which otherwise add up to gigabytes."""
    yield
    jax.clear_caches()
