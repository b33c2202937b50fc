"""`veenv.register_rule`, and primitives of other libraries by their own implementations."""

from __future__ import annotations

import ctypes
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import veenv
from tests.export.test_c import compiled
from tests.oracles.jacobians import assert_same, quick_jit
from veenv.kernel.scalar_program import CannotFuseError

X = np.linspace(0.3, 1.4, 4, dtype=np.float32)
POINTS = np.linspace(-1.5, 2.0, 20, dtype=np.float32).reshape(5, 4)


def primitive(name, implementation=None, several=False, abstract=None):
    """A primitive as another library defines one: without a word of veenv."""
    made = Primitive(name)
    made.multiple_results = several
    if implementation is not None:
        made.def_impl(implementation)
        mlir.register_lowering(made, mlir.lower_fun(implementation, multiple_results=several))
    made.def_abstract_eval(abstract or (lambda *avals, **_: avals if several else avals[0]))
    return made


def capped(x, *, top):
    return top * jnp.tanh(x / np.asarray(top, x.dtype))


def mixed(x, y, *, pairs):
    """Two results, of neighbours."""
    return [x * jnp.roll(y, pairs[0]), jnp.sin(x) + y[::-1] ** pairs[1]]


CAP = primitive("test_cap")
MIX = primitive("test_mix", several=True)
veenv.register_rule(CAP, capped)
veenv.register_rule(MIX, mixed)
FOREIGN = primitive("test_foreign_cap", capped), primitive("test_foreign_mix", mixed, True)


def of_two(cap, mix, x):
    """One of one's own at the top, the other in a loop and in a branch."""

    def turn(c, _):
        a, b = mix(c, 0.5 * c, pairs=(1, 2))
        return lax.cond(a[0] > 0, lambda: cap(a + b, top=0.5), lambda: cap(b, top=3.0)), a.sum()

    c, sums = lax.scan(turn, cap(x, top=2.0), None, length=3)
    return c * 2 + sums.sum()


def with_bind(cap, mix):
    return functools.partial(of_two, cap.bind, mix.bind)


PLAIN = functools.partial(of_two, capped, mixed)
KINDS = {"registered": with_bind(CAP, MIX), "by implementation": with_bind(*FOREIGN)}


@pytest.fixture(params=KINDS)
def fun(request):
    return KINDS[request.param]


def test_kernels(fun):
    both = lambda f: lambda x: (f(x), f(x).sum())  # noqa: E731
    found = jax.jit(jax.vmap(veenv.fuse(both(fun))))(POINTS)
    assert_same(found, quick_jit(jax.vmap(both(PLAIN)))(POINTS), 2e-5, atol=0)


def test_derivatives_of_kernels(fun):
    """JAX has no rule: they are those of what it means."""
    expected = quick_jit(jax.vmap(jax.jacrev(PLAIN)))(POINTS)
    for mode in (jax.jacfwd, jax.jacrev):
        found = jax.jit(jax.vmap(mode(veenv.fuse(fun))))(POINTS)
        np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("kernel", ["auto", "fused"])
@pytest.mark.usefixtures("x64")
def test_jacobians(fun, kernel):
    found = jax.jit(veenv.jacve(fun, kernel=kernel))(X.astype(float))
    assert_same(found, quick_jit(jax.jacrev(PLAIN))(X.astype(float)))


@pytest.mark.usefixtures("x64")
def test_sparse_jacobians():
    """The sparsity is that of what it means: neighbours."""

    def chain(cap, mix, x):
        return mix(cap(x, top=2.0), x, pairs=(1, 2))[0]

    x = np.linspace(0.3, 1.4, 30)
    expected = quick_jit(jax.jacrev(functools.partial(chain, capped, mixed)))(x)
    for cap, mix in ((CAP, MIX), FOREIGN):
        run = functools.partial(chain, cap.bind, mix.bind)
        found = veenv.jacve(run, sparse_representation=True)(x)
        assert found.nse == 2 * 30
        assert_same(found.todense(), expected)


@pytest.mark.usefixtures("x64")
def test_laplacians(fun):
    found = jax.jit(veenv.laplacian(lambda x: fun(x).sum()))(X.astype(float))
    expected = jnp.trace(quick_jit(jax.hessian(lambda x: PLAIN(x).sum()))(X.astype(float)))
    assert_same(found, expected)


@pytest.mark.usefixtures("x64")
def test_c(fun, tmp_path):
    x, found = X.astype(float), np.zeros((4, 4))
    library = compiled(veenv.export.to_c("forward", fun, x), tmp_path)
    library.jacobian(*(ctypes.c_void_p(a.ctypes.data) for a in (x, found)))
    assert_same(found, jax.jacrev(PLAIN)(x))


def test_its_own_derivative_wins():
    """A surrogate: the derivative is not that of what it means."""
    step = primitive("test_step", lambda x: jnp.where(x > 0, x * 0 + 1, x * 0))
    ad.defjvp(step, lambda t, x: t / (1 + jnp.abs(x)))
    batching.defvectorized(step)
    run = lambda x: step.bind(x) * x  # noqa: E731
    expected = jax.vmap(jax.jacfwd(run))(POINTS)
    jacobian = lambda **options: jax.jit(jax.vmap(veenv.jacve(run, **options)))  # noqa: E731
    for found in (
        jacobian(kernel="fused"), jacobian(), jax.vmap(jax.jacfwd(veenv.fuse(run))),
        jax.vmap(veenv.fuse(jax.jacfwd(run))),
    ):  # fmt: skip
        np.testing.assert_allclose(found(POINTS), expected, rtol=1e-5)
    assert expected[0].any()


def test_errors():
    alone, itself = primitive("test_alone"), primitive("test_itself")
    itself.def_impl(lambda x: jax.jit(itself.bind)(x))
    with pytest.raises(CannotFuseError, match=r"'test_alone' cannot be fused.*register_rule"):
        veenv.fuse(alone.bind)(X)
    with pytest.raises(CannotFuseError, match="'test_itself' cannot be fused"):
        veenv.fuse(itself.bind)(X)
    veenv.register_rule(alone, jnp.sum)
    with pytest.raises(TypeError, match=r"float32\[4\], what it means has float32\[\]"):
        veenv.fuse(alone.bind)(X)
    veenv.register_rule("test_alone", lambda x: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        veenv.fuse(lambda x: alone.bind(2 * x))(X)
    with pytest.raises(TypeError, match="meaning must be a function"):
        veenv.register_rule(alone, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="primitive must be a JAX primitive"):
        veenv.register_rule(3, jnp.sum)


def any_of_batch(name):
    """Whether any is true, of the whole batch: as loops of libraries ask whether to go on."""
    made = primitive(name, jnp.any, abstract=lambda x: x.update(shape=()))
    batching.primitive_batchers[made] = lambda args, dims: (made.bind(args[0]), None)
    return made


def kept_in_batch(name):
    """The first of two if alone, where a test says in a batch: a loop's state once it ended."""
    made = primitive(name, lambda test, x, y: x, abstract=lambda test, x, y: x)
    batching.primitive_batchers[made] = lambda args, dims: (jax.vmap(jnp.where, dims)(*args), 0)
    return made


def refused_in_batch(name):
    """The operand, which must not be of a batch: nobody sees the batch of a kernel's point."""
    return primitive(name, lambda x, *, message: x)


def test_what_depends_on_the_batch_is_the_points_own():
    going, kept, alone = any_of_batch("t_any"), kept_in_batch("t_kept"), refused_in_batch("t_one")

    def halvings(x, alone=lambda x: x):
        """Until it is small: in a batch, too, each point as often as it needs."""

        def turn(state):
            more, x, count = state
            new = alone(x / 2)
            x, count = kept.bind(more, new, x), kept.bind(more, count + 1, count)
            return x > 0.01, x, count

        state = x > 0.01, x, np.int32(0)
        return lax.while_loop(lambda state: going.bind(state[0]), turn, state)[1:]

    points = np.geomspace(1e-3, 50.0, 37, dtype=np.float32)
    expected = jax.jit(jax.vmap(halvings))(points)
    kernel = veenv.fuse(lambda x: halvings(x, lambda x: alone.bind(x, message="")))
    assert_same(jax.jit(jax.vmap(kernel))(points), expected, 0)
    assert len(np.unique(expected[1])) > 5


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_what_depends_on_the_batch_stays_so_outside_of_kernels(order):
    """A check of a library, as it is for a batch: Python is called for all points at once."""
    bad = any_of_batch("t_bad")

    def checked(x):
        high = bad.bind((x > 9).any())
        fail = lambda x: x + jax.pure_callback(np.float32, X[0], high)  # noqa: E731
        return lax.cond(high, fail, lambda x: x[::-1] * x, jnp.sin(x))

    ours, theirs = veenv.jacve(checked, order, kernel="xla"), jax.jacrev(checked)
    assert_same(jax.jit(jax.vmap(ours))(POINTS), jax.jit(jax.vmap(theirs))(POINTS), tol=1e-6)


def solve_primitive(name):
    """A solver by iteration, with derivatives of its own: implicit, and transposed."""

    def iterated(a, b):
        step = lambda _, x: x + (b - a @ x) / np.float32(6)  # noqa: E731
        return lax.while_loop(
            lambda state: state[0] < 60,
            lambda state: (state[0] + 1, step(*state)),
            (np.int32(0), jnp.zeros_like(b)),
        )[1]

    made = primitive(name, iterated, abstract=lambda a, b: b)

    def jvp(primals, tangents):
        (a, b), (da, db) = primals, map(ad.instantiate_zeros, tangents)
        x = made.bind(a, b)
        return x, made.bind(a, db - da @ x)

    ad.primitive_jvps[made] = jvp
    ad.primitive_transposes[made] = lambda ct, a, b: (None, made.bind(a.T, ct))
    batching.primitive_batchers[made] = lambda args, dims: (jax.vmap(iterated, dims)(*args), 0)
    return made


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev, veenv.jacve])
def test_solvers_with_derivatives_of_their_own(mode):
    solve = solve_primitive(f"test_solve_{mode.__name__}")

    def root(bind, x):
        matrix = 4 * jnp.eye(4, dtype=x.dtype) + jnp.outer(jnp.sin(x), x) / 4
        return bind(matrix, x) * x

    expected = quick_jit(jax.vmap(jax.jacrev(functools.partial(root, jnp.linalg.solve))))(POINTS)
    fused = veenv.fuse(functools.partial(root, solve.bind))
    inside = veenv.fuse(mode(functools.partial(root, solve.bind)))
    for run in (jax.vmap(mode(fused)), jax.vmap(inside)):
        np.testing.assert_allclose(jax.jit(run)(POINTS), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("indices", "options"),
    [([0, 2, 2, -1, 9], {}), ([0, 2, 2, -1, 9], {"mode": "clip"}),
        ([3, 1], {"unique_indices": True}), ([[1, 2], [2, 0]], {"mode": "drop"})],
)  # fmt: skip
def test_a_scatter_applies_a_function_as_often_as_a_place_is_named(x64, indices, options):
    at = np.array(indices)

    def cosines(x):
        return jnp.sin(x).at[at].apply(jnp.cos, **options)

    def weighted(x):
        numbers = jnp.arange(4).at[at].apply(lambda n: n * n + 1, **options)
        return jnp.sin(x) * numbers.astype(x.dtype)

    points = POINTS.astype(float)
    assert_same(jax.jit(jax.vmap(veenv.fuse(cosines)))(points), jax.vmap(cosines)(points))
    oracle = quick_jit(jax.vmap(jax.jacfwd(weighted)))(points)
    assert_same(jax.jit(jax.vmap(veenv.jacve(weighted)))(points), oracle)
    sparse = veenv.jacve(weighted, sparse_representation=True)
    assert_same(sparse(points[0]).todense(), oracle[0])
