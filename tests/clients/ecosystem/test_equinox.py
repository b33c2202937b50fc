"""Networks and transformations of equinox."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from tests.clients.ecosystem.check import filled, jacobian_test
from tests.engine.corpus.case import case, normal, uniform

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
KEY = jax.random.key(0)


def _is_float(leaf):
    return isinstance(leaf, jax.ShapeDtypeStruct) and leaf.dtype.kind == "f"


def _module(name, make, call, *shape, **options):
    """A case that differentiates by a module's arrays and its input."""
    shapes, static = eqx.partition(eqx.filter_eval_shape(make), _is_float)
    arrays = filled(shapes)

    def fun(arrays, x):
        return call(eqx.combine(arrays, static), x)

    return case(name, fun, arrays, normal(*shape), argnums=(0, 1), **options)


def _plain(model, x):
    return model(x)


def _long_recurrent(model, x):
    """An LSTM whose state is a pair."""
    state = (jnp.full(3, 0.1), jnp.full(3, 0.2))
    return jax.lax.scan(lambda s, row: (model(row, s), s[0]), state, x)[0]


def _self_attention(model, x):
    return model(x, x, x, mask=jnp.tril(jnp.ones((3, 3), bool)))


def _checkpointed(x):
    return eqx.filter_checkpoint(lambda y: jnp.sin(y) * y)(x) ** 2


@eqx.filter_custom_vjp
def _scaled(x, factor):
    return jnp.sin(x) * factor


@_scaled.def_fwd
def _scaled_forward(perturbed, x, factor):
    return jnp.sin(x) * factor, jnp.cos(x)


@_scaled.def_bwd
def _scaled_backward(slope, cotangent, perturbed, x, factor):
    return cotangent * slope * factor


@eqx.filter_custom_jvp
def _softened(x, *, width):
    return jnp.abs(x) * width


@_softened.def_jvp
def _softened_jvp(primals, tangents, *, width):
    (x,), (t,) = primals, tangents
    return jnp.abs(x) * width, jnp.tanh(x / 0.1) * t * width


def _cases():
    with jax.enable_x64(True):
        return [
            _module("perceptron", lambda: eqx.nn.MLP(3, 2, 4, 2, key=KEY), _plain, 3),
            _module("convolution", lambda: eqx.nn.Conv1d(1, 2, 3, key=KEY), _plain, 1, 5),
            _module("group_norm", lambda: eqx.nn.GroupNorm(2, 4), _plain, 4, 3),
            _module("lstm", lambda: eqx.nn.LSTMCell(2, 3, key=KEY), _long_recurrent, 3, 2),
            _module(
                "attention", lambda: eqx.nn.MultiheadAttention(2, 4, key=KEY), _self_attention, 3, 4
            ),
            _module("rotary", lambda: eqx.nn.RotaryPositionalEmbedding(4), _plain, 3, 4),
            case("checkpoint", _checkpointed, uniform(3)),
            case("filter_custom_vjp", lambda x: _scaled(x * x, 3.0) * x, uniform(3)),
            case("filter_custom_jvp", lambda x: _softened(x * x, width=2.0) * x, uniform(3)),
        ]


test_jacobian = jacobian_test(_cases())
