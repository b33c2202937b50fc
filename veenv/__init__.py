"""veenv: finding fast Jacobians by vertex elimination.

A function is traced to its computational graph (`make_graph`); eliminating its vertices one by
one turns it into the Jacobian, and each elimination costs multiplications.  `make` turns the
graph into a reinforcement-learning environment, and `jacve` runs an elimination order as an exact
Jacobian.
"""

from veenv import tasks
from veenv.best import best_order
from veenv.counts import Counts
from veenv.env.make import make
from veenv.graph import Graph
from veenv.interop import eqx_jacve, filter_jacve, tree_allclose, vertex_elimination_jaxpr
from veenv.jacve import jacve, value_and_jacve
from veenv.linearise import make_graph
from veenv.orders import Order
from veenv.rules import defelemental
from veenv.sparse import SparseTensor

__all__ = [
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
    "tasks",
    "tree_allclose",
    "value_and_jacve",
    "vertex_elimination_jaxpr",
]
