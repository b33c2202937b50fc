"""What the order decides in a kernel: its time, and how well the counts tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from benchmark_cases import Case, orders_of, points
from benchmark_compiled import compiled, fused, program_of, times_of

from veenv import make_graph

Row = dict[str, Any]


def decision(case: Case, batch: int, repeats: int) -> Row:
    """The cheapest order by operations against reverse: counts, work and time."""
    args = points(case, batch)
    orders = orders_of(case, ("best-operations", "reverse"))
    reverse = next(name for name in orders if "reverse" in name)
    cheapest = next(iter(orders))
    graph = make_graph(case.fun, case.argnums)(*case.args)
    counts = {name: graph.cost(ids, "operations") for name, ids in orders.items()}
    works = {name: program_of(case, ids).work for name, ids in orders.items()}
    runs = {name: compiled(fused(case, ids), args) for name, ids in orders.items()}
    times = times_of(runs, args, 2 * repeats, 20.0)
    row: Row = {"function": case.name, "order": cheapest, "operations": counts[cheapest]}
    row["reverse"] = counts[reverse]
    row["work_ratio"] = works[cheapest] / works[reverse]
    row["time_ratio"] = float(np.median(times[cheapest] / times[reverse]))
    cells = [case.name, cheapest, f"{row['operations']:,}", f"{row['reverse']:,}"]
    cells += [f"{row['work_ratio']:.2f}", f"**{row['time_ratio']:.2f}**"]
    print("| " + " | ".join(cells) + " |", flush=True)
    return row


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


def correlation(case: Case, count: int, batch: int, repeats: int) -> Row:
    """Spearman's correlation of times with `operations`, and with the whole program's work.

    `operations` is the price of the elimination alone; the work is that of the whole program, in
    which a product of the elimination may be one that the function or its partials form anyway.
    """
    from scipy.stats import spearmanr

    args = points(case, batch)
    orders = some_orders(case, count)
    graph = make_graph(case.fun, case.argnums)(*case.args)
    counts: Mapping[str, Mapping[str, float]] = {
        "operations": {name: graph.cost(ids, "operations") for name, ids in orders.items()},
        "work": {name: program_of(case, ids).work for name, ids in orders.items()},
    }
    runs = {name: compiled(fused(case, ids), args) for name, ids in orders.items()}
    times = times_of(runs, args, repeats, 60.0)
    medians = {name: float(np.median(t)) for name, t in times.items()}
    row: Row = {"function": case.name, "orders": len(orders)}
    for name, count_of in counts.items():
        found: Any = spearmanr([count_of[n] for n in orders], [medians[n] for n in orders])
        row[name] = float(found.statistic)
    row |= {"counts": counts["operations"], "works": counts["work"], "seconds": medians}
    cells = [case.name, str(len(orders)), f"{row['operations']:.2f}", f"{row['work']:.2f}"]
    print("| " + " | ".join(cells) + " |", flush=True)
    return row
