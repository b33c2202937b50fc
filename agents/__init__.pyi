from .config.ppo import PPOConfig
from .games import Game, make_game
from .nn.networks import GraphNetwork
from .ppo.ppo import Trainer, Update

__all__ = ["Game", "GraphNetwork", "PPOConfig", "Trainer", "Update", "make_game"]
