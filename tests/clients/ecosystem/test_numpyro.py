"""Log densities, constrained spaces, models and variational objectives of numpyro."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.ecosystem.check import check, library, parameters
from tests.engine.corpus.case import case, definite, distinct, inside, normal, uniform

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
numpyro = library("numpyro")
import numpyro.distributions as dist
from numpyro.distributions import transforms
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density

COUNTS = np.array([1.0, 4.0, 2.0])
GROUPS = np.array([0, 1, 1, 2])


def _continuous(x, scale):
    """Densities of one variable, side by side."""
    return jnp.stack(
        [
            dist.Normal(x[0], scale).log_prob(x[1]),
            dist.StudentT(3.0 + x[0], x[1], scale).log_prob(x[2]),
            dist.Gamma(x[0], scale).log_prob(x[2]),
            dist.Beta(1.0 + x[0], x[1]).log_prob(x[2]),
            dist.LogNormal(x[0], scale).log_prob(x[1]),
            dist.Weibull(scale, 1.0 + x[0]).log_prob(x[2]),
            dist.VonMises(x[0], scale).log_prob(x[1]),
        ]
    )


def _discrete(x, scale):
    return jnp.stack(
        [
            dist.Poisson(scale).log_prob(COUNTS).sum(),
            dist.NegativeBinomial2(scale, x[0]).log_prob(COUNTS).sum(),
            dist.BetaBinomial(x[0], x[1], 5).log_prob(COUNTS).sum(),
            dist.GammaPoisson(x[2], scale).log_prob(COUNTS).sum(),
            dist.Categorical(logits=x).log_prob(1),
            dist.MultinomialLogits(x, 7).log_prob(COUNTS),
        ]
    )


def _multivariate(mean, covariance):
    covariance = covariance @ covariance.T
    direct = dist.MultivariateNormal(mean, covariance)
    factored = dist.MultivariateNormal(mean, scale_tril=jnp.linalg.cholesky(covariance))
    thick = dist.MultivariateStudentT(4.0, mean, jnp.linalg.cholesky(covariance))
    point = jnp.sin(mean) + 1.0
    return jnp.stack([d.log_prob(point) for d in (direct, factored, thick)])


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


def _ordered(x):
    return transforms.OrderedTransform()(x), transforms.SoftplusLowerCholeskyTransform()(x)


def _mixture(weights, means):
    components = dist.Normal(means, jnp.exp(0.3 * means))
    mixture = dist.MixtureSameFamily(dist.Categorical(logits=weights), components)
    return mixture.log_prob(jnp.array([-0.5, 0.2, 1.3]))


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


def _markov(x, transitions):
    """The forward algorithm of a hidden Markov model."""
    hidden = dist.Categorical(logits=transitions).logits
    logs = jax.nn.log_softmax(hidden, axis=-1)

    def step(alpha, seen):
        seen = dist.Normal(x, 1.0).log_prob(seen)
        return jax.scipy.special.logsumexp(alpha[:, None] + logs, axis=0) + seen, alpha

    return jax.lax.scan(step, jnp.zeros(3), jnp.array([0.1, -0.4, 0.8]))[0]


def _spline(x, y):
    """A flow of an affine and a sigmoid transform."""
    flow = transforms.ComposeTransform(
        [transforms.AffineTransform(x, jnp.exp(y)), transforms.SigmoidTransform()]
    )
    return dist.TransformedDistribution(dist.Normal(0.0, 1.0).expand([3]), flow).log_prob(
        jax.nn.sigmoid(y)
    )


X, SCALE = uniform(3), np.asarray(1.3)
CASES = [
    case("continuous_densities", _continuous, X, SCALE, argnums=(0, 1)),
    case("discrete_densities", _discrete, X, SCALE, argnums=(0, 1)),
    case("multivariate_densities", _multivariate, normal(3), definite(3), argnums=(0, 1)),
    case("stick_breaking", inside(lambda x: _simplex(x)[:3]), normal(3)),
    case("stick_breaking_density", _simplex, normal(3)),
    case("correlation_factor", _correlation, normal(3)),
    case("ordered_and_lower_triangular", _ordered, normal(6)),
    case("mixture", _mixture, normal(3), distinct(3), argnums=(0, 1)),
    case("model_density", _model_density, normal(3), SCALE, argnums=(0, 1)),
    case("potential_energy", _potential, normal(3)),
    case("elbo", _elbo, normal(4)),
    case("hidden_markov", _markov, normal(3), normal(3, 3), argnums=(0, 1)),
    case("flow", _spline, X, normal(3), argnums=(0, 1)),
]


@pytest.mark.parametrize("case", parameters(CASES))
def test_jacobian(case):
    check(case)
