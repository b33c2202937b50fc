"""The reference agent of `veenv`: PPO with a graph network whose size no graph decides."""

from agents.config.ppo import PPOConfig
from agents.games import Game, make_game
from agents.nn.networks import GraphNetwork
from agents.ppo.ppo import Trainer, Update

__all__ = ["Game", "GraphNetwork", "PPOConfig", "Trainer", "Update", "make_game"]
