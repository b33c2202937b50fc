"""Small networks written out number by number: a recurrent one, and attention.

Sources: K. Cho et al., EMNLP (2014) 1724; A. Vaswani et al., "Attention is all you need", NIPS
(2017).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from veenv.tasks.estimates import _dot, _product, _transposed
from veenv.tasks.task import Scalar


def _sigmoid(x: Scalar) -> Scalar:
    return 1.0 / (1.0 + jnp.exp(-x))


def gated_states(*x: Scalar) -> tuple[Scalar, ...]:
    """States of a gated recurrent unit of two numbers after each of six inputs.

    Behind the inputs come the weights of its gates and its first state.
    """
    inputs, weights = x[:6], x[6:]
    update, reset, new = (weights[8 * k : 8 * k + 8] for k in range(3))

    def layer(w: Sequence[Scalar], x: Scalar, h: Sequence[Scalar]) -> list[Scalar]:
        return [w[4 * i] + w[4 * i + 1] * x + _dot(w[4 * i + 2 : 4 * i + 4], h) for i in range(2)]

    states: list[Scalar] = []
    h = list(weights[24:])
    for x_t in inputs:
        z = [_sigmoid(a) for a in layer(update, x_t, h)]
        r = [_sigmoid(a) for a in layer(reset, x_t, h)]
        n = [jnp.tanh(a) for a in layer(new, x_t, [a * b for a, b in zip(r, h, strict=True)])]
        h = [a + b * (c - a) for a, b, c in zip(n, z, h, strict=True)]
        states += h
    return tuple(states)


def attended(*x: Scalar) -> tuple[Scalar, ...]:
    """Two layers of attention over four tokens of two numbers; then their weights."""
    tokens = [list(x[2 * k : 2 * k + 2]) for k in range(4)]
    for layer in range(2):
        weights = x[8 + 12 * layer :][:12]
        query, key, value = ([weights[k : k + 2], weights[k + 2 : k + 4]] for k in (0, 4, 8))
        scores = _product(_product(tokens, query), _transposed(_product(tokens, key)))
        exps = [[jnp.exp(s) for s in row] for row in scores]
        shares = [[e / sum(row[1:], row[0]) for e in row] for row in exps]
        mixed = _product(shares, _product(tokens, value))
        tokens = [
            [a + jnp.tanh(b) for a, b in zip(*rows, strict=True)]
            for rows in zip(tokens, mixed, strict=True)
        ]
    return tuple(number for token in tokens for number in token)


_RNG = np.random.default_rng(14)

ENTRIES = (
    (
        "GRU_Unrolled",
        gated_states,
        _RNG.normal(0.0, 0.7, 6 + 24 + 2),
        "Six steps of a gated recurrent unit, 32 to 12 scalars.",
        "Cho et al., EMNLP (2014) 1724",
    ),
    (
        "Attention_TwoLayers",
        attended,
        _RNG.normal(0.0, 0.6, 8 + 24),
        "Two layers of attention over four tokens, 32 to 8 scalars.",
        "Vaswani et al., NIPS (2017)",
    ),
)
