"""`Auto`: the shipped order of a graph, else a cached one, else one from a search of some seconds.

It takes the shipped order of the graph if there is one, else one from the user's cache, else it
searches and remembers the result.  Setting the environment variable ``VEENV_CACHE_DIR`` moves the
cache; setting it to ``off`` switches it off.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from veenv.graph.graph import CostModel, Graph, check_cost_model
from veenv.orders.order import Order, climb_until, fingerprint
from veenv.orders.shipped import best_for

CACHE_VARIABLE = "VEENV_CACHE_DIR"


@dataclass(frozen=True)
class Auto:
    """An order found when it is needed: shipped, cached, or searched for within a budget.

    Pass it as `order`; ``"auto"`` in its place does not search for seconds.

    Attributes:
      seconds: time the search may take at the first trace of a function.
      cost: the cost model to minimise.
      cache: remember found orders in the user's cache directory.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> graph = veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)
      >>> Auto(seconds=0.1, cache=False).order(graph)
      (2, 1)
    """

    seconds: float = 3.0
    cost: CostModel = "executed"
    cache: bool = True

    def __post_init__(self) -> None:
        """Checks the fields."""
        if not isinstance(self.seconds, (int, float)) or self.seconds <= 0:
            raise ValueError(f"seconds must be a positive number, got {self.seconds!r}")
        check_cost_model(self.cost)

    def order(self, graph: Graph) -> tuple[int, ...]:
        """Returns the ids of an order: a shipped one, a cached one, or that of a search now."""
        with suppress(ValueError):  # none is shipped
            return best_for(graph, self.cost).ids_for(graph)
        name = f"{fingerprint(graph)}-{self.cost}"
        return _once(name, lambda: self._find(graph, name))

    def _find(self, graph: Graph, name: str) -> tuple[int, ...]:
        """Returns the order cached under a name, or searches for one."""
        folder = cache_dir() if self.cache else None
        if folder is None:
            return _search(graph, self.cost, self.seconds)
        path = folder / "orders" / f"{name}.json"
        with suppress(OSError, ValueError):  # there is no file, or it is not valid
            return Order.load(path).ids_for(graph)
        ids = _search(graph, self.cost, self.seconds)
        with suppress(OSError):  # a cache that cannot be written costs only that
            Order.from_graph(graph, ids, found_by="veenv.Auto").save(path)
        return ids


_running: dict[str, Future[tuple[int, ...] | None]] = {}
"""Searches under way, by what they are for; guarded by `_lock`."""
_lock = threading.Lock()


def _once(name: str, find: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
    """Finds an order once: threads that ask for the same one meanwhile wait and share it."""
    while True:
        with _lock:
            running = _running.get(name)
            if running is None:
                mine = _running[name] = Future()
                break
        ids = running.result()
        if ids is not None:  # else the other thread has failed, and this one tries
            return ids
    ids = None
    try:
        ids = find()
        return ids
    finally:
        with _lock:
            del _running[name]
        mine.set_result(ids)


def cache_dir() -> Path | None:
    """Returns the directory of cached orders; None if the cache is switched off.

    Examples:
      >>> from unittest.mock import patch
      >>> with patch.dict(os.environ, VEENV_CACHE_DIR="off"):
      ...     print(cache_dir())
      None
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen is not None:
        return None if chosen.strip().lower() in ("", "off", "0") else Path(chosen)
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "veenv" / "Cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "veenv"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "veenv"


def _search(graph: Graph, cost: CostModel, seconds: float) -> tuple[int, ...]:
    """Returns the best order that a limited time finds, never worse than the classical ones."""
    end = time.perf_counter() + seconds
    classical = (graph.legal(o) for o in (graph.reverse(), graph.markowitz(), graph.forward()))
    best = min(classical, key=lambda ids: graph.cost(ids, cost))
    return climb_until(graph, best, end, cost)
