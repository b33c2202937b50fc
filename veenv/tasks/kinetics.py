"""Source terms of chemical kinetics.

Sources: H. H. Robertson, "The solution of a set of reaction rate equations", in *Numerical
Analysis: An Introduction* (1966) 178; J. Li, Z. Zhao, A. Kazakov, F. L. Dryer, "An updated
comprehensive kinetic model of hydrogen combustion", Int. J. Chem. Kinet. 36 (2004) 566; falloff:
Gilbert, Luther, Troe, Ber. Bunsenges. Phys. Chem. 87 (1983) 169.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from veenv.tasks.task import Scalar, Task

SPECIES = ("H2", "H", "O", "O2", "OH", "H2O", "HO2", "H2O2", "N2")

GAS_CONSTANT = 1.98720425864  # cal / (mol K)

# Reactants, products, and A (mol, cm, s), n, E (cal / mol) of k = A T^n exp(-E / (R T)).
_ELEMENTARY = (
    ("H O2", "O OH", 3.547e15, -0.406, 16599.0),
    ("O H2", "H OH", 5.08e4, 2.67, 6290.0),
    ("H2 OH", "H2O H", 2.16e8, 1.51, 3430.0),
    ("O H2O", "OH OH", 2.97e6, 2.02, 13400.0),
    ("HO2 H", "H2 O2", 1.66e13, 0.0, 823.0),
    ("HO2 H", "OH OH", 7.079e13, 0.0, 295.0),
    ("HO2 O", "O2 OH", 3.25e13, 0.0, 0.0),
    ("HO2 OH", "H2O O2", 2.89e13, 0.0, -497.0),
    ("HO2 HO2", "H2O2 O2", 4.2e14, 0.0, 11982.0),
    ("HO2 HO2", "H2O2 O2", 1.3e11, 0.0, -1629.3),
    ("H2O2 H", "H2O OH", 2.41e13, 0.0, 3970.0),
    ("H2O2 H", "HO2 H2", 4.82e13, 0.0, 7950.0),
    ("H2O2 O", "OH HO2", 9.55e6, 2.0, 3970.0),
    ("H2O2 OH", "HO2 H2O", 1.0e12, 0.0, 0.0),
    ("H2O2 OH", "HO2 H2O", 5.8e14, 0.0, 9557.0),
)
_THIRD_BODY = (
    ("H2", "H H", 4.577e19, -1.4, 104380.0),
    ("O O", "O2", 6.165e15, -0.5, 0.0),
    ("O H", "OH", 4.714e18, -1.0, 0.0),
    ("H OH", "H2O", 3.8e22, -2.0, 0.0),
)
_FALLOFF = (  # the limit of high pressure
    ("H O2", "HO2", 1.475e12, 0.6, 0.0),
    ("H2O2", "OH OH", 2.951e14, 0.0, 48430.0),
)
_FALLOFF_LOW = ((6.366e20, -1.72, 524.8), (1.202e17, 0.0, 45500.0))
_FALLOFF_CENTRE = (0.8, 0.5)
_THIRD_BODY_EFFICIENCY = {"H2": 2.5, "H2O": 12.0}
_FALLOFF_EFFICIENCY = ({"H2": 2.0, "H2O": 11.0, "O2": 0.78}, _THIRD_BODY_EFFICIENCY)

_REACTIONS = (*_ELEMENTARY, *_THIRD_BODY, *_FALLOFF)
_ONE = len(SPECIES)  # index of the constant 1 appended to the concentrations


def _reactants() -> np.ndarray:
    """Indices of the two reactants of each reaction, ``_ONE`` where there is only one."""
    pairs = [[SPECIES.index(name) for name in r[0].split()] for r in _REACTIONS]
    return np.array([pair if len(pair) == 2 else [*pair, _ONE] for pair in pairs])


def _stoichiometry() -> np.ndarray:
    """Net change of each reactive species (rows) in each reaction (columns)."""
    return np.array(
        [
            [r[1].split().count(name) - r[0].split().count(name) for r in _REACTIONS]
            for name in SPECIES[:-1]
        ],
        dtype=np.float64,
    )


def _efficiencies(*tables: dict[str, float]) -> np.ndarray:
    return np.array([[table.get(name, 1.0) for name in SPECIES] for table in tables])


def _arrhenius(parameters: tuple[tuple[float, float, float], ...], T: Array) -> Array:
    log_a, n, e = np.array([(np.log(a), n, e / GAS_CONSTANT) for a, n, e in parameters]).T
    like = T.dtype
    return jnp.exp(log_a.astype(like) + n.astype(like) * jnp.log(T) - e.astype(like) / T)


def _falloff(k_high: Array, k_low: Array, third_body: Array) -> Array:
    """Rate constants between the limits of low and high pressure, in the form of Troe."""
    log_centre = np.log10(np.array(_FALLOFF_CENTRE)).astype(k_high.dtype)
    reduced = k_low * third_body / k_high
    x = jnp.log10(reduced) - 0.4 - 0.67 * log_centre
    log_f = log_centre / (1.0 + (x / (0.75 - 1.27 * log_centre - 0.14 * x)) ** 2)
    return k_high * reduced / (1.0 + reduced) * 10.0**log_f


def hydrogen_oxygen(c: Float[Array, "9"], T: Scalar) -> Float[Array, "8"]:
    """Production rates in hydrogen and oxygen, nine species, the 21 forward reactions.

    Args:
      c: concentrations of ``SPECIES`` in mol / cm^3, positive.
      T: temperature in kelvin.

    Returns:
      Rates of change in mol / (cm^3 s) of the eight reactive species; nitrogen is inert.
    """
    k = _arrhenius(tuple(r[2:] for r in _REACTIONS), T)
    num_elementary, num_plain = len(_ELEMENTARY), len(_ELEMENTARY) + len(_THIRD_BODY)
    efficiency = _efficiencies(_THIRD_BODY_EFFICIENCY, *_FALLOFF_EFFICIENCY).astype(c.dtype)
    third_body = jnp.matmul(efficiency, c)
    k = jnp.concatenate(
        [
            k[:num_elementary],
            k[num_elementary:num_plain] * third_body[0],
            _falloff(k[num_plain:], _arrhenius(_FALLOFF_LOW, T), third_body[1:]),
        ]
    )
    first, second = _reactants().T
    padded = jnp.concatenate([c, jnp.ones(1, c.dtype)])
    rates = k * jnp.take(padded, first, mode="clip") * jnp.take(padded, second, mode="clip")
    return jnp.matmul(_stoichiometry().astype(c.dtype), rates)


def robertson(
    y1: Scalar, y2: Scalar, y3: Scalar, k1: Scalar, k2: Scalar, k3: Scalar
) -> tuple[Scalar, Scalar, Scalar]:
    """Source term of Robertson's stiff autocatalytic reaction.

    Args:
      y1: concentration of the first species.
      y2: concentration of the second species.
      y3: concentration of the third species.
      k1: rate of 1 to 2.
      k2: rate of 2 + 2 to 3 + 2.
      k3: rate of 2 + 3 to 1 + 3.

    Returns:
      Rates of change of the three concentrations.
    """
    forward, fast, back = k1 * y1, k2 * y2**2, k3 * y2 * y3
    return back - forward, forward - back - fast, fast


TASKS = (
    Task.at(
        "Robertson",
        robertson,
        (0.7, 0.02, 0.28, 0.04, 300.0, 10.0),
        "Source term of Robertson's reaction, 6 to 3 scalars.",
        "Robertson 1966",
    ),
    Task.at(
        "HydrogenOxygen",
        hydrogen_oxygen,
        ([1e-6, 1e-7, 5e-8, 5e-7, 1e-7, 8e-7, 2e-9, 1e-9, 4e-6], 1500.0),
        "Production rates of hydrogen combustion, 9 species, 21 forward reactions.",
        "Li, Zhao, Kazakov, Dryer, Int. J. Chem. Kinet. 36 (2004) 566",
    ),
)
