"""No request is answered with what another one was: in its process or before, by its folder."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import pytest

from tests.engine import requests_in_turn
from tests.engine.requests_in_turn import FUNCTIONS, REQUESTS, asked
from veenv.kernel import primitive

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("cache")]


@functools.cache
def expected(names: tuple[str, ...], request: str, dtype: str) -> tuple[Any, Any]:
    """JAX's results in float64, and their shapes and dtypes in another precision."""
    with jax.enable_x64(True):
        values = jax.tree.map(np.asarray, asked(names, 1, request, "float64"))
    with jax.enable_x64(dtype == "float64"):
        return values, jax.eval_shape(lambda: asked(names, 1, request, dtype))


def check(found: Any, names: Iterable[str], request: str, dtype: str) -> None:
    values, shapes = expected(tuple(names), request, dtype)
    if not isinstance(found, list):
        assert jax.tree.structure(found) == jax.tree.structure(values)
    leaves, paths = jax.tree.leaves(found), jax.tree_util.tree_leaves_with_path(values)
    for (path, value), got, shape in zip(paths, leaves, jax.tree.leaves(shapes), strict=True):
        where = f"{request} {jax.tree_util.keystr(path)}"
        assert (got.shape, got.dtype) == (shape.shape, shape.dtype), where
        tol = 1e-10 if dtype == "float64" else 2e-5
        np.testing.assert_allclose(np.asarray(got), value, tol, tol, err_msg=where)


SOME = (
    "sine", "linear", "constant", "copy and constant", "product by both", "matrix product",
    "matrix product with another", "loop", "auxiliary, turned", "global", "another global",
    "method that changes", "rule", "weak",
)  # fmt: skip


@pytest.mark.parametrize(
    ("names", "dtype"),
    [pytest.param(SOME, "float32", id="some"), pytest.param((*FUNCTIONS,), "float32",
        marks=pytest.mark.slow, id="all, float32"), pytest.param((*FUNCTIONS,), "float64",
        marks=pytest.mark.slow, id="all, float64")],
)  # fmt: skip
def test_requests_in_turn(cache, names, dtype):
    """All in another process, then in the opposite order here, by one folder: so each pair."""
    file = cache / "results.npz"
    program = requests_in_turn.__name__
    command = [sys.executable, "-m", program, str(cache), dtype, str(file), *names]
    subprocess.run(command, check=True, timeout=600)
    with np.load(file) as other:
        for request in REQUESTS:
            keys = [key for key in other if key.rpartition(" ")[0] == request]
            check([other[key] for key in keys], names, request, dtype)
    with jax.enable_x64(dtype == "float64"):
        for request in reversed(REQUESTS):
            check(asked(names, 0, request, dtype), names, request, dtype)


@pytest.mark.slow
def test_two_requests_by_a_folder(cache):
    """Each pair of requests by themselves, with x64 on and off by turns."""
    for count, (one, other) in enumerate(itertools.permutations(REQUESTS, 2)):
        folder = cache / str(count)
        folder.mkdir()
        jax.config.update("jax_compilation_cache_dir", str(folder))
        for number, request in enumerate((one, other, one)):
            jax.clear_caches()
            primitive.forget()
            dtype = "float64" if (count + number) % 3 == 0 else "float32"
            with jax.enable_x64(dtype == "float64"):
                check(asked(FUNCTIONS, 0, request, dtype), FUNCTIONS, request, dtype)
