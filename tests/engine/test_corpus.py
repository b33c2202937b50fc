"""Every function of the corpus, in every kind of order, against JAX's own Jacobian."""

from __future__ import annotations

import jax
import pytest

import veenv
from tests.engine.corpus import nn
from tests.engine.corpus.case import Case
from tests.engine.corpus.everything import parameters
from tests.oracles.jacobians import assert_same, dense, orders, quick_jit

pytestmark = pytest.mark.usefixtures("x64")


def test_the_corpus_is_large_enough_and_names_are_unique():
    names = [p.id for p in parameters()]
    assert len(names) >= 120
    assert len(set(names)) == len(names)


def test_every_function_of_jax_nn_is_there():
    public = {name for name in dir(jax.nn) if not name.startswith("_")}
    there = {case.name for case in nn.FUNCTIONS} | nn.COVERED_ELSEWHERE
    assert public <= there


@pytest.mark.parametrize("case", parameters(every=14, of_each_family=True))
def test_jitted(case: Case):
    case.check(num_random=1)


@pytest.mark.parametrize("case", parameters(every=200))
def test_plain(case: Case):
    graph = veenv.make_graph(case.fun, case.argnums)(*case.args)
    ids = next(iter(orders(graph, 1, seed=1)))
    got = veenv.jacve(case.fun, ids, case.argnums)(*case.args)
    assert_same(got, quick_jit(case.oracle(case.fun, case.argnums))(*case.args), case.tol)


@pytest.mark.parametrize("case", parameters(every=90))
def test_sparse(case: Case):
    """The sparse form of every block, made dense, in reverse and in a random order."""

    @quick_jit
    def run(*args):
        graph = veenv.make_graph(case.fun, case.argnums)(*args)
        several = graph.reverse(), next(iter(orders(graph, 1, seed=2)))
        options = {"argnums": case.argnums, "sparse_representation": True}
        ours = [dense(veenv.jacve(case.fun, ids, **options)(*args)) for ids in several]
        return case.oracle(case.fun, case.argnums)(*args), ours

    expected, ours = run(*case.args)
    for got in ours:
        assert_same(got, expected, case.tol)


@pytest.mark.slow
@pytest.mark.parametrize("case", parameters())
def test_more_random_orders(case: Case):
    case.check(num_random=8, seed=7)
