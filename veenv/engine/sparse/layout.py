"""The pattern of summands, worked out once for all results of a compiled function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from veenv.engine.sparse.pattern import Collection, Pattern, collected
from veenv.engine.sparse.summands import Entries, Term, coordinates, numbered_entries
from veenv.structure.structure import Structure

_KEPT = 16
"""Patterns that are remembered."""


def layout_of(
    terms: Sequence[Any], out_shape: tuple[int, ...], in_shape: tuple[int, ...]
) -> tuple[Pattern, Collection] | None:
    """The pattern of summands, and how their entries become its values.

    Args:
      terms: the summands, without batch.
      out_shape: shape of the out axes.
      in_shape: shape of the in axes.

    Returns:
      None if the places of some are computed.
    """
    keys = _keys(terms)
    if keys is not None:
        return _layout(keys, out_shape, in_shape)
    found = [t.coordinates() for t in terms]
    known = [places for places in found if places is not None]
    return _collected(known, out_shape, in_shape) if len(known) == len(found) else None


def host_values(terms: Sequence[Any], collect: Collection, dtype: Any) -> np.ndarray:
    """The values of a tensor's pattern, by NumPy.

    Args:
      terms: its summands, outside of jit and without batch.
      collect: how their entries become values.
      dtype: of the values.
    """
    entries = [
        np.asarray(t.values).reshape(-1)[_numbered(t.structure)]
        if isinstance(t, Term)
        else t.values
        for t in terms
    ]
    numbers = np.concatenate([np.zeros(0, dtype), *(np.asarray(e, dtype) for e in entries)])
    return collect.on_host(numbers)


def _keys(terms: Sequence[Any]) -> tuple[Any, ...] | None:
    """What tells the places of summands; None if some are arrays, or computed."""
    keys = []
    for t in terms:
        keys.append(
            t.pattern if isinstance(t, Entries) else t.key() if isinstance(t, Term) else None
        )
    return None if None in keys else tuple(keys)


@lru_cache(maxsize=_KEPT)
def _layout(
    keys: tuple[Any, ...], out_shape: tuple[int, ...], in_shape: tuple[int, ...]
) -> tuple[Pattern, Collection]:
    found = [(k.rows, k.cols) if isinstance(k, Pattern) else coordinates(k) for k in keys]
    return _collected(found, out_shape, in_shape)


def _collected(
    found: Sequence[tuple[np.ndarray, np.ndarray]],
    out_shape: tuple[int, ...],
    in_shape: tuple[int, ...],
) -> tuple[Pattern, Collection]:
    none = np.zeros(0, np.int32)
    rows, cols = (np.concatenate([none, *(f[k] for f in found)]) for k in (0, 1))
    return collected(rows, cols, out_shape, in_shape)


@lru_cache(maxsize=_KEPT)
def _numbered(s: Structure) -> np.ndarray:
    """For every entry of the terms of a structure, which of its flat values it is."""
    return numbered_entries(s)
