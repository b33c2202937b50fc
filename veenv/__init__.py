"""veenv: finding fast Jacobians by vertex elimination.

A function is traced to its computational graph (`make_graph`); eliminating its vertices one by
one turns it into the Jacobian, and each elimination costs multiplications.  `make` turns the
graph into a reinforcement-learning environment, and `jacve` runs an elimination order as an exact
Jacobian.
"""

import importlib
from typing import TYPE_CHECKING, Any

from veenv import tasks
from veenv.auto import Auto
from veenv.best import best_order
from veenv.counts import Counts
from veenv.env.make import make
from veenv.env.registration import register_all
from veenv.graph import Graph
from veenv.interop import eqx_jacve, filter_jacve, tree_allclose, vertex_elimination_jaxpr
from veenv.jacve import jacve, value_and_jacve
from veenv.linearise import make_graph
from veenv.orders import Order
from veenv.rules import defelemental
from veenv.sparse import SparseTensor
from veenv.tasks import register_task
from veenv.tuning import optimize

if TYPE_CHECKING:
    from veenv import search

__all__ = [
    "Auto",
    "Counts",
    "Graph",
    "Order",
    "SparseTensor",
    "best_order",
    "defelemental",
    "eqx_jacve",
    "filter_jacve",
    "jacve",
    "make",
    "make_graph",
    "optimize",
    "register_task",
    "search",
    "tasks",
    "tree_allclose",
    "value_and_jacve",
    "vertex_elimination_jaxpr",
]

register_all()


def __getattr__(name: str) -> Any:
    """Loads `veenv.search` when it is first used: numba takes a second to import."""
    if name == "search":
        return importlib.import_module("veenv.search")
    raise AttributeError(f"module 'veenv' has no attribute {name!r}")
