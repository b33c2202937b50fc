"""Observations of kind ``"graph"`` in the shapes of the libraries for graph networks.

Neither library is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from veenv.env.graph_view import GraphObservation


class GraphsTuple(NamedTuple):
    """The fields of ``jraph.GraphsTuple``, in its order; ``jraph.GraphsTuple(*t)`` converts."""

    nodes: Any
    edges: Any
    receivers: Any
    senders: Any
    globals: Any
    n_node: Any
    n_edge: Any


def to_graphs_tuple(obs: GraphObservation) -> GraphsTuple:
    """An observation, or a batch of them, as one `GraphsTuple` with its padding as jraph wants it.

    Each graph is followed by one of padding: a node, which all edges of padding join.

    Args:
      obs: the observation, or B of them with a first axis [B].

    Returns:
      ``nodes`` [B (N + 1), F] and so on; ``n_node`` and ``n_edge`` int32 [2 B].

    Examples:
      >>> import veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0, observation="graph")
      >>> graphs = to_graphs_tuple(env.reset()[0])
      >>> graphs.n_node.tolist(), graphs.n_edge.tolist(), graphs.senders.tolist()
      ([4, 1], [4, 2], [0, 0, 1, 2, 4, 4])
    """
    if obs.nodes.ndim == 2:
        obs = jax.tree.map(lambda x: x[None], obs)
    batch, num_nodes, _ = obs.nodes.shape
    room = obs.senders.shape[1]
    first = (jnp.arange(batch, dtype=jnp.int32) * (num_nodes + 1))[:, None]
    nodes = jnp.pad(obs.nodes, ((0, 0), (0, 1), (0, 0)))
    return GraphsTuple(
        nodes.reshape(-1, nodes.shape[-1]),
        obs.edges.reshape(-1, obs.edges.shape[-1]),
        (obs.receivers + first).reshape(-1),
        (obs.senders + first).reshape(-1),
        None,
        jnp.stack([obs.n_node, jnp.ones_like(obs.n_node)], -1).reshape(-1),
        jnp.stack([obs.n_edge, room - obs.n_edge], -1).reshape(-1),
    )


def to_pyg(obs: GraphObservation) -> dict[str, np.ndarray]:
    """An observation, or a batch of them, as the arrays of a PyTorch-Geometric ``Data``.

    Host only; the padding is left out.  ``Data(**{k: torch.from_numpy(v) for k, v in d.items()})``
    converts.

    Args:
      obs: the observation, or B of them with a first axis [B].

    Returns:
      ``x`` float32 [nodes, F], ``edge_index`` int64 [2, edges] (senders, then receivers),
      ``edge_attr`` float32 [edges, D], ``action_mask`` bool [slots], ``batch`` int64 [nodes].

    Raises:
      ValueError: there was no room for all edges.

    Examples:
      >>> import veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0, observation="graph")
      >>> to_pyg(env.reset()[0])["edge_index"].tolist()
      [[0, 0, 1, 2], [1, 3, 2, 3]]
    """
    graphs: Any = jax.tree.map(np.asarray, obs)
    if obs.nodes.ndim == 2:
        graphs = jax.tree.map(lambda x: x[None], graphs)
    batch, num_nodes, width = graphs.nodes.shape
    room = graphs.senders.shape[1]
    if (graphs.n_edge > room).any():
        raise ValueError(f"a graph has {graphs.n_edge.max()} edges, more than max_edges={room}")
    used = np.arange(room) < graphs.n_edge[:, None]
    first = num_nodes * np.arange(batch)[:, None]
    ends = [(ids + first)[used].astype(np.int64) for ids in (graphs.senders, graphs.receivers)]
    return {
        "x": graphs.nodes.reshape(-1, width),
        "edge_index": np.stack(ends),
        "edge_attr": graphs.edges[used],
        "action_mask": graphs.action_mask.reshape(-1),
        "batch": np.repeat(np.arange(batch, dtype=np.int64), num_nodes),
    }
