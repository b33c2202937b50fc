"""Ordinary differential equations for diffrax, and for code that was made for them: CVODE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import diffrax as dfx  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import numba
import numpy as np

_SPECIES = 20
_RATES = 10.0 ** np.linspace(-1, 3, _SPECIES)


def _lorenz(t: Any, y: Any, rho: Any) -> Any:
    return jnp.stack([10.0 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


@numba.njit
def _lorenz_there(t: float, y: Any, yp: Any, rho: float) -> None:
    yp[0] = 10.0 * (y[1] - y[0])
    yp[1] = y[0] * (rho - y[2]) - y[1]
    yp[2] = y[0] * y[1] - 8 / 3 * y[2]


def _robertson(t: Any, y: Any, rate: Any) -> Any:
    a, b, c = 0.04 * y[0], 3e7 * y[1] ** 2, rate * y[1] * y[2]
    return jnp.stack([c - a, a - c - b, b])


@numba.njit
def _robertson_there(t: float, y: Any, yp: Any, rate: float) -> None:
    a, b, c = 0.04 * y[0], 3e7 * y[1] ** 2, rate * y[1] * y[2]
    yp[0], yp[1], yp[2] = c - a, a - c - b, b


def _kinetics(t: Any, y: Any, rate: Any) -> Any:
    """A chain of reversible reactions, each helped by the species before the last."""
    flow = rate * _RATES[:-1] * (y[:-1] - 0.5 * y[1:]) * (1 + jnp.roll(y, 2)[:-1])
    zero = jnp.zeros_like(flow[:1])
    return jnp.concatenate([zero, flow]) - jnp.concatenate([flow, zero])


@numba.njit
def _kinetics_there(t: float, y: Any, yp: Any, rate: float) -> None:
    yp[:] = 0.0
    for k in range(_SPECIES - 1):
        flow = rate * _RATES[k] * (y[k] - 0.5 * y[k + 1]) * (1 + y[k - 2])
        yp[k] -= flow
        yp[k + 1] += flow


@dataclass(frozen=True)
class Equation:
    """An equation from a start to an end, for many values of one parameter.

    Attributes:
      field: of time, state and parameter, in `jax.numpy`.
      there: the same for numba: of time, state, derivative and parameter.
      start: the state at time 0.
      end: the last time.
      stiff: whether it is.
      low: the least parameter.
      high: the largest.
    """

    field: Callable[..., Any]
    there: Callable[..., None]
    start: tuple[float, ...]
    end: float
    stiff: bool
    low: float
    high: float

    def parameters(self, count: int) -> np.ndarray:
        """So many parameters."""
        return np.linspace(self.low, self.high, count)

    def solve(self, parameter: Any, rtol: float, atol: float) -> jax.Array:
        """The last state, by diffrax."""
        method = dfx.Kvaerno5() if self.stiff else dfx.Tsit5()
        found = dfx.diffeqsolve(
            dfx.ODETerm(self.field), method, 0.0, self.end, None, jnp.array(self.start),
            args=parameter, stepsize_controller=dfx.PIDController(rtol, atol), max_steps=4096,
        )  # fmt: skip
        assert found.ys is not None
        return found.ys[0]

    def by_cvode(self, cvode: Any, rtol: float, atol: float) -> Callable[[float], np.ndarray]:
        """The same by the class of scikit-sundae, the equation compiled by numba."""
        times, start, one = np.array([0.0, self.end]), np.array(self.start), [self.low]
        compiled = self.there
        solver = cvode(
            lambda t, y, yp: compiled(t, y, yp, one[0]),
            method="BDF" if self.stiff else "Adams", rtol=rtol, atol=atol, max_num_steps=100_000,
        )  # fmt: skip

        def run(parameter: float) -> np.ndarray:
            one[0] = parameter
            return np.asarray(solver.solve(times, start).y[-1])

        return run


TRAJECTORIES: Mapping[str, Equation] = {
    "Lorenz": Equation(_lorenz, _lorenz_there, (1.0, 0.0, 0.0), 2.0, False, 5.0, 28.0),
    "Robertson": Equation(_robertson, _robertson_there, (1.0, 0.0, 0.0), 100.0, True, 5e3, 2e4),
    "kinetics, 20 species": Equation(
        _kinetics, _kinetics_there, (1.0, *[0.0] * (_SPECIES - 1)), 2.0, True, 0.5, 2.0
    ),
}
