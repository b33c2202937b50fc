"""Arrays are read and written in place: every number of entries, every width of the vectors."""

from __future__ import annotations

import dataclasses
import re
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_same, quick_jit
from tests.sampling import spared
from veenv.kernel.cpu import compile as compiling
from veenv.kernel.cpu import layout, records, size
from veenv.kernel.cpu.size import written
from veenv.kernel.fusing import fuse, trace_point

ENTRIES = [*range(1, 10), 12, 15, 16, 17, 25, 36, 63, 64, 105, 127]
VECTORS = [(16, False), (32, True), (64, False), (64, True), (128, True)]  # the last: two registers


@pytest.fixture
def texts(monkeypatch):
    """The LLVM IR that is compiled."""
    found, compiled = list[str](), compiling._object
    monkeypatch.setattr(compiling, "_object", lambda text: found.append(text) or compiled(text))
    return found


@pytest.mark.parametrize(
    ("bytes_", "any_shuffle", "dtype"),
    spared([(*vector, dtype) for vector in VECTORS for dtype in ("float32", "float64")],
        *[(*vector, "float32") for vector in VECTORS if vector != (64, True)],
        (32, True, "float64"), (128, True, "float64")),
)  # fmt: skip
def test_arrays_are_read_and_written_whole(x64, monkeypatch, texts, bytes_, any_shuffle, dtype):
    """Of any number of entries, with and without an instruction for any shuffle; some shared."""
    known = compiling.host()
    if min(bytes_, 64) > known.vector_bytes or any_shuffle > known.avx512:
        pytest.skip("this processor has no such vectors")
    monkeypatch.setattr(size, "host", lambda: dataclasses.replace(known, vector_bytes=bytes_))
    monkeypatch.setattr(layout, "host", lambda: dataclasses.replace(known, avx512=any_shuffle))
    scale = bytes_ + any_shuffle  # another program for each

    def turned(*arrays):
        return [x[::-1] * scale for x in arrays]

    rng = np.random.default_rng(bytes_)
    arrays = [rng.normal(size=(37, count)).astype(dtype) for count in ENTRIES]
    for shared in (0, 3):  # none, or every third
        axes = [None if shared and k % shared == 0 else 0 for k in range(len(ENTRIES))]
        args = [x if axis == 0 else x[0] for x, axis in zip(arrays, axes, strict=True)]
        found = jax.jit(jax.vmap(fuse(turned), axes))(*args)
        for x, y in zip(args, found, strict=True):
            np.testing.assert_array_equal(y, np.broadcast_to(x[..., ::-1] * scale, y.shape))
    if any_shuffle and bytes_ >= 64:  # LLVM, which looks long for shuffles, joins registers alone
        for taken in (line.split("x i32> <")[1] for text in texts for line in text.splitlines()
                      if "= shufflevector" in line and "x i32> <" in line):  # fmt: skip
            lanes = [int(k) for k in re.findall(r"i32 (\d+)", taken)]
            assert lanes == [*range(lanes[0], lanes[0] + len(lanes))]


@pytest.mark.parametrize("bytes_", [16, 64])
def test_arrays_with_narrow_vectors_and_staged_outputs(bytes_, monkeypatch):
    """Outputs collide where a vector is no whole line of the cache: they are staged."""
    if bytes_ > compiling.host().vector_bytes:
        pytest.skip("this processor has no such vectors")
    narrow = dataclasses.replace(compiling.host(), vector_bytes=bytes_)
    monkeypatch.setattr(size, "host", lambda: narrow)
    monkeypatch.setattr(records, "_MOST_DIRECT", 2)

    def mixed(x: jax.Array, y: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        product = jnp.outer(x, y) * z * float(bytes_)  # another program for each width
        return product, (jnp.sin(x)[:, None] * y[None] + z).sum(1)

    rng = np.random.default_rng(bytes_)
    x, y = (rng.normal(size=(3, n)).astype("f4") for n in (3, 5))
    points = np.repeat(x, 2777, 0), y[0], np.linspace(1, 2, 8331, dtype="f4")
    axes = 0, None, 0
    got = jax.vmap(veenv.jacve(mixed, "reverse", (0, 1, 2), kernel="fused"), axes)(*points)
    expected = jax.vmap(jax.jacfwd(mixed, (0, 1, 2)), axes)(*points)
    assert_same(got, expected, 2e-5, atol=2e-3)


DTYPES = ["float32", "float64", "int32", "bool", "int8", "int64"]


@pytest.mark.parametrize(
    ("dtype", "columns"),
    spared(product(DTYPES, [5, 16, 33]), ("float64", 16), ("bool", 33)),
)
def test_large_leaves(dtype: str, columns: int):
    """Rows of any length, repeated values, almost all constants; batches with and without rest."""
    rng = np.random.default_rng(columns)

    def fun(x: jax.Array) -> tuple[jax.Array, ...]:
        wide = jnp.outer(x, jnp.flip(x)[:columns])
        many = jnp.tile(wide.ravel()[:7], 41)
        few = jnp.full((29, 31), 3).astype(x.dtype).at[np.arange(29), np.arange(29)].set(x[:29])
        small = x[:3] * x[1:4]
        return tuple(y.astype(dtype) for y in (wide, many, few, small))

    with jax.enable_x64(dtype.endswith("64")):
        for batch in (1, 50):
            x = np.round(rng.normal(size=(batch, 37)) * 3)
            x = x.astype("f8" if dtype.endswith("64") else "f4")
            program = trace_point(fun, (x[0],), {}, (0,)).program()
            assert [made.by_value for made in written(program)] == [True, True, True, False]
            got, expected = quick_jit(lambda x: (jax.vmap(fuse(fun))(x), jax.vmap(fun)(x)))(x)
            for a, b in zip(got, expected, strict=True):
                assert a.dtype == b.dtype == dtype
                np.testing.assert_array_equal(a, b)
