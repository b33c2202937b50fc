"""The reference agent of `veenv`: PPO with a graph network whose size no graph decides."""

from agents.config.ppo import PPOConfig
from agents.nn.networks import GraphNetwork
from agents.ppo.trainer import Trainer, Update

__all__ = ["GraphNetwork", "PPOConfig", "Trainer", "Update"]
