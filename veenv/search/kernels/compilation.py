"""Compilation of the search kernels with numba, and the bit and random primitives they share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

ONE = np.uint64(1)
ZERO = np.uint64(0)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ over the golden ratio: its multiples are spread evenly."""
MIX = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)


def _source_stamp() -> str:
    """Hashes every kernel source; numba itself only watches the caller's file."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        source = path.read_bytes()
        if b"@compiled" in source:
            digest.update(source)
    return digest.hexdigest()


_STAMP = _source_stamp()


def compiled(fun: F, *, nogil: bool = True) -> F:
    """Applies `numba.njit`, with an on-disk cache where one can be written.

    Compiled code lets other Python threads run, so that a caller can wait for it with a deadline;
    `nogil` is False for what calls Python itself.
    """
    try:
        dispatcher = numba.njit(cache=True, nogil=nogil)(fun)
    except RuntimeError:  # neither the package's nor the user's cache directory is writable
        return numba.njit(nogil=nogil)(fun)  # pyright: ignore[reportReturnType]
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = _STAMP  # pyright: ignore[reportOptionalMemberAccess]
    return dispatcher  # pyright: ignore[reportReturnType]


def _unary_bits(name: str) -> Any:
    """Makes an intrinsic for a one-operand bit operation of LLVM on uint64."""

    @intrinsic
    def operation(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if name == "ctpop":
                return builder.ctpop(args[0])
            return builder.cttz(args[0], context.get_constant(types.boolean, 0))

        return types.int64(types.uint64), codegen

    return operation


popcount = _unary_bits("ctpop")
"""Number of set bits of a uint64, as int64."""
lowest_bit = _unary_bits("cttz")
"""Position of the lowest set bit of a nonzero uint64, as int64."""


@compiled
def next_random(rng):
    """Returns the next 64 bits of the SplitMix64 stream whose state is ``rng[0]`` (uint64 [1]).

    Source: Steele, Lea & Flood, "Fast Splittable Pseudorandom Number Generators" (2014).
    """
    rng[0] += GOLDEN
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * MIX
    z = (z ^ (z >> np.uint64(27))) * _MIX_B
    return z ^ (z >> np.uint64(31))


@compiled
def random_below(rng, bound):
    """Returns a random int in [0, bound), bound below 2**32."""
    return np.int64(((next_random(rng) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@compiled
def random_unit(rng):
    """Returns a random float in (0, 1]."""
    return (np.float64(next_random(rng) >> np.uint64(11)) + 1.0) * 2.0**-53


def make_rng(seed: int) -> np.ndarray:
    """Makes the state of a random stream, uint64 [1], from the seed only."""
    text = f"{seed}/0".encode()
    return np.frombuffer(hashlib.sha256(text).digest()[:8], dtype=np.uint64).copy()
