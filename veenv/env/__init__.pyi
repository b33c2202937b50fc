from . import adapters, drawing, random_play, rewards, task_set
from .encode import EnvParams, Spec
from .env import VertexEnv
from .factory import make
from .state import Observation, State
from .task_set import TaskDistribution

__all__ = [
    "EnvParams",
    "Observation",
    "Spec",
    "State",
    "TaskDistribution",
    "VertexEnv",
    "adapters",
    "drawing",
    "make",
    "random_play",
    "rewards",
    "task_set",
]
