"""Auxiliary outputs hold anything, and come back as `jax.jacrev` hands them through."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.sampling import spared

X = jnp.array([0.3, 0.7])
AUX = {
    "text": "name", "dtype": np.dtype("float32"), "scalar type": jnp.float32, "function": jnp.sin,
    "wide integer": 2**40, "numbers": (3, True, 1.5, 2j),
    "shape": {"shape": (2, 3), "size": np.prod((2, 3)), "axes": np.arange(2)},
    "arrays": [jnp.arange(3), jnp.ones(()), jax.random.key(0)],
    "nothing": [None, slice(2), jax.ShapeDtypeStruct((2,), "float32")],
}  # fmt: skip


def sine(x):
    return jnp.sin(x) * x


def loop(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x))[1]


def of_value(fun, **options):
    def run(x):
        (_, aux), *jacobian = veenv.value_and_jacve(fun, has_aux=True, **options)(x)
        return *jacobian, aux

    return run


def sparse(make):
    def run(x):
        jacobian, aux = make(x)
        return jacobian.todense(), aux

    return run


ORDERS = ("auto", "forward", "reverse", "markowitz")
FORMS = {
    **{order: partial(veenv.jacve, order=order, has_aux=True) for order in ORDERS},
    "counted": lambda f: lambda x: veenv.jacve(f, has_aux=True, count_ops=True)(x)[:2],
    "value": of_value,
    "sparse": lambda f: sparse(veenv.jacve(f, has_aux=True, sparse_representation=True)),
    "filtered": lambda f: veenv.filter_jacve(f, has_aux=True),
    "hessian": lambda f: veenv.hessian(f, has_aux=True),
    "pinned": lambda f: veenv.jacve(f, has_aux=True, pin=True),
}


@pytest.mark.parametrize(
    ("form", "fun"),
    spared(itertools.product(FORMS, [sine, loop]), *((form, sine) for form in FORMS),
        *((form, loop) for form in ("auto", "hessian"))),
)  # fmt: skip
def test_what_is_no_array_comes_back_as_it_is(form, fun):
    def with_aux(x):
        return fun(x), (AUX, jnp.cos(x))

    found = []

    def run(x):
        jacobian, (aux, cosine) = FORMS[form](with_aux)(x)
        found.append(aux)
        return jacobian, cosine

    ways = [run, jax.jit(run), lambda x: jax.vmap(run)(x[None])]
    if fun is sine:  # a kernel has no such loop
        ways.append(veenv.fuse(run))
    for way in ways:
        _, cosine = way(X)
        np.testing.assert_allclose(jnp.ravel(cosine), jnp.cos(X), rtol=1e-6)
        assert jax.tree.structure(found[-1]) == jax.tree.structure(AUX)
        pairs = zip(jax.tree.leaves(found[-1]), jax.tree.leaves(AUX), strict=True)
        assert all(x is y for x, y in pairs)


@pytest.mark.parametrize("jacobian", [jax.jacrev, veenv.jacve, veenv.value_and_jacve])
def test_a_number_is_a_shape_inside_of_jit(jacobian):
    def run(x):
        found = jacobian(lambda x: (jnp.sin(x), {"n": 3, "shape": x.shape}), has_aux=True)(x)
        aux = found[0][1] if jacobian is veenv.value_and_jacve else found[1]
        return jnp.ones(aux["n"]), jnp.ones(aux["shape"])

    assert [x.shape for x in jax.jit(run)(X)] == [(3,), (2,)]


@pytest.mark.parametrize("jacobian", [jax.jacrev, veenv.jacve, veenv.hessian])
def test_an_array_of_outside_decides_inside_of_jit(jacobian):
    table = jnp.array([2, 5])

    def run(x):
        _, (sizes, total) = jacobian(lambda x: (x @ x, (table, x.sum())), has_aux=True)(x)
        return jnp.ones(np.asarray(sizes)[1]) * total

    assert jax.jit(run)(X).shape == (5,)


WRONG = {  # (function, arguments, options, what the error says)
    "pair": (lambda x: (x, {"n": 3, "x": x}), (X,), {}, r"at \[1\]\['n'\]; pass has_aux=True"),
    "output": (lambda x: {"u": [x, 1]}, (X,), {}, r"outputs, .* \(\) at \['u'\]\[1\]; return it"),
    "leaf": (lambda p: p["n"] * X, ({"n": 2, "x": X},), {}, r"at \['n'\]; pass .*allow_int=True"),
    "second": (lambda x, n: x * n, (X, 2), {"argnums": (0, 1)}, "at argument 1; pass .*allow_int"),
    "alone": (jnp.sin, (3,), {}, r"of shape \(\); pass floats .*allow_int=True"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_of_a_type_says_which_leaf_has_it(name):
    fun, args, options, said = WRONG[name]
    with pytest.raises(TypeError, match=said):
        veenv.jacve(fun, **options)(*args)
