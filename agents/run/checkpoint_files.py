"""One checkpoint on disk: a folder that Orbax writes aside and renames into place.

To an address it is copied, file by file; with the last one, `MARK`, it is whole.

It holds the leaves of the train state as plain arrays and a record in JSON; nothing in it is ever
executed.  A digest over both tells a damaged checkpoint from a whole one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv.agents.files import copy_folder, remove_folder
from veenv.orders.documents import is_local

FORMAT = "veenv-checkpoint"
VERSION = 1
MARK = "_CHECKPOINT_METADATA"
"""The file that Orbax writes last."""


class DamagedError(Exception):
    """A checkpoint cannot be read."""


@contextlib.contextmanager
def near(path: Path) -> Iterator[Path]:
    """A checkpoint on the file system: it, or a copy of one at an address."""
    if is_local(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy_folder(path, Path(folder, path.name), MARK)
        yield Path(folder, path.name)


def write_checkpoint(path: Path, state: Any, record: Mapping[str, Any]) -> None:
    """Writes a checkpoint; the folder is there once all of it is written.

    Raises:
      OSError: it cannot be written; what is half written has another name.
    """
    import orbax.checkpoint as ocp  # takes most of a second, and few commands need it

    if not is_local(path):
        with tempfile.TemporaryDirectory() as folder:
            aside = Path(folder, path.name)
            write_checkpoint(aside, state, record)
            try:
                copy_folder(aside, path, MARK)
            except BaseException:
                remove_folder(path)
                raise
        return
    arrays = {name: _to_numpy(leaf) for name, leaf in _leaves(state).items()}
    whole = json.loads(json.dumps({"format": FORMAT, "version": VERSION, **record}))
    whole["digest"] = _digest(whole, arrays)
    _check_space(path.parent, sum(array.nbytes for array in arrays.values()))
    save = ocp.args.Composite(arrays=ocp.args.StandardSave(arrays), record=ocp.args.JsonSave(whole))
    try:
        with _checkpointer() as checkpointer:
            checkpointer.save(path.absolute(), args=save)
    except OSError:
        raise
    except Exception as error:  # TensorStore's failures to write are ValueErrors
        raise OSError(f"{path}: {error}") from error


def is_checkpoint(path: Path) -> bool:
    """Whether a path is a checkpoint, whole or damaged: a number, and nothing of others' in it.

    At an address it is one once it is whole.
    """
    found = _contents(path)
    if found is None:
        return False
    if not is_local(path):
        return MARK in found
    return not found or bool(found & {"arrays", "record", MARK})


def is_unfinished(path: Path) -> bool:
    """Whether a path is a checkpoint that is half written."""
    if is_local(path):
        number, made_by, _ = path.name.partition(".orbax-checkpoint-tmp")
        return bool(made_by) and number.partition(".")[0].isdecimal()
    return bool((_contents(path) or set()) & {"arrays", "record"}) and not is_checkpoint(path)


def _contents(path: Path) -> set[str] | None:
    """Names of what is in a folder that is a number; None for any other path.

    At addresses, `is_dir` and `exists` say no when a store does not answer; this raises.
    """
    if not re.fullmatch("0|[1-9][0-9]*", path.name, re.ASCII):
        return None
    try:
        return {entry.name for entry in path.iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_record(path: Path) -> dict[str, Any]:
    """The record of a checkpoint.

    Raises:
      DamagedError: it cannot be read.
    """
    import orbax.checkpoint as ocp

    try:
        with _checkpointer() as checkpointer:
            read = ocp.args.Composite(record=ocp.args.JsonRestore())
            record = checkpointer.restore(path.absolute(), args=read).record
    except Exception as error:  # whatever Orbax makes of garbage
        raise DamagedError(f"{type(error).__name__} while reading its record") from error
    known = isinstance(record, dict) and record.get("format") == FORMAT
    if not known or record.get("version") != VERSION:
        raise DamagedError(f"its record is not of format {FORMAT}, version {VERSION}")
    kinds = {"identity": dict, "run": dict, "score": int | float | None, "digest": str}
    if not all(name in record and isinstance(record[name], kinds[name]) for name in kinds):
        raise DamagedError("its record is not complete")
    return record


def read_state(path: Path, record: Mapping[str, Any], like: Any) -> Any:
    """The state of a checkpoint: leaves as those of `like` in names, shapes, types and devices.

    Raises:
      DamagedError: it cannot be read, or is another.
    """
    import orbax.checkpoint as ocp

    expected = {name: np.zeros_like(_to_numpy(leaf)) for name, leaf in _leaves(like).items()}
    try:
        with _checkpointer() as checkpointer:
            read = ocp.args.Composite(arrays=ocp.args.StandardRestore(expected))
            found = checkpointer.restore(path.absolute(), args=read).arrays
    except Exception as error:  # whatever Orbax and TensorStore make of garbage
        raise DamagedError(f"{type(error).__name__} while reading its arrays") from error
    arrays = {name: np.asarray(array) for name, array in found.items()}
    if record["digest"] != _digest(record, arrays):
        raise DamagedError("its digest does not fit its contents")
    return _rebuild(like, arrays)


def _checkpointer() -> Any:
    """Orbax's checkpointer, of this process alone: the others of a run do not take part."""
    import orbax.checkpoint as ocp

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


def _leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by path."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in pairs}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _rebuild(like: Any, arrays: Mapping[str, np.ndarray]) -> Any:
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
