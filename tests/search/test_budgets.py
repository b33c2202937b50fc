"""What is not ready in time gives way to what is; nothing waits for what nobody wants any more."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.graph.test_reverse_only import clipped
from tests.sampling import spared
from veenv.search import api, plugins, register_method, search
from veenv.search.background import Background
from veenv.search.budget import ClosedError
from veenv.search.race import Race


@pytest.fixture
def never_ready(monkeypatch):
    """Kernels that are compiled for as long as anybody wants them."""
    ended = threading.Event()

    def start(race, order):
        while race.wanted():
            time.sleep(0.01)
        ended.set()
        raise ClosedError

    monkeypatch.setattr(api, "_starts", lambda problem: [np.arange(problem.n)])
    monkeypatch.setattr(Race, "start", start)
    return ended


@pytest.mark.parametrize("method", spared(["auto", "anneal", "exact"], "auto", "exact"))
def test_hill_climbing_stands_in_for_kernels_that_are_not_ready(task_graph, method, never_ready):
    graph = task_graph("RoeFlux_1d")
    result = search(graph, method, budget="1s")
    assert never_ready.wait(10.0)  # the work has ended, and was not only left
    assert not result.ready
    assert result.cost == graph.cost(result.order)
    assert result.cost <= min(map(graph.cost, (graph.reverse(), graph.markowitz())))
    assert result.lower_bound == 0
    assert result.seconds >= 1.0


def test_a_fallback_begins_where_it_is_told(task_graph, never_ready):
    graph = task_graph("RoeFlux_1d")
    assert graph.cost(graph.forward()) > graph.cost(graph.reverse())
    result = search(graph, "anneal", budget="100ms", start=graph.forward())
    assert result.order == graph.forward()


@pytest.mark.parametrize("method", ["forward", "reverse", "markowitz"])
def test_classical_orders_need_no_kernels(task_graph, method, never_ready):
    graph = task_graph("PropaneCombustion")
    result = search(graph, method, budget="20s")
    assert result.ready
    assert result.seconds < 20
    assert 0 < result.lower_bound <= result.cost


def test_the_fallback_keeps_to_the_orders_that_a_graph_allows(never_ready):
    """A rule that is not linear in its cotangent cannot be applied in the forward order."""
    graph = veenv.make_graph(lambda x: jnp.sin(clipped(jnp.exp(x)) * 2.0) * 3.0)(1.0)
    result = search(graph, budget="700ms")
    assert never_ready.wait(10.0)
    assert result.evaluations > 3
    assert graph.check_order(result.order) == result.order


def test_a_method_that_thinks_for_long_is_left_when_time_is_up(task_graph, monkeypatch):
    monkeypatch.setattr(plugins, "_registered", {})
    steps = []

    def slow(graph, cost, seed):
        for step in itertools.count():
            steps.append(step)
            time.sleep(0.01)
            yield None

    register_method("slow", slow)
    graph = task_graph("PropaneCombustion")
    result = search(graph, "slow", budget="300ms")
    assert not result.ready
    assert result.cost <= graph.cost(graph.reverse())
    time.sleep(0.2)
    many = len(steps)
    time.sleep(0.2)
    assert len(steps) == many


def test_an_interrupt_before_there_is_an_order(task_graph, never_ready, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("veenv.search.race.Race._tell", interrupt)
    with pytest.raises(KeyboardInterrupt):
        search(task_graph("RoeFlux_1d"), "anneal", budget=1000)
    assert never_ready.wait(10.0)


def test_callbacks_run_in_the_callers_thread(task_graph):
    seen = set()
    search(
        task_graph("PropaneCombustion"),
        budget=10_000,
        callback=lambda _: seen.add(threading.current_thread()),
    )
    assert seen == {threading.current_thread()}


def test_the_record_says_that_the_method_was_not_ready(never_ready):
    order = veenv.optimize(lambda x: jnp.sin(x) * jnp.cos(x) * x, 1.0, budget="200ms")
    assert order.found_by == "hill climbing, as auto was not ready within 200ms, seed 0"


def test_work_in_the_background_has_the_callers_settings():
    def settings():
        return jax.config.jax_enable_x64, str(jnp.asarray(1.0).dtype)

    with jax.enable_x64(True):
        work = Background(settings)
        assert work.wait(10.0)
    assert work.result() == (True, "float64")

    def fail():
        raise ZeroDivisionError

    work = Background(fail)
    assert work.wait(10.0)
    with pytest.raises(ZeroDivisionError):
        work.result()


def test_compiling_leaves_the_streams_of_others_alone(monkeypatch):
    pytest.importorskip("colorama")
    numba = pytest.importorskip("numba")  # after veenv: whoever imports it first has its settings
    exchanged = []

    class Watched(types.ModuleType):
        def __setattr__(self, name, value):
            exchanged.append(name)
            super().__setattr__(name, value)

    monkeypatch.setattr(sys, "__class__", Watched)
    with pytest.raises(numba.TypingError):
        numba.njit(lambda x: x.nothing)(1)
    assert "stderr" not in exchanged
    assert "stdout" not in exchanged
