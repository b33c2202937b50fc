from .api import Run, train
from .config.ppo import PPOConfig
from .config.search import SearchConfig
from .nn.networks import GraphNetwork
from .ppo.trainer import Trainer, Update

__all__ = ["GraphNetwork", "PPOConfig", "Run", "SearchConfig", "Trainer", "Update", "train"]
