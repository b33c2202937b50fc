"""Axes inside a point that become loops: results are JAX's, and the code does not grow."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.kernel.test_loops import assert_equal, num_loops
from tests.oracles.jacobians import assert_same
from tests.sampling import spared
from veenv.kernel.building import builder, loops, unrolling

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(3)
TABLE = RNG.standard_normal((12, 4, 3))


@pytest.fixture(autouse=True)
def loops_are_tried(monkeypatch):
    monkeypatch.setattr(loops, "SHORT", 0)
    with jax.numpy_rank_promotion("allow"):
        yield


def normal(*shape):
    return RNG.standard_normal(shape)


def assert_loops(f, *args):
    """The function's axes are loops, and compute what XLA does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unrolling, "_program", functools.partial(unrolling._program, batches=True))
        program = assert_equal(f, *args)
    assert num_loops(program) >= 1
    return program


def element(moved, scale):
    """Forces of an element with twelve points."""

    def at(slopes, weight):
        f = jnp.eye(3) + moved.T @ slopes
        stress = scale * f * jnp.log(1 + jnp.sum(f**2)) - jnp.sin(f).T
        return weight * slopes @ stress.T

    return jax.vmap(at)(TABLE, jnp.arange(1.0, 13.0)).sum(0)


def test_points_of_an_element_and_its_jacobian():
    program = assert_loops(element, normal(4, 3), np.float64(0.7))
    assert program.executed > 3 * program.size
    jacobian = veenv.value_and_jacve(element, argnums=(0, 1), kernel="xla")
    program = assert_loops(jacobian, normal(4, 3), np.float64(0.7))
    assert program.executed > 4 * program.size


def test_small_systems_one_for_each_index():
    def solved(a, b):
        a = a + 4 * jnp.eye(3)
        return jax.vmap(jnp.linalg.solve)(a, b), jax.vmap(jnp.linalg.det)(a).sum()

    assert_loops(solved, normal(10, 3, 3), normal(10, 3))


def test_derivatives_of_small_matrices_one_for_each_index():
    def stress(moved):
        f = jnp.eye(3) + 0.1 * jnp.einsum("kns,ni->kis", TABLE[:6], moved)
        size = jnp.log(jnp.linalg.det(f))[:, None, None]
        return jnp.einsum("kns,kis->ni", TABLE[:6], f + size * jnp.linalg.inv(f).mT)

    assert_loops(veenv.jacve(stress, kernel="xla"), normal(4, 3))


def test_derivatives_of_large_matrices_one_for_each_index():
    """Equal entries along a loop around are one operation in memory, too."""

    def largest(a):
        return jnp.linalg.solve(a + 20 * jnp.eye(11), jnp.sin(a)).max(2).sum()

    assert_loops(veenv.jacve(largest, kernel="xla"), normal(4, 11, 11))


def test_products_of_several_large_matrices_with_one():
    shared, unit = normal(11, 11), np.broadcast_to(np.eye(11), (4, 11, 11))

    def largest(a):
        inverse = jax.scipy.linalg.solve_triangular(a + 5 * jnp.eye(11), unit)
        return (jnp.tanh(inverse) @ shared).max(2)

    assert_loops(largest, normal(4, 11, 11))


def test_nan_and_infinity_are_where_they_are_in_xla():
    def odd(x):
        y = jnp.log(x) / (x - 1) * jnp.where(x > 2, jnp.inf, x)
        return y, jnp.max(y, 0), jnp.min(y, 0), y.sum(0), jnp.all(y > 0, 0), jnp.any(x > 3, 0)

    x = np.abs(normal(30, 3))
    x[4, 0], x[5, 1], x[6, 2] = 1.0, -1.0, np.inf
    assert_loops(odd, x)


def test_whole_and_complex_numbers_and_bits():
    def mixed(x, n):
        z = jax.lax.complex(x, jnp.cos(x))
        total = jnp.sum(z * z * jnp.exp(z), 0)
        bits = jax.lax.reduce_xor(n * n + 7, (0,))
        return total.real, total.imag, bits, jnp.sum(n % 3, 0), jnp.max(n, 0)

    assert_loops(mixed, normal(30, 2), np.arange(60).reshape(30, 2))


def test_a_long_body_has_loops_inside(monkeypatch):
    def products(x, y):
        each = jnp.sin(x[:, :, None] * y) * jnp.cos(x[:, None] + y)
        return jnp.einsum("qij,qjk->ik", each, each)

    monkeypatch.setattr(builder, "_LONGEST", 3000)
    program = assert_loops(products, normal(6, 12), normal(12))
    inner = [op.attr for op in program.ops if op.name == "loop"]
    assert any(num_loops(loop.body) for loop in inner)


def test_branches_in_steps_are_loops_and_what_they_leave_is_carried_as_arrays(monkeypatch):
    """Two branches, three, a known one, and an array that each step makes zero."""

    def solved(x, n):
        def step(carry):
            k, y, z = carry
            cases = lambda y: jnp.sin(y) + z, lambda y: y * y[:, ::-1], lambda y: x - y
            y = jax.lax.switch(k - 1, cases, y)
            y = jax.lax.cond(y[0, 0] > 0.2, jnp.tanh, lambda y: y + z, y)
            return k + 1, jax.lax.switch(5, cases, y), jnp.zeros_like(z)

        return jax.lax.while_loop(lambda c: c[0] < n, step, (0 * n, x, x * x))

    monkeypatch.setattr(builder, "_LONGEST", 300)
    program = assert_loops(solved, normal(40, 2), np.int32(5))
    steps = [op.attr for part, _ in program.parts() for op in part.ops if op.name == "loop"]
    assert max(loop.carries for loop in steps) < 12


def test_systems_of_many_right_sides_and_products_are_loops_over_them():
    def solved(a, b):
        x = jax.scipy.linalg.solve_triangular(a + 9 * jnp.eye(12), jnp.sin(b))
        return jnp.cos(x) * b, jnp.tanh(a @ jnp.exp(-x * x)).sum(1)

    assert_loops(solved, normal(12, 12), normal(12, 30))


def test_a_product_of_more_terms_than_a_program_has_operations_is_a_loop():
    fun, a = lambda a: jnp.tanh(a @ (a + 1)).sum(0), normal(40, 40)
    np.testing.assert_allclose(veenv.fuse(fun)(a), fun(a), rtol=1e-9)


def test_zeros_that_are_known_are_not_computed_with():
    """What is chosen by a unit matrix would be dense in a loop."""

    def spread(x):
        y = jnp.where(jnp.eye(25) == 1, jnp.sin(x)[:, None], 0.0)
        return y, jax.vmap(lambda t: jnp.exp(t) * t)(x)

    assert assert_loops(spread, normal(25)).executed < 8 * 25


@pytest.mark.parametrize("shape", [(12, 20), (5, 2, 12)])
def test_what_is_written_at_a_place_that_is_computed_is_in_the_loop(shape):
    """Each index writes at the same place of an array of its own."""

    def written(x, place):
        y = jnp.sin(x) * jnp.exp(-x)
        y = y.at[..., place].set(x[..., 0])
        return jnp.cos(y) * y, jnp.sum(jnp.tanh(y), 0)

    assert_loops(written, normal(*shape), np.int32(4))


def test_very_long_code_is_a_loop_where_that_is_much_shorter(monkeypatch):
    monkeypatch.setattr(unrolling, "_LONG", 500)
    values = jax.vmap(lambda t: jnp.sin(t + jnp.tanh(t * jnp.exp(-t * t))) / (1 + t * t))
    assert num_loops(assert_equal(values, normal(100)))


def random_function(seed):
    """Functions of single numbers over axes of arrays, sums over them, and functions of these."""
    rng = np.random.default_rng(seed)
    unary = [jnp.sin, jnp.tanh, jnp.abs, lambda x: x * x, lambda x: 1 / (1 + x * x), jnp.negative]
    binary = [jnp.add, jnp.multiply, jnp.subtract, jnp.maximum, jnp.arctan2]
    reduced = [jnp.sum, jnp.max, jnp.min, jnp.mean]
    choose = lambda some: some[rng.integers(len(some))]  # noqa: E731
    steps = [(rng.integers(6), rng.random(4), choose(unary), choose(binary), choose(reduced))
             for _ in range(14)]  # fmt: skip
    table = rng.standard_normal((9, 4))

    def row(one, two, many, p, q):
        return two(p, one(q)) + many(q)

    def f(x, y):
        known = [x, jnp.asarray(table, x.dtype), y + jnp.zeros((9, 1), x.dtype)]
        for kind, at, one, two, many in steps:
            a, b = (known[int(p * len(known))] for p in at[:2])
            axis = int(at[2] * 2)
            if kind == 0:
                new = many(one(a) * b, axis, keepdims=True) + b
            elif kind == 1:
                new = jnp.einsum("ij,kj->ik", a, one(b)) @ two(a, b) / 9
            elif kind == 2:
                new = jnp.roll(two(a, b), 1, axis) + jnp.where(a > b, one(a), b)
            elif kind == 3:
                new = jnp.concatenate([a[:4], one(b)[4:]]) * jnp.cumsum(b, axis) / 9
            elif kind == 4:
                new = jax.vmap(functools.partial(row, one, two, many), (axis, axis), axis)(a, b)
            else:
                new = jnp.swapaxes(one(jnp.swapaxes(a, 0, 1)), 0, 1) + two(b, a)
            known.append(jnp.tanh(new))
        return known[-1], known[-2].sum(0), known[-3][::-1]

    return f


@pytest.mark.parametrize("seed", spared([*range(3), *range(100, 400)], 0, 1, 2))
def test_random_functions_of_arrays(seed):
    assert_loops(random_function(seed), normal(9, 4), normal(4))


def test_short_steps_of_loops_for_batches_around_two_vectors():
    """Their vectors are as wide as two registers."""

    def run(x):
        def step(carry, n):
            y, count, flag = carry
            y = jnp.where(flag, jnp.cbrt(1.5 + jnp.sin(y)) ** (0.1 * y), y + 0.25)
            return (y, count + (y > x[0]).astype(jnp.int8), ~flag), y * n

        start = x[1], jnp.int8(120), x[0] > 0
        return jax.lax.scan(step, start, jnp.arange(40.0, dtype=x.dtype))

    for dtype in (np.float32, np.float64):
        fused, x = jax.jit(jax.vmap(veenv.fuse(run))), normal(33, 2).astype(dtype)
        expected = jax.jit(jax.vmap(run))(x)
        for batch in (1, 17, 33):
            first = jax.tree.map(lambda z, n=batch: z[:n], expected)
            assert_same(fused(x[:batch]), first, 200 * np.finfo(dtype).eps, atol=0)
