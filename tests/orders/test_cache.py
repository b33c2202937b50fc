"""`veenv.Auto`, its cache, and `optimize`."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import pytest

import veenv
from veenv.orders import cache as auto


def f(x):
    a = jnp.sin(x[0]) * x[1]
    b = jnp.exp(a) + x[2] * a
    return b * a, jnp.cos(b) * x[0], a / x[2]


X = jnp.array([0.4, 1.2, 0.7])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(auto.CACHE_VARIABLE, str(tmp_path))
    return tmp_path


def no_search(*_):
    raise AssertionError("searched although the order was remembered")


def test_auto_is_remembered(cache, monkeypatch):
    settings = auto.Auto(seconds=0.2)
    first = veenv.jacve(f, settings)(X)
    (file,) = cache.rglob("*.json")
    assert json.loads(file.read_text())["format"] == "veenv-order"
    monkeypatch.setattr(auto, "_search", no_search)
    assert veenv.tree_allclose(veenv.jacve(f, settings)(X), first)
    assert veenv.tree_allclose(first, jax.jacrev(f)(X))


@pytest.mark.whole
def test_a_second_process_reads_the_cache(cache):
    graph = veenv.make_graph(f)(X)
    ids = auto.Auto(seconds=0.2).order(graph)
    code = (
        "import jax.numpy as jnp, veenv\n"
        "from veenv.orders import cache as auto\n"
        "from tests.orders.test_cache import X, f, no_search\n"
        "auto._search = no_search\n"
        "print(list(auto.Auto().order(veenv.make_graph(f)(X))))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(out.stdout) == list(ids)


def test_concurrent_writers_leave_a_whole_file(cache):
    graph = veenv.make_graph(f)(X)
    path = cache / "order.json"
    orders = [graph.forward(), graph.reverse()] * 20
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda ids: veenv.Order.from_graph(graph, ids).save(path), orders))
    assert veenv.Order.load(path).ids_for(graph) in orders
    assert [p.name for p in cache.iterdir()] == ["order.json"]


def test_a_broken_or_foreign_file_only_costs_the_cache(cache):
    graph = veenv.make_graph(f)(X)
    settings = auto.Auto(seconds=0.1)
    ids = settings.order(graph)
    (file,) = cache.rglob("*.json")
    for text in ("", "{", file.read_text().replace('"ids": [', '"ids": [99999, ')):
        file.write_text(text)
        assert sorted(settings.order(graph)) == sorted(ids)


def test_a_cache_that_cannot_be_written_only_costs_the_cache(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv(auto.CACHE_VARIABLE, str(blocked))
    graph = veenv.make_graph(f)(X)
    assert sorted(auto.Auto(seconds=0.1).order(graph)) == list(graph.eliminable)
    assert blocked.read_text() == "not a directory"


def test_the_cache_can_be_switched_off(monkeypatch):
    monkeypatch.setenv(auto.CACHE_VARIABLE, "off")
    assert auto.cache_dir() is None
    monkeypatch.delenv(auto.CACHE_VARIABLE)
    assert auto.cache_dir() is not None
    assert os.environ.get("HOME") is None or "veenv" in str(auto.cache_dir())


def test_auto_takes_the_shipped_order(cache, monkeypatch):
    monkeypatch.setattr(auto, "_search", no_search)
    graph = veenv.make("HumanHeartDipole").graph
    ids = auto.Auto(cost="multiplications").order(graph)
    assert graph.cost(ids) <= 148


def test_optimize_counts_what_it_found():
    order = veenv.optimize(f, X, budget=200, name="mine")
    graph = veenv.make_graph(f)(X)
    assert order.name == "mine"
    assert order.counts["multiplications"] == graph.cost(order.ids)
    assert veenv.tree_allclose(veenv.jacve(f, order)(X), jax.jacrev(f)(X))


def test_optimize_refuses_other_objectives():
    with pytest.raises(ValueError, match="cost must be"):
        veenv.optimize(f, X, budget=10, cost="beauty")


@pytest.mark.parametrize("remember", [True, False])
def test_threads_that_ask_for_one_order_search_once(monkeypatch, tmp_path, remember):
    monkeypatch.setenv(auto.CACHE_VARIABLE, str(tmp_path) if remember else "off")
    searches, together = [], threading.Barrier(8)

    def search(graph, cost, seconds):
        searches.append(graph)
        time.sleep(0.5)
        return graph.reverse()

    monkeypatch.setattr(auto, "_search", search)

    graph = veenv.make_graph(lambda x: jnp.sin(x) * jnp.cos(x) * x)(1.0)

    def order(_):
        together.wait()
        return auto.Auto().order(graph)

    with ThreadPoolExecutor(8) as pool:
        orders = set(pool.map(order, range(8)))
    assert len(searches) == 1
    assert len(orders) == 1
    assert not auto._running


def test_a_search_that_fails_leaves_the_order_to_the_threads_that_wait(monkeypatch):
    monkeypatch.setenv(auto.CACHE_VARIABLE, "off")
    turn = itertools.count()

    def search(graph, cost, seconds):
        time.sleep(0.2)
        if next(turn) == 0:
            raise MemoryError
        return graph.reverse()

    monkeypatch.setattr(auto, "_search", search)
    graph = veenv.make_graph(lambda x: jnp.sin(x) * jnp.cos(x) * x)(1.0)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(auto.Auto().order, graph) for _ in range(4)]
    assert sorted(type(f.exception()) is MemoryError for f in found) == [False] * 3 + [True]
    assert next(turn) == 2
