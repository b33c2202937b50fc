"""What the order decides in a kernel: its time, and how well the counts tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scripts.benchmarks.alone import times_alone
from scripts.benchmarks.cases import Case, orders_of, points
from scripts.benchmarks.compiled import compiled, program_of, traced
from veenv import make_graph
from veenv.kernel.program import ScalarProgram
from veenv.measure.timing import SHORTEST, interleaved

Row = dict[str, Any]


def decision(case: Case, batch: int, repeats: int) -> Row:
    """The cheapest order by operations against reverse: counts, work and time."""
    args = points(case, batch)
    graph = make_graph(case.fun, case.argnums)(*case.args)
    (least,) = orders_of(case, ("best-operations",)).values()
    orders = {"reverse": graph.reverse(), "least": least}
    programs, runs = _kernels(case, orders, args)
    found = interleaved(runs, args, 2 * repeats, shortest=SHORTEST, seconds=20.0)
    times = {name: t.min() for name, t in found.items()}
    alone = times_alone(case, programs, 40 * repeats, 10.0)
    row: Row = {"function": case.name, "order": "least operations", "ids": list(least)}
    row |= {name: graph.cost(ids, "operations") for name, ids in orders.items()}
    row["operations"] = row.pop("least")
    row["work_ratio"] = programs["least"].work / programs["reverse"].work
    row["alone_ratio"] = alone["least"] / alone["reverse"]
    row["time_ratio"] = float(times["least"] / times["reverse"])
    row["alone_ns"] = alone["least"]
    cells = [case.name, f"{row['operations']:,}", f"{row['reverse']:,}"]
    cells += [f"{row['work_ratio']:.2f}", f"**{row['alone_ratio']:.2f}**"]
    print("| " + " | ".join([*cells, f"{row['time_ratio']:.2f}"]) + " |", flush=True)
    return row


def _kernels(
    case: Case, orders: Mapping[str, Sequence[int]], args: Sequence[Any]
) -> tuple[dict[str, ScalarProgram], dict[str, Any]]:
    """The program of each order, and its kernel, compiled."""
    programs, runs = {}, {}
    for name, ids in orders.items():
        programs[name], kernel = traced(case, ids)
        runs[name] = compiled(kernel, args)
    return programs, runs


def perturbed(ids: Sequence[int], swaps: int, rng: np.random.Generator) -> tuple[int, ...]:
    """An order with some vertices moved elsewhere."""
    order = list(ids)
    for _ in range(swaps):
        order.insert(int(rng.integers(len(order))), order.pop(int(rng.integers(len(order)))))
    return tuple(order)


def some_orders(case: Case, count: int) -> dict[str, tuple[int, ...]]:
    """Classical orders, the best shipped one, and perturbations of all of them."""
    rng = np.random.default_rng(0)
    known = orders_of(case, ("best-executed", "reverse", "forward", "markowitz"))
    found = dict(known)
    starts = list(known.values())
    for k in range(count - len(known)):
        start = starts[k % len(starts)]
        swaps = int(2 ** rng.uniform(0, np.log2(max(2, len(start) // 2))))
        found[f"perturbed {k}"] = perturbed(start, swaps, rng)
    return found


def correlation(case: Case, count: int, repeats: int) -> Row:
    """Spearman's correlation of times with `operations`, and with the whole program's work.

    `operations` is the price of the elimination alone; the work is that of the whole program, in
    which a product of the elimination may be one that the function or its partials form anyway.
    Times are those of the machine code alone, the least of all rounds, as what disturbs it only
    adds to it.
    """
    from scipy.stats import spearmanr

    orders = some_orders(case, count)
    graph = make_graph(case.fun, case.argnums)(*case.args)
    programs = {name: program_of(case, ids) for name, ids in orders.items()}
    works = {name: program.work for name, program in programs.items()}
    counts: Mapping[str, Mapping[str, float]] = {
        "operations": {name: graph.cost(ids, "operations") for name, ids in orders.items()},
        "work": works,
    }
    least = {n: 1e-9 * t for n, t in times_alone(case, programs, 20 * repeats, 60.0).items()}
    row: Row = {"function": case.name, "orders": len(orders)}
    for name, count_of in counts.items():
        found: Any = spearmanr([count_of[n] for n in orders], [least[n] for n in orders])
        row[name] = float(found.statistic)
    reverse = next(name for name in orders if "reverse" in name)
    lightest = min(works, key=works.__getitem__)
    row["lightest"] = lightest
    row["lightest_work_ratio"] = works[lightest] / works[reverse]
    row["lightest_time_ratio"] = least[lightest] / least[reverse]
    row |= {"counts": counts["operations"], "works": works, "seconds": least}
    cells = [case.name, str(len(orders)), f"{row['operations']:.2f}", f"{row['work']:.2f}"]
    cells += [f"{row['lightest_work_ratio']:.2f}", f"{row['lightest_time_ratio']:.2f}"]
    print("| " + " | ".join(cells) + " |", flush=True)
    return row
