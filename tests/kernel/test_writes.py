"""Arrays in which a loop writes at computed places: machine code and C, beside JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.export.test_c import COMPILER, compare
from tests.kernel.test_loops import num_operations
from tests.oracles.jacobians import assert_same, quick_jit
from tests.sampling import spared
from veenv.kernel.fusing import trace_point


def saved(x: Any, n: Any) -> Any:
    """Steps until each point's own end, all saved."""

    def step(c: Any) -> Any:
        y, k, found = c
        y = y * x
        return y, k + 1, found.at[k].set(y)

    start = x, 0 * n, jnp.full(40, jnp.inf, x.dtype).at[0].set(x)
    return lax.while_loop(lambda c: (c[0] < 5) & (c[1] < 40), step, start)


def some_rows(x: Any, n: Any) -> Any:
    """Rows that are written if a condition holds, and read at other places."""

    def step(c: Any, t: Any) -> Any:
        y, found, k = c
        y = jnp.sin(y + x) + found[jnp.maximum(k - 1, 0), 0]
        found = jnp.where(y > 0.5, found.at[k].set(jnp.stack([y, -y])), found)
        return (y, found, k + (y > 0.5)), found[n % 12, 1]

    return lax.scan(step, (x, jnp.zeros((12, 2), x.dtype), 0 * n), jnp.arange(20))


def swapped(x: Any, n: Any) -> Any:
    """Two arrays that take each other's place."""

    def step(c: Any, t: Any) -> Any:
        p, q = c
        return (q.at[(t * n) % 30].add(x), p.at[(t + n) % 30].mul(1.1)), p[0]

    start = jnp.ones(30, x.dtype), jnp.full(30, 2.0, x.dtype)
    return lax.scan(step, start, jnp.arange(40, dtype=n.dtype))


def nested(x: Any, n: Any) -> Any:
    """An array that an inner loop of a loop writes."""

    def step(c: Any) -> Any:
        k, found = c

        def inner(c: Any) -> Any:
            j, found = c
            return j + 1, found.at[(k * 3 + j) % 50].add(x * j)

        _, found = lax.while_loop(lambda c: c[0] < n % 5 + k % 3, inner, (0 * n, found))
        return k + 1, found

    return lax.while_loop(lambda c: c[0] < n % 17 + 3, step, (0 * n, jnp.zeros(50, x.dtype)))


def both(x: Any, n: Any) -> Any:
    """What was there before, beside what is there now."""

    def step(c: Any, t: Any) -> Any:
        old, s = c
        new = old.at[n % 20].set(s)
        return (new, s + old[(n + t) % 20] * 0.1 + new[t % 20]), (old[3], new[3])

    return lax.scan(step, (jnp.linspace(0, 1, 20, dtype=x.dtype), x), jnp.arange(25))


def straight(x: Any, n: Any) -> Any:
    """No loop; places outside are dropped, or the nearest."""
    z, two = jnp.arange(40, dtype=x.dtype) * x, jnp.array([1, 2], x.dtype) * x
    w = z.at[n].set(3.0).at[n + 1].add(x)
    some = z.at[jnp.stack([n, n + 60, 0 * n + 3])].set(7.0, mode="drop")
    return w, z[::2], lax.dynamic_update_slice(z, two, (n,)), some


def kinds(x: Any, n: Any) -> Any:
    """Complex numbers, integers, bools."""

    def step(c: Any, t: Any) -> Any:
        z, k, flags = c
        z = z.at[(n * t) % 12].mul(lax.complex(x, jnp.ones_like(x)))
        return (z, k.at[n % 12].add(t), flags.at[t % 12].set(x > t * 0.05)), None

    z = lax.complex(jnp.ones(12, x.dtype), jnp.zeros(12, x.dtype))
    start = z, jnp.zeros(12, n.dtype), jnp.zeros(12, bool)
    z, k, flags = lax.scan(step, start, jnp.arange(30, dtype=n.dtype))[0]
    return z.real, z.imag, k, flags


def branched(x: Any, n: Any) -> Any:
    """Branches that write, and branches that leave the array as it is."""

    def step(c: Any, t: Any) -> Any:
        put, add = (lambda f: f.at[(t * n) % 12].set(x * t)), (lambda f: f.at[n % 12].add(x))
        found = lax.cond((t + n) % 3 == 0, put, lambda f: f, c)
        return lax.cond(t % 2 == 0, lambda f: f, add, found), None

    return lax.scan(step, jnp.zeros(12, x.dtype), jnp.arange(90, dtype=n.dtype))[0]


def every_other(x: Any, n: Any) -> Any:
    """As many steps for all points, though nothing says how many; every other entry is read."""

    def step(c: Any) -> Any:
        k, a, s = c
        a = a.at[(n * k) % 20].set(s)
        return k + 1, a, s * 0.9 + a[1::2][(n + k) % 10] * 0.1

    start = jnp.zeros((), n.dtype), jnp.linspace(0, 1, 20, dtype=x.dtype), x
    return lax.while_loop(lambda c: c[0] < 30, step, start)


def chosen(x: Any, n: Any) -> Any:
    """One of two arrays, both of one's own making or one the same everywhere, read in places."""
    y, _, found = saved(x, n)
    rows = jnp.stack([found, 2 * found, found + 1], 1)
    full = lax.cond(n < 9, lambda: (rows, found), lambda: (rows * 0, jnp.full(40, -jnp.inf)))
    either = jnp.where(y < 5.1, rows.ravel(), jnp.linspace(0.0, 1.0, 120))
    at = [full[0][n % 40], full[1][(2 * n) % 41], either[3 * n]]
    at += [lax.dynamic_slice(either, (n,), (5,))]
    return [jnp.where(jnp.isfinite(z), z, -1.0) for z in at]


def as_they_were(x: Any, n: Any) -> Any:
    """A constant of a loop that a step writes in a copy of; two arrays that start as one."""
    start = jnp.linspace(0, 1, 12, dtype=x.dtype).at[n % 12].set(x)
    fixed = jnp.cos(start).at[n % 5].set(2 * x)

    def step(c: Any) -> Any:
        k, s, p, q = c
        s = s + fixed[k % 12]  # the constant before all others
        copy = fixed.at[(k * n) % 12].set(s)
        p, q = p.at[k % 12].add(copy[(n + k) % 12]), q.at[(k + n) % 12].mul(x)
        return k - 1, s, p, q

    return lax.while_loop(lambda c: c[0] > 0, step, (n % 17 + 3, x, start, start))


@pytest.fixture(autouse=True)
def usual_promotion() -> Any:
    with jax.numpy_dtype_promotion("standard"):
        yield


FUNCTIONS = [saved, some_rows, swapped, nested, both, straight, kinds, branched, every_other]
FUNCTIONS += [chosen, as_they_were]


def points() -> tuple[Any, Any]:
    dtype = jnp.result_type(float)
    return jnp.linspace(1.01, 1.4, 37, dtype=dtype), jnp.arange(37, dtype=jnp.int32) * 7 % 41


@pytest.mark.parametrize(
    ("fun", "wide"), [*((fun, False) for fun in FUNCTIONS), (both, True), (kinds, True)]
)
def test_machine_code(fun: Any, wide: bool):
    with jax.enable_x64(wide):
        args = points()
        found = jax.jit(jax.vmap(veenv.fuse(fun)))(*args)
        assert_same(found, quick_jit(jax.vmap(fun))(*args), 1e-12 if wide else 3e-5, atol=0)


@pytest.mark.skipif(not COMPILER, reason="no C compiler")
@pytest.mark.parametrize("fun", spared(FUNCTIONS[:-2], some_rows, both))
def test_c(fun: Any, tmp_path: Any, x64: None):
    values = lambda x, n: [y for y in jax.tree.leaves(fun(x, n)) if y.dtype == x.dtype]  # noqa: E731
    compare(tmp_path, values, (np.float64(1.2), np.int32(23)), 0, 1e-9, jax.jacfwd)


@pytest.mark.parametrize("size", [9, 5000])
def test_long_arrays(size: int):
    """As long as a solver's saved output is by default; the code does not grow with it."""

    def fun(x: Any, n: Any) -> Any:
        def step(c: Any) -> Any:
            k, found = c
            return k + 1, found.at[k].set(jnp.stack([x, x * k]), mode="drop")

        start = jnp.int32(0), jnp.full((size, 2), jnp.inf)
        return lax.while_loop(lambda c: c[0] < n + 3, step, start)[1]

    args = points()
    np.testing.assert_array_equal(jax.vmap(veenv.fuse(fun))(*args), jax.vmap(fun)(*args))


def test_chosen_arrays_may_be_longer_than_a_program():
    """Only what is read of them counts; where all of it is, the choice is a loop."""

    def rows(x: Any, n: Any) -> Any:
        full = jnp.full((300, 20), jnp.inf)
        step = lambda c: (c[0] + 1, c[1].at[c[0]].set(x * jnp.arange(20)))  # noqa: E731
        found = lax.while_loop(lambda c: c[0] < 4 * n, step, (n * 0, full))[1]
        return lax.cond(x > 0.5, lambda: found, lambda: full)

    some = lambda x, n: rows(x, n)[n % 3]  # noqa: E731
    args = jnp.array([0.3, 0.6, 1.3]), jnp.array([1, 2, 0])
    point = jnp.asarray(0.3), jnp.asarray(1)
    for fun in (some, rows):
        found, wanted = (jax.jit(jax.vmap(f))(*args) for f in (veenv.fuse(fun), fun))
        np.testing.assert_allclose(found, wanted, 1e-6)
        program = trace_point(fun, point, {}, (0, 1)).program(2_000)
        assert num_operations(program, "select") < 100


def test_a_short_loop_behind_a_long_array_is_written_out():
    """Entries of arrays are no operations of the program."""

    def fun(x: Any, n: Any) -> Any:
        step = lambda c: (c[0] + 1, c[1].at[c[0]].set(x * c[0]))  # noqa: E731
        found = lax.while_loop(lambda c: c[0] < n, step, (n * 0, jnp.ones(3000, x.dtype)))[1]
        return lax.scan(lambda c, _: (c + found[n] * jnp.sin(c), None), x, None, length=13)[0]

    point = jnp.asarray(0.3), jnp.asarray(1)
    assert num_operations(trace_point(fun, point, {}, (0, 1)).program(2_000), "sin") == 13
    np.testing.assert_allclose(veenv.fuse(fun)(*point), fun(*point), rtol=1e-5)
