"""Steps of reactions among many species, in cells and between them, and of a neuron.

Sources: J. Verwer, "Gauss-Seidel iteration for stiff ODEs from chemical kinetics", SIAM J. Sci.
Comput. 15 (1994) 1243 (air pollution, 25 reactions of 20 species); E. Schäfer, J. Math. Biol. 2
(1975) 41, in Hairer and Wanner, *Solving Ordinary Differential Equations II*, IV.10; A. Hodgkin,
A. Huxley, J. Physiol. 117 (1952) 500; A. Goldbeter, Proc. R. Soc. B 261 (1995) 319 (a clock of
flies); M. Elowitz, S. Leibler, Nature 403 (2000) 335; I. Prigogine, R. Lefever, J. Chem. Phys. 48
(1968) 1695, with diffusion as in Hairer, Nørsett, Wanner, *Solving Ordinary Differential Equations
I*, II.10.
"""

from __future__ import annotations

import jax.numpy as jnp

from veenv.tasks.dynamics import rk4
from veenv.tasks.task import Scalar

# Reactants and products (numbers of species), and the rate constant, per minute and ppm.
POLLUTION = (
    ("1", "2 3", 0.35),
    ("2 4", "1", 26.6),
    ("5 2", "6 1", 1.23e4),
    ("7", "5 5 8", 8.6e-4),
    ("7", "8", 8.2e-4),
    ("7 6", "5 8", 1.5e4),
    ("9", "10 5 8", 1.3e-4),
    ("9 6", "11", 2.4e4),
    ("11 2", "10 1 12", 1.65e4),
    ("11 1", "13", 9.0e3),
    ("13", "11 1", 0.022),
    ("10 2", "14 1", 1.2e4),
    ("14", "7 5", 1.88),
    ("1 6", "15", 1.63e4),
    ("3", "4", 4.8e6),
    ("4", "16", 3.5e-4),
    ("4", "3", 0.0175),
    ("16", "6 6", 1.0e8),
    ("16", "4", 4.44e11),
    ("17 6", "5 18", 1240.0),
    ("19", "2", 2.1),
    ("19", "1 3", 5.78),
    ("1 4", "19", 0.0474),
    ("19 1", "20", 1780.0),
    ("20", "1 19", 3.12),
)


def pollution_step(*y: Scalar) -> tuple[Scalar, ...]:
    """One step of air pollution from 20 concentrations on."""

    def derivative(y: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        change: dict[str, Scalar] = {}
        for reactants, products, constant in POLLUTION:
            first, *rest = [y[int(s) - 1] for s in reactants.split()]
            rate = constant * first
            for concentration in rest:
                rate = rate * concentration
            both = [(s, -rate) for s in reactants.split()] + [(s, rate) for s in products.split()]
            for species, term in both:
                change[species] = change[species] + term if species in change else term
        return tuple(change[str(k + 1)] for k in range(len(y)))

    return rk4(derivative, y, 1e-12)


def photomorphogenesis_step(*y: Scalar) -> tuple[Scalar, ...]:
    """One step of high irradiance responses, eight concentrations and four rate constants."""
    fast, slow, back, feed = y[8:]

    def derivative(y: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        y1, y2, y3, y4, y5, y6, y7, y8 = y
        bound = fast * y6 * y8
        return (
            -slow * y1 + back * y2 + 8.32 * y3 + feed,
            slow * y1 - 8.75 * y2,
            -10.03 * y3 + back * y4 + 0.035 * y5,
            8.32 * y2 + slow * y3 - 1.12 * y4,
            -1.745 * y5 + back * y6 + back * y7,
            -bound + 0.69 * y4 + slow * y5 - back * y6 + 0.69 * y7,
            bound - 1.81 * y7,
            1.81 * y7 - bound,
        )

    return rk4(derivative, y[:8], 0.01)


def neuron_step(*x: Scalar) -> tuple[Scalar, ...]:
    """One step of a squid's axon: potential, three gates; current, conductances and potentials."""
    current, (g_na, g_k, g_l), (e_na, e_k, e_l) = x[4], x[5:8], x[8:]

    def derivative(y: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        v, m, h, n = y
        opening = (
            0.1 * (v + 40.0) / (1.0 - jnp.exp(-0.1 * (v + 40.0))),
            0.07 * jnp.exp(-0.05 * (v + 65.0)),
            0.01 * (v + 55.0) / (1.0 - jnp.exp(-0.1 * (v + 55.0))),
        )
        closing = (
            4.0 * jnp.exp((v + 65.0) / -18.0),
            1.0 / (1.0 + jnp.exp(-0.1 * (v + 35.0))),
            0.125 * jnp.exp((v + 65.0) / -80.0),
        )
        gates = zip(opening, closing, (m, h, n), strict=True)
        flow = g_na * m * m * m * h * (v - e_na) + g_k * n * n * n * n * (v - e_k)
        return (current - flow - g_l * (v - e_l), *(a * (1.0 - g) - b * g for a, b, g in gates))

    return rk4(derivative, x[:4], 0.02)


def clock_step(*x: Scalar) -> tuple[Scalar, ...]:
    """One step of a circadian clock: messenger, four forms of a protein; then six rates."""
    transcribed, lost, told, spoilt, into, out_of = x[5:]

    def derivative(y: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        messenger, plain, once, twice, inside = y
        square = inside * inside
        first = 3.2 * plain / (2.0 + plain) - 1.58 * once / (2.0 + once)
        second = 5.0 * once / (2.0 + once) - 2.5 * twice / (2.0 + twice)
        entry = into * twice - out_of * inside
        return (
            transcribed / (1.0 + square * square) - lost * messenger / (0.5 + messenger),
            told * messenger - first,
            first - second,
            second - entry - spoilt * twice / (0.2 + twice),
            entry,
        )

    return rk4(derivative, x[:5], 0.05)


def repressilator_step(*x: Scalar) -> tuple[Scalar, ...]:
    """One step of three genes in a ring, each of which represses the next; then three rates."""
    most, least, decay = x[6:]

    def derivative(y: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        messengers, proteins = y[:3], y[3:]
        messenger_rates = [
            most / (1.0 + p * p) + least - m for m, p in zip(messengers, proteins, strict=True)
        ]
        protein_rates = [decay * (messengers[k - 2] - proteins[k]) for k in range(3)]
        return (*messenger_rates, *protein_rates)

    return rk4(derivative, x[:6], 0.05)


def brusselator_step(*x: Scalar) -> tuple[Scalar, ...]:
    """One step of two reactants in a ring of six cells; then feed, reaction and diffusion."""
    feed, reaction, diffusion = x[12:]

    def spread(y: tuple[Scalar, ...], k: int) -> Scalar:
        return diffusion * (y[k - 1] - 2.0 * y[k] + y[(k + 1) % 6])

    def derivative(y: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        first, second = y[:6], y[6:]
        turned = [u * u * v for u, v in zip(first, second, strict=True)]
        eaten = [reaction * u for u in first]
        return (
            *(feed + turned[k] - eaten[k] - first[k] + spread(first, k) for k in range(6)),
            *(eaten[k] - turned[k] + spread(second, k) for k in range(6)),
        )

    return rk4(derivative, x[:12], 0.05)


ENTRIES = (
    (
        "Pollution_RK4",
        pollution_step,
        (0.05, 0.12, 0.03, 0.08, 0.01, 0.02, 0.1, 0.3, 0.01, 0.04)
        + (0.02, 0.05, 0.06, 0.03, 0.02, 0.05, 0.007, 0.04, 0.03, 0.02),
        "One Runge-Kutta step of air pollution, 25 reactions of 20 species.",
        "Verwer, SIAM J. Sci. Comput. 15 (1994) 1243",
    ),
    (
        "HighIrradiance_RK4",
        photomorphogenesis_step,
        (1.0, 0.2, 0.1, 0.3, 0.15, 0.25, 0.3, 0.0057, 280.0, 1.71, 0.43, 0.0007),
        "One Runge-Kutta step of photomorphogenesis (HIRES), 12 to 8 scalars.",
        "Schäfer, J. Math. Biol. 2 (1975) 41",
    ),
    (
        "HodgkinHuxley_RK4",
        neuron_step,
        (-62.0, 0.06, 0.58, 0.33, 10.0, 120.0, 36.0, 0.3, 50.0, -77.0, -54.4),
        "One Runge-Kutta step of a neuron's membrane, 11 to 4 scalars.",
        "Hodgkin, Huxley, J. Physiol. 117 (1952) 500",
    ),
    (
        "CircadianClock_RK4",
        clock_step,
        (0.6, 0.5, 0.4, 0.6, 0.9, 0.76, 0.65, 0.38, 0.95, 1.9, 1.3),
        "One Runge-Kutta step of a circadian clock, 11 to 5 scalars.",
        "Goldbeter, Proc. R. Soc. B 261 (1995) 319",
    ),
    (
        "Repressilator_RK4",
        repressilator_step,
        (1.5, 0.7, 2.5, 1.1, 0.6, 1.9, 50.0, 0.05, 0.2),
        "One Runge-Kutta step of three genes in a ring, 9 to 6 scalars.",
        "Elowitz, Leibler, Nature 403 (2000) 335",
    ),
    (
        "Brusselator_6",
        brusselator_step,
        (1.1, 0.8, 1.3, 0.9, 1.2, 1.0, 2.9, 3.2, 2.7, 3.1, 2.8, 3.0, 1.0, 3.0, 0.3),
        "One Runge-Kutta step of the Brusselator on six cells, 15 to 12 scalars.",
        "Prigogine, Lefever, J. Chem. Phys. 48 (1968) 1695",
    ),
)
