"""Equivariant functions of e3nn: harmonics, tensor products, linear layers, rotations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tests.clients.ecosystem.check import filled, jacobian_test, library
from tests.engine.corpus.case import case, normal, uniform

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
e3nn = library("e3nn_jax")


def _harmonics(vectors):
    return e3nn.spherical_harmonics("0e + 1o + 2e", vectors, normalize=True).array


def _product(x, y):
    left, right = e3nn.IrrepsArray("1o + 0e", x), e3nn.IrrepsArray("1o + 0e", y)
    return e3nn.tensor_product(left, right).array


def _message(positions, weights):
    """One equivariant message: harmonics of the edges, weighted by a radial function."""
    edges = positions[jnp.array([1, 2, 0])] - positions
    distances = jnp.linalg.norm(edges, axis=-1)
    harmonics = e3nn.spherical_harmonics("1o + 2e", edges, normalize=True)
    radial = e3nn.soft_one_hot_linspace(
        distances, start=0.0, end=4.0, number=3, basis="gaussian", cutoff=False
    )
    messages = harmonics * (radial @ weights)[:, None]
    return e3nn.scatter_sum(messages, dst=jnp.array([0, 0, 1]), output_size=3).array


def _linear():
    """A linear layer of flax, by its weights and its input."""
    library("flax")
    layer, x = e3nn.flax.Linear("2x0e + 1o"), normal(8)
    values = filled(
        jax.eval_shape(layer.init, jax.random.key(0), e3nn.IrrepsArray("2x0e + 2x1o", x))
    )

    def fun(values, x):
        return layer.apply(values, e3nn.IrrepsArray("2x0e + 2x1o", x)).array

    return case("linear", fun, values, x, argnums=(0, 1))


CASES = [
    case("spherical_harmonics", _harmonics, normal(2, 3)),
    case("tensor_product", _product, normal(4), normal(4, seed=1), argnums=(0, 1)),
    case("message", _message, normal(3, 3), uniform(3), argnums=(0, 1)),
    _linear(),
]


test_jacobian = jacobian_test(CASES)
