from .config.ppo import PPOConfig
from .nn.networks import GraphNetwork
from .ppo.trainer import Trainer, Update

__all__ = ["GraphNetwork", "PPOConfig", "Trainer", "Update"]
