"""Networks of haiku, by their parameters and by their inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tests.clients.ecosystem.check import check, filled, library, parameters, usual_promotion
from tests.engine.corpus.case import case, normal

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
hk = library("haiku")


@usual_promotion()
def _network(name, forward, x, **options):
    """A case that differentiates by the network's parameters and its input."""
    network = hk.without_apply_rng(hk.transform(forward))
    values = filled(jax.eval_shape(network.init, jax.random.key(0), x))
    return case(name, network.apply, values, x, argnums=(0, 1), **options)


def _perceptron(x):
    return hk.nets.MLP([4, 3, 2], activation=jnp.tanh)(x)


def _normalised(x):
    x = hk.Linear(4)(x)
    return jax.nn.relu(hk.LayerNorm(-1, create_scale=True, create_offset=True)(x))


def _convolution(x):
    x = jax.nn.elu(hk.Conv2D(2, 3)(x))
    return hk.Linear(2)(hk.Flatten()(hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")(x)))


def _recurrent(core):
    def forward(x):
        cell = core(3)
        return hk.dynamic_unroll(cell, x, cell.initial_state(x.shape[1]))[0]

    return forward


def _attention(x):
    return hk.MultiHeadAttention(2, 2, w_init=hk.initializers.VarianceScaling(1.0))(x, x, x)


def _stacked(x):
    return hk.experimental.layer_stack(3)(lambda x: jax.nn.swish(hk.Linear(3)(x)) + x)(x)


def _cases():
    with jax.enable_x64(True):
        return [
            _network("perceptron", _perceptron, normal(2, 3)),
            _network("layer_norm", _normalised, normal(2, 3)),
            _network("convolution", _convolution, normal(1, 4, 4, 1)),
            _network("lstm", _recurrent(hk.LSTM), normal(3, 2, 2)),
            _network("gru", _recurrent(hk.GRU), normal(3, 2, 2)),
            _network("attention", _attention, normal(3, 4), zero=True),
            _network("layer_stack", _stacked, normal(2, 3)),
        ]


CASES = _cases()


@pytest.mark.parametrize("case", parameters(CASES))
def test_jacobian(case):
    check(case)
