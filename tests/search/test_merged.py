"""The work of orders' whole programs: what the model counts is what the program has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.sampling import thinned
from veenv import tasks
from veenv.kernel.fusing import trace_point
from veenv.search.merged import lightest, work
from veenv.search.optimization import optimize
from veenv.tasks.random import random_function


def work_of_program(fun, ids, args, argnums, *, value=False):
    jacobian = (veenv.value_and_jacve if value else veenv.jacve)(fun, ids, argnums)
    wanted = argnums if isinstance(argnums, tuple) else (argnums,)
    return trace_point(jacobian, args, {}, wanted).program().work


def some_orders(graph, count, seed=0):
    rng = np.random.default_rng(seed)
    shuffled = (tuple(map(int, rng.permutation(graph.eliminable))) for _ in range(count))
    return [graph.reverse(), graph.legal(graph.forward()), *map(graph.legal, shuffled)]


@pytest.mark.parametrize("seed", thinned(range(3), 3))
def test_it_is_the_work_of_the_program_of_a_random_function(seed):
    fun, point = random_function(seed, 3, 25, 2)
    args = tuple(np.float32(x) for x in point)
    argnums = tuple(range(len(args)))
    model = work(fun, *args, argnums=argnums)
    for ids in some_orders(model.graph, 2, seed):
        assert model(ids) == work_of_program(fun, ids, args, argnums)


@pytest.mark.parametrize("name", ["RobotArm_6DOF", "RoeFlux_1d"])
def test_it_is_the_work_of_the_program_of_a_task(name):
    task = tasks.get(name)
    args = jax.tree.map(lambda x: np.asarray(x, np.float32), tuple(task.example_args()))
    model = work(task.fun, *args, argnums=task.argnums)
    for ids in some_orders(model.graph, 1):
        assert model(ids) == work_of_program(task.fun, ids, args, task.argnums)


def signs(x, y):
    a = -x * y
    b = a * 2.0 - x
    c = -b * a + (x - y) * (y - x)
    return jnp.sin(-c) * a - b * -1.0, jnp.cos(-c) / (b * c - a), (a - b) * 0.5 * c


def test_signs_and_constants_are_those_of_the_program():
    args = (np.float32(0.3), np.float32(0.7))
    for value in (False, True):
        model = work(signs, *args, argnums=(0, 1), value=value)
        for ids in some_orders(model.graph, 6):
            assert model(ids) == work_of_program(signs, ids, args, (0, 1), value=value)


def arrays(x):
    y = jnp.sin(x) * x[::-1]
    return y * y[0] - x * jnp.sum(y)


def chosen(x, y):
    a = jnp.where(x > y, jnp.sin(x) * y, jnp.cos(y) * x)
    return jnp.maximum(a * x, y) * a, jnp.where(x > 0.5, a * a, a * y) * y


@pytest.mark.parametrize(
    ("fun", "args"),
    [(arrays, (np.linspace(0.1, 1, 4, dtype=np.float32),)), (chosen, (np.float32(1),) * 2)],
)
def test_arrays_and_selects_are_nearly_those_of_the_program(fun, args):
    argnums = tuple(range(len(args)))
    model = work(fun, *args, argnums=argnums)
    for ids in some_orders(model.graph, 2):
        assert model(ids) == pytest.approx(work_of_program(fun, ids, args, argnums), rel=0.1)


def test_annealing_finds_what_is_computed_already():
    task = tasks.get("RobotArm_6DOF")
    order = optimize(task.fun, *task.example_args(), argnums=task.argnums, cost="work", budget=300)
    again = optimize(task.fun, *task.example_args(), argnums=task.argnums, cost="work", budget=300)
    model = work(task.fun, *task.example_args(), argnums=task.argnums)
    graph = model.graph
    assert order.ids == again.ids
    assert model(order.ids) < 0.8 * model(graph.reverse())
    assert model(order.ids) <= model(graph.legal(graph.forward()))
    assert graph.check_order(order.ids) == order.ids
    assert f"{model(order.ids):,}" in order.found_by


def test_it_may_begin_anywhere_and_leaves_no_trace():
    model = work(signs, 0.3, 0.7, argnums=(0, 1))
    orders = some_orders(model.graph, 3)
    first = [model(ids) for ids in orders]
    found, least = lightest(model, orders, lambda evaluations: evaluations >= 200)
    assert least == model(found) <= min(first)
    assert [model(ids) for ids in orders] == first


def test_what_has_no_work_is_told(monkeypatch):
    monkeypatch.setattr("veenv.search.merged.model.MOST_NODES", 3)
    with pytest.raises(ValueError, match="entries, more than 3"):
        work(signs, 0.3, 0.7, argnums=(0, 1))
    with pytest.raises(ValueError, match="cannot be fused"):
        work(lambda x: jnp.linalg.eigvalsh(x) @ x, np.eye(3, dtype=np.float32))
    with pytest.raises(ValueError, match="method must be auto or anneal, got 'policy'"):
        optimize(jnp.sin, 1.0, cost="work", method="policy")
    with pytest.raises(ValueError, match="seed must be an int that is not negative, got -1"):
        optimize(jnp.sin, 1.0, cost="work", seed=-1)
    with pytest.raises(ValueError, match="cost must be"):
        optimize(jnp.sin, 1.0, cost="time")  # pyright: ignore[reportArgumentType]
