"""Log densities, constrained spaces, models and variational objectives of numpyro."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.ecosystem.check import jacobian_test, library
from tests.engine.corpus.case import case, inside, normal, uniform

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
numpyro = library("numpyro")
import numpyro.distributions as dist
from numpyro.distributions import transforms
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density

GROUPS = np.array([0, 1, 1, 2])


def _simplex(x):
    """Unconstrained numbers to a point of the simplex, with the volume's logarithm."""
    breaking = transforms.StickBreakingTransform()
    y = breaking(x)
    volume = breaking.log_abs_det_jacobian(x, y)
    return jnp.append(y, dist.Dirichlet(jnp.array([1.5, 2.0, 2.5, 3.0])).log_prob(y) + volume)


def _correlation(x):
    to_factor = transforms.CorrCholeskyTransform()
    factor = to_factor(x)
    volume = to_factor.log_abs_det_jacobian(x, factor)
    return dist.LKJCholesky(3, 2.0).log_prob(factor) + volume, factor


def _hierarchical(data=None):
    """Partial pooling of groups: one mean of means, one spread, a slope each."""
    centre = numpyro.sample("centre", dist.Normal(0.0, 2.0))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("groups", 3):
        offset = numpyro.sample("offset", dist.Normal(centre, spread))
    with numpyro.plate("data", 4):
        numpyro.sample("seen", dist.Normal(offset[GROUPS], 0.5), obs=data)


def _model_density(offset, spread):
    values = {"centre": offset.mean(), "spread": spread, "offset": offset}
    data = jnp.array([0.3, -0.2, 0.4, 1.0])
    return log_density(_hierarchical, (data,), {}, values)[0]


def _potential(offset):
    """What HMC differentiates: the potential energy in unconstrained space."""
    data = jnp.array([0.3, -0.2, 0.4, 1.0])
    values = {"centre": 0.1, "spread": offset[0], "offset": offset}
    energy = numpyro.infer.util.potential_energy
    return energy(_hierarchical, (data,), {}, values)


def _elbo(data):
    """A variational objective with reparametrised samples, by the data."""
    guide = AutoNormal(_hierarchical)
    svi = SVI(_hierarchical, guide, numpyro.optim.SGD(0.1), Trace_ELBO(num_particles=2))
    state = svi.init(jax.random.key(0), data)
    return svi.evaluate(state, data)


X, SCALE = uniform(3), np.asarray(1.3)
CASES = [
    case("stick_breaking", inside(lambda x: _simplex(x)[:3]), normal(3)),
    case("stick_breaking_density", _simplex, normal(3)),
    case("correlation_factor", _correlation, normal(3)),
    case("model_density", _model_density, normal(3), SCALE, argnums=(0, 1)),
    case("potential_energy", _potential, normal(3)),
    case("elbo", _elbo, normal(4)),
]


test_jacobian = jacobian_test(CASES)
