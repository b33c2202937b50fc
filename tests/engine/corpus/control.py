"""Loops and branches: scan, while, fori, map, cond, switch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.engine.corpus.case import case, normal, uniform

V = uniform(4)
W = normal(3, 3)


def _scan_with_integers(v):
    def body(carry, x):
        i, c = carry
        return (i + 1, c * x + jnp.sin(c) * i), (c, i)

    (_, last), (seen, ticks) = lax.scan(body, (0, v[0]), v)
    return last * seen * ticks


def _nested_scan(v):
    def outer(c, x):
        inner = lax.scan(lambda a, b: (a * b + x, a), c, v[:2])
        return inner[0] * 0.5, inner[1].sum()

    return lax.scan(outer, v[0], v)


def _scan_with_branch(v):
    def body(c, x):
        c = lax.cond(x > 0.5, jnp.sin, lambda t: t * x, c)
        return c + x, c * c

    return lax.scan(body, 1.0, v)[1]


def _newton(v):
    """Square roots by a loop whose length depends on the values."""

    def body(state):
        x, _ = state
        new = 0.5 * (x + v / x)
        return new, jnp.max(jnp.abs(new - x))

    return lax.while_loop(lambda s: s[1] > 1e-12, body, (v + 1, jnp.asarray(1.0)))[0]


def _pair_of_states(v):
    return lax.fori_loop(
        0, 3, lambda i, s: (s[0] * s[1] + v[i], jnp.cos(s[0])), (v[0] * v[1], v[2])
    )


def _two_step(c, x):
    return (c[1], jnp.tanh(W[:2, :2] @ c[0]) * x), c[0]


LOOPS = [
    case("scan_outputs", lambda v: lax.scan(lambda c, x: (c * x + jnp.sin(c), c * c), 1.0, v)[1],
        V),
    case("scan_carry", lambda v: lax.scan(lambda c, x: (jnp.cos(c) * x, None), v[0], v)[0] * v, V),
    case("scan_reverse", lambda v: lax.scan(lambda c, x: (c + x * x, c * x), 0.5, v, reverse=True),
        V),
    case("scan_without_inputs", lambda v: lax.scan(lambda c, _: (jnp.sin(c) * v, c.sum()), v, None,
        length=3), V),
    case("scan_constants", lambda v, w: lax.scan(lambda c, x: (jnp.tanh(w @ c) * x, c), v[:3],
        v)[0], V, W, argnums=(0, 1)),
    case("scan_pytrees", lambda v: lax.scan(_two_step, (v[:2], v[2:]), v), V),
    case("scan_unrolled", lambda v: lax.scan(lambda c, x: (c * x, c + x), 1.0, v, unroll=2)[1], V),
    case("scan_integer_carry", _scan_with_integers, V),
    case("scan_nested", _nested_scan, V, slow=True), case("scan_with_branch", _scan_with_branch, V),
    case("scan_between_equations", lambda v: jnp.exp(lax.scan(lambda c, x: (c + x, c * x), 0.1, v
        * v)[1]) * v, V),
    case("map", lambda v: lax.map(lambda x: jnp.sin(x) * v.sum(), v), V),
    case("map_in_batches", lambda v: lax.map(lambda x: jnp.sin(x) * x, v, batch_size=2), V),
    case("fori_fixed_length", lambda v: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * v + i, v), V),
    case("fori_two_states", _pair_of_states, V),
    case("fori_unrolled", lambda v: lax.fori_loop(0, 3, lambda i, c: c * v + i, v, unroll=True), V),
    case("fori_length_from_argument", lambda v, n: lax.fori_loop(0, n, lambda i, c: jnp.sin(c) * v,
        v) * v, V, np.array(3), oracle=jax.jacfwd),
    case("while_counter", lambda v: (lax.while_loop(lambda s: s[0] < 3,
        lambda s: (s[0] + 1, jnp.sin(s[1]) * v), (0, v * v))[1] * v), V, oracle=jax.jacfwd),
    case("while_until_converged", _newton, V, oracle=jax.jacfwd),
    case("while_of_constant", lambda v: v * lax.while_loop(lambda c: c < 5, lambda c: c * 2, 1.0),
        V),
    case("python_loop", lambda v: [v := jnp.sin(v) * jnp.roll(v, 1) for _ in range(4)][-1], V,
        slow=True),
]  # fmt: skip

BRANCHES = [
    case("cond", lambda v: lax.cond(v[0] > 0, jnp.sin, jnp.cos, v * v) * v, V),
    case("cond_false", lambda v: lax.cond(v[0] > 9, lambda x: x, lambda x: x**3, v) + v, V),
    case("cond_pytrees", lambda v: lax.cond(v.sum() > 0, lambda a, b: (a * b, a),
        lambda a, b: (a, b), v, jnp.sin(v)), V),
    case("cond_captures", lambda v, p: lax.cond(p, lambda: v * v.sum(), lambda: -v) * 2, V,
        np.array(True)),
    case("cond_constant_branch", lambda v, p: lax.cond(p, lambda x: jnp.ones_like(x),
        lambda x: x * x, v) * v, V, np.array(False)),
    case("cond_integer_output", lambda v: (lambda a, n: a * n)(*lax.cond(v[0] > 0,
        lambda x: (x * x, 3), lambda x: (x, 2), v)), V),
    case("switch", lambda v, i: lax.switch(i, [jnp.sin, jnp.exp, jnp.square], v) * v, V,
        np.array(2)),
    case("switch_clamped", lambda v, i: lax.switch(i, [jnp.sin, lambda x: x * v[0]], v), V,
        np.array(7)),
    case("switch_nested", lambda v, i: lax.switch(i,
        [lambda x: lax.cond(x[0] > 0, jnp.cos, jnp.sin, x), jnp.tanh], v * 2), V, np.array(0)),
    case("platform_dependent", lambda v: lax.platform_dependent(v, cpu=jnp.sin,
        default=jnp.sin) * v, V),
]  # fmt: skip
