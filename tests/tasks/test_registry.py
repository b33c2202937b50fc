"""Look-up and registration of tasks."""

import dataclasses

import jax
import numpy as np
import pytest

import veenv
from veenv import tasks
from veenv.tasks import registry


@pytest.fixture(autouse=True)
def no_user_tasks(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


@pytest.mark.parametrize("name", ["RoeFlux_1d", "roeflux_1D", "RoeFlux", "ROEFLUX"])
def test_names_ignore_case_and_roeflux_is_an_alias(name):
    assert tasks.get(name).name == "RoeFlux_1d"


def test_list_names_every_task_once():
    names = tasks.list()
    assert names == tasks.list_tasks()
    assert veenv.register_task is tasks.register_task
    assert len({name.casefold() for name in names}) == len(names)
    assert all(tasks.get(name).name == name for name in names)
    assert {"RoeFlux_1d", "RobotArm_6DOF", "HumanHeartDipole", "mlp"} <= set(names)


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(ValueError, match="did you mean RoeFlux_1d or"):
        tasks.get("Roe")
    with pytest.raises(ValueError, match=r"unknown task 'RoeFlux_2d'; did you mean RoeFlux_\dd or"):
        tasks.get("RoeFlux_2d")
    with pytest.raises(ValueError, match=r"did you mean RoeFlux_1d or RoeFlux_3d\?"):
        tasks.get("RoeFlx")
    with pytest.raises(ValueError, match="did you mean scalar-small or"):
        tasks.get("scalar_small")
    with pytest.raises(ValueError, match=r"unknown task '§'; known: RoeFlux_1d, .*RobotArm_6DOF"):
        tasks.get("§")


def test_register_get_list_and_replace():
    task = tasks.register_task("Mine", lambda x, y: x * y, (np.array(2.0), np.array(3.0)), (0, 1))
    assert tasks.get("mine") is task
    assert tasks.list()[-1] == "Mine"
    assert jax.jacrev(task.fun, task.argnums)(*task.example_args()) == (3.0, 2.0)

    with pytest.raises(ValueError, match="'MINE' is taken"):
        tasks.register_task("MINE", lambda x: x, lambda: (np.array(2.0),))
    new = tasks.register_task("MINE", lambda x: x, lambda: (np.array(2.0),), replace=True)
    assert tasks.get("mine") is new
    assert tasks.list().count("MINE") == 1


@pytest.mark.parametrize("name", ["mlp", "MLP", "RoeFlux"])
def test_built_in_tasks_cannot_be_replaced(name):
    with pytest.raises(ValueError, match="built-in"):
        tasks.register_task(name, lambda x: x, (np.array(2.0),), replace=True)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"name": " "}, ValueError, "not empty"),
        ({"fun": 3}, TypeError, "callable, got int"),
        ({"example_args": np.array(1.0)}, TypeError, "tuple"),
        ({"example_args": lambda: [1.0]}, TypeError, "tuple .* got list"),
        ({"argnums": 1}, ValueError, "argument 1, but there are 1"),
        ({"argnums": (0, -2)}, ValueError, "argument -2"),
    ],
)
def test_register_refuses(kwargs, error, message):
    good = {"name": "t", "fun": lambda x: x, "example_args": (np.array(1.0),), "argnums": 0}
    with pytest.raises(error, match=message):
        tasks.register_task(**{**good, **kwargs})
    assert "t" not in tasks.list()


def test_points_are_fresh_and_tasks_frozen():
    task = tasks.get("mlp")
    task.example_args()[0][:] = 0.0
    assert np.all(task.example_args()[0] != 0.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.name = "other"


def test_a_task_at_whole_numbers_is_differentiated_by_them():
    task = tasks.Task.at("twice", lambda a, b: a * b, (3, 2.0), "a product", "no one")
    assert [x.dtype.kind for x in task.example_args()] == ["f", "f"]
    assert len(veenv.make_graph(task.fun, task.argnums)(*task.example_args()).edges) == 2
