"""One step of recurrent spiking networks, differentiated with a surrogate gradient.

Sources: Neftci, Mostafa, Zenke, "Surrogate gradient learning in spiking neural networks",
arXiv 1901.09948 (LIF); Bellec et al., "Long short-term memory and learning-to-learn in networks of
spiking neurons", arXiv 1803.09574 (ALIF); the surrogate: Zenke and Ganguli, "SuperSpike",
Neural Computation 30 (2018) 1514.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from veenv.tasks.task import Scalar, Task

SHARPNESS = 5.0


@jax.custom_jvp
def spike(u: Float[Array, "n"]) -> Float[Array, "n"]:
    """Heaviside step whose derivative is taken to be 1 / (1 + 5 |u|)^2.

    Args:
      u: membrane potential above threshold.

    Returns:
      1 where ``u > 0``, else 0, in the type of ``u``.
    """
    return (u > 0).astype(u.dtype)


@spike.defjvp
def _spike_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (u,), (du,) = primals, tangents
    return spike(u), du / (1.0 + SHARPNESS * jnp.abs(u)) ** 2


def lif_step(
    s_in: Float[Array, "n"],
    s: Float[Array, "m"],
    i: Float[Array, "m"],
    u: Float[Array, "m"],
    W: Float[Array, "m n"],
    V: Float[Array, "m m"],
    alpha: Scalar,
    beta: Scalar,
    threshold: Scalar,
) -> tuple[Float[Array, "m"], Float[Array, "m"], Float[Array, "m"]]:
    """A layer of leaky integrate-and-fire neurons with synaptic currents.

    Args:
      s_in: incoming spikes or rates.
      s: spikes of the layer in the last step.
      i: synaptic currents.
      u: membrane potentials.
      W: input weights.
      V: recurrent weights.
      alpha: decay of the current in one step.
      beta: decay of the membrane potential in one step.
      threshold: firing threshold, also what a spike subtracts.

    Returns:
      New spikes, currents and membrane potentials.
    """
    i = alpha * i + W @ s_in + V @ s
    u = beta * u + i - threshold * s
    return spike(u - threshold), i, u


def alif_step(
    x: Float[Array, "n"],
    z: Float[Array, "m"],
    v: Float[Array, "m"],
    a: Float[Array, "m"],
    W: Float[Array, "m n"],
    V: Float[Array, "m m"],
    alpha: Scalar,
    rho: Scalar,
    beta: Scalar,
    threshold: Scalar,
) -> tuple[Float[Array, "m"], Float[Array, "m"], Float[Array, "m"]]:
    """A layer of adaptive leaky integrate-and-fire neurons.

    Args:
      x: input.
      z: spikes of the layer in the last step.
      v: membrane potentials.
      a: threshold adaptation.
      W: input weights.
      V: recurrent weights.
      alpha: decay of the membrane potential in one step.
      rho: decay of the adaptation in one step.
      beta: strength of the adaptation.
      threshold: firing threshold at rest.

    Returns:
      New spikes, membrane potentials and adaptation.
    """
    a = rho * a + (1.0 - rho) * z
    level = threshold + beta * a
    v = alpha * v + (1.0 - alpha) * (W @ x + V @ z) - z * level
    return spike((v - level) / level), v, a


def _layer() -> tuple[np.ndarray, ...]:
    """Draws the inputs, the three states and the weights of a layer."""
    rng, n, m = np.random.default_rng(2), 4, 6
    states = [rng.uniform(0.2, 0.9, m) for _ in range(3)]
    weights = [rng.uniform(-0.5, 1.0, (m, n)), rng.uniform(-0.5, 1.0, (m, m))]
    return (rng.uniform(0.2, 0.9, n), *states, *weights)


TASKS = (
    Task.at(
        "LIF",
        lif_step,
        (*_layer(), 0.8, 0.9, 0.7),
        "One step of 6 recurrent leaky integrate-and-fire neurons with 4 inputs.",
        "Neftci, Mostafa, Zenke, arXiv 1901.09948",
    ),
    Task.at(
        "ALIF",
        alif_step,
        (*_layer(), 0.8, 0.95, 0.3, 0.5),
        "One step of 6 recurrent adaptive integrate-and-fire neurons with 4 inputs.",
        "Bellec et al., arXiv 1803.09574",
    ),
)
