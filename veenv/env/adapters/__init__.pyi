from .gymnasium import GymVertexEnv
from .gymnasium_vector import GymVectorEnv
from .gymnax import GymnaxEnv
from .jumanji import to_jumanji
from .stoa import to_stoa

__all__ = [
    "GymVectorEnv",
    "GymVertexEnv",
    "GymnaxEnv",
    "to_jumanji",
    "to_stoa",
]
