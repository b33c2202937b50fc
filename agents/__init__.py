"""The reference agent of `veenv`: PPO with a graph network whose size no graph decides."""

from agents.config import PPOConfig
from agents.games import Game, make_game
from agents.networks import GraphNetwork
from agents.ppo import Trainer, Update

__all__ = ["Game", "GraphNetwork", "PPOConfig", "Trainer", "Update", "make_game"]
