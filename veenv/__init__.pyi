from . import (
    agents,
    engine,
    env,
    export,
    graph,
    linear,
    measure,
    orders,
    rules,
    search,
    structure,
    tasks,
    testing,
)
from ._gymnasium import register
from .engine.api import jacve, value_and_jacve
from .engine.elimination import Counts
from .engine.explanation import Explanation, explain
from .engine.interop import filter_jacve, tree_allclose
from .engine.second import hessian, laplacian, linear_operator, sparse_solver
from .engine.sparse import SparseTensor
from .env.drawing import animate, draw
from .env.factory import make
from .env.task_set import sets
from .graph.graph import Graph
from .graph.linearisation import make_graph
from .kernel.fusing import fuse
from .orders.cache import Auto
from .orders.order import Order
from .rules.base import defelemental
from .rules.definitions import register_rule
from .search.evaluation import evaluate
from .search.optimization import optimize
from .search.tuning.api import tune
from .search.tuning.jacobian import Jacobian
from .tasks.best import best_order
from .tasks.registry import register_task

__version__: str

__all__ = [
    "Auto",
    "Counts",
    "Explanation",
    "Graph",
    "Jacobian",
    "Order",
    "SparseTensor",
    "agents",
    "animate",
    "best_order",
    "defelemental",
    "draw",
    "engine",
    "env",
    "evaluate",
    "explain",
    "export",
    "filter_jacve",
    "fuse",
    "graph",
    "hessian",
    "jacve",
    "laplacian",
    "linear",
    "linear_operator",
    "make",
    "make_graph",
    "measure",
    "optimize",
    "orders",
    "register",
    "register_rule",
    "register_task",
    "rules",
    "search",
    "sets",
    "sparse_solver",
    "structure",
    "tasks",
    "testing",
    "tree_allclose",
    "tune",
    "value_and_jacve",
]
