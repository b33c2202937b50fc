"""Elementwise functions: one and two operands, special functions, comparisons and rounding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from tests.engine.corpus.case import case, distinct, inside, normal, uniform

X = normal(4)
U = uniform(4)
Y = uniform(4, low=0.5, high=2.0, seed=1)
A, B = uniform(3, low=0.6, high=2.0), uniform(3, low=0.6, high=2.0, seed=2)

_UNARY = {
    "sin": (jnp.sin, X), "cos": (jnp.cos, X), "tan": (jnp.tan, U), "asin": (jnp.arcsin, U),
    "acos": (jnp.arccos, U), "atan": (jnp.arctan, X), "sinh": (jnp.sinh, X), "cosh": (jnp.cosh, X),
    "tanh": (jnp.tanh, X), "asinh": (jnp.arcsinh, X), "acosh": (lambda x: jnp.arccosh(1 + x), U),
    "atanh": (jnp.arctanh, U), "exp": (jnp.exp, X), "exp2": (jnp.exp2, X), "expm1": (jnp.expm1, X),
    "log": (jnp.log, U),
    "log2_log10": (lambda x: jnp.log2(x) + jnp.log10(x), U),
    "log1p": (jnp.log1p, U), "sqrt": (jnp.sqrt, U), "rsqrt": (lax.rsqrt, U), "cbrt": (jnp.cbrt, X),
    "abs": (jnp.abs, X), "square": (jnp.square, X), "reciprocal": (jnp.reciprocal, X),
    "integer_powers": (lambda x: x**3 - x**-2 + x**2 + x**1 + x**0, X),
    "logistic": (jax.nn.sigmoid, X), "negative": (lambda x: -x, X), "erf": (lax.erf, X),
    "erfc": (lax.erfc, X), "erf_inv": (lax.erf_inv, U), "lgamma": (lax.lgamma, Y),
    "digamma": (lax.digamma, Y),
    "polygamma": (lambda x: special.polygamma(1, x), Y),
    "bessel_i0e_i1e": (lambda x: special.i0e(x) * special.i1e(x), X),
    "bessel_i0_i1": (lambda x: special.i0(x) + special.i1(x), X),
    "sinc": (jnp.sinc, X),
    "entropy": (lambda x: special.entr(x) + special.xlogy(x, 2 * x) + special.xlog1py(x, x), U),
    "normal_cdf": (lambda x: special.ndtr(x) + special.log_ndtr(x), X),
    "normal_quantile": (lambda x: special.ndtri(x), U),
    "logit_expit": (lambda x: special.logit(x) * special.expit(x), U),
    "nan_to_num": (jnp.nan_to_num, X),
    "degrees": (lambda x: jnp.deg2rad(x) + jnp.rad2deg(x), X),
    "modf_ldexp": (lambda x: jnp.modf(x)[0] + jnp.ldexp(x, 2), X),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 11, 52), X),
}  # fmt: skip

_BINARY = {
    "add_sub": (lambda x, y: (x + y) * (x - y) - y, A, B),
    "mul_div": (lambda x, y: x * y / (x + 2 * y), A, B),
    "pow": (lambda x, y: x**y + 2.0**x + y**2.5, A, B),
    "float_power": (jnp.float_power, A, B), "atan2": (jnp.arctan2, A, B),
    "hypot": (jnp.hypot, A, B),
    "logaddexp": (lambda x, y: jnp.logaddexp(x, y) + jnp.logaddexp2(x, y), A, B),
    "max_min": (lambda x, y: jnp.maximum(x, y) * jnp.minimum(x, 0.9 * y), A, B),
    "max_min_ties": (lambda x, y: jnp.maximum(x, y) + 3 * jnp.minimum(x, y), A, A),
    "rem": (lambda x, y: lax.rem(3 * x, y) + jnp.mod(x, 0.7 * y) + jnp.fmod(x, y), A, B),
    "floor_divide": (lambda x, y: (5 * x // y) * x + jnp.divmod(x, y)[1], A, B),
    "copysign": (lambda x, y: jnp.copysign(x, -y) * y, A, B),
    "betainc": (lambda x, y: special.betainc(0.7, 1.3, x / 3) * y, A, B),
    "betaln": (special.betaln, A, B),
    # Of an exponent of lower rank JAX's own derivative promotes ranks.
    "zeta": (lambda x, y: special.zeta(jnp.full_like(x, 2.5), x) * y, A, B),
    "gammainc": (lambda x, y: special.gammainc(1.5, x) + special.gammaincc(0.8, y), A, B),
    "igamma_by_shape": (lambda x, y: lax.igamma(x, y) * lax.igammac(y, x), A, B),
    "gamma_sample": (lambda x, y: (jax.random.gamma(jax.random.key(0),
        x) * jax.random.beta(jax.random.key(1), y, 2.0)), A, B),
    "broadcasting": (lambda x, y: x[:, None] * y[None, :] - x[None] / y[1], A, B),
    "scalar_factors": (lambda x, y: 2 * x / 3 - (4 / y) * 5 + x[0] * y, A, B),
}  # fmt: skip

_ROUNDING = {
    "floor_ceil_round": lambda x: x * jnp.floor(x) + jnp.ceil(x) * jnp.round(3 * x) + x,
    "sign_trunc": lambda x: jnp.sign(x) * x**2 + jnp.trunc(2 * x) * x,
    "comparisons": lambda x: sum(t.astype(x.dtype) * x**k for t,
        k in [(x > 0, 1), (x <= 0.5, 2), (x == 0, 1), (x != x, 1)]),
    "predicates": lambda x: sum(t.astype(x.dtype) * y for t,
        y in [(jnp.isfinite(x), x), (jnp.isnan(x), x**2), (jnp.signbit(x), jnp.exp(x))]),
    "bits": lambda x: (x * lax.population_count(jnp.arange(4) ^ 6).astype(x.dtype) + x
        * (jnp.arange(4) << 1).astype(x.dtype)),
    "logic": lambda x: jnp.where((x > 0) & ~(x > 1) | (x < -1), x**2, jnp.sin(x)),
}  # fmt: skip

_SLOW = {"gamma_sample", "igamma_by_shape", "betaln", "zeta", "normal_quantile", "bessel_i0_i1"}
"""Cases that the compiler takes long for."""

CASES = [
    *(case(name, inside(f), x, slow=name in _SLOW) for name, (f, x) in _UNARY.items()),
    *(case(name, f, x, y, argnums=(0, 1), slow=name in _SLOW) for name,
        (f, x, y) in _BINARY.items()),
    *(case(name, f, distinct(4)) for name, f in _ROUNDING.items()),
    case("zero_derivative", lambda x: jnp.floor(x) + jnp.sign(x) + jnp.round(x) + lax.stop_gradient(
        x), X, zero=True),
]  # fmt: skip
