"""One step of a long short-term memory.

Source: Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 9 (1997) 1735;
with forget gates: Gers, Schmidhuber, Cummins, Neural Computation 12 (2000) 2451.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from veenv.tasks.task import Task


def lstm_cell(
    x: Float[Array, "n"],
    h: Float[Array, "m"],
    c: Float[Array, "m"],
    W: Float[Array, "4m n"],
    U: Float[Array, "4m m"],
    b: Float[Array, "4m"],
) -> tuple[Float[Array, "m"], Float[Array, "m"]]:
    """Next hidden and cell state.

    Args:
      x: input.
      h: hidden state.
      c: cell state.
      W: input weights of the input gate, forget gate, cell and output gate, stacked.
      U: recurrent weights, stacked likewise.
      b: biases, stacked likewise.

    Returns:
      The new hidden state and the new cell state.
    """
    i, f, g, o = jnp.split(W @ x + U @ h + b, 4)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _lstm_point() -> tuple[np.ndarray, ...]:
    rng, n, m = np.random.default_rng(1), 4, 6
    shapes = ((n,), (m,), (m,), (4 * m, n), (4 * m, m), (4 * m,))
    return tuple(rng.uniform(-0.6, 0.6, shape) for shape in shapes)


TASKS = (
    Task.at(
        "LSTM",
        lstm_cell,
        _lstm_point(),
        "One step of an LSTM cell, 4 inputs and 6 units.",
        "Hochreiter and Schmidhuber 1997; Gers et al. 2000",
    ),
)
