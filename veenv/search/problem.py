"""Encodes a graph as the flat arrays that the compiled searches work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veenv.graph.graph import CostModel, Graph, check_cost_model, counts_additions
from veenv.search.kernels import kernels
from veenv.search.kernels.kernels import PRED, SUCC, VALUED, ArrayCore, ScalarCore
from veenv.search.kernels.tables import StructureTables

MAX_BYTES = 1 << 28
"""Of the states that a search holds at once: a quarter of a gigabyte."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph prepared for searching."""

    graph: Graph  # the graph
    cost_model: CostModel  # the cost model
    vertex_ids: np.ndarray  # int64 [n]; id of each local vertex, ascending
    core: kernels.Core  # arrays for the compiled kernels
    tables: StructureTables | None  # owner of the core's tables (None for scalars)
    edges: tuple[tuple[int, int], ...]  # local (source, target) pairs

    @property
    def n(self) -> int:
        """Number of eliminable vertices."""
        return self.core.n

    @property
    def waits(self) -> bool:
        """Returns whether some vertices must wait for others (`veenv.graph.precedence`)."""
        return len(self.core.before) > 0

    def to_ids(self, order: np.ndarray | Sequence[int]) -> tuple[int, ...]:
        """Returns the vertex ids of a local order."""
        return tuple(int(self.vertex_ids[v]) for v in order)

    def to_local(self, order: Sequence[int]) -> np.ndarray:
        """Returns the local order, int64 [n], of vertex ids."""
        return np.searchsorted(self.vertex_ids, np.asarray(order, np.int64)).astype(np.int64)

    def legal(self, order: np.ndarray) -> np.ndarray:
        """Returns the nearest local order that the graph allows, int64 [n]."""
        if not self.waits:
            return order
        return self.to_local(self.graph.legal(self.to_ids(order)))

    def costs(self, order: np.ndarray) -> np.ndarray:
        """Returns the cost of each elimination of a local order, int64 [n]."""
        costs = np.zeros(self.n, np.int64)
        kernels.order_costs(self.core, np.asarray(order, np.int64), costs)
        return costs

    def total(self, order: np.ndarray) -> int:
        """Returns the cost of a local order."""
        return int(self.costs(order).sum())


def prepare(graph: Graph, cost_model: CostModel = "multiplications") -> Problem:
    """Prepares a graph for the compiled searches.

    Raises:
      ValueError: if the cost model is unknown or the graph is too large for dense states.
    """
    structures = graph.structures(check_cost_model(cost_model))
    vertex_nodes = [graph.num_inputs + i - 1 for i in graph.eliminable]
    terminals = sorted({node for edge in structures for node in edge} - set(vertex_nodes))
    local = {node: i for i, node in enumerate([*vertex_nodes, *terminals])}
    num_nodes = max(len(local), 1)
    words = (num_nodes + 63) // 64
    scalar = graph.is_scalar
    size = 3 * num_nodes * words * 8 + (0 if scalar else num_nodes * num_nodes * 4)
    if size > MAX_BYTES:
        raise ValueError(
            f"a graph of {num_nodes} nodes is too large to search: one state takes {size >> 20} "
            f"MiB, the limit is {MAX_BYTES >> 20} MiB"
        )
    bits = np.zeros((3, num_nodes, words), np.uint64)
    ids = np.zeros((1, 1) if scalar else (num_nodes, num_nodes), np.int32)
    additions = counts_additions(cost_model)
    tables = None if scalar else StructureTables(additions=additions)
    for (source, target), structure in structures.items():
        u, v = local[source], local[target]
        _set(bits[SUCC, u], v)
        _set(bits[PRED, v], u)
        if not structure.unit:
            _set(bits[VALUED, u], v)
        if tables is not None:
            ids[u, v] = tables.intern(structure)
    plain = scalar and bool((bits[SUCC] == bits[VALUED]).all())
    is_output = np.zeros(num_nodes, np.bool_)
    is_output[[local[node] for node in graph.output_nodes if node in local]] = True
    n = len(vertex_nodes)
    before = _encode_before(graph)
    core: kernels.Core
    if tables is None:
        core = ScalarCore(n, bits, ids, is_output, plain, additions, before)
    else:
        store = (tables.keys, tables.results, tables.counts, tables.handle)
        core = ArrayCore(n, bits, ids, is_output, *store, additions, before)
    edges = tuple((local[a], local[b]) for a, b in structures)
    return Problem(graph, cost_model, np.asarray(graph.eliminable, np.int64), core, tables, edges)


def _encode_before(graph: Graph) -> np.ndarray:
    """Returns the vertices that precede each one, as bits: uint64 [n, Wn], or [0, Wn] if none."""
    n, needed = len(graph.eliminable), graph.prerequisites
    before = np.zeros((n if needed else 0, (n + 63) // 64), np.uint64)
    place = {vertex: v for v, vertex in enumerate(graph.eliminable)}
    for vertex, earlier in needed.items():
        for other in earlier:
            _set(before[place[vertex]], place[other])
    return before


def _set(row: np.ndarray, bit: int) -> None:
    row[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
