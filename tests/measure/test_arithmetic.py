"""The arithmetic of programs: what is counted, and what is not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.oracles.multiplications import count_additions, count_multiplications
from veenv.measure.arithmetic import additions_in, multiplications_in


def test_additions_are_those_of_sums_and_contractions_but_of_integers():
    def f(x, a, k):
        y = jax.jit(lambda v: v + v - 1.0)(x)
        return lax.cond(k + 1 > 0, lambda: a @ y + y.sum(), lambda: y[:2])

    jaxpr = jax.make_jaxpr(f)(jnp.ones(3), jnp.ones((2, 3)), 1)
    assert additions_in(jaxpr) == count_additions(jaxpr) == 6 + 4 + 2 + 2
    assert multiplications_in(jaxpr) == count_multiplications(jaxpr) == 6
