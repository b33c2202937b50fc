"""The mechanisms of engine, kernel and environment, and how each is switched off."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from math import inf, sqrt
from typing import Any, NamedTuple

from veenv.engine.sparse.indexing import SymmetricBlocks
from veenv.kernel.cpu.compile import host


class Mechanism(NamedTuple):
    """One mechanism.

    Attributes:
      product: its files, or names in them, as ``path:name,name``.
      tests: the same of its tests.
      corpora: of functions that may have it.
      off: by place what stands there without it; empty where it is a feature, or needs a device.
      missed: who would miss it.
      verdict: whether it stays.
    """

    product: tuple[str, ...]
    tests: tuple[str, ...] = ()
    corpora: tuple[str, ...] = ()
    off: Mapping[str, Any] = {}
    missed: str = ""
    verdict: str = "stays"


_ENGINE, _KERNEL = "veenv/engine/", "veenv/kernel/"
_COMPILED = "realistic", "fuse", "libraries"


def _two_prices(price: Any, batch: int | None) -> float:
    return sqrt(price(1) * price(256))


MECHANISMS: dict[str, Mechanism] = {
    "materialised values": Mechanism(
        (_ENGINE + "materialise.py",), ("tests/engine/test_materialise.py",),
        ("realistic", "sparse"),
        {
            "veenv.engine.materialise:stored_from": lambda closed: _never(closed),
            "veenv.engine.materialise:shared": lambda jaxpr: frozenset(),
        },
    ),
    "what a batch shares": Mechanism(
        (_ENGINE + "materialise.py:shared",), (), ("realistic", "sparse"),
        {"veenv.engine.materialise:shared": lambda jaxpr: frozenset()},
    ),
    "other orders": Mechanism(
        (_ENGINE + "alternatives.py:other_orders,forward_instead,num_passes",),
        ("tests/engine/test_forms_of_loops.py",), ("realistic",),
        {"veenv.engine.jacobian:other_orders": lambda *args, **named: []},
    ),
    "JAX's modes as forms": Mechanism(
        (_ENGINE + "alternatives.py",),
        ("tests/engine/test_optional_forms.py", "tests/engine/test_small_products.py"),
        ("realistic",),
        {"veenv.engine.jacobian:other_modes": lambda *args, **named: {}},
    ),
    "the price of several batches": Mechanism(
        (_ENGINE + "form_selection.py:_at", _KERNEL + "fusing.py:run_at_batch",), (),
        ("realistic",),
        {"veenv.engine.form_selection:_at": _two_prices},
    ),
    "JAX's mode alone": Mechanism(
        (_ENGINE + "alternatives.py:modes_alone,are_small_products,are_loops,_narrowest,_entries",),
        ("tests/engine/test_small_products.py",), ("realistic",),
        {"veenv.engine.jacobian:modes_alone": lambda *args: []},
    ),
    "symmetric halves": Mechanism(
        (_ENGINE + "sparse/indexing.py:SymmetricBlocks,symmetric_blocks,_Placed",
         _ENGINE + "second.py:_is_symmetric", _ENGINE + "sparse/entries.py:upper,mirrored"),
        (), ("hessians",),
        {"veenv.engine.jacobian:symmetric_blocks": lambda lin: SymmetricBlocks()},
    ),
    "blocks": Mechanism(
        tuple(f"{_ENGINE}repeated/{n}.py" for n in ("batched_region", "gather_motion", "outlining",
                                                   "per_point", "region_search", "unvmap")),
        ("tests/engine/sparse/test_points.py", "tests/engine/sparse/test_writings.py"),
        ("sparse", "writings"),
        {"veenv.engine.jacobian:with_regions": lambda program: program},
    ),
    "gathers moved before rows": Mechanism(
        (_ENGINE + "repeated/gather_motion.py",), (), ("sparse", "writings"),
        {"veenv.engine.repeated.outlining:gathers_first": lambda search: None},
    ),
    "lax.map as a batch": Mechanism(
        (_ENGINE + "repeated/unvmap.py:_at_once,_num_loops",), (), ("writings",),
        {"veenv.engine.repeated.unvmap:_at_once": lambda e: None},
    ),
    "entries at all places": Mechanism(
        (), (), ("sparse", "writings"),
        {"veenv.engine.sparse.indexing:index_arrays": lambda lin, parallel, around: (
            {} if around.blocks else _index_arrays(lin, parallel, around))},
    ),
    "complex numbers as entries": Mechanism(
        (_ENGINE + "sparse/partials.py:_complex_move,_turned,_of_parts",
         _ENGINE + "jacobian.py:_by_complex"),
        ("tests/engine/sparse/test_complex.py",), ("sparse",),
        {"veenv.engine.sparse.partials:_complex_move": lambda *args: None},
    ),
    "operators by colours": Mechanism(
        (_ENGINE + "sparse/partials.py:_compressed,coloured",), (), ("sparse", "writings"),
        {"veenv.engine.sparse.partials:_compressed": lambda *args: None},
    ),
    "long loops by one turn": Mechanism(
        (_ENGINE + "sparse/dependence.py:_repeated",), (), ("sparse", "writings"),
        {"veenv.engine.sparse.dependence:_Follower._repeated": lambda *args: _too_many()},
    ),
    "factors that are mostly zeros": Mechanism(
        (_ENGINE + "sparse/partials.py:_thin_product,_elementwise_places,_dot_places",), (),
        ("sparse", "writings"),
        {"veenv.engine.sparse.partials:_thin_product": lambda *args: None},
    ),
    "dense from blocks": Mechanism(
        (_ENGINE + "jacobian.py:_thin,entries_of",), ("tests/engine/test_thin.py",),
        ("realistic", "sparse"), {"veenv.engine.jacobian:_thin": lambda *args: False},
    ),
    "sums kept as terms": Mechanism(
        (_ENGINE + "sums.py:Sum,_free,_collected,_formed,add,multiply",),
        ("tests/engine/test_sums.py",), ("realistic", "sparse"),
        {"veenv.engine.sums:add": lambda a, b: _added(a, b)},
    ),
    "joint passes of operators": Mechanism(
        ("veenv/linear/joint.py:_once",), (), ("realistic",),
        {"veenv.linear.joint:Joint._once": lambda self, way, key, action, x, axes, shape: (
            _along(action, x, axes, shape))},
    ),
    "two registers of points": Mechanism(
        (_KERNEL + "cpu/size.py:lanes_of", _KERNEL + "cpu/layout.py:_by_registers"), (),
        _COMPILED,
        {
            "veenv.kernel.cpu.size:lanes_of": lambda program: host().lanes(program),
            "veenv.kernel.cpu.records:lanes_of": lambda program: host().lanes(program),
        },
    ),
    "squares of rows": Mechanism(
        (_KERNEL + "cpu/layout.py:row_starts,SeparatedRows",), (), _COMPILED,
        {"veenv.kernel.cpu.layout:row_starts": lambda entries, lanes: ()},
    ),
    "own shuffles of AVX-512": Mechanism(
        (_KERNEL + "cpu/layout.py:_permuted,_table",), (), _COMPILED,
        {"veenv.kernel.cpu.layout:_PERMUTED": {}},
    ),
    "large outputs by values": Mechanism(
        (_KERNEL + "cpu/size.py:Written,_written,_runs",
         _KERNEL + "cpu/records.py:transposing,_transposing,_by_value"),
        ("tests/kernel/test_writes.py",), _COMPILED,
        {"veenv.kernel.cpu.size:_written": lambda program, output: _plain(program, output)},
    ),
    "sines and cosines": Mechanism(
        (_KERNEL + "cpu/trigonometry.py",), ("tests/kernel/test_trigonometry.py",), _COMPILED,
        {"veenv.kernel.cpu.trigonometry:Trigonometry.value": lambda self, name, dtype, x, needed: (
            self._to.call(name, dtype, [x]))},
    ),
    "order for registers": Mechanism(
        (_KERNEL + "ordering.py:_waiting",), (), _COMPILED,
        {"veenv.kernel.ordering:_waiting": lambda order, users, args: 0},
    ),
    "loop tables": Mechanism(
        (_KERNEL + "building/loop_tables.py",), ("tests/kernel/test_loop_tables.py",), _COMPILED,
        {"veenv.kernel.building.loop_tables:tables": lambda *args: ({}, {})},
    ),
    "axes as loops": Mechanism(
        (_KERNEL + "building/rerolling.py",), ("tests/kernel/test_rerolling.py",), _COMPILED, {},
    ),
    "equal bodies once": Mechanism(
        (_ENGINE + "wrappers.py:equal_bodies_once,_Alike,_first_of,_Body,_first,_computed,"
         "_atom,_constant,_plain",), (), (),
        {"veenv.engine.jacobian:equal_bodies_once": nullcontext},
    ),
}  # fmt: skip


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


def _index_arrays(*args: Any) -> Any:
    from veenv.engine.sparse.partials import index_arrays

    return index_arrays(*args)


def _along(action: Any, x: Any, axes: Any, shape: Any) -> Any:
    from veenv.linear.linear_map import along_several, drop_ones

    return along_several(action, x, axes, drop_ones(shape))


def _plain(program: Any, output: int) -> Any:
    from veenv.kernel.cpu.size import Written

    leaf = program.outputs[output]
    return Written(leaf, leaf, program.results[output])
