"""The named sets: fixed functions, references of these very graphs, no overlap with training."""

import dataclasses

import pytest

from tests.sampling import spared
from veenv import evaluate, make_graph
from veenv.env import TaskDistribution
from veenv.search import search
from veenv.tasks import get
from veenv.tasks.evaluation_sets import (
    FIRST_TEST_SEED,
    TRAIN_SUFFIX,
    evaluation_set,
    reference,
    set_names,
)


def test_test_sets_and_training_sets_share_no_seed():
    seeds = {name: evaluation_set(name).seed for name in set_names() if evaluation_set(name).family}
    assert len(set(seeds.values())) == len(seeds) == 6
    for name, seed in seeds.items():
        assert (seed < 2**32) == name.endswith(TRAIN_SUFFIX)
        assert (seed >= FIRST_TEST_SEED) != name.endswith(TRAIN_SUFFIX)


def test_a_training_set_is_of_the_family_of_its_test_set():
    for name in ("scalar-small", "scalar-large", "arrays"):
        test, train = evaluation_set(name), evaluation_set(name + TRAIN_SUFFIX)
        assert (test.family, test.number) == (train.family, train.number)


def test_unknown_sets_are_refused():
    for name in ("scalar-tiny", "real-train", "-train"):
        with pytest.raises(ValueError, match=f"unknown set '{name}'; known: scalar-small, "):
            evaluation_set(name)


@pytest.mark.parametrize("name", spared(["scalar-small", "arrays"], "arrays"))
def test_every_function_can_be_played_below_its_classical_orders(name):
    chosen, compared = evaluation_set(name), 0
    played = TaskDistribution.of(chosen)
    assert played.names == tuple(f"{name} {draw}" for draw in chosen.functions)
    assert len(played) == chosen.number
    for known, classical in zip(played.references, played.classical, strict=True):
        if known is not None:  # None where another JAX traces otherwise
            assert known < min(classical.values())
            compared += 1
    assert compared > chosen.number / 2


@pytest.mark.slow  # of files that only scripts/data/ writes
def test_draws_without_a_cost_below_the_classical_orders_are_left_out():
    chosen = evaluation_set("scalar-small")
    assert chosen.left_out
    assert not set(chosen.left_out) & set(chosen.draws)
    assert set(range(chosen.draws[-1])) <= set(chosen.left_out) | set(chosen.draws)
    every = dataclasses.replace(chosen, number=chosen.draws[-1], left_out=())
    drawn = TaskDistribution.of(every)
    for draw in chosen.left_out[:5]:
        classical = min(drawn.classical[draw].values())
        assert search(drawn.graphs[draw], "anneal", budget=20_000, seed=7).cost >= classical


def test_training_sets_have_all_draws():
    for name in ("scalar-small", "scalar-large", "arrays"):
        chosen = evaluation_set(name + TRAIN_SUFFIX)
        assert chosen.draws == tuple(range(chosen.number))


def test_references_are_of_these_very_graphs():
    propane = get("PropaneCombustion")
    graph = make_graph(propane.fun, propane.argnums)(*propane.example_args())
    known = reference(graph)
    assert known is not None
    assert known <= search(graph, "anneal", budget=500, seed=1).cost
    assert reference(make_graph(propane.fun, (0,))(*propane.example_args())) is None
    assert not any(TaskDistribution.of("scalar-small-train").references)


@pytest.mark.parametrize("tasks", ["Satellite_RK4", ["Satellite_RK4", "mlp"]])
def test_a_task_keeps_its_reference_outside_its_set(tasks):
    """Alone, in another list, cut out of a list, and in an evaluation."""
    known, played = 584, TaskDistribution.of(tasks)
    assert played.references[0] == played.alone(0).references[0] == known
    found = evaluate("markowitz", tasks)
    assert found.rows[0].reference == known
    assert found.compared("reference").mean >= 1
    assert evaluate("markowitz", tasks, cost="executed").rows[0].reference is None
