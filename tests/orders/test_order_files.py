"""Order files: what is written is read again, and anything else gets a clear error."""

from __future__ import annotations

import dataclasses
import json
import os
from functools import lru_cache

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veenv
from tests.sampling import few
from veenv.graph.graph import COST_MODELS
from veenv.orders import files as order_files
from veenv.orders.order import Order, fingerprint


def function(x, y):
    return jnp.sin(x) * y, jnp.exp(x * y) / y


ARGS = (0.5, 2.0)
GRAPH = veenv.make_graph(function, (0, 1))(*ARGS)
ORDER = Order.from_graph(GRAPH, GRAPH.markowitz(), "function", "Markowitz")


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "order.json"
    ORDER.save(path)
    return path


def record_with(**changes):
    record = {**vars(ORDER), "format": "veenv-order", "version": 1, "ids": list(ORDER.ids)}
    del record["steps"]  # a search has none
    record.update(changes)
    return {key: value for key, value in record.items() if value is not ...}


def test_saved_orders_are_loaded_again(written):
    assert Order.load(written) == ORDER
    assert Order.load(written).ids_for(GRAPH) == ORDER.ids
    assert json.loads(written.read_text())["counts"] == {
        cost: GRAPH.cost(ORDER.ids, cost) for cost in COST_MODELS
    }


def test_files_without_a_count_of_operations_are_read(tmp_path):
    counts = {cost: ORDER.counts[cost] for cost in ("multiplications", "executed")}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(record_with(counts=counts)))
    old = Order.load(path)
    assert old.counts == counts
    assert old.ids_for(GRAPH) == ORDER.ids
    assert not old.is_optimal("operations")
    path.write_text(json.dumps(record_with(counts=counts, lower_bounds={"operations": 1})))
    with pytest.raises(ValueError, match=r"lower_bounds\['operations'\]: there is no count"):
        Order.load(path)
    path.write_text(json.dumps(record_with(counts={**counts, "operations": 1})))
    with pytest.raises(ValueError, match="says it takes 1 operations"):
        Order.load(path).ids_for(GRAPH)


def test_files_get_the_usual_permissions(written, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    assert written.stat().st_mode == plain.stat().st_mode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["order.json", "plain"]


def test_a_failed_write_leaves_the_old_file(written, monkeypatch):
    before = written.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        ORDER.save(written)
    assert written.read_bytes() == before
    assert [p.name for p in written.parent.iterdir()] == ["order.json"]


def test_jacve_takes_the_file_the_order_and_the_ids(written):
    by_ids = veenv.jacve(function, ORDER.ids, (0, 1))(*ARGS)
    for order in (written, str(written), ORDER):
        found = veenv.jacve(function, order, (0, 1))(*ARGS)
        assert jax.tree.map(float, found) == jax.tree.map(float, by_ids)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe{}", "not UTF-8 at byte 0"),
        (b"[" * 10_000_000, "nested too deeply"),
        (b"[1, 2]", "expected an object of JSON, got list"),
        (b'{"format": "veenv-order", "format": "veenv-order"}', "'format': .* twice"),
        (b'{"format": "veenv-order", "version": 1' + b"0" * 30 + b"}", "integer of 31 digits"),
        (b'{"format": "veenv-order", "version": 2}', "version: expected 1, got 2"),
        (b" " * (order_files.MAX_BYTES + 1), "size: 16777217 bytes, expected at most 16777216"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_files_are_refused(tmp_path, data, message):
    path = tmp_path / "broken.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as error:
        Order.load(path)
    assert "broken.json" in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": ...}, "ids: the field is missing"),
        ({"ids": "1, 2"}, "ids: expected a list, got str"),
        ({"ids": [1, True]}, r"ids\[1\]: expected an integer in 1 .. \d+, got True"),
        ({"ids": [0]}, r"ids\[0\]: expected an integer"),
        ({"ids": [10**12]}, r"ids\[0\]: expected an integer of at most \d+, got 1000000000000"),
        ({"ids": [2, 1, 2]}, "ids: vertex 2 is repeated"),
        ({"counts": {"multiplications": 5}}, r"counts\['executed'\]: the field is missing"),
        ({"counts": {"multiplications": 5, "executed": -1}}, r"counts\['executed'\]: expected"),
        ({"counts": {**ORDER.counts, "flops": 1}}, r"counts\['flops'\]: expected one of"),
        ({"lower_bounds": {"executed": 10**6}}, "is more than the count"),
        ({"name": "x" * 10_001}, "name: 10001 characters"),
        ({"found_by": "\ud800"}, "found_by: a surrogate stands alone"),
        ({"fingerprint": "abc"}, "fingerprint: expected 64 hexadecimal digits, got 'abc'"),
        ({"steps": -1}, r"steps: expected an integer in 0 \.\. \d+, got -1"),
        ({"num_edges": "9"}, r"num_edges: expected an integer in 0 .. \d+, got '9'"),
        ({"extra\x1b[2J": 1}, r"'extra\\x1b\[2J': unknown field"),
    ],
)
def test_wrong_fields_are_named(tmp_path, changes, message):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(record_with(**changes)))
    with pytest.raises(ValueError, match=message) as error:
        Order.load(path)
    assert str(error.value).startswith(f"order file {path}: ")
    assert len(str(error.value)) < 400


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match="not a regular file"):
        Order.load(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match="not a regular file"):
        Order.load("/dev/zero")
    with pytest.raises(FileNotFoundError):
        Order.load(tmp_path / "absent.json")
    with pytest.raises(IsADirectoryError):
        Order.load(tmp_path)


def test_what_would_not_be_read_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="name: a surrogate"):
        Order.from_graph(GRAPH, GRAPH.reverse(), "\udc80").save(tmp_path / "order.json")
    assert not list(tmp_path.iterdir())


def test_changed_counts_are_noticed_when_the_order_is_used(tmp_path):
    path = tmp_path / "order.json"
    path.write_text(json.dumps(record_with(counts={"multiplications": 1, "executed": 1})))
    with pytest.raises(ValueError, match=r"says it takes 1 multiplications .* graph counts \d+"):
        veenv.jacve(function, path, (0, 1))(*ARGS)


def test_orders_of_other_graphs_are_refused_with_what_differs():
    def longer(x, y):
        return function(jnp.cos(x), y)

    def alike(x, y):
        return jnp.sin(x) * y, jnp.exp(x * y) / x

    graph = veenv.make_graph(longer, (0, 1))(*ARGS)
    with pytest.raises(ValueError, match=r"vertices 5 against 6.*edges 8 against 9.*search anew"):
        ORDER.ids_for(graph)
    with pytest.raises(ValueError, match="same sizes, but other edges, shapes or structures"):
        veenv.jacve(alike, ORDER, (0, 1))(*ARGS)


def test_an_order_found_at_a_python_number_says_why_it_does_not_fit():
    def fun(x):
        return jnp.sum(jnp.sin(x) * x**2) * 2.0

    graph = veenv.make_graph(fun)(1.0)
    order = veenv.Order.from_graph(graph, graph.reverse(), "weak")
    with pytest.raises(ValueError, match=r"vertices \d+ against \d+.*weak types \(as of Python"):
        veenv.jacve(fun, order)(jnp.float32(1.0))
    veenv.jacve(fun, order)(1.0)


@pytest.mark.parametrize("name", ["RoeFlux_1d", "mlp"])
def test_the_fingerprint_knows_structure_only(name, precision):
    task = veenv.tasks.get(name)
    args = task.example_args()
    graph = veenv.make_graph(task.fun, task.argnums)(*args)
    moved = jax.tree.map(lambda x: 1.5 * x, args)

    def in_a_jit(*args):
        unused = jnp.cos(args[0])
        del unused
        return jax.jit(task.fun)(*args)

    assert fingerprint(graph) == fingerprint(veenv.make_graph(task.fun, task.argnums)(*moved))
    # A dead equation in front shifts the ids, one inside an inlined call does not exist at all.
    shifted = fingerprint(veenv.make_graph(in_a_jit, task.argnums)(*args))
    assert shifted != fingerprint(graph)


def test_the_fingerprint_is_the_same_in_every_precision():
    task = veenv.tasks.get("Encoder")
    prints = set()
    for x64 in (False, True):
        with jax.enable_x64(x64):
            graph = veenv.make_graph(task.fun, task.argnums)(*task.example_args())
            prints.add(fingerprint(graph))
    assert len(prints) == 1


TEXT = json.dumps(record_with()).encode()
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 12),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(0, 9), max_size=8),
    st.permutations(ORDER.ids),
    st.dictionaries(st.sampled_from(["multiplications", "executed", "x"]), st.integers()),
)


@st.composite
def mutated_bytes(draw):
    """The file with some bytes changed, dropped, doubled or put elsewhere."""
    data = bytearray(TEXT)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["replace", "insert", "delete", "truncate", "repeat", "digit"]))
        if kind == "replace" and data:
            data[at] = draw(st.integers(0, 255))
        elif kind == "digit" and data:
            digits = [i for i, c in enumerate(data) if chr(c).isdigit()] or [at]
            data[draw(st.sampled_from(digits))] = ord("0") + draw(st.integers(0, 9))
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=8))
        elif kind == "delete":
            del data[at : at + draw(st.integers(1, 40))]
        elif kind == "truncate":
            del data[at:]
        elif kind == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 40))] * draw(st.integers(1, 3))
    return bytes(data)


@st.composite
def mutated_fields(draw):
    """The file with fields replaced, dropped or added."""
    record = record_with()
    for _ in range(draw(st.integers(1, 3))):
        key = draw(st.one_of(st.sampled_from(sorted(record) or ["ids"]), st.text(max_size=5)))
        if draw(st.booleans()):
            record[key] = draw(VALUES)
        else:
            record.pop(key, None)
    return json.dumps(record).encode()


@st.composite
def mutated_orders(draw):
    """A file that is well formed, with another order or other counts in it."""
    ids = draw(st.permutations(ORDER.ids))
    if draw(st.booleans()):
        ids = [*ids, *draw(st.lists(st.integers(1, ORDER.num_vertices), max_size=2))]
    counts = {cost: draw(st.integers(0, 2 * n)) for cost, n in ORDER.counts.items()}
    right = Order.from_graph(GRAPH, draw(st.permutations(ORDER.ids)))
    counts = draw(st.sampled_from([counts, ORDER.counts, right.counts]))
    return json.dumps(record_with(ids=ids, counts=counts, lower_bounds={})).encode()


MUTATED = st.one_of(mutated_bytes(), mutated_fields(), mutated_orders())


EXPECTED = jax.jacrev(function, (0, 1))(*ARGS)


@lru_cache
def right_jacobian(ids):
    found = veenv.jacve(function, ids, (0, 1))(*ARGS)
    return veenv.tree_allclose(found, EXPECTED, rtol=1e-5, atol=1e-6)


@settings(max_examples=few(40, of=100))
@given(data=MUTATED)
def test_mutated_files_are_refused_or_right(tmp_path_factory, data):
    """An error that names the file, or an order that costs what it says and does its work."""
    path = tmp_path_factory.getbasetemp() / "mutated.json"
    path.write_bytes(data)
    message = ""
    try:
        order = Order.load(path)
    except ValueError as error:
        message = str(error)
    if message:
        assert message.startswith(f"order file {path}: ")
        return
    try:
        ids = order.ids_for(GRAPH)
    except ValueError:
        return
    assert sorted(ids) == sorted(GRAPH.eliminable)
    assert GRAPH.cost(ids) == order.counts["multiplications"]
    assert GRAPH.cost(ids, "executed") == order.counts["executed"]
    assert right_jacobian(ids)


def test_steps_are_written_where_there_are_some(written):
    assert "steps" not in json.loads(written.read_text())
    assert Order.load(written).steps is None
    trained = dataclasses.replace(ORDER, steps=70)
    trained.save(written)
    assert json.loads(written.read_text())["steps"] == 70
    assert Order.load(written) == trained != ORDER
