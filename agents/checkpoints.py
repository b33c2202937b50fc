"""Checkpoints of a run: everything that training needs to go on as if it had never stopped.

A checkpoint is a folder that Orbax writes aside and renames into place.  It holds the leaves of
the train state as plain arrays and a record in JSON; nothing in it is ever executed.  A digest
over both tells a damaged checkpoint from a whole one.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

FORMAT = "veenv-checkpoint"
VERSION = 1


@dataclasses.dataclass(frozen=True)
class Restored:
    """What a checkpoint held.

    Attributes:
      number: of the train step.
      state: the train state.
      run: what else the run remembers, as JSON.
    """

    number: int
    state: Any
    run: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run: the newest few, and the best one.

    Attributes:
      folder: where they are, one folder for each, named by the number of the train step.
    """

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, Any],
        *,
        keep: int = 3,
        warn: Callable[[str], None] = lambda text: None,
    ):
        """Nothing is read or written yet.

        Args:
          folder: made by the first checkpoint.
          identity: what must agree when a checkpoint is read, as JSON: the task, the network.
          keep: how many of the newest to keep; the best one is kept besides.
          warn: told of checkpoints that cannot be read.
        """
        self.folder = folder
        self._identity = json.loads(json.dumps(identity))
        self._keep, self._warn = keep, warn

    def save(self, number: int, state: Any, run: Mapping[str, Any], score: float = 0.0) -> bool:
        """Writes a checkpoint unless it is there, then deletes those that need not be kept.

        Args:
          number: of the train step.
          state: a pytree of arrays and typed keys.
          run: what else to remember, as JSON.
          score: the checkpoint with the lowest one is the best.

        Returns:
          Whether it is the best one.

        Raises:
          OSError: it cannot be written; earlier ones stay as they are.
        """
        path = self.folder / str(number)
        if path.exists():
            return False
        arrays = {name: _to_numpy(leaf) for name, leaf in _leaves(state).items()}
        record = {
            "format": FORMAT,
            "version": VERSION,
            "identity": self._identity,
            "run": dict(run),
            "score": score if math.isfinite(score) else None,
        }
        record = json.loads(json.dumps(record))
        record["digest"] = _digest(record, arrays)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _check_space(self.folder, sum(array.nbytes for array in arrays.values()))
            _write(path, arrays, record)
        except Exception as error:  # Orbax wraps some failures to write in errors of its own
            self._remove_unfinished()
            if isinstance(error, OSError):
                raise
            raise OSError(f"{path}: {error}") from error
        return self._delete_old(number)

    def restore(self, like: Any) -> Restored | None:
        """Reads the newest checkpoint that is whole.

        Args:
          like: a state with the leaves that are expected.

        Returns:
          What it held; None if there never was a checkpoint.

        Raises:
          ValueError: all are damaged, or the newest one is of another task or network.
        """
        numbers = self.numbers()
        for number in reversed(numbers):
            path = self.folder / str(number)
            try:
                record = _read_record(path)
                self._check_identity(path, record)
                arrays = _read_arrays(path, _leaves(like))
                if record["digest"] != _digest(record, arrays):
                    raise _DamagedError("its digest does not fit its contents")
            except _DamagedError as error:
                self._warn(f"checkpoint {path} is damaged ({error}); trying the one before it")
                continue
            return Restored(number, _unflatten(like, arrays), record["run"])
        if numbers:
            raise ValueError(f"every checkpoint in {self.folder} is damaged")
        return None

    def numbers(self) -> list[int]:
        """The checkpoints there are, oldest first; those half written are left out."""
        if not self.folder.is_dir():
            return []
        return sorted(int(p.name) for p in self.folder.iterdir() if p.name.isdecimal())

    def delete_after(self, number: int) -> None:
        """Deletes the checkpoints after a number (damaged ones), and what is half written."""
        self._remove_unfinished()
        for later in self.numbers():
            if later > number:
                shutil.rmtree(self.folder / str(later), ignore_errors=True)

    def _delete_old(self, newest: int) -> bool:
        scores = {number: self._score(number) for number in self.numbers()}
        best = min(scores, key=lambda number: (scores[number], -number))
        for number in sorted(scores)[: -self._keep]:
            if number != best:
                shutil.rmtree(self.folder / str(number), ignore_errors=True)
        return best == newest

    def _score(self, number: int) -> float:
        try:
            score = _read_record(self.folder / str(number))["score"]
        except _DamagedError:
            score = None
        return math.inf if score is None else score

    def _remove_unfinished(self) -> None:
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if not path.name.isdecimal():
                    shutil.rmtree(path, ignore_errors=True)

    def _check_identity(self, path: Path, record: Mapping[str, Any]) -> None:
        for what, expected in self._identity.items():
            found = record["identity"].get(what)
            if found != expected:
                raise ValueError(
                    f"checkpoint {path} is of another {what}: it is {_shown(found, expected)}, "
                    f"this run's is {_shown(expected, found)}"
                )


class Schedule:
    """When to write a checkpoint."""

    def __init__(self, seconds: float, updates: int | None = None):
        """The first is due an interval from now.

        Args:
          seconds: between checkpoints.
          updates: train steps between checkpoints, instead.
        """
        self._seconds, self._updates = seconds, updates
        self._last = time.monotonic()

    def is_due(self, number: int) -> bool:
        """Whether to write one now, after train step `number`; if so, the next interval begins."""
        now = time.monotonic()
        if self._updates is not None:
            return number % self._updates == 0
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


class _DamagedError(Exception):
    """A checkpoint cannot be read."""


def _shown(value: Any, other: Any) -> str:
    """A value for an error message; of two mappings only what differs."""
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        differing = {k: v for k, v in value.items() if k not in other or other[k] != v}
        return ", ".join(f"{k} {v}" for k, v in differing.items()) or "without the rest"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by path."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in pairs}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _unflatten(like: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The tree of `like` with other leaves, on the devices where its own are."""

    def place(name: str, leaf: Any) -> jax.Array:
        array = arrays[name]
        placed = jax.device_put(array, leaf.sharding) if leaf.committed else jnp.asarray(array)
        impl = jax.random.key_impl(leaf) if _is_key(leaf) else None
        return placed if impl is None else jax.random.wrap_key_data(placed, impl=impl)

    leaves = [place(name, leaf) for name, leaf in _leaves(like).items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _digest(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over a record (but its own digest) and arrays."""
    text = {key: value for key, value in record.items() if key != "digest"}
    digest = hashlib.sha256(json.dumps(text, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _check_space(folder: Path, num_bytes: int) -> None:
    """Raises before Orbax does, whose threads complain of a full disk at length."""
    if shutil.disk_usage(folder).free < 2 * num_bytes + 2**20:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _checkpointer() -> Any:
    """Orbax's checkpointer, of this process alone: the others of a run do not take part."""
    import orbax.checkpoint as ocp  # takes most of a second, and few commands need it

    process = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=process, active_processes={process}, barrier_sync_key_prefix=f"p{process}"
    )
    return ocp.Checkpointer(
        ocp.CompositeCheckpointHandler(
            arrays=ocp.StandardCheckpointHandler(multiprocessing_options=alone),
            record=ocp.JsonCheckpointHandler(multiprocessing_options=alone),
            composite_options=ocp.CompositeOptions(multiprocessing_options=alone),
        ),
        multiprocessing_options=alone,
    )


def _write(path: Path, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any]) -> None:
    import orbax.checkpoint as ocp

    save = ocp.args.Composite(
        arrays=ocp.args.StandardSave(dict(arrays)), record=ocp.args.JsonSave(dict(record))
    )
    with _checkpointer() as checkpointer:
        checkpointer.save(path.absolute(), args=save)


def _read_record(path: Path) -> dict[str, Any]:
    """The record of a checkpoint.

    Raises:
      _DamagedError: it cannot be read.
    """
    import orbax.checkpoint as ocp

    try:
        with _checkpointer() as checkpointer:
            read = ocp.args.Composite(record=ocp.args.JsonRestore())
            record = checkpointer.restore(path.absolute(), args=read).record
    except Exception as error:  # whatever Orbax makes of garbage
        raise _DamagedError(f"{type(error).__name__} while reading its record") from error
    known = isinstance(record, dict) and record.get("format") == FORMAT
    if not known or record.get("version") != VERSION:
        raise _DamagedError(f"its record is not of format {FORMAT}, version {VERSION}")
    if not {"identity", "run", "score", "digest"} <= set(record):
        raise _DamagedError("its record is not complete")
    return record


def _read_arrays(path: Path, like: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, of the names, shapes and types of `like`.

    Raises:
      _DamagedError: they cannot be read, or are others.
    """
    import orbax.checkpoint as ocp

    expected = {name: np.zeros_like(_to_numpy(leaf)) for name, leaf in like.items()}
    try:
        with _checkpointer() as checkpointer:
            read = ocp.args.Composite(arrays=ocp.args.StandardRestore(expected))
            arrays = checkpointer.restore(path.absolute(), args=read).arrays
    except Exception as error:  # whatever Orbax and TensorStore make of garbage
        raise _DamagedError(f"{type(error).__name__} while reading its arrays") from error
    return {name: np.asarray(array) for name, array in arrays.items()}
