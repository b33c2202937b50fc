"""Random array programs against `jax.jacrev`, in random elimination orders."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from tests.oracles.jacobians import assert_orders

SIZES = (1, 2, 3)


def _smooth(x: Any) -> Any:
    """Keeps the entries moderate, whatever was done before."""
    return jnp.tanh(x) + 0.1 * x


UNARY = [
    jnp.sin, jnp.cos, jnp.tanh, lambda x: -x, lambda x: x * 1.3, lambda x: x - 0.4, lambda x: x * x,
    lambda x: jnp.exp(-x * x), lambda x: 1 / (2 + x * x), lambda x: jnp.sqrt(1 + x * x),
    lambda x: jax.jit(lambda y: jnp.sin(y) * y)(x), jax.nn.softplus,
    lambda x: jnp.where(x > 0.123, x, 0.5 * x * x),
]  # fmt: skip
BINARY = [
    jnp.add, jnp.subtract, jnp.multiply, lambda x, y: x / (2 + y * y),
    lambda x, y: jnp.maximum(x, y + 0.01), lambda x, y: jnp.arctan2(x, 3 + y),
    lambda x, y: jnp.where(x > y, x * y, y),
]  # fmt: skip


def _axis(x: Any, rng: np.random.Generator) -> int:
    return int(rng.integers(x.ndim))


def _reduce(x: Any, rng: np.random.Generator) -> Any:
    kind = [jnp.sum, jnp.mean, jnp.max, jnp.prod][rng.integers(4)]
    return kind(x, axis=_axis(x, rng), keepdims=bool(rng.integers(2)))


def _slice(x: Any, rng: np.random.Generator) -> Any:
    axis = _axis(x, rng)
    n = x.shape[axis]
    start = int(rng.integers(n))
    return lax.slice_in_dim(x, start, int(rng.integers(start, n)) + 1, axis=axis)


def _gather(x: Any, rng: np.random.Generator) -> Any:
    axis = _axis(x, rng)
    return jnp.take(x, rng.integers(x.shape[axis], size=int(rng.integers(1, 4))), axis=axis)


def _scatter(x: Any, rng: np.random.Generator) -> Any:
    index = tuple(int(rng.integers(n)) for n in x.shape)
    put = x.at[index]
    return put.set(x.sum()) if rng.integers(2) else put.add(x.ravel()[0] ** 2)


def _pad(x: Any, rng: np.random.Generator) -> Any:
    config = [tuple(int(n) for n in rng.integers(0, 2, size=3)) for _ in x.shape]
    padded = lax.pad(x, jnp.zeros((), x.dtype), config)
    return padded[tuple(slice(0, 3) for _ in x.shape)]


def _concatenate(x: Any, rng: np.random.Generator) -> Any:
    axis = _axis(x, rng)
    return (
        lax.slice_in_dim(jnp.concatenate([x, jnp.sin(x)], axis), 0, 3, axis=axis)
        if (x.shape[axis] > 1)
        else jnp.concatenate([x, x * x], axis)
    )


def _broadcast(x: Any, rng: np.random.Generator) -> Any:
    if x.ndim == 3:
        return x[..., :1] * jnp.ones((1, 1, 2))
    return jnp.broadcast_to(
        jnp.expand_dims(x, at := int(rng.integers(x.ndim + 1))),
        (*x.shape[:at], int(rng.choice(SIZES)), *x.shape[at:]),
    )


def _scan(x: Any, rng: np.random.Generator) -> Any:
    return lax.scan(lambda c, row: (jnp.tanh(c + row), c * row), jnp.zeros(x.shape[1:]), x)[
        int(rng.integers(2))
    ]


def _matmul(x: Any, rng: np.random.Generator) -> Any:
    m = np.asarray(rng.normal(size=(x.shape[-1], int(rng.choice(SIZES)))))
    return x @ m if rng.integers(2) else x @ jnp.swapaxes(x, -1, -2) if x.ndim > 1 else x @ m


MOVES = [
    _reduce, _slice, _gather, _scatter, _pad, _concatenate, _broadcast, _scan, _matmul,
    lambda x, rng: jnp.transpose(x, rng.permutation(x.ndim)),
    lambda x, rng: x.reshape(-1), lambda x, rng: x.reshape(x.shape[::-1]),
    lambda x, rng: jnp.flip(x, _axis(x, rng)), lambda x, rng: jnp.roll(x, 1, _axis(x, rng)),
    lambda x, rng: jnp.cumsum(x, _axis(x, rng)), lambda x, rng: jnp.sort(x, _axis(x, rng)),
    lambda x, rng: lax.cond(x.ravel()[0] > 0.2, jnp.sin, lambda y: y * y, x),
]  # fmt: skip


def _broadcastable(x: Any, y: Any) -> bool:
    try:
        return len(np.broadcast_shapes(x.shape, y.shape)) <= 3
    except ValueError:
        return False


def _of_one_rank(x: Any, y: Any) -> tuple[Any, Any]:
    """Two arrays with leading axes of size one, as broadcasting adds them; numbers stay."""
    rank = max(x.ndim, y.ndim)
    full = [jnp.expand_dims(v, range(rank - v.ndim)) if v.ndim else v for v in (x, y)]
    return full[0], full[1]


def program(seed: int, num_steps: int) -> Any:
    """A random function of two arrays; the same seed gives the same function."""

    def fun(*args: Any) -> Any:
        rng = np.random.default_rng([seed, num_steps])
        values = list(args)
        for _ in range(num_steps):
            recent = values[-6:]
            x = recent[int(rng.integers(len(recent)))]
            kind = rng.random()
            if kind < 0.35:
                new = UNARY[rng.integers(len(UNARY))](x)
            elif kind < 0.65:
                mates = [v for v in values if _broadcastable(x, v)]
                y = mates[int(rng.integers(len(mates)))]
                new = BINARY[rng.integers(len(BINARY))](*_of_one_rank(x, y))
            elif x.ndim:
                new = MOVES[rng.integers(len(MOVES))](x, rng)
            else:
                new = jnp.stack([x, jnp.sin(x)])
            if new.size > 27:
                new = new[tuple(slice(0, 3) for _ in range(new.ndim))]
            values.append(_smooth(new) if new.ndim < 3 or rng.random() < 0.5 else new)
        chosen = rng.choice(len(values), size=2)
        return {"last": values[-1], "others": [values[i] for i in chosen]}

    return fun


def point(seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng([seed, 1])
    shapes = [tuple(int(n) for n in rng.choice(SIZES, size=rng.integers(0, 4))) for _ in range(2)]
    return tuple(np.asarray(rng.normal(size=s)) for s in shapes)


def check(seed: int, num_steps: int, num_random: int) -> None:
    fun, args = program(seed, num_steps), point(seed)
    with jax.enable_x64(True):
        assert_orders(fun, args, (0, 1), jax.jacrev, num_random, named=f"seed {seed}, ")


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
@settings(max_examples=4, deadline=None)
def test_small_programs(seed, num_steps):
    check(seed, num_steps, num_random=1)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_thousand_programs(part, seed, num_steps):
    """Programs of about 5 to 130 equations; in parts, so that workers can share them."""
    check(seed + (part << 32), num_steps, num_random=2)


@pytest.fixture(autouse=True)
def forget_compiled_programs():
    """Drops the programs of one test, which otherwise add up to gigabytes."""
    yield
    jax.clear_caches()
