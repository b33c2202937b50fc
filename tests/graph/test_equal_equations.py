"""Equations that equal others are linearised once: rules of veenv and of JAX are called once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import veenv
from veenv.rules import Partial, defelemental
from veenv.structure import diagonal

CALLS = []


def primitive(name):
    """Five times its operand."""
    made = Primitive(name)
    made.def_impl(lambda x: 5 * x)
    made.def_abstract_eval(lambda x: x)
    batching.defvectorized(made)
    mlir.register_lowering(made, mlir.lower_fun(lambda x: 5 * x, multiple_results=False))
    return made


with_rule, with_jvp = primitive("with_rule"), primitive("with_jvp")


def rule(site):
    CALLS.append(site)
    s = diagonal(site.out_avals[0].shape, valued=True)
    return [[Partial(s, s, lambda ins, outs: jnp.full(s.value_shape, 5.0, outs[0].dtype))]]


def jvp(primals, tangents):
    CALLS.append(primals)
    return with_jvp.bind(*primals), 5 * tangents[0]


defelemental(with_rule, rule)
ad.primitive_jvps[with_jvp] = jvp


@jax.jit
def looped(x):
    return lax.scan(lambda c, _: (with_jvp.bind(c), None), x, None, length=3)[0]


CASES = {"rule": with_rule.bind, "jvp": with_jvp.bind, "loop": looped}


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("name", CASES)
def test_more_of_them_call_no_rule_again(name, order):
    def times(x, count):
        for _ in range(count):
            x = jnp.sin(CASES[name](x))
        return x

    found = {}
    for count in (2, 6):
        jax.clear_caches()
        CALLS.clear()
        jacobian = veenv.jacve(lambda x, n=count: times(x, n), order, count_ops=True, kernel="xla")
        jax.eval_shape(lambda x, j=jacobian: j(x)[0], np.ones(3))  # no mode of JAX is compared
        found[count] = len(CALLS)
    assert 0 < found[6] == found[2]
    slope = 125 if name == "loop" else 5
    found = veenv.jacve(lambda x: times(x, 1), order)(jnp.ones(3))
    np.testing.assert_allclose(found, np.eye(3) * slope * np.cos(slope), rtol=1e-4)


def test_equations_of_other_shapes_are_others():
    CALLS.clear()
    fun = lambda x: with_rule.bind(x).sum() + with_rule.bind(x[:2]).sum()  # noqa: E731
    assert veenv.jacve(fun)(jnp.ones(3)).tolist() == [10.0, 10.0, 5.0]
    assert len(CALLS) == 2
