"""Noisy Markowitz: greedy games with random errors until the time is over; the cheapest is best.

python docs/examples/noisy_markowitz.py
"""

from __future__ import annotations

import time
from itertools import cycle
from math import exp, inf, prod
from random import Random

import veenv


def play(graph, random, sigma):
    """Eliminates by least size of in-edges times out-edges times exp(sigma times normal noise).

    The size of a variable is its count of numbers: on scalars this is Markowitz' rule with noise.
    """
    size = [prod(shape) for shape in graph.shapes]
    preds, succs = [set() for _ in size], [set() for _ in size]
    for source, target in graph.edges:
        preds[target].add(source)
        succs[source].add(target)

    def score(node):
        degree = sum(size[u] for u in preds[node]) * sum(size[w] for w in succs[node])
        return degree * exp(random.gauss(0, sigma))

    scores, order = {node: score(node) for node in map(graph.node, graph.eliminable)}, []
    while scores:
        node = min(scores, key=scores.__getitem__)
        del scores[node]
        order.append(node - graph.num_inputs + 1)
        before, behind = preds[node], succs[node]
        for target in behind:
            preds[target] |= before
            preds[target].remove(node)
        for source in before:
            succs[source] |= behind
        succs[node] = set()
        if node not in graph.output_nodes:  # an output keeps the edges into it
            for source in before:
                succs[source].remove(node)
            preds[node] = set()
        for other in sorted(scores.keys() & (before | behind)):
            scores[other] = score(other)
    return graph.legal(order)  # some rules of derivatives ask for an order


def classical_orders(graph):
    """Returns the orders of forward and reverse mode and of Markowitz' rule."""
    return [graph.legal(ids) for ids in (graph.forward(), graph.reverse(), graph.markowitz())]


def search(graph, seed, seconds, report=None):
    """Returns the cheapest order; calls report(eliminations, cost, order) when there is a better.

    The classical orders are its first games. At the end it reports once more.
    """
    end, random, sigmas = time.perf_counter() + seconds, Random(seed), cycle((0.05, 0.1, 0.2, 0.4))
    first = classical_orders(graph)
    eliminations, least, best = 0, inf, ()
    while first or time.perf_counter() < end:
        order = first.pop() if first else play(graph, random, next(sigmas))
        eliminations, cost = eliminations + len(order), graph.cost(order)
        if cost < least:
            least, best = cost, order
            if report:
                report(eliminations, least, best)
    if report:
        report(eliminations, least, best)
    return best


def main(task="RoeFlux_1d", seconds=10.0, seed=0):
    """Searches, prints the costs and the number of games, and returns the least cost."""
    graph, reports = veenv.make(task).graph, []
    best = search(graph, seed, seconds, lambda *row: reports.append(row))
    classical = min(graph.cost(ids) for ids in classical_orders(graph))
    games = reports[-1][0] // len(best)
    print(f"{task}: {graph.cost(best)} multiplications after {games} games, classical {classical}")
    return graph.cost(best)


if __name__ == "__main__":
    main()
