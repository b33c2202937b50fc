"""Axes of symbolic size, inside of the function that is differentiated: exported as JAX's modes."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import veenv
from tests.oracles.jacobians import assert_same
from tests.sampling import spared
from veenv.kernel.scalar_program import CannotFuseError

W = jnp.arange(6.0).reshape(3, 2) / 6


def loss(x):
    return jnp.mean(jnp.tanh(x @ W) ** 2)


def pair(x):
    return {"norm": jnp.sqrt(1 + jnp.sum(x * x, 1)), "flat": jnp.sin(x).ravel()}


def looped(x):  # which has no reverse mode
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]


def exported(fun, *sizes):
    (arg,) = export.symbolic_args_specs([jnp.ones((4, 3))], ", ".join(sizes))
    return export.export(jax.jit(fun))(arg)


def compared(fun, wanted, *sizes):
    made = [exported(f, *sizes) for f in (fun, wanted)]
    ours, theirs = ([(str(a), a.weak_type) for a in m.out_avals] for m in made)
    assert ours == theirs
    assert made[0].out_tree == made[1].out_tree
    for n in (1, 2, 5):
        x = jnp.asarray(np.random.default_rng(n).normal(size=(n, 3)))
        assert_same(*(m.call(x) for m in made), 1e-5, atol=1e-6)


@pytest.mark.parametrize("fun", [loss, pair, lambda x: jnp.cumsum(x, 0)[-1] * x[0]])
@pytest.mark.parametrize(
    ("order", "kernel"),
    spared(itertools.product(["auto", "reverse"], ["auto", "xla"]), ("auto", "auto"),
        ("reverse", "xla")),
)  # fmt: skip
def test_the_default_exports_as_reverse_mode(fun, order, kernel):
    compared(veenv.jacve(fun, order, kernel=kernel), jax.jacrev(fun), "n, 3")


def test_forward_mode_where_there_is_no_other():
    compared(veenv.jacve(looped), jax.jacfwd(looped), "n, 3")


def test_values_hessians_and_several_arguments():
    compared(veenv.hessian(loss), jax.jacrev(jax.jacrev(loss)), "n, 3")
    compared(veenv.value_and_jacve(loss), lambda x: (loss(x), jax.jacrev(loss)(x)), "n, 3")
    both = lambda x, y: loss(x) * jnp.sum(y)  # noqa: E731
    ours, theirs = (f(both, argnums=(0, 1)) for f in (veenv.jacve, jax.jacrev))
    compared(lambda x: ours(x, x * 2), lambda x: theirs(x, x * 2), "n, 3")
    aux = lambda x: (loss(x), jnp.sin(x))  # noqa: E731
    compared(veenv.jacve(aux, has_aux=True), jax.jacrev(aux, has_aux=True), "n, 3")


def test_a_symbolic_batch_around_a_point_is_an_elimination():
    compared(jax.vmap(veenv.jacve(lambda x: jnp.sum(x**2))), lambda x: 2 * x, "n, 3")


CASES = {
    "n, m": lambda w, x: jnp.sin(x[0, 0] * w) * x.shape[0] / (x.shape[1] + 1),
    "n + 1, 2*m": lambda w, x: (
        jnp.sum(w**2) * x * jnp.arange(x.size, dtype=w.dtype).reshape(x.shape)
    ),
    "2*m, n": lambda w, x: jax.nn.softmax(w[0] * jnp.sin(x).reshape(-1) * x.shape[0]),
    "n + m, n": lambda w, x: jnp.sum(w**2) * jnp.sum(x[1:] - x[:-1]) * jnp.ones(x.shape[0]),
    "n*m, 3": lambda w, x: jnp.sin(w)[None] * jnp.ones((x.shape[0], 1)),
    "m, 3": lambda w, x: jnp.sum(jnp.broadcast_to(w**2, (x.shape[0], 3)), 0),
    "n, 3": lambda w, x: lax.scan(lambda c, a: (jnp.sin(c) + a, None), w, x)[0],
    "n, 2": lambda w, x: lax.scan(lambda c, a: (c * a * x.shape[0], None), w, w)[0],
    "n, n": lambda w, x: jax.vmap(lambda r: jnp.tanh(jnp.sum(r) * w) / x.shape[0])(x),
}


def test_sizes_are_used_and_are_sums_and_products_of_symbols():
    """Exported together, by what has such sizes and by what has none, against JAX's modes."""

    def all_of(jacobian, forward, hessian, laplacian):
        second = lambda f: hessian(lambda w, x: jnp.sum(f(w, x)), argnums=1)  # noqa: E731
        captured = lambda f: lambda w, x: jacobian(lambda w: f(w, x))(w)  # noqa: E731
        both = functools.partial(jacobian, argnums=(0, 1))
        kinds = itertools.cycle([both, second, captured, laplacian, captured, captured, forward])

        def compute(w, *points):
            pairs = zip(kinds, points, CASES.values(), strict=False)
            return [kind(f)(w, x) for kind, x, f in pairs]

        return compute

    def trace(f):
        return lambda w, x: jnp.trace(jax.hessian(f)(w, x), axis1=-2, axis2=-1)

    forward = functools.partial(veenv.jacve, order="forward")
    ours = all_of(veenv.jacve, forward, veenv.hessian, veenv.laplacian)
    theirs = all_of(jax.jacrev, jax.jacfwd, jax.hessian, trace)
    scope = export.SymbolicScope()
    shapes = [(3,), *(export.symbolic_shape(s, scope=scope) for s in CASES)]
    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    with jax.numpy_dtype_promotion("standard"):  # sizes are integers
        made = [export.export(jax.jit(f))(*specs) for f in (ours, theirs)]
    sizes = [eval(f"({s})", {"n": 2, "m": 3}) for s in CASES]
    random = np.random.default_rng(0)
    points = [jnp.asarray(random.normal(size=s), jnp.float32) for s in [(3,), *sizes]]
    assert_same(*(one.call(*points) for one in made), 1e-4, atol=1e-5)


def test_a_kernel_of_symbolic_size_is_refused_by_name():
    for fun in (loss, pair, lambda x: x * x.shape[0]):
        with pytest.raises(CannotFuseError, match="symbolic size cannot be fused"):
            exported(veenv.fuse(fun), "n, 3")


@pytest.mark.parametrize(
    "make",
    [lambda f: veenv.jacve(f, "markowitz"), lambda f: veenv.jacve(f, (1, 2)),
        lambda f: veenv.jacve(f, count_ops=True), lambda f: veenv.jacve(f,
        sparse_representation=True), lambda f: veenv.hessian(f, sparse_representation=True),
        lambda f: lambda x: veenv.make_graph(f)(x).num_vertices],
)  # fmt: skip
def test_what_needs_the_graph_says_what_to_do(make):
    with pytest.raises(ValueError, match=r"symbolic size have no graph.*default order.*batch"):
        exported(make(loss), "n, 3")
