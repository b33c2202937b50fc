"""The mechanisms of engine and kernel, and how each is switched off."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from veenv.engine.sparse.indexing import SymmetricBlocks
from veenv.kernel.cpu.compile import host


class Mechanism(NamedTuple):
    """One mechanism.

    Attributes:
      corpora: of functions that may have it.
      off: by place what stands there without it.
    """

    corpora: tuple[str, ...]
    off: Mapping[str, Any]


_SPARSE, _COMPILED = ("sparse", "writings"), ("realistic", "fuse", "libraries")


MECHANISMS: dict[str, Mechanism] = {
    "materialised values": Mechanism(("realistic", "sparse"), {
        "veenv.engine.materialise:stored_from": lambda closed: _never(closed),
        "veenv.engine.materialise:shared": lambda jaxpr: frozenset(),
    }),
    "other orders": Mechanism(
        ("realistic",), {"veenv.engine.jacobian:other_orders": lambda *args, **named: []}
    ),
    "JAX's mode alone": Mechanism(
        ("realistic",), {"veenv.engine.jacobian:modes_alone": lambda *args: []}
    ),
    "symmetric halves": Mechanism(
        ("hessians",), {"veenv.engine.jacobian:symmetric_blocks": lambda lin: SymmetricBlocks()}
    ),
    "gathers moved before rows": Mechanism(
        _SPARSE, {"veenv.engine.repeated.outlining:gathers_first": lambda search: None}
    ),
    "lax.map as a batch": Mechanism(
        ("writings",), {"veenv.engine.repeated.unvmap:_at_once": lambda e: None}
    ),
    "row numbers as a batch axis": Mechanism(
        _SPARSE, {"veenv.engine.repeated.unvmap:_by_rows": lambda e, known: None}
    ),
    "complex numbers as entries": Mechanism(
        ("sparse",), {"veenv.engine.sparse.partials:_complex_move": lambda *args: None}
    ),
    "operators by colours": Mechanism(
        _SPARSE, {"veenv.engine.sparse.partials:_compressed": lambda *args: None}
    ),
    "long loops by one turn": Mechanism(
        _SPARSE, {"veenv.engine.sparse.dependence:_Follower._repeated": lambda *args: _too_many()}
    ),
    "factors that are mostly zeros": Mechanism(
        _SPARSE, {"veenv.engine.sparse.partials:_thin_product": lambda *args: None}
    ),
    "dense from blocks": Mechanism(
        ("realistic", "sparse"), {"veenv.engine.jacobian:_thin": lambda *args: False}
    ),
    "sums kept as terms": Mechanism(
        ("realistic", "sparse"), {"veenv.engine.sums:add": lambda a, b: _added(a, b)}
    ),
    "joint passes of operators": Mechanism(
        ("realistic",),
        {"veenv.linear.joint:Joint._once": lambda self, way, key, compute: compute()},
    ),
    "two registers of points": Mechanism(_COMPILED, {
        "veenv.kernel.cpu.size:lanes_of": lambda program: host().lanes(program),
        "veenv.kernel.cpu.records:lanes_of": lambda program: host().lanes(program),
    }),
    "squares of rows": Mechanism(
        _COMPILED, {"veenv.kernel.cpu.layout:row_starts": lambda entries, lanes: ()}
    ),
    "own shuffles of AVX-512": Mechanism(_COMPILED, {"veenv.kernel.cpu.layout:_PERMUTED": {}}),
    "sines and cosines": Mechanism(_COMPILED, {
        "veenv.kernel.cpu.trigonometry:Trigonometry.value": lambda self, name, dtype, x, needed: (
            self._to.call(name, dtype, [x])),
    }),
    "order for registers": Mechanism(
        _COMPILED, {"veenv.kernel.ordering:_waiting": lambda order, users, args: 0}
    ),
    "loop tables": Mechanism(
        _COMPILED, {"veenv.kernel.building.loop_tables:tables": lambda *args: ({}, {})}
    ),
    "formulas of stored arrays": Mechanism(
        _COMPILED, {"veenv.kernel.building.nests:_formula": lambda b, ids: _read_alone(ids)}
    ),
}  # fmt: skip


def _read_alone(ids: Any) -> Any:
    from veenv.kernel.building import nests

    return nests.Formula((ids,))


def _too_many() -> None:
    from veenv.engine.sparse.dependence import _TooManyError

    raise _TooManyError


def _never(closed: Any) -> dict[Any, float]:
    from veenv import _compat
    from veenv.linear.barrier import BARRIERS

    jaxpr = _compat.open_jaxpr(closed)
    return {e.outvars[0]: inf for e in jaxpr.eqns if e.primitive.name in BARRIERS}


def _added(a: Any, b: Any) -> Any:
    from veenv.engine import edge, sums

    return edge.add(sums.formed(a), sums.formed(b))
