"""Which orders rules allow, on random graphs, against reachability and search spelled out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.sampling import on_seeds
from veenv.graph import precedence
from veenv.graph.precedence import ReverseOnly


def random_case(seed):
    """Edges, reachability in one step or more, rules of one direction, and vertices by node."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(4, 9))
    there = np.triu(rng.random((size, size)) < 0.35, 1)
    nodes = rng.permutation(size)[: rng.integers(2, size + 1)].tolist()
    moves = {node: 10 + node for node in sorted(nodes)}
    forward, rules = bool(rng.random() < 0.5), []
    for k in range(rng.integers(1, 3)):
        cut = int(rng.integers(1, size))
        operands = rng.permutation(cut)[: rng.integers(1, 3)].tolist()
        results = (cut + rng.permutation(size - cut))[: rng.integers(1, 3)].tolist()
        for u in operands:
            there[u, results] = True
        rules.append((f"rule {k}", tuple(results), tuple(operands)))
    reached = there.copy()
    for _ in range(size):
        reached |= (reached.astype(int) @ there) > 0
    made = [
        ReverseOnly(name, "here", results, operands, forward=forward)
        for name, results, operands in rules
    ]
    edges = [(int(u), int(v)) for u, v in zip(*np.nonzero(there), strict=True)]
    return SimpleNamespace(edges=edges, reached=reached, rules=made, moves=moves, rng=rng)


def expected_before(case):
    """The vertices that must be gone before each, by reachability alone."""
    before = {}
    for rule in case.rules:
        reached = case.reached.T if rule.forward else case.reached
        near, far = rule.results, rule.operands
        if rule.forward:
            near, far = far, near
        behind = {n for n in case.moves if any(reached[r, n] for r in near)}
        for node in {*near, *far} & {*case.moves}:
            needed = behind if node in near else behind | ({*near} & {*case.moves})
            before.setdefault(node, set()).update(needed)
            if node in near and node in far:
                before[node] |= behind
    return {
        case.moves[node]: {case.moves[n] for n in needed}
        for node, needed in before.items()
        if needed
    }


def first_that_may_go(before, order):
    """Always the first vertex of the order all of whose prerequisites are gone."""
    left, found = list(order), []
    while left:
        ready = [v for v in left if before.get(v, set()) <= {*found}]
        if not ready:
            break
        found.append(ready[0])
        left.remove(ready[0])
    return tuple(found)


@on_seeds(150, 2000)
def test_orders_that_rules_allow(seed):
    case = random_case(seed)
    before = precedence.prerequisites(case.rules, iter(case.edges), case.moves)
    expected = expected_before(case)
    assert {v: {*others} for v, others in before.items() if others} == expected
    names = {rule.name for rule in case.rules}
    assert all(rule.name in names for others in before.values() for rule in others.values())
    order = [int(v) for v in case.rng.permutation([*case.moves.values()])]
    legal = precedence.legal_order(before, order)
    assert legal == first_that_may_go(expected, order)
    precedence.check_precedence(before, legal)
    broken = [v for k, v in enumerate(order) if expected.get(v, set()) - {*order[:k]}]
    if not broken:
        assert legal == tuple(order)
        precedence.check_precedence(before, order)
        return
    why = "cannot be transposed" if case.rules[0].forward else "not provably linear"
    with pytest.raises(
        ValueError, match=rf"vertex {broken[0]} before vertex \d+, .*rule \d.*{why}"
    ):
        precedence.check_precedence(before, order)


@on_seeds(60, 1000)
def test_the_first_output_that_a_rule_does_not_reach(seed):
    case = random_case(seed)
    (rule, *_), size = case.rules, len(case.reached)
    outputs = [int(n) if n < size else None for n in case.rng.integers(0, size + 1, 4)]
    free = [
        k
        for k, n in enumerate(outputs)
        if n is None or not (n in rule.results or any(case.reached[r, n] for r in rule.results))
    ]
    assert precedence.unreached(rule, case.edges, outputs) == (free[0] if free else None)


def test_rules_of_both_directions():
    """Side by side each has its own order."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 5), (5, 6), (6, 7)]
    back = ReverseOnly("clip", "f.py:1", (2,), (1,))
    front = ReverseOnly("scale", "f.py:2", (6,), (5,), forward=True)
    before = precedence.prerequisites([back, front], edges, {n: n for n in (1, 2, 3, 5, 6)})
    needed = {v: {*others} for v, others in before.items() if others}
    assert needed == {1: {2, 3}, 2: {3}, 6: {5}}
    assert precedence.legal_order(before, [1, 6, 2, 3, 5]) == (3, 2, 1, 5, 6)
