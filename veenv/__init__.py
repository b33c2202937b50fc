"""veenv: finding fast Jacobians by vertex elimination.

A function is traced to its computational graph (`make_graph`); eliminating its vertices one by
one turns it into the Jacobian, and each elimination costs multiplications.  `make` turns the
graph into a reinforcement-learning environment, and `jacve` runs an elimination order as an exact
Jacobian.
"""

from veenv import tasks
from veenv.counts import Counts
from veenv.env.make import make
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
    "make",
    "make_graph",
    "tasks",
    "value_and_jacve",
]
