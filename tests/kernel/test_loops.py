"""Loops in kernels: each point has its own, with JAX's results, and the code does not grow."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import assert_same, quick_jit
from tests.oracles.scalar_program import run
from tests.sampling import spared
from veenv.kernel.building import builder, loops
from veenv.kernel.fusing import fuse, trace_point
from veenv.kernel.scalar_program import CannotFuseError

pytestmark = pytest.mark.usefixtures("x64")
POINTS = 21


def batched(args, dtype):
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(x * (1 + 0.3 * rng.standard_normal((POINTS, *np.shape(x)))), dtype)
        if np.issubdtype(np.asarray(x).dtype, np.floating)
        else jnp.asarray(np.broadcast_to(x, (POINTS, *np.shape(x))))
        for x in args
    ]


def assert_equal(f, *args, dtype=np.float64, rtol=1e-10):
    """The kernel of a function, and its scalar program in NumPy, against XLA."""
    many = range(len(args))
    values = batched(args, dtype)
    expected = quick_jit(jax.vmap(f))(*values)
    assert_same(jax.jit(jax.vmap(fuse(f)))(*values), expected, rtol)
    point = [x[0] for x in values]
    traced = trace_point(f, point, {}, many)
    program = traced.program()
    operands = [*values, *traced.operands[len(values) :]]
    for got, want in zip(run(program, *operands), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    return program


def num_operations(program, name):
    """Operations of a name in a program and in its loops; of calls it is the function's."""
    every = (op for part, _ in program.parts() for op in part.ops)
    return sum((op.attr if op.name == "call" else op.name) == name for op in every)


def num_loops(program):
    return num_operations(program, "loop")


@pytest.fixture
def never_unrolled(monkeypatch):
    monkeypatch.setattr(loops, "SHORT", 0)


def pendulum(y, p, controls):
    def slope(y, u):
        return jnp.stack([y[1], -p * jnp.sin(y[0]) + u])

    def step(y, u):
        k = slope(y, u)
        y = y + 0.05 * slope(y + 0.025 * k, u)
        return y, y

    return lax.scan(step, y, controls)


PENDULUM = np.array([0.5, 0.3]), 2.0, np.linspace(0, 1, 200)


def test_a_scan_is_a_loop_with_what_comes_and_goes_by_steps():
    program = assert_equal(pendulum, *PENDULUM)
    assert num_loops(program) == 1
    assert num_loops(assert_equal(jax.jacfwd(pendulum, 1), *PENDULUM)) >= 1
    last = lambda *args: pendulum(*args)[0]  # noqa: E731
    assert num_loops(assert_equal(jax.jacrev(last, (0, 1, 2)), *PENDULUM)) == 2


def test_the_program_does_not_grow_with_the_steps():
    def long(steps):
        def f(x, p):
            return lax.fori_loop(0, steps, lambda i, c: c + 0.01 * jnp.sin(p * c), x)

        return trace_point(jax.jacfwd(f, (0, 1)), (np.ones(3), 1.0), {}, (0, 1)).program()

    assert long(1000).size == long(100_000).size
    assert long(100_000).work > 50 * long(1000).work


def test_loops_that_stack_more_than_there_is_memory_for_are_refused():
    f = lambda x: lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=100_000)  # noqa: E731
    traced = trace_point(f, (np.ones(3),), {}, (0,))
    with pytest.raises(CannotFuseError, match="loops stack 300,000 numbers"):
        traced.program()
    for unread in (f, jax.jit(f)):
        last = trace_point(lambda x, f=unread: f(x)[0], (np.ones(3),), {}, (0,))
        assert num_loops(last.program()) == 1


def test_few_steps_are_unrolled():
    f = lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) * x, x)  # noqa: E731
    assert num_loops(trace_point(f, (1.0,), {}, (0,)).program()) == 0


def kepler(e, m):
    def goes_on(c):
        _, step, k = c
        return (jnp.abs(step) > 1e-9) & (k < 50)

    def body(c):
        x, _, k = c
        step = (x - e * jnp.sin(x) - m) / (1 - e * jnp.cos(x))
        return x - step, step, k + 1

    return lax.while_loop(goes_on, body, (m, jnp.ones_like(m), 0))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_each_point_of_a_while_ends_for_itself(dtype):
    rtol = 1e-10 if dtype == np.float64 else 1e-5
    solve = lambda e, m: kepler(e, m)[0]  # noqa: E731
    assert_equal(solve, 0.4, 1.3, dtype=dtype, rtol=rtol)
    assert_equal(jax.jacfwd(solve, (0, 1)), 0.4, 1.3, dtype=dtype, rtol=rtol)
    steps = jax.jit(jax.vmap(fuse(lambda e, m: kepler(e, m)[2])))
    points = jnp.linspace(0.0, 0.95, 33), jnp.linspace(0.1, 3.0, 33)
    expected = jax.vmap(lambda e, m: kepler(e, m)[2])(*points)
    assert len(set(np.asarray(expected).tolist())) > 2
    assert np.abs(np.asarray(steps(*points)) - expected).max() <= (dtype == np.float32)


def test_no_step_nan_and_infinity_are_those_of_xla():
    def f(x, y):
        step = lambda c: (c[0] * c[0] + 0.5, c[1] / c[0])  # noqa: E731
        return lax.while_loop(lambda c: c[0] < 5.0, step, (x, y))

    x = jnp.array([np.nan, np.inf, -np.inf, 7.0, 0.0, -0.0, 1.0, 5.0, 0.1, -2.0, 4.9])
    y = jnp.array([1.0, np.inf, np.nan, 0.0, 1.0, -1.0, 0.0, np.nan, np.inf, 3.0, -0.0])
    assert_same(jax.jit(jax.vmap(fuse(f)))(x, y), jax.vmap(f)(x, y), 0)


def test_a_while_in_a_vmap_inside():
    def f(e, m):
        x, _, k = jax.vmap(kepler, (None, 0))(e, m)
        return x, k

    assert num_loops(assert_equal(f, 0.4, np.array([0.2, 1.3, 2.9]))) == 1


@pytest.mark.usefixtures("never_unrolled")
def test_what_a_loop_computes_of_a_counter_and_reads_by_it():
    table = jnp.asarray(np.random.default_rng(1).standard_normal((40, 3)))

    def f(x, a):
        def body(i, c):
            row = lax.dynamic_index_in_dim(table, i, keepdims=False)
            near = a[jnp.clip(jnp.int32(20 * jnp.abs(c)) % 40, 0, 39)]
            far = a.at[i - 3].get(mode="fill", fill_value=0.5)
            return jnp.sin(c + row @ row * 0.1 + near) + a[i] * far

        return lax.fori_loop(0, 40, body, x)

    args = 0.3, np.linspace(0.1, 1, 40)
    assert num_loops(assert_equal(f, *args)) == 1
    assert_equal(jax.jacfwd(f), *args)


@pytest.mark.usefixtures("never_unrolled")
def test_complex_and_whole_numbers_bools_and_copies_are_carried():
    def f(x, a):
        def step(c, t):
            z, n, up, kept, _ = c
            z = z * jnp.exp(lax.complex(0 * t, t)) + lax.complex(kept, t)
            return (z, n + jnp.int32(up), ~up & (n < 4), kept, z), (z.conj(), n, up, kept, t)

        (z, n, up, kept, old), (zs, ns, ups, keeps, ts) = lax.scan(
            step, (lax.complex(x, 0.5), jnp.int32(0), x > 0.3, x * 2, lax.complex(0.0, x)), a
        )
        floats = z.real, z.imag, kept, old.real, zs.real, zs.imag, keeps, ts
        return floats, (n, ns, up, ups)

    assert_equal(f, 0.3, np.linspace(0.1, 1, 9))


def test_large_stacked_results_and_a_long_program():
    def f(x, a):
        (_, ys) = lax.scan(lambda c, t: (jnp.sin(c + t), (c * t, c > 0.5)), x, a)
        k = jnp.arange(1.0, 400.0)[:, None]
        more = (jnp.sin(x[None, :1] * k) / (k + x[None])).sum(0)
        return (
            ys,
            ys[0][::-1] * 1.0,
            jnp.sum(more * ys[0][-1]),
            lax.scan(lambda c, y: (c + y @ x, c), 0.0, ys[0]),
        )

    assert_equal(f, np.linspace(0.2, 0.8, 5), np.linspace(0.1, 1, 300))


def random_function(seed):
    """A function of some numbers and an array, of loops in loops, branches and early exits."""

    def statement(rng, values, array, depth):
        pick = lambda: values[int(rng.integers(len(values)))]  # noqa: E731
        kinds = ["arithmetic"] * 3
        if depth:
            kinds += ["scan", "scan", "fori", "while", "while", "cond", "solve"]
        kind = kinds[int(rng.integers(len(kinds)))]
        inside = functools.partial(block, int(rng.integers(1 << 30)), depth=depth - 1)
        x, y = pick(), pick()
        if kind == "scan":
            reverse, length = bool(rng.integers(2)), len(array)

            def step(c, t):
                made = inside([*c, t], array)
                return (made[0], made[-1]), made[len(made) // 2]

            (x, y), ys = lax.scan(step, (x, y), array, length, reverse)
            return x + y * ys[0] + jnp.mean(ys)
        if kind == "fori":
            return lax.fori_loop(
                0, int(rng.integers(1, 6)), lambda i, c: inside([c, y, array[i % 3]], array)[-1], x
            )
        if kind == "while":
            most = int(rng.integers(0, 9))

            def body(c):
                k, x = c
                return k + 1, 0.9 * x + 0.1 * inside([x, y], array)[-1] + 0.1

            return lax.while_loop(lambda c: (c[0] < most) & (c[1] < y + 0.3), body, (0, x))[1]
        if kind == "cond":
            branches = [lambda: inside([x, y], array)[0], lambda: inside([y, x], array)[-1]]
            return lax.cond(x < y, *branches)
        if kind == "solve":
            m = jnp.array([[2 + x * x, y], [x, 3 + y * y]])
            return jnp.sum(jnp.linalg.solve(m, jnp.stack([y, x])))
        functions = [jnp.sin, jnp.tanh, lambda v: v * x, lambda v: jnp.maximum(v, x), jnp.exp]
        return functions[int(rng.integers(len(functions)))](jnp.tanh(y) + 0.3)

    def block(seed, values, array, depth):
        rng = np.random.default_rng(seed)
        values = list(values)
        for _ in range(3):
            values.append(jnp.tanh(statement(rng, values, array, depth)))
        return values

    return lambda x, y, array: jnp.stack(block(seed, [x, y], array, 2 + (seed % 4 == 0))[2:])


@pytest.mark.parametrize("seed", spared(range(1000), 1, 4))
def test_random_loops(seed, monkeypatch):
    if seed % 3:
        monkeypatch.setattr(loops, "SHORT", 0)
    f = random_function(seed)

    def both(x, y, array):
        return f(x, y, array), jax.jacfwd(f, (0, 1))(x, y, array)

    assert_equal(both, 0.4, -0.7, np.array([0.3, -0.5, 0.8, 0.1]))


def test_a_step_that_no_axis_makes_shorter_is_long(monkeypatch):
    """As of implicit solvers of many unknowns, whose elimination is part of a step."""
    monkeypatch.setattr(builder, "_LONGEST", 40)

    def fun(x):
        def step(c):
            for k in range(30):
                c = jnp.tanh(c + 0.1 * k) + x * c
            return c

        return jax.lax.while_loop(lambda c: c < 5.0, step, x)

    x = jnp.linspace(1.1, 1.5, 9)
    np.testing.assert_allclose(jax.vmap(veenv.fuse(fun))(x), jax.vmap(fun)(x), rtol=1e-5)
