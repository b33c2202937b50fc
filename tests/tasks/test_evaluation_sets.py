"""The named sets: fixed functions, references of these very graphs, no overlap with training."""

import pytest

from veenv import make_graph
from veenv.search import search
from veenv.tasks import get
from veenv.tasks.evaluation_sets import (
    FIRST_TEST_SEED,
    TRAIN_SUFFIX,
    evaluation_set,
    set_names,
)


def test_test_sets_and_training_sets_share_no_seed():
    seeds = {name: evaluation_set(name).seed for name in set_names() if name != "real"}
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


def test_references_are_of_these_very_graphs():
    chosen = evaluation_set("real")
    propane, kerr = (get(name) for name in ("PropaneCombustion", "KerrMetric_Jacobian"))
    graph = make_graph(propane.fun, propane.argnums)(*propane.example_args())
    other = make_graph(kerr.fun, kerr.argnums)(*kerr.example_args())
    reference = chosen.reference("PropaneCombustion", graph)
    assert reference is not None
    assert reference <= search(graph, "anneal", budget=500, seed=1).cost
    assert chosen.reference("PropaneCombustion", other) is None
    assert chosen.reference("nothing", graph) is None
    assert evaluation_set("scalar-small-train").reference("0", graph) is None
