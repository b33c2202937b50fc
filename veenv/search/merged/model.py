"""What every order's program has in common, and the work of one order's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from veenv.engine.edge import todense
from veenv.engine.evaluation import evaluate
from veenv.graph.argnums import normalise_argnums
from veenv.graph.linearisation import Linearisation, linearise
from veenv.graph.program import trace
from veenv.kernel.fusing import trace_point
from veenv.kernel.program import FLOATS, FREE, ScalarProgram
from veenv.kernel.weights import SHARED, weight
from veenv.search.merged.elimination import Entries, State, work_of
from veenv.search.merged.operations import (
    ADD,
    CONST,
    MUL,
    NEG,
    NONE,
    OPAQUE,
    SUB,
    Operations,
    find,
)

MOST_NODES = 3000
"""Inputs, vertices and their entries, in all; the tables are quadratic."""
_KINDS = {"mul": MUL, "add": ADD, "sub": SUB, "neg": NEG}


class Work:
    """The work of the programs of a function's Jacobian, order by order.

    Attributes:
      graph: the function's graph.
      core: what the compiled searches need: `Operations` and `Entries`.
    """

    def __init__(self, lin: Linearisation, program: ScalarProgram, found: _Found):
        self.graph = lin.graph
        self.core = _operations(program), _entries(lin, program, found)
        self._state = new_state(self.core[1])
        self._place = {vertex: k for k, vertex in enumerate(self.graph.eliminable)}

    def local(self, order: Sequence[int]) -> np.ndarray:
        """An order of vertex ids by their places among the eliminable ones, int64 [n]."""
        return np.array([self._place[v] for v in self.graph.check_order(order)], np.int64)

    def ids(self, order: np.ndarray) -> tuple[int, ...]:
        """The vertex ids of such an order."""
        return tuple(self.graph.eliminable[int(k)] for k in order)

    def __call__(self, order: Sequence[int]) -> int:
        """The work of an order of vertex ids, in operations.

        Raises:
          ValueError: if it is no order of the graph, or its program has too many operations.
        """
        found = int(work_of(*self.core, self._state, self.local(order)))
        if found < 0:
            raise ValueError("the order's program has too many operations")
        return found


class _Found:
    """What tracing sees of each elemental partial.

    Attributes:
      lin: the program.
      pairs: source and target of each edge.
      signs: their signs.
      masked: which of them have a mask, in order, after all edges.
    """

    def __init__(self) -> None:
        self.lin: Linearisation | None = None
        self.pairs: list[tuple[int, int]] = []
        self.signs: list[int] = []
        self.masked: list[int] = []


def work(
    fun: Callable[..., Any], *args: Any, argnums: int | Sequence[int] = 0, value: bool = False
) -> Work:
    """The work of the whole program of a Jacobian, for any order.

    It is `veenv.kernel.program.ScalarProgram.work`, found in a fraction of a millisecond: exactly
    where all variables are single numbers and no select chooses between them. Of arrays, sums may
    be formed in another order and what shuts out the zeros of selects is left out; of single
    numbers the negations of conditions are counted that the program can do without.

    Args:
      fun: a JAX-traceable function.
      *args: its arguments.
      argnums: which of them to differentiate by.
      value: whether the program computes the function too.

    Raises:
      CannotFuseError: if the function cannot be a kernel.
      ValueError: if it is too large, or has rules that order eliminations.
    """
    wanted, seen = normalise_argnums(argnums, len(args)), _Found()

    def everything(*given: Any) -> list[Any]:
        lin = linearise(trace(fun, given, argnums=argnums))
        if lin.graph.reverse_only:
            raise ValueError("the function has a rule that is not linear")
        found = evaluate(lin, jax.tree.leaves([given[a] for a in wanted]))
        seen.lin, edges = lin, found.edges
        shapes = lin.graph.shapes
        seen.pairs, seen.signs = list(edges), [e.sign for e in edges.values()]
        dense, masks = [], []
        seen.masked = []
        for k, ((source, target), e) in enumerate(edges.items()):
            plain = replace(e, sign=1)
            dense.append(todense(plain, shapes[target], shapes[source], e.dtype))
            if e.mask is not None and not (*shapes[target], *shapes[source]):
                masks.append(e.mask)
                seen.masked.append(k)
        return [*dense, *masks, *(found.outputs if value else ())]

    program = trace_point(everything, args, {}, wanted).program()
    assert seen.lin is not None
    return Work(seen.lin, program, seen)


def new_state(graph: Entries) -> State:
    """Room for the elimination of a graph."""
    return State(*(np.empty_like(x) for x in (graph.edge, graph.mask, graph.preds, graph.succs)))


def _operations(program: ScalarProgram) -> Operations:
    """The operations of a program, and room for those of an elimination."""
    start = len(program.ops)
    room = _room(program)
    bits = math.ceil(math.log2(3 * room))
    floats = {op.dtype for op in program.ops if op.dtype in FLOATS}
    rows = np.full((room, 6), NONE, np.int64)
    table = np.full(1 << bits, NONE, np.int64)
    ops = Operations(rows, table, np.array([0, 0, "float64" not in floats], np.int64))
    for i, op in enumerate(program.ops):
        known = op.dtype in FLOATS
        if known and op.name == "const":
            find(ops, CONST, int(np.float64(op.attr).view(np.int64)), NONE, NONE)
        elif known and op.name in _KINDS:
            args = [*sorted(op.args)] if op.name in ("mul", "add") else [*op.args]
            args += [NONE] * (3 - len(args))
            find(ops, _KINDS[op.name], *args)
        else:
            rows[i, 0], ops.size[0] = OPAQUE, i + 1
            rows[i, 1 : 1 + len(op.args)] = op.args
        assert ops.size[0] == i + 1
        rows[i, 4] = 0 if op.name in FREE else weight(op.name, op.attr)
    ops.size[1] = start
    return ops


def _room(program: ScalarProgram) -> int:
    """How many operations there is room for."""
    return 4 * len(program.ops) + 200_000


def _pairs(program: ScalarProgram) -> np.ndarray:
    """The sines and cosines of one number, and what they share: int64 [P, 3]."""
    calls = {(op.attr, op.args): i for i, op in enumerate(program.ops) if op.name == "call"}
    pairs = [
        (i, calls["cos", args], SHARED)
        for (name, args), i in calls.items()
        if name == "sin" and ("cos", args) in calls
    ]
    return np.array(pairs, np.int64).reshape(-1, 3)


def _entries(lin: Linearisation, program: ScalarProgram, found: _Found) -> Entries:
    """The graph with a node for each entry of a variable.

    Raises:
      ValueError: if there are too many.
    """
    graph = lin.graph
    sizes = [math.prod(s) for s in graph.shapes]
    first = np.cumsum([0, *sizes])
    count = int(first[-1])
    if count > MOST_NODES:
        raise ValueError(f"the graph has {count:,} entries, more than {MOST_NODES:,}")
    words = (count + 63) // 64
    edge = np.zeros((count, count), np.int64)
    mask = np.full((count, count) if found.masked else (1, 1), NONE, np.int64)
    for k, (source, target) in enumerate(found.pairs):
        ids = np.array(program.results[k], np.int64).reshape(sizes[target], sizes[source])
        there = [[ids.size == 1 or not _is_zero(program, i) for i in row] for row in ids]
        rows = slice(first[target], first[target + 1])
        edge[rows, first[source] : first[source + 1]] = np.where(
            there, found.signs[k] * (ids + 1), 0
        )
    for n, k in enumerate(found.masked, len(found.pairs)):
        source, target = found.pairs[k]
        mask[first[target], first[source]] = program.results[n][0]
    always = [i for ids in program.results[len(found.pairs) + len(found.masked) :] for i in ids]
    vertices = [graph.node(v) for v in graph.eliminable]
    entries = [e for v in vertices for e in range(first[v], first[v + 1])]
    outputs = [e for v in graph.output_nodes for e in range(first[v], first[v + 1])]
    kept = np.zeros(count, np.bool_)
    kept[outputs] = True
    there = edge != 0
    return Entries(
        edge, mask, _rows(there, words), _rows(there.T, words), kept,
        np.cumsum([0, *(sizes[v] for v in vertices)]).astype(np.int64),
        np.array(entries, np.int64), np.array(outputs, np.int64), np.array(always, np.int64),
        _pairs(program), int(first[graph.num_inputs]), np.zeros(_room(program), np.int64),
    )  # fmt: skip


def _is_zero(program: ScalarProgram, i: int) -> bool:
    op = program.ops[i]
    return op.name == "const" and op.attr == 0


def _rows(there: np.ndarray, words: int) -> np.ndarray:
    """Rows of a bool matrix as bits: uint64 [N, W]."""
    padded = np.zeros((len(there), 64 * words), np.bool_)
    padded[:, : there.shape[1]] = there
    packed = np.packbits(padded, axis=1, bitorder="little")
    return packed.view(np.uint64).reshape(len(there), words)
