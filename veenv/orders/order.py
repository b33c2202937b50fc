"""Elimination orders as records: graph, cost and origin; improvement by hill climbing."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax

from veenv.graph.graph import COST_MODELS, CostModel, Graph
from veenv.orders import files as order_files
from veenv.structure.structure import Structure


def fingerprint(graph: Graph) -> str:
    """Hashes a graph's structure: edges with their structures, inputs and outputs.

    Functions with the same fingerprint share orders and counts.  Neither values nor dtypes enter,
    nor do vertices that no derivative passes through, except that they shift the ids of others: so
    does the conversion of a captured array to another dtype.

    Args:
      graph: the graph.

    Returns:
      64 hexadecimal digits (SHA-256).

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> sine = veenv.make_graph(lambda x: jnp.sin(x) * x)(1.0)
      >>> cosine = veenv.make_graph(lambda x: jnp.cos(x) * x)(1.0)
      >>> fingerprint(sine) == fingerprint(cosine)  # other values, the same edges
      True
    """
    executed, literature = graph.structures("executed"), graph.structures("multiplications")
    text = json.dumps(
        [
            "veenv graph 1",
            graph.num_inputs,
            graph.outputs,
            [[u, v, _key(executed[u, v]), _key(literature[u, v])] for u, v in graph.edges],
        ],
        separators=(",", ":"),
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _key(s: Structure) -> list[Any]:
    """Returns all fields of a structure, as numbers and text of JSON."""
    return [
        s.out_shape,
        s.in_shape,
        s.pairs,
        [int(v) for v in s.out_values],
        [int(v) for v in s.in_values],
        int(s.unit),
        s.link.value,
        s.link_out,
        s.link_in,
        int(s.link_values),
    ]


@dataclass(frozen=True)
class Order:
    """An elimination order, with its graph's fingerprint, its counts and its origin.

    Attributes:
      ids: eliminable vertex ids in elimination order.
      name: task or function it is for.
      counts: the cost under each cost model; files from before ``"operations"`` lack that one.
      fingerprint: of the graph it is for (`fingerprint`).
      num_edges: number of edges of that graph, for error messages.
      num_vertices: number of its numbered vertices, for error messages.
      jax_version: the version that traced it.
      found_by: method, seed or other origin, as text.
      lower_bounds: under a cost model, a cost that a search proved no order goes below; where it
        equals the count, the order is optimal.
      steps: environment steps of the training run after which it was found; None if it was found
        otherwise.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> f = lambda x, y: jnp.sin(x * y) * x
      >>> graph = veenv.make_graph(f, argnums=(0, 1))(1.0, 2.0)
      >>> order = Order.from_graph(graph, [2, 1], name="f")
      >>> order.counts["multiplications"]
      3
      >>> [round(float(d), 3) for d in veenv.jacve(f, order, argnums=(0, 1))(1.0, 2.0)]
      [0.077, -0.416]
    """

    ids: tuple[int, ...]
    name: str
    counts: Mapping[str, int] = field(hash=False)
    fingerprint: str
    num_edges: int
    num_vertices: int
    jax_version: str = field(default_factory=lambda: jax.__version__)
    found_by: str = ""
    lower_bounds: Mapping[str, int] = field(default_factory=dict, hash=False)
    steps: int | None = None

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        ids: Iterable[int],
        name: str = "",
        found_by: str = "",
        lower_bounds: Mapping[str, int] | None = None,
        steps: int | None = None,
    ) -> Order:
        """Makes the record of an order of a graph, counted under every cost model.

        Raises:
          ValueError: if the order misses, repeats or invents a vertex.
        """
        checked = graph.check_order(ids)
        return cls(
            checked,
            name,
            {cost: graph.cost(checked, cost) for cost in COST_MODELS},
            fingerprint(graph),
            len(graph.edges),
            graph.num_vertices,
            found_by=found_by,
            lower_bounds=dict(lower_bounds or {}),
            steps=steps,
        )

    def ids_for(self, graph: Graph) -> tuple[int, ...]:
        """Returns the ids, after checking that the order is for this graph and its counts hold.

        Raises:
          ValueError: naming what differs: vertices, edges, only structure and JAX version, or a
            count.
        """
        if self.fingerprint != fingerprint(graph):
            raise ValueError(self._difference(graph))
        ids = graph.check_order(self.ids)
        for cost in COST_MODELS:
            claimed = self.counts.get(cost)
            actual = None if claimed is None else graph.cost(ids, cost)
            if claimed != actual:
                what = "operations" if COST_MODELS[cost].additions else "multiplications"
                raise ValueError(
                    f"order {self.name!r} says it takes {claimed} {what} "
                    f"(counts[{cost!r}]), but this graph counts {actual}; the record has been "
                    "changed since it was written"
                )
        return ids

    def counted(self, graph: Graph, cost: CostModel) -> Self:
        """Returns the order with its count under a cost model, which old files may lack."""
        if cost in self.counts:
            return self
        return replace(self, counts={**self.counts, cost: graph.cost(self.ids, cost)})

    def is_optimal(self, cost: CostModel = "multiplications") -> bool:
        """Whether the record claims a proof that no order costs less.

        Nothing checks that; `veenv.orders.shipped.proved_bound` is the package's own word.
        """
        return cost in self.counts and self.lower_bounds.get(cost) == self.counts[cost]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the order as JSON, aside first and then renamed into place.

        Raises:
          ValueError: if a field is not what the schema asks for (orders.html).
          OSError: if it cannot be written.
        """
        order_files.write_record(
            path,
            {
                "name": self.name,
                "counts": dict(self.counts),
                "lower_bounds": dict(self.lower_bounds),
                "found_by": self.found_by,
                **({} if self.steps is None else {"steps": self.steps}),
                "jax_version": self.jax_version,
                "num_vertices": self.num_vertices,
                "num_edges": self.num_edges,
                "fingerprint": self.fingerprint,
                "ids": list(self.ids),
            },
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Order:
        """Reads an order file.

        Raises:
          ValueError: if the file is not an order file, naming the file and the offending field.
          OSError: if it cannot be read.
        """
        return cls.from_record(order_files.read_record(path))

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Order:
        """Returns the order of a checked record (`order_files.read_record`)."""
        fields = {key: x for key, x in record.items() if key not in ("format", "version", "ids")}
        return cls(ids=tuple(record["ids"]), **fields)

    def _difference(self, graph: Graph) -> str:
        differences = [
            f"{what} {mine} against {theirs}"
            for what, mine, theirs in (
                ("vertices", self.num_vertices, graph.num_vertices),
                ("eliminable vertices", len(self.ids), len(graph.eliminable)),
                ("edges", self.num_edges, len(graph.edges)),
                ("jax", self.jax_version, jax.__version__),
            )
            if mine != theirs
        ]
        return (
            f"order {self.name!r} is for another graph: "
            + (", ".join(differences) or "same sizes, but other edges, shapes or structures")
            + "; the function, or its arguments' shapes, dtypes or weak types (as of Python "
            "numbers), differ from those it was found for: give these, or search anew, for example "
            "with veenv.optimize or veenv-search; see errors.html#orders-for-another-graph"
        )


_PATIENCE = 40  # moves per vertex without improvement after which climbing ends


def climb(
    graph: Graph, order: Sequence[int], cost: CostModel = "multiplications", seed: int = 0
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Moves single vertices to other places as long as that makes the order no more expensive.

    The compiled searches get much further in a minute, but have to be compiled on a machine that
    has never run them.

    Args:
      graph: the graph.
      order: where climbing begins.
      cost: the cost model.
      seed: of the moves that are tried.

    Yields:
      The best order so far and its cost: the given one, then after every move that was evaluated.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> graph = veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)
      >>> list(climb(graph, [1, 2]))[-1]
      ((1, 2), 2)
    """
    rng = random.Random(seed)
    current = list(graph.check_order(order))
    price = graph.cost(current, cost)
    best, best_price, stale = tuple(current), price, 0
    yield best, best_price
    while len(best) > 1 and best_price and stale < _PATIENCE * len(best):
        candidate = current.copy()
        vertex = candidate.pop(rng.randrange(len(candidate)))
        candidate.insert(rng.randrange(len(candidate) + 1), vertex)
        if graph.reverse_only:
            candidate = list(graph.legal(candidate))
        new = price if candidate == current else graph.cost_within(candidate, cost, price)
        stale += 1
        if new <= price:
            current, price = candidate, new
        if new < best_price:
            best, best_price, stale = tuple(candidate), new, 0
        yield best, best_price


def climb_until(graph: Graph, order: Sequence[int], end: float, cost: CostModel) -> tuple[int, ...]:
    """Returns the best order of a climb that ends at a `time.perf_counter` of `end`.

    Args:
      graph: the graph.
      order: where climbing begins.
      end: when it ends.
      cost: the cost model.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> graph = veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)
      >>> climb_until(graph, [1, 2], 0.0, "multiplications")
      (1, 2)
    """
    best = tuple(order)
    for better, _ in climb(graph, order, cost):
        best = better
        if time.perf_counter() >= end:
            break
    return best
