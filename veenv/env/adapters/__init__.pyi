from .dm_env import TimeStep, TimeStepEnv
from .gymnasium import GymVertexEnv
from .gymnasium_vector import GymVectorEnv
from .gymnax import GymnaxEnv

__all__ = ["GymVectorEnv", "GymVertexEnv", "GymnaxEnv", "TimeStep", "TimeStepEnv"]
