"""One sparse Jacobian however its function is written: the same entries, and as short a program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from scripts.benchmarks.functions.writings import (
    PROBLEMS,
    conjugate,
    log,
    stack,
    times,
    turn_of,
    writings,
)
from tests.engine.sparse.test_points import equations_of
from tests.oracles.jacobians import (
    assert_compiled_same,
    check_sparse,
    quick_jit,
    sparse_beside_dense,
)
from tests.sampling import spared
from veenv.engine.repeated import batched_region
from veenv.rules import walk

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.kernels]

NODES, EDGES = 12, 17
_R = np.random.default_rng(0)
FROM, TO = _R.integers(0, NODES, EDGES), _R.integers(0, NODES, EDGES)
TO = np.where(FROM == TO, (TO + 1) % NODES, TO)
SEEN = _R.normal(size=(EDGES, 4))


def poses(node, edge):
    """The errors at edges of rotations at nodes, by what is done at nodes and at edges."""

    def fun(z):
        q = node(turn_of, z.reshape(NODES, 3))
        return edge(lambda a, b, m: log(times(m, times(conjugate(a), b))), q[FROM], q[TO], SEEN)

    return fun, _R.normal(size=3 * NODES)


def by_vmap(f, *args):
    return jax.vmap(f)(*map(jnp.asarray, args))


def by_trailing_axes(f, *args):
    return jnp.moveaxis(f(*(jnp.moveaxis(jnp.asarray(x), -1, 0) for x in args)), 0, -1)


def by_map(f, *args):
    return jax.lax.map(lambda row: f(*row), tuple(map(jnp.asarray, args)))


def by_inner_axes(f, *args):
    return jax.vmap(f, in_axes=-1, out_axes=-1)(*(jnp.asarray(x).T for x in args)).T


def check(fun, x, *, most: int, blocks: int):
    """Values and stored entries are true, parts are found, and the traced program is short."""
    flat = lambda x: fun(x).ravel()  # noqa: E731
    jacobian = veenv.jacve(flat, sparse_representation=True)
    check_sparse(flat, x, oracle=jax.jacfwd, rtol=1e-9, atol=1e-11)
    assert equations_of(flat, x).count(batched_region.NAME) == blocks
    jaxpr = jax.make_jaxpr(jacobian)(jnp.asarray(x))
    moved = walk.dependent(jaxpr, jaxpr.jaxpr.invars)
    assert sum(not moved.isdisjoint(walk.operands(e)) for e in jaxpr.eqns) <= most


@pytest.mark.parametrize(
    ("node", "edge"),
    spared([(by_vmap, by_vmap), (by_trailing_axes, by_inner_axes), (by_map, by_trailing_axes),
        (by_vmap, by_map)], (by_map, by_trailing_axes)),
)  # fmt: skip
def test_logarithms_of_poses_in_two_stages(node, edge):
    check(*poses(node, edge), most=60, blocks=1)


def in_halves(q):
    """Rows by slices, whose axis comes last."""
    left, right = jnp.split(q.T, 2, axis=1)
    return left.T, right.T


@pytest.mark.parametrize(
    "ends",
    [lambda q: (q[FROM], q[TO]), lambda q: (jnp.take(q, FROM, axis=0),
        jax.vmap(lambda k: q[k])(jnp.asarray(TO))), lambda q: (q[FROM], jnp.stack([q[TO, 0], q[TO,
        1]], -1)), lambda q: jnp.moveaxis(q.T[:, np.stack([FROM, TO])], 0, -1),
        lambda q: (q[::2], q[1::2]), in_halves],
    ids="index take columns several strides halves".split(),
)  # fmt: skip
def test_rows_of_a_short_stage_are_taken_before_it(ends):
    """Five equations at nodes, as many at edges: one block, as if all were done at edges."""

    def fun(z):
        x = z.reshape(NODES, 3)
        a, b = ends(jnp.stack([jnp.sin(x[:, 0]) * x[:, 1], jnp.exp(x[:, 2])], -1))
        d = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
        return jnp.stack([d, jnp.sqrt(1 + d**2) * a[:, 0], jnp.cos(b[:, 1])], -1)

    check(fun, _R.normal(size=3 * NODES), most=40, blocks=1)


ROWS, AT = np.arange(NODES), _R.integers(0, 4, NODES)


@pytest.mark.parametrize(
    "taken",
    [
        lambda y, at: y[ROWS, at],
        lambda y, at: y[ROWS[:, None], jnp.stack([at, at], 1)][:, 0],
        lambda y, at: jnp.take_along_axis(y, at[:, None], 1)[:, 0],
        lambda y, at: jnp.zeros((NODES, 5)).at[ROWS, at].add(y[:, 1] ** 2)[:, :4].sum(1),
        lambda y, at: jax.vmap(lambda row, k: row[k])(y, at),
        lambda y, at: y[ROWS[::-1], at],  # other rows
    ],
    ids="index two take_along_axis add vmap others".split(),
)
def test_row_numbers_as_an_index_are_the_batch_axis(taken):
    def fun(z):
        x = z.reshape(NODES, 3)
        d = jnp.sqrt(1 + x[:, 0] ** 2) * jnp.sin(x[:, 1])
        y = jnp.tanh(jnp.stack([d, d * x[:, 2], jnp.cos(d), x[:, 1] ** 3], 1))
        t = taken(y, jnp.asarray(AT))
        return jnp.sin(t) * jnp.exp(-t) + jnp.cos(t * t) / (1 + t**4)

    check(fun, _R.uniform(-1, 1, 3 * NODES), most=40, blocks=1)


@pytest.mark.parametrize("ends", [lambda y: (y[FROM], y[TO]), lambda y: (y[1:], y[:-1])])
def test_rows_that_lose_an_axis_are_taken_as_they_are(ends):
    """Rows of rows of an array that has an axis of one more."""
    mixed, rows = _R.normal(size=(3, 3)), _R.integers(0, 40, 50)

    def fun(z):
        v = z.reshape(40, 1, 3)[rows, 0]
        w = jnp.tanh(v) + jnp.sin(v) / (1 + v * v)
        a, b = (y @ mixed for y in ends(jnp.sin((jnp.sqrt(1 + w * w) * v) @ mixed) @ mixed))
        r = jnp.sqrt(jnp.sum((a - b) ** 2, -1, keepdims=True) + 0.01)
        return jnp.tanh((a - b) / r) * jnp.exp(-r) + a * b / (1 + r)

    x = _R.normal(size=120)
    found, expected = sparse_beside_dense(fun, x, oracle=jax.jacfwd)
    np.testing.assert_allclose(found.todense(), expected, rtol=1e-9, atol=1e-11)


def test_a_dear_stage_is_computed_at_each_node_alone():
    """Layers at four nodes are not done again at two hundred edges."""
    weights = _R.normal(size=(6, 8, 8)) / 3
    i, j = _R.integers(0, 4, (2, 200))

    def fun(z):
        x = z.reshape(4, 8)
        for w in weights:
            x = jnp.tanh(x @ w)
        x = jnp.sum(x, axis=-1)
        a, b = x[i], x[j]
        angle = jnp.arctan2(a * jnp.sin(b), jnp.exp(a) + b**2 * jnp.cos(a))
        return angle * jnp.tanh(a - b) + jnp.sin(a * b) / (1 + a**2)

    check(fun, _R.normal(size=32), most=60, blocks=2)


CORNERS = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
GRID = np.arange(24).reshape(6, 2, 2)
CELLS = np.stack([GRID[a : a + 5, b : b + 1, c : c + 1].ravel() for a, b, c in CORNERS], 1)
PLACES = np.stack(np.meshgrid(*map(np.arange, GRID.shape), indexing="ij"), -1).reshape(-1, 3)


def slopes(point):
    """Slopes [8, 3] of the shapes of a brick at a point of [-1, 1]^3."""
    s = 2.0 * CORNERS - 1
    f = (1 + s * point) / 2
    return np.stack([s[:, d] / 2 * np.prod(np.delete(f, d, 1), 1) for d in range(3)], 1)


INSIDE = np.stack([slopes(p) for p in ([-0.6, 0.1, 0.3], [0.5, -0.4, 0.2])])


def by_hand(a):
    """Determinants of 3 x 3 matrices with axes in front."""
    return jnp.sum(a[..., 0, :] * jnp.cross(a[..., 1, :], a[..., 2, :]), -1)


def stress_of(dn, u, x, det=by_hand):
    """What a point inside adds to the forces of bricks, with axes in front."""
    jac = jnp.einsum("...ki,kj->...ij", x, dn)
    slope = jnp.einsum("kj,...ji->...ki", dn, jnp.linalg.inv(jac))
    f = jnp.einsum("...ki,...kj->...ij", u, slope)
    f = f + jnp.broadcast_to(jnp.eye(3), f.shape)
    back = jnp.swapaxes(jnp.linalg.inv(f), -1, -2)
    stress = f - back + 10.0 * jnp.log(det(f))[..., None, None] * back
    force = jnp.einsum("...kj,...ij->...ki", slope, stress)
    return force * det(jac)[..., None, None]


def bricks(forces):
    places = PLACES[CELLS] + 0.1 * _R.normal(size=(len(CELLS), 8, 3))

    def fun(z):
        return forces(z.reshape(-1, 3)[CELLS], jnp.asarray(places))

    return fun, 0.02 * _R.normal(size=PLACES.size)


def by_points_inside(u, x):
    def brick(u, x):
        at = lambda dn: stress_of(dn, u, x, jnp.linalg.det)  # noqa: E731
        return jnp.sum(jax.vmap(at)(jnp.asarray(INSIDE)), 0)

    return jax.vmap(brick)(u, x)


def by_sum(u, x):
    return sum(stress_of(jnp.asarray(dn), u, x) for dn in INSIDE)


def by_sum_of_determinants(u, x):
    return sum(stress_of(jnp.asarray(dn), u, x, jnp.linalg.det) for dn in INSIDE)


@pytest.mark.parametrize(
    "forces", spared([by_points_inside, by_sum, by_sum_of_determinants], by_sum)
)
def test_forces_of_bricks(forces):
    check(*bricks(forces), most=60, blocks=1)


ROWS, WIDTH = np.arange(NODES), 3
CHOSEN = np.asarray(_R.integers(0, WIDTH, NODES))


def surprise(x, chosen):
    """Of rows, by their entries at some places; there is much before."""
    x = jnp.sin(x) * jnp.exp(-(x**2)) + jnp.tanh(x) * jnp.log1p(x**2)
    return chosen(jax.nn.log_softmax(x))


CHOICES = {
    "rows": lambda x: x[ROWS, CHOSEN],
    "along": lambda x: jnp.take_along_axis(x, CHOSEN[:, None], 1)[:, 0],
    "vmap": lambda x: jax.vmap(lambda i, k: x[i, k])(jnp.asarray(ROWS), jnp.asarray(CHOSEN)),
    "map": lambda x: jax.lax.map(lambda i: x[i, jnp.asarray(CHOSEN)[i]], jnp.arange(NODES)),
    "several": lambda x: x[ROWS[:, None], np.stack([CHOSEN, 0 * CHOSEN], 1)],
    "set": lambda x: x.at[jnp.arange(NODES), CHOSEN].set(x[:, 0] ** 2),
    "drop": lambda x: x.at[jnp.arange(NODES), CHOSEN + 1].add(x[:, 1], mode="drop"),
    "det": lambda x: jnp.linalg.slogdet(x.reshape(-1, 3, 3))[1],
    "inv": lambda x: jnp.linalg.inv(x.reshape(-1, 3, 3)),
    "diagonal": lambda x: jnp.diagonal(x.reshape(-1, 3, 3), axis1=1, axis2=2),
}


@pytest.mark.parametrize("name", spared(CHOICES, "along", "map", "several", "drop", "det"))
def test_rows_by_their_own_numbers_are_parts(name):
    def fun(z):
        return surprise(z.reshape(NODES, WIDTH), CHOICES[name])

    blocks = 2 if name in ("det", "inv") else 1  # of rows, then of matrices
    check(fun, _R.normal(size=NODES * WIDTH), most=40, blocks=blocks)


def shooting(steps, number):
    """What is left open between times, each some steps of Runge and Kutta behind the other."""

    def slope(x, u):
        return jnp.stack([x[1], u[0] * jnp.sin(x[0]) - 0.1 * x[1] * jnp.abs(x[1])])

    def step(x, u):
        k1 = slope(x, u)
        k2 = slope(x + 0.05 * k1, u)
        return x + 0.1 * slope(x + 0.05 * k2, u)

    def fun(z):
        x, u = z[: 2 * number + 2].reshape(-1, 2), z[2 * number + 2 :].reshape(-1, 1)
        return (jax.vmap(lambda x, u: steps(lambda x: step(x, u), x))(x[:-1], u) - x[1:]).ravel()

    return fun, _R.normal(size=3 * number + 2)


def unrolled(step, x):
    return step(step(step(x)))


def in_a_loop(step, x):
    return jax.lax.fori_loop(0, 3, lambda _, x: step(x), x)


def in_a_branch(step, x):
    return jax.lax.cond(jnp.asarray(NODES > 3), lambda: unrolled(step, x), lambda: 2 * x)


@pytest.mark.parametrize("steps", spared([unrolled, in_a_loop, in_a_branch], in_a_loop))
def test_steps_of_shooting(steps):
    check(*shooting(steps, 9), most=40, blocks=1)


def test_dense_shooting_is_scattered_blocks():
    """What is large and mostly zero is not computed whole."""
    fun, x = shooting(unrolled, 150)
    dense = jax.make_jaxpr(veenv.jacve(fun))(jnp.asarray(x))
    lengths = [v.aval.size for e in walk.every(dense) for v in e.outvars]
    assert sum(n >= 300 * 452 for n in lengths) <= 4
    assert_compiled_same([(veenv.jacve(fun), jax.jacfwd(fun))], x, tol=1e-7, atol=1e-12)


def test_what_a_guard_shuts_out_meets_no_infinity_of_the_next_stage():
    """A case that is taken away leaves zeros that no infinite slope may make NaN."""

    def node(w):
        return stack(
            [
                jnp.where(w[0] > 0, w[1] * jnp.exp(w[2]), w[1] ** 2 * w[0]),
                jnp.where(w[0] > 0, w[0], w[2]),
            ]
        )

    def edge(a, b, m):
        return jnp.sqrt(
            stack([a[1] * 0 + b[1] - b[1], a[0] * b[0] * a[1] ** 2 + jnp.sin(m[0]) + 2])
        )

    def fun(z):
        q = by_vmap(node, z.reshape(NODES, 3))
        return by_vmap(edge, q[FROM], q[TO], SEEN).ravel()

    x = _R.normal(size=3 * NODES)
    found, expected = (
        quick_jit(veenv.jacve(fun, order, sparse_representation=True))(x).todense()
        for order in ("auto", "reverse")
    )
    seen = ~np.isnan(expected)
    np.testing.assert_allclose(found[seen], expected[seen], rtol=1e-10, atol=1e-12)


SMALL = {
    "poses_3d": 10, "bricks": 2, "tetrahedra": 2, "shell": 4, "truss": 9,
    "bundle": 12, "volumes": 12, "reaction": 4, "shooting": 5, "layer": 9,
}  # fmt: skip


def sampled(name):
    with jax.numpy_rank_promotion("allow"):
        problem = PROBLEMS[name](SMALL[name])
    return writings(problem), jnp.asarray(_R.uniform(0.1, 1, problem.size))


@pytest.mark.parametrize("name", spared(PROBLEMS, "tetrahedra", "truss", "volumes", "reaction"))
def test_six_writings_of_a_problem_are_one_block_and_store_the_same_entries(name):
    every, x = sampled(name)
    with jax.numpy_rank_promotion("allow"):
        patterns, lengths = [], []
        for number, fun in enumerate(every.values()):
            jacobian, shape = jax.make_jaxpr(
                veenv.jacve(fun, sparse_representation=True), return_shape=True
            )(x)
            patterns.append(shape.pattern)
            lengths.append(len(jacobian.eqns))
            shifted = name == "reaction" and number == 5  # entries on a grid: loops of XLA's
            assert equations_of(fun, x).count(batched_region.NAME) == (not shifted)
    assert all(p == patterns[0] for p in patterns)
    assert max(lengths) <= 120


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_six_writings_of_a_problem_have_one_jacobian(name):
    every, x = sampled(name)
    with jax.numpy_rank_promotion("allow"):
        dense = quick_jit(jax.jacfwd(every["vmap"]))
        expected, points = dense(x), _R.uniform(0.1, 1, (40, x.size))
        met = sum(np.abs(dense(point)) > 1e-13 for point in points)  # which slope is limited varies
        atol = 1e-11 * np.abs(expected).max()
        for fun in every.values():
            found = quick_jit(veenv.jacve(fun, sparse_representation=True))(x)
            np.testing.assert_allclose(found.todense(), expected, atol=atol)
            assert found.nse == np.count_nonzero(met)
