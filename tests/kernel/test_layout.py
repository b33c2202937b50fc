"""Arrays are read and written in place: every number of entries, every width of the vectors."""

from __future__ import annotations

import dataclasses
import re
from itertools import pairwise, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.sampling import spared
from veenv.kernel.cpu import compile as compiling
from veenv.kernel.cpu import emitter, entries, layout, records, sections
from veenv.kernel.cpu.layout import Shuffles, Unwoven, UnwovenRows, row_starts, woven
from veenv.kernel.cpu.outputs import written
from veenv.kernel.cpu.spans import size_of
from veenv.kernel.fusing import fuse, trace_point

ENTRIES = [*range(1, 21), 24, 36, 48, 63, 64, 121]


class Machine:
    """Computes shuffles of vectors of integers."""

    def __init__(self):
        self.vectors: dict[str, list[int]] = {}
        self.tables: dict[str, list[int]] = {}

    def shuffles(self, lanes: int) -> Shuffles:
        self.lanes, self.once = lanes, self.emit
        return Shuffles("float", self)

    def declare(self, symbol: str, text: str) -> None:
        if "internal global" in text:
            numbers = text.split("> <")[1].split(">")[0]
            self.tables[symbol] = [int(k) for k in numbers.replace("i32 ", "").split(", ")]

    def emit(self, text: str) -> str:
        if text.startswith("load"):
            return text.split("ptr ")[1].split(",")[0]
        if text.startswith("call"):
            operands = text.rstrip(")").split("(")[1].split(", ")
            first, table, second = (operand.split("> ")[1] for operand in operands)
            lanes = self.tables[table]
        else:
            first, second, mask = text.split(", <", 2)
            first, second = first.rsplit(" ", 1)[1], second.rsplit(" ", 1)[1]
            lanes = [int(k) for k in re.findall(r"i32 (\d+)", mask)]
        both = self.vectors[first] + self.vectors[second]
        return self.add(f"%s{len(self.vectors)}", [both[k] for k in lanes])

    def add(self, name: str, values: list[int]) -> str:
        self.vectors[name] = values
        return name


@pytest.fixture(params=[False, True])
def avx512(request, monkeypatch):
    """With and without an instruction for any shuffle."""
    known = dataclasses.replace(compiling.host(), avx512=request.param)
    monkeypatch.setattr(layout, "host", lambda: known)
    return request.param


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("count", ENTRIES)
def test_woven_and_unwoven(count: int, lanes: int, avx512: bool):
    machine = Machine()
    shuffles = machine.shuffles(lanes)
    flat = np.arange(count * lanes)
    by_entry = [machine.add(f"%e{k}", list(flat[k::count])) for k in range(count)]
    vectors = woven(by_entry, shuffles)
    assert [v for name in vectors for v in machine.vectors[name]] == list(flat)
    assert bool(machine.tables) == (avx512 and lanes > 2 and count > 1)
    back = Unwoven(vectors.__getitem__, count, shuffles)
    for k in (0, count // 2, count - 1):
        assert machine.vectors[back.entry(k)] == list(flat[k::count])


def _shuffles(count: int, lanes: int) -> int:
    """How many shuffles weaving an array of so many entries takes."""
    machine = Machine()
    names = [machine.add(f"%e{k}", [0] * lanes) for k in range(count)]
    woven(names, machine.shuffles(lanes))
    return len(machine.vectors) - count


def test_no_more_shuffles_than_entries():
    """A leaf takes at most one shuffle for every number that it holds."""
    for count in ENTRIES:
        assert _shuffles(count, 16) <= 16 * count


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.usefixtures("avx512")
def test_rows_cover_an_array_and_are_read_as_they_are_written(lanes: int):
    by_rows = [count for count in range(1, 128) if row_starts(count, lanes)]
    for count in by_rows:
        starts = row_starts(count, lanes)
        assert (starts[0], starts[-1]) == (0, count - lanes)
        assert all(later - earlier <= lanes for earlier, later in pairwise(starts))
        machine = Machine()
        flat = np.arange(count * lanes)

        def load(point, first, machine=machine, flat=flat, count=count):
            begin = point * count + first
            name = f"%r{point}_{first}"
            return machine.add(name, list(flat[begin : begin + lanes]))

        assert _shuffles(lanes, lanes) * len(starts) < _shuffles(count, lanes)
        back = UnwovenRows(load, starts, machine.shuffles(lanes))
        for k in range(count):
            assert machine.vectors[back.entry(k)] == list(flat[k::count])
    assert (105 in by_rows) == (lanes > 4)
    assert not {*by_rows} & {16, 32, 48, 64, 96}  # halves do with fewer shuffles


@pytest.mark.parametrize("count", [16, 17, 25, 42, 63, 105, 127])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_of_many_entries_are_read_and_written_whole(x64, count: int, dtype: str):
    def scaled(x, y):
        return jnp.sin(x) * y + x[::-1]

    rng = np.random.default_rng(count)
    x, y = rng.normal(size=(2, 37, count)).astype(dtype)
    rtol = 1e-5 if dtype == "float32" else 1e-12
    both = jax.jit(jax.vmap(fuse(scaled)))(x, y)
    np.testing.assert_allclose(both, np.sin(x) * y + x[:, ::-1], rtol=rtol, atol=rtol)
    one = jax.jit(jax.vmap(fuse(scaled), (0, None)))(x, y[0])
    np.testing.assert_allclose(one, np.sin(x) * y[0] + x[:, ::-1], rtol=rtol, atol=rtol)


@pytest.mark.parametrize("bytes_", [16, 64])
def test_arrays_with_narrow_vectors_and_staged_outputs(bytes_, monkeypatch):
    """Outputs collide where a vector is no whole line of the cache: they are staged."""
    if bytes_ > compiling.host().vector_bytes:
        pytest.skip("this processor has no such vectors")
    narrow = dataclasses.replace(compiling.host(), vector_bytes=bytes_)
    monkeypatch.setattr(entries, "host", lambda: narrow)
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
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-3)


def test_no_basic_block_is_long_where_many_entries_are_written():
    program = trace_point(lambda x: jnp.outer(x, x), (np.ones(11, np.float32),), {}, (0,)).program()
    text = sections.body(program, 16)
    assert text.count("\nstore ") == 8 * 16  # rows of sixteen, the last ones overlap
    blocks = text.split(":\n")
    assert max(block.count("\n") for block in blocks) < 3 * emitter._BLOCK < text.count("\n")
    assert text.count("br i1 %never") > 2  # no jump that the code generator would remove


def written_of(fun, *args):
    (made,) = written(trace_point(fun, args, {}, (0,)).program())
    return made


def test_the_code_writes_the_values_of_a_large_leaf_once():
    x = np.ones(30, np.float32)
    small = written_of(lambda x: jnp.outer(x, x)[:4, :30], x)
    assert not small.by_value
    assert small.stored.size == 120
    large = written_of(lambda x: jnp.outer(x, x), x)
    assert large.by_value
    assert large.stored.size == 465  # symmetric
    assert len(large.sources) == 900
    assert not large.constants.size
    assert (large.sources.reshape(30, 30) == large.sources.reshape(30, 30).T).all()
    zeros = written_of(lambda x: jnp.diag(jnp.sin(x)) + jnp.eye(30, k=1), x)
    assert zeros.stored.size == 30
    np.testing.assert_array_equal(zeros.places, 4 * 31 * np.arange(30))
    np.testing.assert_array_equal(zeros.constants.reshape(30, 30), np.eye(30, k=1))


DTYPES = ["float32", "float64", "int32", "bool", "int8", "int64"]


@pytest.mark.parametrize(
    ("dtype", "columns"),
    spared(
        product(DTYPES, [5, 16, 33]),
        ("float32", 5), ("float64", 16), ("int32", 33), ("bool", 33), ("int8", 5),
    ),
)  # fmt: skip
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
            got = jax.jit(jax.vmap(fuse(fun)))(x)
            for a, b in zip(got, jax.vmap(fun)(x), strict=True):
                assert a.dtype == b.dtype == dtype
                np.testing.assert_array_equal(a, b)


def test_auto_counts_what_takes_time_to_compile():
    def traced(fun, size):
        return trace_point(fun, (np.ones(size, np.float32),), {}, (0,))

    plain, angles = (traced(f, 9) for f in (jnp.square, lambda x: jnp.sin(x) * jnp.cos(x)))
    assert size_of(plain.program()) == 9 * (1 + 2 * 7)  # a product, and an entry read and written
    assert size_of(angles.program()) > 9 * 40  # one polynomial for both functions
    wide = traced(lambda x: jnp.diag(jnp.sin(x)) @ jnp.ones((9, 9), x.dtype), 9)
    assert plain.program_within(9 * 15) is not None
    assert plain.program_within(9 * 15 - 1) is None
    stencil = traced(lambda x: jnp.diag(x * x) + jnp.roll(jnp.diag(x), 1, 0), 40)
    assert size_of(stencil.program()) < 600
    assert stencil.program_within(600) is not None
    large = traced(lambda x: jnp.diag(x * x) + jnp.roll(jnp.diag(x), 1, 0), 300)
    assert large.program_within(1000) is None  # hundreds of thousands of entries are gone through
    assert wide.program_within(10_000) is not None
