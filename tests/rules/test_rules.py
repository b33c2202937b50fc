"""`veenv.defelemental`: rules for primitives of one's own, and in place of the built-in ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive

import veenv
from tests.oracles.jacobians import assert_same
from tests.sampling import spared
from veenv.rules import Partial, Site, find
from veenv.structure.structure import diagonal

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([0.3, -0.7, 1.1])


@pytest.fixture
def restore():
    """Gives the sine the rule it had."""
    rule = find("sin")
    assert rule is not None
    yield
    veenv.defelemental("sin", rule)


def sine_like(name: str) -> Primitive:
    """A primitive of one's own that JAX knows no derivative of, computed outside of JAX."""
    primitive = Primitive(name)
    primitive.def_impl(lambda x: jnp.asarray(np.sin(x)))
    primitive.def_abstract_eval(lambda x: x)
    return primitive


def diagonal_rule(derivative):
    """The rule of an elementwise function of one operand."""

    def rule(site: Site):
        s = diagonal(site.out_avals[0].shape, valued=True)
        return [[Partial(s, s, lambda ins, _: derivative(ins[0]).reshape(s.value_shape))]]

    return rule


@pytest.mark.parametrize("order", spared(["forward", "reverse", "markowitz"], "forward"))
def test_a_primitive_of_ones_own(order):
    mine = sine_like(f"my_sine_{order}")

    def fun(x, sine=mine.bind):
        return sine(x * x[::-1])[:, None] * jnp.stack([x, x**2], 1)

    with pytest.raises(NotImplementedError, match=rf"'{mine.name}'.*test_rules\.py"):
        veenv.jacve(fun, order)(X)
    veenv.defelemental(mine, diagonal_rule(jnp.cos))
    expected = jax.jacrev(lambda x: fun(x, jnp.sin))(X)
    assert_same(veenv.jacve(fun, order)(X), expected)
    assert veenv.make_graph(mine.bind)(X).structures("executed")[0, 1].describe() == "i,i:i"


@pytest.mark.usefixtures("restore")
def test_the_users_rule_replaces_the_built_in_one():
    jacobian = veenv.jacve(lambda x: jnp.sin(x) * 3)
    assert_same(jacobian(X), jnp.diag(3 * np.cos(X)))
    veenv.defelemental("sin", diagonal_rule(jnp.ones_like))
    assert_same(jacobian(X), jnp.diag(3 * np.ones(3)))


@pytest.mark.usefixtures("restore")
def test_rules_of_the_wrong_size_are_refused():
    veenv.defelemental("sin", lambda site: [[None, None]])
    with pytest.raises(ValueError, match=r"'sin' must give 1 rows of 1 partials, got \[2\]"):
        veenv.jacve(jnp.sin)(X)


def test_what_is_no_rule_or_no_primitive_is_refused():
    with pytest.raises(TypeError, match="rule must be a function"):
        veenv.defelemental("sin", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"primitive must be .*, got 3"):
        veenv.defelemental(3, lambda site: [])
