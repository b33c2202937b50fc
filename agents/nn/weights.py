"""Weights of a network as a file: one line of JSON with its architecture, then its arrays."""

from __future__ import annotations

import io
import json
import os
from typing import Any

import equinox as eqx
import jax
import numpy as np

from veenv.agents.nn.custom import Network, OwnNetwork
from veenv.agents.nn.networks import GraphNetwork
from veenv.orders.documents import as_path, parse_object, write_bytes

FORMAT = "veenv-weights"
VERSION = 1
_ARCHITECTURE = {"hidden": int, "num_hops": int, "bfloat16": bool}


def architecture(network: Network) -> dict[str, Any]:
    """The arguments that make a `GraphNetwork` of this shape; of others the shapes of weights.

    Args:
      network: the network.

    Examples:
      >>> architecture(GraphNetwork(hidden=4, key=jax.random.key(0)))
      {'hidden': 4, 'num_hops': 1, 'bfloat16': False}
    """
    if isinstance(network, OwnNetwork):
        leaves = jax.tree.leaves(network.weights)
        return {"weights": [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves]}
    return {
        "hidden": int(network.embed.weight.shape[1]),
        "num_hops": network.num_hops,
        "bfloat16": network.compute_dtype == "bfloat16",
    }


def save_weights(path: str | os.PathLike[str], network: Network) -> None:
    """Writes a network's weights, aside first and then renamed into place.

    A line of JSON, then every array as `numpy.save` writes it, in the order of `jax.tree.leaves`.

    Args:
      path: the file.
      network: the network.

    Raises:
      OSError: the file cannot be written.

    Examples:
      >>> import tempfile
      >>> network = GraphNetwork(hidden=4, key=jax.random.key(0))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save_weights(f"{folder}/weights.eqx", network)
      ...     bool(eqx.tree_equal(load_weights(f"{folder}/weights.eqx"), network))
      True
    """
    header = {"format": FORMAT, "version": VERSION, **architecture(network)}
    content = io.BytesIO()
    content.write((json.dumps(header) + "\n").encode())
    eqx.tree_serialise_leaves(content, eqx.filter(network, eqx.is_array))
    write_bytes(path, content.getvalue())


def load_weights(path: str | os.PathLike[str], like: Any = None) -> Any:
    """Reads a network.

    Args:
      path: the file, or the folder of a run that has ended.
      like: a network of the user's own, or its parameters: any pytree with arrays of the shapes
        in the file, such as what ``init`` returns. Without it, a `GraphNetwork` is read.

    Returns:
      A network of the architecture that the file names, or `like` with the arrays of the file.

    Raises:
      ValueError: the file holds no weights, those of another network, or is damaged.
      OSError: it cannot be read.

    Examples:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save_weights(f"{folder}/w.eqx", GraphNetwork(hidden=4, key=jax.random.key(0)))
      ...     load_weights(f"{folder}/w.eqx").embed.weight.shape[1]
      4
    """
    path = as_path(path)
    if path.is_dir():
        path = path / "weights.eqx"
    content = io.BytesIO(path.read_bytes())
    try:
        header = parse_object(content.readline())
    except ValueError:
        header = {}
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} is not a file of weights")
    if header.get("version") != VERSION:
        raise ValueError(f"{path}: expected version {VERSION}, got {header.get('version')!r:.60}")
    if like is None and "weights" in header:
        raise ValueError(f"{path} is of a network of your own: load_weights(path, like=network)")
    shapes, rest = eqx.partition(_shapes(path, header) if like is None else like, _is_weight)
    try:
        read = eqx.tree_deserialise_leaves(content, shapes)
    except (ValueError, RuntimeError, EOFError, OSError) as error:
        reason = "is damaged" if like is None else "is damaged, or of another network"
        raise ValueError(f"{path} {reason}: {error}") from error
    if content.read(1) or not all(np.isfinite(x).all() for x in jax.tree.leaves(read)):
        raise ValueError(f"{path} is damaged: it holds more than the weights, or not numbers")
    return eqx.combine(read, rest)


def _is_weight(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) or eqx.is_array(leaf)


def _shapes(path: str | os.PathLike[str], header: dict[str, Any]) -> GraphNetwork:
    """A network of the architecture that a file names, of shapes in place of arrays."""
    options: dict[str, Any] = {name: header.get(name) for name in _ARCHITECTURE}
    for name, kind in _ARCHITECTURE.items():
        if type(options[name]) is not kind or not 0 <= options[name] <= 4096:
            raise ValueError(f"{path}: {name} is {options[name]!r:.60}")
    return eqx.filter_eval_shape(lambda: GraphNetwork(**options, key=jax.random.key(0)))
