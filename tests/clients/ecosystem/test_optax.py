"""Training through optax: unrolled optimisers by their settings, losses, projections."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.clients.ecosystem.check import jacobian_test
from tests.engine.corpus.case import case, normal

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]


def _energy(x):
    return jnp.sum((x - 0.3) ** 2) + 0.3 * jnp.sum(jnp.sin(3.0 * x))


def _trained(make, steps=3):
    """The parameters after a few steps, by where they start and by the learning rate."""

    def fun(start, rate):
        optimiser = make(rate)

        def step(carry, _):
            x, state = carry
            updates, state = optimiser.update(jax.grad(_energy)(x), state, x)
            return (optax.apply_updates(x, updates), state), x

        return jax.lax.scan(step, (start, optimiser.init(start)), None, length=steps)[0][0]

    return fun


def _scheduled(rate):
    return optax.adamw(optax.cosine_decay_schedule(rate, 10), weight_decay=1e-2)


def _line_search(start):
    """Two steps of L-BFGS whose step lengths a line search finds."""
    optimiser = optax.lbfgs()
    gradients = optax.value_and_grad_from_state(_energy)
    x, state = start, optimiser.init(start)
    for _ in range(2):
        value, gradient = gradients(x, state=state)
        updates, state = optimiser.update(
            gradient, state, x, value=value, grad=gradient, value_fn=_energy
        )
        x = optax.apply_updates(x, updates)
    return x


def _alignment(logits):
    """The loss of connectionist temporal classification."""
    padding = jnp.zeros((1, 4))
    labels, ends = jnp.array([[1, 2]]), jnp.zeros((1, 2))
    return optax.ctc_loss(logits[None], padding, labels, ends)


CASES = [
    case("adamw_scheduled", _trained(_scheduled), normal(3), np.asarray(0.1), argnums=(0, 1)),
    case("lbfgs_line_search", _line_search, normal(3), oracle=jax.jacfwd, tol=1e-7),
    case("ctc", _alignment, normal(4, 3)),
]  # fmt: skip


test_jacobian = jacobian_test(CASES)
