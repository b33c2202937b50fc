"""Complex intermediates and Fourier transforms; inputs and outputs are real."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp

from tests.engine.corpus.case import case, normal, promoted, uniform

V = normal(4)
W = normal(4, seed=3)
M = normal(3, 3) + 2 * np.eye(3)
C = normal(4, seed=1) + 1j * normal(4, seed=2)


def Z(v):
    """The values as complex numbers."""
    return v.astype(jnp.complex128)


def _spectral_derivative(v):
    return jnp.fft.ifft(2j * jnp.pi * Z(jnp.fft.fftfreq(4, 0.25)) * jnp.fft.fft(v * v)).real


def _quantum_step(v):
    """Split-step Schrödinger equation: |ψ|² after one step in the potential v."""
    psi = jnp.exp(-1j * Z(v)) * C
    return jnp.abs(jnp.fft.ifft(jnp.exp(-1j * Z(jnp.arange(4.0))) * jnp.fft.fft(psi))) ** 2


def _sign_of_logsumexp(v):
    # logsumexp promotes its own operands.
    size, sign = logsumexp(v, b=C, return_sign=True)
    return {"size": size, "real": sign.real, "imag": sign.imag}


FFT = [
    case("fft_magnitude", lambda v: jnp.abs(jnp.fft.fft(v)), V),
    case("fft_parts", lambda v: (lambda z: (z.real * v, z.imag[1:2]))(jnp.fft.fft(v * v)), V),
    case("rfft_irfft", lambda v: jnp.fft.irfft(jnp.fft.rfft(v * v) * 2, 4), V),
    case("fft_convolution", lambda v, w: jnp.fft.irfft(jnp.fft.rfft(v) * jnp.fft.rfft(w), 4), V, W,
        argnums=(0, 1)),
    case("fft2_power", lambda x: jnp.abs(jnp.fft.fft2(x)) ** 2, normal(2, 3)),
    case("fftn_ifftn", lambda x: jnp.fft.ifftn(jnp.fft.fftn(x) ** 2).real, normal(2, 2, 2)),
    case("fftshift", lambda v: jnp.fft.fftshift(jnp.fft.fft(v)).real * v, V),
    case("spectral_derivative", _spectral_derivative, V),
    case("odd_length_rfft", lambda v: jnp.fft.irfft(jnp.fft.rfft(v[:3]), 3) * v[:3], V),
]  # fmt: skip

COMPLEX = [
    case("magnitude_phase", lambda v, w: (lambda z: jnp.abs(z) * jnp.angle(z))(Z(v) + 1j * Z(w)),
        V, W, argnums=(0, 1)),
    case("exponential", lambda v: jnp.exp(1j * Z(v)).real * v + jnp.exp(2j * Z(v)).imag, V),
    case("product_and_conjugate", lambda v, w: (lax.complex(v, w) * lax.conj(lax.complex(w, v
        * v))).imag, V, W, argnums=(0, 1)),
    case("division_power", lambda v, w: (lax.complex(v, w) ** 2 / (1j + Z(v))).real, V, W,
        argnums=(0, 1)),
    case("elementary_functions", lambda v, w: (lambda z: (jnp.sin(z) * jnp.log(z) + jnp.sqrt(z)
        * jnp.tanh(z)).real)(lax.complex(v, w)), V, W, argnums=(0, 1), slow=True),
    case("matmul", lambda a: jnp.abs((Z(a) + 1j * Z(a.T)) @ jnp.exp(1j * Z(a))), M),
    case("shapes", lambda v: (lambda z: (z.reshape(2,
        2).T.ravel()[::-1] * z).imag)(jnp.concatenate([Z(v[:2]) * 1j,
        Z(v[2:])]) * jnp.exp(1j * Z(v))), V, slow=True),
    case("reductions", lambda v: (lambda z: (z.sum() * z.mean() * jnp.prod(z)).real)(jnp.exp(1j * Z(
        v))), V),
    case("where_gather", lambda v: (lambda z: jnp.where(v > 0, z,
        z * z)[np.array([3, 0, 0])].imag)(jnp.exp(1j * Z(v))), V),
    case("scan", lambda v: jnp.abs(lax.scan(lambda c, x: (c * jnp.exp(1j * Z(x)) + Z(x), c),
        1 + 0j, v)[1]), V, zero=True),
    case("solve", lambda a: jnp.abs(jnp.linalg.solve(Z(a) + 1j * Z(a.T), Z(jnp.ones(3)))), M),
    case("hermitian_eigenvalues", lambda a: jnp.linalg.eigvalsh((lambda z: z + z.conj().T)(Z(a)
        + 1j * Z(a * a))), M, slow=True),
    case("polynomial_roots_free", lambda v: jnp.abs(jnp.polyval(Z(v), 0.3 + 0.4j)) ** 2, V),
    case("single_precision", lambda v: jnp.abs(jnp.exp(1j * Z(v)).astype(jnp.complex64)),
        uniform(3), tol=1e-5, zero=True),
    case("quantum_step", _quantum_step, V),
    # Older versions of JAX give no derivative to the sign of a complex number.
    case("sign", lambda v: jnp.sign(lax.complex(v, v * v)).imag, V, zero=True),
    case("sign_of_logsumexp", promoted(_sign_of_logsumexp), V, zero=True),
    case("constant_operand", lambda v: jnp.real(C * Z(v)) ** 2 + jnp.imag(C.conj() * Z(v)), V),
]  # fmt: skip
