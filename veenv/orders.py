"""Elimination orders as records and as files."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from veenv.graph import COST_MODELS, Graph

FORMAT = "veenv-order"
VERSION = 1
MAX_BYTES = 64 * 2**20
MAX_ID = 2**31 - 1


def fingerprint(graph: Graph) -> str:
    """Hash of a graph's structure: nodes, shapes, edges and their structures, outputs.

    Two functions with the same fingerprint can share orders; values do not enter.
    """
    text = json.dumps(
        [
            graph.num_inputs,
            graph.shapes,
            graph.outputs,
            [[u, v, s.describe()] for (u, v), s in sorted(graph.structures("executed").items())],
        ],
        separators=(",", ":"),
    )
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Order:
    """An elimination order and where it comes from.

    Attributes:
      ids: eliminable vertex ids in elimination order.
      name: task or function it is for.
      counts: multiplications under each cost model.
      fingerprint: of the graph it is for (`fingerprint`).
      num_edges: number of edges of that graph, for error messages.
      num_vertices: number of its numbered vertices, for error messages.
      jax_version: the version that traced it.
      found_by: method, seed or other origin, as text.
    """

    ids: tuple[int, ...]
    name: str
    counts: Mapping[str, int]
    fingerprint: str
    num_edges: int
    num_vertices: int
    jax_version: str = field(default_factory=lambda: jax.__version__)
    found_by: str = ""

    @classmethod
    def from_graph(cls, graph: Graph, ids: Any, name: str = "", found_by: str = "") -> Order:
        """The record of an order of a graph, counted under every cost model.

        Raises:
          ValueError: if the order misses, repeats or invents a vertex.
        """
        checked = graph.check_order(ids)
        counts = {cost: graph.cost(checked, cost) for cost in COST_MODELS}
        return cls(
            checked,
            name,
            counts,
            fingerprint(graph),
            len(graph.edges),
            graph.num_vertices,
            found_by=found_by,
        )

    def ids_for(self, graph: Graph) -> tuple[int, ...]:
        """The ids, after checking that the order is for this graph.

        Raises:
          ValueError: naming what differs (vertices, edges, or only structure and JAX version).
        """
        if self.fingerprint == fingerprint(graph):
            return graph.check_order(self.ids)
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
        raise ValueError(
            f"order {self.name!r} is for another graph: "
            + (", ".join(differences) or "same sizes, but other edges, shapes or structures")
            + "; search anew, for example with scripts/search.py"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the order as JSON, aside first and then renamed into place."""
        record = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "ids": list(self.ids),
            "counts": dict(self.counts),
            "fingerprint": self.fingerprint,
            "num_edges": self.num_edges,
            "num_vertices": self.num_vertices,
            "jax_version": self.jax_version,
            "found_by": self.found_by,
        }
        write_text(path, json.dumps(record, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Order:
        """Reads an order file.

        Raises:
          ValueError: if the file is not an order file, naming the file and the offending field.
          OSError: if it cannot be read.
        """
        size = os.stat(path).st_size
        if size > MAX_BYTES:
            raise ValueError(f"order file {path}: {size} bytes, expected at most {MAX_BYTES}")
        try:
            record = json.loads(Path(path).read_bytes(), object_pairs_hook=_no_duplicates)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"order file {path} is not valid JSON: {error}") from None
        try:
            return cls._from_record(record)
        except ValueError as error:
            raise ValueError(f"order file {path}: {error}") from None

    @classmethod
    def _from_record(cls, record: Any) -> Order:
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise ValueError(f'expected an object with "format": "{FORMAT}"')
        if record.get("version") != VERSION:
            raise ValueError(f"expected version {VERSION}, got {record.get('version')!r}")
        ids = record.get("ids")
        if not isinstance(ids, list):
            raise ValueError(f"ids must be a list of vertex ids, got {type(ids).__name__}")
        for i, v in enumerate(ids):
            _integer(f"ids[{i}]", v, 1, MAX_ID)
        counts = record.get("counts")
        if not isinstance(counts, dict):
            raise ValueError(f"counts must be an object, got {type(counts).__name__}")
        for key, value in counts.items():
            _integer(f"counts[{key!r}]", value, 0, 2**63 - 1)
        texts = ("name", "fingerprint", "jax_version", "found_by")
        for key in texts:
            if not isinstance(record.get(key), str):
                raise ValueError(f"{key} must be text, got {record.get(key)!r}")
        for key in ("num_edges", "num_vertices"):
            _integer(key, record.get(key), 0, MAX_ID)
        return cls(
            tuple(ids),
            record["name"],
            counts,
            record["fingerprint"],
            record["num_edges"],
            record["num_vertices"],
            record["jax_version"],
            record["found_by"],
        )


def _integer(name: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        shown = repr(value)
        raise ValueError(f"{name} must be an integer in {low} .. {high}, got {shown[:60]}")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("an object names one key twice")
    return record


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file so that readers see the old or the new content, never a part.

    Raises:
      OSError: if the directory cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
