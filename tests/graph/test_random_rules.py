"""Random programs with effects and derivative rules: JAX's values, and no refusal but JAX's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import veenv
from tests.sampling import on_seeds

pytestmark = pytest.mark.usefixtures("x64")
Fun = Callable[[Any], Any]
X = np.array([0.3, 0.7, 1.1])
seen: list[None] = []

EFFECTS = {
    "none": lambda x: x,
    "debug": lambda x: (jax.debug.callback(_note, x), x)[1],
    "ordered": lambda x: (jax.debug.callback(_note, x, ordered=True), x)[1],
    "value": lambda x: x * io_callback(_two, X[0], lax.stop_gradient(x)),
}
CAPTURED = {
    "none": lambda x: 1.0,
    "made": lambda x: jnp.arange(1.0, 4.0) * 2,
    "stopped": lambda x: lax.stop_gradient(jnp.cos(x)),
    "compared": lambda x: jnp.where(x > 0.5, 2.0, 1.0),
}
CUTS = {
    "linear": lambda t: 2 * t,
    "nan_to_num": jnp.nan_to_num,
    "where": lambda t: jnp.where(t > 0, t, 0),
    "square": lambda t: t * t,
    "norm": lambda t: t / (1e-3 + jnp.linalg.norm(t)),
    "iterated": lambda t: _iterated(lambda v: 2 * v, t),
    "solved": lambda t: lax.custom_linear_solve(
        lambda v: 2 * v - v[::-1] / 9, t, _iterated, _iterated, symmetric=True
    ),
    "ruled": lambda t: _doubled(jnp.roll(t, 1)),
}
WRAPPERS = {
    "plain": lambda f: f,
    "scan": lambda f: lambda x: lax.scan(lambda c, a: (f(c) * a, c[0]), x, X)[0],
    "while": lambda f: (
        lambda x: lax.while_loop(_unfinished, lambda s: (s[0] + 1, f(s[1])), (0, x))[1]
    ),
    "cond": lambda f: lambda x: lax.cond(x[0] < 5, f, jnp.cos, x),
    "vmap": lambda f: lambda x: jax.vmap(f)(x[:, None] * X).sum(0),
    "jit": jax.jit,
    "remat": jax.checkpoint,
    "complex": lambda f: lambda x: _parts(f(lax.complex(x, x[::-1]))),
}


def _iterated(product: Fun, b: Any) -> Any:
    """A solve until a residual is small, which for zeros it is at once."""
    far = lambda v: jnp.abs(b - product(v)).max() > 1e-13  # noqa: E731
    return lax.while_loop(far, lambda v: v + (b - product(v)) / 2.2, jnp.zeros_like(b))


@jax.custom_jvp
def _doubled(t: Any) -> Any:
    return 2 * t


_doubled.defjvp(lambda p, t: (_doubled(*p), CUTS["solved"](4 * t[0])))


def _note(*_: Any) -> None:
    seen.append(None)


def _two(*_: Any) -> Any:
    seen.append(None)
    return np.float64(2)


def _parts(z: Any) -> Any:
    return z.real + 2 * z.imag


def _unfinished(state: Any) -> Any:
    return state[0] < 2


def _sine(effect: Fun) -> Fun:
    return lambda x: jnp.sin(effect(x))


def _with_rule(kind: str, body: Fun, cut: Fun, captured: Any, effect: Fun) -> Fun:
    """A function with a rule of its own, which closes over a value."""
    if kind == "none":
        return body
    if kind == "jvp":
        tangent_rule = jax.custom_jvp(body)

        def push(primals: Any, tangents: Any) -> Any:
            (x,), (t,) = primals, tangents
            return tangent_rule(x), cut(jnp.cos(effect(x)) * t * captured)

        tangent_rule.defjvp(push)
        return tangent_rule
    cotangent_rule = jax.custom_vjp(body)
    cotangent_rule.defvjp(
        lambda x: (body(x), x), lambda x, g: (cut(jnp.cos(effect(x)) * g * captured),)
    )
    return cotangent_rule


def random_function(rng: np.random.Generator) -> tuple[Fun, str]:
    """A function of three numbers, and what it is made of."""
    steps, names = [], []
    for _ in range(rng.integers(1, 4)):
        kind = str(rng.choice(["none", "jvp", "vjp"]))
        drawn = [str(rng.choice(list(some))) for some in (EFFECTS, EFFECTS, CAPTURED, CUTS)]
        wrappers = [str(w) for w in rng.choice(list(WRAPPERS), rng.integers(0, 3))]
        drawn[3] = drawn[3] if rng.random() < 0.4 else "linear"
        steps.append((kind, drawn, wrappers))
        names.append(" ".join([kind, *drawn, *wrappers]))

    def function(x: Any) -> Any:
        y = x
        for kind, (effect, of_rule, captured, cut), wrappers in steps:
            rule = _with_rule(
                kind, _sine(EFFECTS[effect]), CUTS[cut], CAPTURED[captured](x), EFFECTS[of_rule]
            )
            for wrapper in wrappers:
                rule = WRAPPERS[wrapper](rule)
            y = rule(y) * x
        return y

    return function, "; ".join(names)


def _run(jacobian: Fun) -> tuple[int, Any]:
    """How often callbacks are called, and the Jacobian."""
    jax.effects_barrier()
    seen.clear()
    with jax.numpy_dtype_promotion("standard"):  # complex numbers meet real ones
        found = np.asarray(jacobian(X))
    jax.effects_barrier()
    return len(seen), found


@on_seeds(5, 250)
def test_values_effects_and_refusals_are_those_of_jax(seed: int) -> None:
    function, name = random_function(np.random.default_rng(seed))
    own = {}
    for order, mode in {"forward": jax.jacfwd, "reverse": jax.jacrev}.items():
        with suppress(Exception):  # JAX has no such mode of it
            own[order] = _run(mode(function))
    if not own:
        return
    most = max(count for count, _ in own.values())
    for order in [*own, "auto", "markowitz"]:
        count, found = _run(veenv.jacve(function, order))
        limit, expected = own.get(order, (most, next(iter(own.values()))[1]))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=name)
        assert count <= limit, f"{order} of {name}: {count} effects, {limit} of JAX"
