from . import adapters, drawing, graph_view, observe, random_play, rewards, task_set
from .counts import WideCount
from .encode import EnvParams, Spec
from .env import VertexEnv
from .factory import make
from .graph_view import GraphObservation
from .observe import PackedObservation
from .random_graphs import random_params
from .random_play import random_action
from .state import Observation, State
from .task_set import TaskDistribution

__all__ = [
    "EnvParams",
    "GraphObservation",
    "Observation",
    "PackedObservation",
    "Spec",
    "State",
    "TaskDistribution",
    "VertexEnv",
    "WideCount",
    "adapters",
    "drawing",
    "graph_view",
    "make",
    "observe",
    "random_action",
    "random_params",
    "random_play",
    "rewards",
    "task_set",
]
