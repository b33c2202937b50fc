"""Linear solves with solvers of all kinds, also ones that stop gradients."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import veenv
from tests.oracles.jacobians import assert_orders
from tests.sampling import few, thinned

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([0.3, -0.7, 1.1])


@jax.custom_jvp
def frozen(x):
    """The identity, which claims to be constant."""
    return x


@frozen.defjvp
def _(primals, tangents):
    return primals[0], jnp.zeros_like(tangents[0])


@jax.custom_vjp
def deaf(x):
    """The identity, which claims to be constant to reverse mode."""
    return x


deaf.defvjp(lambda x: (x, None), lambda _, g: (jnp.zeros_like(g),))

STOPS = {
    "nothing": lambda v: v, "stop_gradient": lax.stop_gradient, "custom_jvp": frozen,
    "custom_vjp": deaf,
    "half": lambda v: 0.5 * v + 0.5 * lax.stop_gradient(v),
    "scan": lambda v: lax.scan(lambda c, _: (lax.stop_gradient(c), None), v, None, length=2)[0],
    "cond": lambda v: lax.cond(v[0] > 0, lax.stop_gradient, lambda w: w, v),
    "jit": jax.jit(lax.stop_gradient),
}  # fmt: skip


def _diagonal(matrix, stop, transposed):
    scale = jnp.diagonal(matrix)
    return (lambda v: scale * v), (lambda _, b: stop(b) / scale)


def _full(matrix, stop, transposed):
    fixed = lax.stop_gradient(matrix.T if transposed else matrix)
    return (lambda v: matrix @ v), (lambda _, b: jnp.linalg.inv(fixed) @ stop(b))


def _mirrored(matrix, stop, transposed):
    """Diagonal to who differentiates it: the part off the diagonal is stopped."""
    scale = jnp.diagonal(matrix)
    mirror = lambda v: scale * (2 * v + v[::-1])  # noqa: E731

    def solver(_, b):
        b = b / scale
        return (2 * b - stop(b)[::-1]) / 3

    def adjoint(_, b):
        return (2 * b - stop(b[::-1])) / 3 / scale

    return mirror, adjoint if transposed else solver


SOLVERS = {"diagonal": _diagonal, "full": _full, "mirrored": _mirrored}


def solve(matrix, b, kind, stop, *, symmetric, has_aux):
    """x of A x = b by `lax.custom_linear_solve`; with `has_aux` plus its auxiliary output."""
    product, solver = SOLVERS[kind](matrix, stop, False)
    _, back = SOLVERS[kind](matrix, stop, True)
    with_aux = lambda run: lambda mv, v: (run(mv, v), v.sum())  # noqa: E731
    solver, back = (with_aux(solver), with_aux(back)) if has_aux else (solver, back)
    found = lax.custom_linear_solve(
        product, b, solver, None if symmetric else back, symmetric, has_aux
    )
    return found[0] * found[1] if has_aux else found


def check(fun, *args):
    argnums = tuple(range(len(args)))
    assert_orders(fun, args, argnums, jax.jacrev, num_random=1)


@pytest.mark.parametrize(("stop", "kind"), thinned(itertools.product(STOPS, SOLVERS), 5))
def test_a_solver_may_stop_gradients(kind, stop):
    def fun(matrix, x):
        return jnp.sin(solve(matrix, x * x, kind, STOPS[stop], symmetric=False, has_aux=False))

    check(fun, np.diag([2.0, 3.0, 5.0]) + 0.1, X)


@settings(max_examples=few(2, of=15), deadline=None)
@given(
    kind=st.sampled_from(sorted(SOLVERS)),
    stop=st.sampled_from(sorted(STOPS)),
    symmetric=st.booleans(),
    has_aux=st.booleans(),
    batched=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_random_solvers(kind, stop, symmetric, has_aux, batched, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, 3))
    matrix = root @ root.T + 3 * np.eye(3)
    if symmetric and kind == "mirrored":
        matrix = np.eye(3) * 2.5

    def fun(matrix, x):
        matrix = (matrix + matrix.T) / 2
        if kind == "mirrored":  # whose product is symmetric if the diagonal is constant
            matrix = jnp.eye(3) * jnp.trace(matrix)
        run = lambda b: solve(  # noqa: E731
            matrix, b, kind, STOPS[stop], symmetric=symmetric, has_aux=has_aux
        )
        return (jax.vmap(run) if batched else run)(jnp.sin(x))

    check(fun, matrix, rng.normal(size=(2, 3) if batched else 3))


def test_what_jax_says_is_zero_stays_zero():
    """The auxiliary output of a solve has no derivative in JAX, and no edge here."""
    scale = jnp.array([2.0, 3.0, 4.0])
    solver = lambda _, b: (b / scale, b * b)  # noqa: E731
    fun = lambda x: lax.custom_linear_solve(  # noqa: E731
        lambda v: scale * v, jnp.sin(x), solver, solver, has_aux=True
    )
    graph = veenv.make_graph(fun)(X)
    assert graph.outputs[1] is None
    check(fun, X)


def test_an_inexact_solver_is_not_diagonal_where_it_mixes():
    """The structure of a solve follows the solver even where it stops its gradient."""

    def fun(x):
        scale = jnp.array([2.0, 3.0, 4.0])
        solver = lambda _, b: b / scale + lax.stop_gradient(0 * b[::-1] + 1e-3 * b.sum())  # noqa: E731
        return lax.custom_linear_solve(lambda v: scale * v, jnp.sin(x), solver, solver)

    check(fun, X)


def _product(matrix, x):
    return (matrix @ x[..., None])[..., 0]


def _transposed(matrix):
    return jnp.swapaxes(matrix, -1, -2)


def _iterated(matrix, b):
    """x of A x = b, up to a tolerance: right sides of zeros take no step."""
    going = lambda x: jnp.abs(b - _product(matrix, x)).max() > 1e-13  # noqa: E731
    ahead = lambda x: x + (b - _product(matrix, x)) / 6  # noqa: E731
    return lax.while_loop(going, ahead, jnp.zeros_like(b))


def _batch_of_iterated(args, dims):
    """Systems along a first axis."""
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    moved = [
        jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(args, dims, strict=True)
    ]
    return iterated.bind(*moved), 0


iterated = Primitive("iterated")
"""Such a solve as another library has it: linear in b by its rules, but not as it computes."""
iterated.def_impl(_iterated)
iterated.def_abstract_eval(lambda matrix, b: b)
ad.primitive_jvps[iterated] = lambda p, t: (iterated.bind(*p), iterated.bind(p[0], t[1]))
ad.primitive_transposes[iterated] = lambda g, a, b: (None, iterated.bind(_transposed(a), g))
batching.primitive_batchers[iterated] = _batch_of_iterated
mlir.register_lowering(iterated, mlir.lower_fun(_iterated, multiple_results=False))

RULES = {
    "alone": lambda matrix, t: iterated.bind(matrix, t),
    "nested": lambda matrix, t: through_rule(iterated.bind(matrix, t) + t),
    "solver": lambda matrix, t: lax.custom_linear_solve(lambda v: matrix @ v, t,
        lambda _, b: _iterated(matrix, b), lambda _, b: _iterated(matrix.T, b)),
}  # fmt: skip


@jax.custom_jvp
def through_rule(x):
    return 3 * x


@through_rule.defjvp
def _(primals, tangents):
    return through_rule(*primals), 3 * iterated.bind(2 * jnp.eye(3), 2 * tangents[0])


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("batched", [False, True])
def test_iterations_in_rules_start_from_what_they_are_applied_to(name, batched):
    """A rule that is linear as JAX transposes it has another derivative at zeros."""

    @jax.custom_jvp
    def implicit(x):
        return jnp.tanh(x)

    @implicit.defjvp
    def _(primals, tangents):
        matrix = jnp.array([[4.0, 1.0, 0.0], [0.5, 3.0, 0.2], [0.0, 0.3, 2.0]])
        matrix = matrix + jnp.diag(primals[0]) / 5
        return implicit(*primals), RULES[name](matrix, tangents[0])

    one = lambda x: implicit(jnp.sin(x)) * x  # noqa: E731
    check(jax.vmap(one) if batched else one, np.stack([X, 2 * X]) if batched else X)
