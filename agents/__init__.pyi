from .api import Run, SeedRuns, train, train_seeds
from .config.ppo import PPOConfig
from .config.search import SearchConfig
from .nn.networks import GraphNetwork
from .nn.own import OwnNetwork
from .nn.weights import load_weights
from .ppo.trainer import Trainer, Update

__all__ = [
    "GraphNetwork",
    "OwnNetwork",
    "PPOConfig",
    "Run",
    "SearchConfig",
    "SeedRuns",
    "Trainer",
    "Update",
    "load_weights",
    "train",
    "train_seeds",
]
