"""Seconds of an order beside the usual ways: all of them, and why one is missing."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from veenv import make_graph
from veenv.measure import comparison
from veenv.measure.comparison import Comparison, compare
from veenv.measure.timing import Timing
from veenv.tasks.user import from_function


def test_all_ways_are_timed_together():
    def f(x, y):
        return jnp.sin(x) * y, x * y

    found = compare(from_function(f, (0.5, 1.5), (0, 1)), (1,), batch=8, limit=20.0)
    names = [f"{kind}, {order}" for kind in ("kernel", "XLA") for order in ("found", "reverse")]
    assert {row.method for row in found.rows} == {*names, "jacfwd", "jacrev"}
    assert found.batch == 8
    assert not found.skipped
    assert all(row.median > 0 for row in found.rows)
    assert min(r.ratio or 0 for r in found.rows if r.method in comparison.JAX_MODES) >= 1
    assert found.text().count("\n") in (6, 7)  # with a line where reverse does as well


@pytest.mark.parametrize(("seconds", "said"), [(0.9, True), (1.05, True), (1.2, False)])
def test_it_is_said_where_the_reverse_order_does_as_well(seconds, said):
    ours = Timing("kernel, found", 1.0, 0.9, 1.3, None, None, 0.5)
    rows = ours, dataclasses.replace(ours, method="kernel, reverse", median=seconds)
    text = Comparison(1, rows, {}).text()
    assert ("the reverse order does as well" in text) == said
    assert "as well" not in Comparison(1, rows[:1], {}).text()


def test_what_cannot_be_a_kernel_is_named():
    x = np.arange(129.0)
    graph = make_graph(lambda x: jnp.sort(x) * x)(x)
    found = compare(from_function(lambda x: jnp.sort(x) * x, (x,)), graph.reverse(), batch=2)
    assert "'sort'" in found.skipped["kernel, found"]
    assert "kernel, found: not timed, as it cannot be one kernel" in found.text()
    assert {"jacfwd", "jacrev", "XLA, found"} <= {row.method for row in found.rows}


def test_no_time_is_no_more_than_the_first(monkeypatch):
    monkeypatch.setattr(comparison, "_BYTES", 40)
    x = np.arange(2.0)
    found = compare(from_function(lambda x: x * x, (x,)), (), limit=0)
    assert [row.method for row in found.rows] == ["jacfwd"]
    assert found.batch == 2  # of 16 bytes each
    assert found.rows[0].ratio == 1.0
    assert "ratio to jacfwd" in found.text()
    assert found.skipped["jacrev"] == "as there was no time left"


@pytest.mark.parametrize(("name", "limit"), [("_MOST_OPERATIONS", -1), ("_MOST_VERTICES", -1)])
def test_what_would_be_compiled_for_long_is_left_out(name, limit, monkeypatch):
    monkeypatch.setattr(comparison, name, limit)
    found = compare(from_function(lambda x: jnp.sin(x) * x, (1.0,)), (1,), batch=2, limit=5.0)
    kind = "kernel" if name == "_MOST_OPERATIONS" else "XLA"
    assert any("compile" in r for n, r in found.skipped.items() if n.startswith(kind))
