"""Reads and writes checkpoints: a file each, of a line of JSON and then the bytes of all arrays.

The arrays are the leaves of the train state; nothing in a file is ever executed.  A digest over all
of it tells a damaged checkpoint from a whole one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv.orders.documents import parse_object, write_bytes
from veenv.rules.base import is_key

FORMAT = "veenv-checkpoint"
VERSION = 2


class DamagedError(Exception):
    """A checkpoint cannot be read."""


def write_checkpoint(path: Path, state: Any, record: Mapping[str, Any]) -> None:
    """Writes a checkpoint, which is there once all of it is written.

    Raises:
      OSError: it cannot be written.
    """
    arrays = {name: _to_numpy(leaf) for name, leaf in _leaves(state).items()}
    body = b"".join(array.tobytes() for array in arrays.values())
    whole = {"format": FORMAT, "version": VERSION, **record, "arrays": _layout(arrays)}
    head = json.dumps(whole | {"digest": _digest(whole, body)})
    write_bytes(path, head.encode() + b"\n" + body)


def read_checkpoint(path: Path) -> tuple[dict[str, Any], bytes]:
    """Reads the record of a checkpoint, and the bytes of its arrays.

    Raises:
      DamagedError: it cannot be read.
    """
    head, _, body = path.read_bytes().partition(b"\n")
    try:
        record = parse_object(head)
    except ValueError as error:
        raise DamagedError(f"its record is {error}") from error
    if (record.get("format"), record.get("version")) != (FORMAT, VERSION):
        raise DamagedError(f"its record is not of format {FORMAT}, version {VERSION}")
    kinds = {"identity": dict, "run": dict, "score": int | float | None, "arrays": list}
    if not all(name in record and isinstance(record[name], kinds[name]) for name in kinds):
        raise DamagedError("its record is not complete")
    digest = record.pop("digest", None)
    if digest != _digest(record, body):
        raise DamagedError("its digest does not fit its contents")
    return record, body


def read_state(record: Mapping[str, Any], body: bytes, like: Any) -> Any:
    """Returns the state of a checkpoint: leaves as those of `like`, on the devices of these.

    Raises:
      DamagedError: it is another state.
    """
    leaves, arrays = _leaves(like), {}
    expected = {name: _to_numpy(leaf) for name, leaf in leaves.items()}
    if record["arrays"] != _layout(expected):
        raise DamagedError("its arrays are those of another state")
    start = 0
    for name, array in expected.items():
        part = body[start : start + array.nbytes]
        arrays[name] = np.frombuffer(part, array.dtype).reshape(array.shape)
        start += array.nbytes
    placed = [_placed(arrays[name], leaf) for name, leaf in leaves.items()]
    return jax.tree.unflatten(jax.tree.structure(like), placed)


def _leaves(tree: Any) -> dict[str, Any]:
    """Returns the leaves of a pytree by path."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in pairs}


def _to_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def _placed(array: np.ndarray, leaf: Any) -> jax.Array:
    """Returns an array as a leaf like another, on its devices."""
    placed = jax.device_put(array, leaf.sharding) if leaf.committed else jnp.asarray(array)
    impl = jax.random.key_impl(leaf) if is_key(leaf) else None
    return placed if impl is None else jax.random.wrap_key_data(placed, impl=impl)


def _layout(arrays: Mapping[str, np.ndarray]) -> list[list[Any]]:
    """Returns name, dtype and shape of each array, as JSON."""
    return [[name, str(array.dtype), list(array.shape)] for name, array in arrays.items()]


def _digest(record: Mapping[str, Any], body: bytes) -> str:
    """Computes SHA-256 over a record (but its own digest) and the bytes of arrays."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode() + body).hexdigest()
