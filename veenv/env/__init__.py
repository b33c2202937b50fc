"""Vertex elimination as a reinforcement-learning environment."""

from veenv.env.core import Observation, State, VertexEnv
from veenv.env.distribution import TaskDistribution
from veenv.env.make import make
from veenv.env.params import EnvParams, Spec

__all__ = ["EnvParams", "Observation", "Spec", "State", "TaskDistribution", "VertexEnv", "make"]
