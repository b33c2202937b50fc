"""veenv: finding fast Jacobians by vertex elimination."""

from veenv.counts import Counts
from veenv.graph import Graph
from veenv.jacve import jacve, value_and_jacve
from veenv.linearise import make_graph
from veenv.orders import Order
from veenv.rules import defelemental

__all__ = [
    "Counts",
    "Graph",
    "Order",
    "defelemental",
    "jacve",
    "make_graph",
    "value_and_jacve",
]
