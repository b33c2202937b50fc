"""Keys of random numbers as pairs of integers, and the generator behind them, Threefry.

Other generators are refused, as they are no integers of 32 bits or the device's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv import _compat
from veenv.kernel.building.builder import Builder, Ids, Rule, constants
from veenv.kernel.building.complex_numbers import pair, parts
from veenv.kernel.scalar_program import Scalars

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA


def _threefry(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Threefry 2x32 of twenty rounds (Salmon et al., SC 2011), entry by entry."""
    rows = np.broadcast_arrays(*ins)
    entries = [_block(Scalars(b, "uint32"), *map(int, row)) for row in zip(*(x.flat for x in rows))]  # noqa: B905
    table = np.array(entries, np.int64).reshape(*rows[0].shape, 2)
    return [table[..., 0], table[..., 1]]


def _block(r: Scalars, low: int, high: int, x: int, y: int) -> tuple[int, int]:
    """Two numbers from a key of two and a counter of two."""
    keys = low, high, r.xor(r.xor(low, high), r.number(_PARITY))
    x, y = r.add(x, low), r.add(y, high)
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x = r.add(x, y)
            y = r.xor(x, r.op("or", r.shl(y, r.number(turn)), r.shr_l(y, r.number(32 - turn))))
        x = r.add(x, keys[(group + 1) % 3])
        y = r.add(y, r.add(keys[(group + 2) % 3], r.number(group + 1)))
    return x, y


def _counters(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """The number of each entry, its upper and its lower 32 bits."""
    shape = eqn.outvars[0].aval.shape
    count = np.arange(prod(shape), dtype=np.uint64).reshape(shape)
    return [constants(b, (count >> np.uint64(s)).astype(np.uint32)) for s in (32, 0)]


def keys_of(b: Builder, raw: Ids) -> Ids:
    """Keys of integers, whose last axis has the two of each."""
    pairs = [pair(b, int(low), int(high)) for low, high in raw.reshape(-1, 2)]
    return np.array(pairs, np.int64).reshape(raw.shape[:-1])


def _unwrap(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    rows = [parts(b, int(k)) for k in ins[0].flat]
    return [np.array(rows, np.int64).reshape(*ins[0].shape, 2)]


RULES: Mapping[str, Rule] = {
    "iota_2x32_shape": _counters,
    "random_unwrap": _unwrap,
    "random_wrap": lambda b, eqn, ins: [keys_of(b, ins[0])],
    "threefry2x32": _threefry,
}
"""For each primitive of random numbers what it does to the numbers of operations."""


def _bits(params: Mapping[str, Any], keys: Any) -> Any:
    sizes = {name: params[name] for name in ("bit_width", "shape")}
    one = functools.partial(_compat.generator(keys.dtype).random_bits, **sizes)
    return along_axes(one, keys.ndim)(jax.random.key_data(keys))


def _split(params: Mapping[str, Any], keys: Any) -> Any:
    generator = _compat.generator(keys.dtype)
    split = along_axes(functools.partial(generator.split, shape=params["shape"]), keys.ndim)
    return jax.random.wrap_key_data(split(jax.random.key_data(keys)), impl=generator)


def _fold_in(params: Mapping[str, Any], keys: Any, numbers: Any) -> Any:
    generator = _compat.generator(keys.dtype)
    keys, numbers = jnp.broadcast_arrays(keys, numbers)
    folded = along_axes(generator.fold_in, keys.ndim)(jax.random.key_data(keys), numbers)
    return jax.random.wrap_key_data(folded, impl=generator)


def _seed(params: Mapping[str, Any], seeds: Any) -> Any:
    generator = params["impl"]
    return jax.random.wrap_key_data(along_axes(generator.seed, seeds.ndim)(seeds), impl=generator)


def along_axes(fun: Callable[..., Any], axes: int) -> Callable[..., Any]:
    """A function, along so many leading axes of its operands."""
    for _ in range(axes):
        fun = jax.vmap(fun)
    return fun


BODIES: Mapping[str, Callable[..., Any]] = {
    "random_bits": _bits, "random_fold_in": _fold_in, "random_seed": _seed, "random_split": _split,
}  # fmt: skip
"""What primitives of keys compute, in terms of `RULES`."""
