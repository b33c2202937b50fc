from .api import Run, train
from .config.ppo import PPOConfig
from .config.search import SearchConfig
from .nn.custom import OwnNetwork
from .nn.networks import GraphNetwork
from .nn.weights import load_weights
from .ppo.ppo import Batch, Outputs, ppo_loss
from .ppo.trainer import Trainer, Update
from .training.loop import TrainProgress

__all__ = [
    "Batch",
    "GraphNetwork",
    "Outputs",
    "OwnNetwork",
    "PPOConfig",
    "Run",
    "SearchConfig",
    "TrainProgress",
    "Trainer",
    "Update",
    "load_weights",
    "ppo_loss",
    "train",
]
