"""Gaussian processes of tinygp: likelihoods and predictions by the hyperparameters."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.ecosystem.check import jacobian_test, library
from tests.engine.corpus.case import case, normal, uniform

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
tinygp = library("tinygp")
from tinygp import GaussianProcess, kernels

T = np.array([0.1, 0.5, 0.9, 1.6, 2.2])


def _smooth(scale, width):
    return scale**2 * kernels.ExpSquared(width) + kernels.Matern32(2.0 * width)


def _celerite(scale, width):
    return kernels.quasisep.SHO(omega=width, quality=2.0, sigma=scale)


def _likelihood(kernel):
    def fun(hyper, data):
        process = GaussianProcess(kernel(hyper[0], hyper[1]), T, diag=hyper[2], mean=hyper[0])
        return process.log_probability(data)

    return fun


def _prediction(kernel):
    def fun(hyper, data):
        process = GaussianProcess(kernel(hyper[0], hyper[1]), T, diag=hyper[2])
        conditioned = process.condition(data, jnp.array([0.3, 1.1])).gp
        return conditioned.loc, conditioned.variance

    return fun


HYPER, DATA = uniform(3), normal(5)
BOTH = {"argnums": (0, 1)}
CASES = [
    case("likelihood", _likelihood(_smooth), HYPER, DATA, **BOTH),
    case("likelihood_oscillator", _likelihood(_celerite), HYPER, DATA, **BOTH),
    case("prediction", _prediction(_smooth), HYPER, DATA, zero=True, **BOTH),
]


test_jacobian = jacobian_test(CASES)
