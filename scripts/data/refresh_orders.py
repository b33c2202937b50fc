"""Searches for orders that are shipped: ``python scripts/data/refresh_orders.py --help``.

An order file is replaced only by a cheaper order, or by one for the graph that the task has now.
"""

from __future__ import annotations

from veenv.agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import jax
import tyro

import veenv
from veenv.agents.config.args import fail
from veenv.env.factory import task_graph
from veenv.graph.graph import LABELLINGS, Graph, Labelling
from veenv.orders.order import Order, fingerprint
from veenv.search import search

FOLDER = Path(veenv.__file__).parent / "orders" / "data"


@dataclasses.dataclass(frozen=True)
class Config:
    """Searches for cheaper orders of the built-in tasks.

    Run it under every supported JAX version that traces a task differently; the orders for such
    a graph get files of their own.
    """

    tasks: Annotated[tuple[str, ...], tyro.conf.arg(name="task")] = ()
    """Tasks to search; all by default."""
    budget: str = "10s"
    """Search budget for each task and cost model."""
    method: str = "auto"
    """Search method, as `veenv.search.search` takes it."""
    seed: int = 0
    """Seed of the search."""
    folder: Path = FOLDER
    """Where the order files lie."""


def main(config: Config) -> None:
    """Refreshes the files; what is wrong with the command line or a file is one line."""
    try:
        names = [veenv.tasks.get(name).name for name in config.tasks] or veenv.tasks.list()
        for name in names:
            began = time.perf_counter()
            graph = task_graph(name)
            messages = update(config.folder, graph, name, candidates_of(graph, name, config))
            seconds = time.perf_counter() - began
            print(f"{name}: {'; '.join(messages)} ({seconds:.0f} s)", flush=True)
    except (ValueError, OSError) as error:
        fail(str(error))


def candidates_of(graph: Graph, name: str, config: Config) -> list[Order]:
    """The classical orders, and what searches under each cost model find.

    Raises:
      ValueError: as `veenv.search.search`.
    """
    orders = [
        Order.from_graph(graph, getattr(graph, by)(), name, by)
        for by in ("reverse", "forward", "markowitz")
    ]
    for cost in LABELLINGS:
        result = search(graph, config.method, cost=cost, budget=config.budget, seed=config.seed)
        by = f"search {config.method!r} under {cost!r}, seed {config.seed}, {config.budget}"
        orders.append(Order.from_graph(graph, result.order, name, by, {cost: result.lower_bound}))
    return orders


def update(folder: Path, graph: Graph, name: str, candidates: Iterable[Order]) -> list[str]:
    """Writes the cheapest of the shipped and the new orders of a graph.

    Args:
      folder: where the order files lie.
      graph: the task's graph.
      name: the task's name.
      candidates: new orders of that graph.

    Returns:
      For each cost model a line on what was done.

    Raises:
      ValueError: if an existing file is not an order file, or an order is not one of the graph.
      OSError: if a file cannot be written.
    """
    shipped = {path: Order.load(path) for path in sorted(folder.glob(f"{name}.*json"))}
    pool = [*_recount(shipped.values(), graph), *candidates]
    bounds = {cost: max(order.lower_bounds.get(cost, 0) for order in pool) for cost in LABELLINGS}
    best = {cost: min(pool, key=lambda o, cost=cost: _price(o, cost)) for cost in LABELLINGS}
    messages = []
    for cost in LABELLINGS:
        path = folder / _file_name(shipped, graph, name, cost)
        order = dataclasses.replace(best[cost], lower_bounds=bounds)
        order.ids_for(graph)
        text = f"{cost} {order.counts[cost]}" + (" (optimal)" if order.is_optimal(cost) else "")
        if cost == "executed" and order.counts[cost] == best["multiplications"].counts[cost]:
            path.unlink(missing_ok=True)
            messages.append(f"{text}, the same order")
            continue
        old = shipped.get(path)
        if old is None or old.ids != order.ids or old.lower_bounds != order.lower_bounds:
            order.save(path)
        fits = old is not None and old.fingerprint == order.fingerprint
        was = f", was {old.counts[cost]}" if old is not None and fits else ", new"
        messages.append(text + was)
    return messages


def _price(order: Order, cost: Labelling) -> tuple[int, int]:
    """The count that matters, then the other one."""
    (other,) = (c for c in LABELLINGS if c != cost)
    return order.counts[cost], order.counts[other]


def _recount(orders: Iterable[Order], graph: Graph) -> list[Order]:
    """The orders that are orders of this graph; those recorded for another one lose their proof."""
    recounted = []
    for order in orders:
        same = order.fingerprint == fingerprint(graph)
        bounds = order.lower_bounds if same else {}
        try:
            new = Order.from_graph(graph, order.ids, order.name, order.found_by, bounds)
        except ValueError:
            continue
        recounted.append(dataclasses.replace(new, jax_version=order.jax_version) if same else new)
    return recounted


def _file_name(shipped: dict[Path, Order], graph: Graph, name: str, cost: Labelling) -> str:
    """The file of a task's order; a graph that only another JAX version traces has its own."""
    suffix = "" if cost == "multiplications" else f".{cost}"
    main = next((o for p, o in shipped.items() if p.name == f"{name}.json"), None)
    minor = ".".join(jax.__version__.split(".")[:2])
    if main is not None and main.fingerprint != fingerprint(graph):
        suffix += "" if main.jax_version.startswith(f"{minor}.") else f".jax-{minor}"
    return f"{name}{suffix}.json"


if __name__ == "__main__":
    run_script(lambda: main(tyro.cli(Config)))
