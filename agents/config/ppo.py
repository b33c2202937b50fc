"""The settings of PPO: one frozen record, from which the command line is generated."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """Settings of the agent and of its training.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    seed: int = 0
    """Seed of all randomness; with --steps, one seed gives the same run every time."""

    num_envs: int = 16
    """Environments played side by side, shared out evenly among the tasks."""

    steps: int | None = None
    """Environment steps in total, rounded up to whole updates; without it the time limit rules."""

    learning_rate: float = 5e-3
    """Adam's learning rate at the start."""

    final_learning_rate: float = 5e-4
    """Learning rate at the end; in between it falls linearly."""

    ent_coef: float = 0.01
    """Weight of the entropy bonus at the start."""

    final_ent_coef: float = 0.0
    """Weight of the entropy bonus at the end; in between it falls linearly."""

    gae_lambda: float = 0.95
    """λ of generalised advantage estimation; the discount is 1, since costs add up."""

    clip_eps: float = 0.2
    """How far the probability ratio may move before the policy loss stops rewarding it."""

    value_clip_eps: float = 0.2
    """How far the value may move in one update, in units of the best classical order's cost."""

    vf_coef: float = 0.5
    """Weight of the value loss."""

    max_grad_norm: float = 0.5
    """Global norm at which gradients are clipped."""

    update_epochs: int = 2
    """Passes over the episodes of one update."""

    num_minibatches: int = 4
    """Parts into which each pass is split, each giving one step of Adam."""

    target_kl: float = 0.03
    """Approximate KL divergence from the acting policy at which an update stops early."""

    temperatures: float = 0.0
    """Share of the environments that sample at temperatures from 1/2 to 2, to find cheap orders and
    not to learn from."""

    restarts: float = 0.0
    """Share of the environments that start from a prefix of the best order so far."""

    self_imitation: float = 0.0
    """Weight of imitating the best order so far; one environment of each task then replays it."""

    hidden: int = 64
    """Width of the network's layers."""

    num_hops: int = 1
    """Hops over which neighbours' features are summed for the network, free of parameters."""

    num_rounds: int = 0
    """Rounds of learned messages between neighbours; each multiplies the time of a step."""

    bfloat16: bool = False
    """Compute hidden layers in bfloat16 (for GPUs and TPUs)."""

    def __post_init__(self) -> None:
        """Checks every field."""
        for name, (accepts, expected) in _CHECKS.items():
            value = getattr(self, name)
            if not accepts(value):
                raise ValueError(f"{name} must be {expected}, got {value!r}")


def _int_from(low: int) -> tuple[Callable[[Any], bool], str]:
    return lambda x: type(x) is int and x >= low, f"an integer of at least {low}"


def _number(low: float, high: float = math.inf) -> tuple[Callable[[Any], bool], str]:
    text = f"a number from {low} to {high}" if high < math.inf else f"a number of at least {low}"
    return lambda x: isinstance(x, int | float) and low <= x <= high and math.isfinite(x), text


def _positive() -> tuple[Callable[[Any], bool], str]:
    return lambda x: isinstance(x, int | float) and 0 < x < math.inf, "a number above 0"


def _optional(check: tuple[Callable[[Any], bool], str]) -> tuple[Callable[[Any], bool], str]:
    return lambda x: x is None or check[0](x), check[1]


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "seed": (lambda x: type(x) is int and 0 <= x < 2**32, "an integer from 0 to 2**32 - 1"),
    "num_envs": _int_from(1),
    "steps": _optional(_int_from(1)),
    "learning_rate": _positive(),
    "final_learning_rate": _number(0.0),
    "ent_coef": _number(0.0),
    "final_ent_coef": _number(0.0),
    "gae_lambda": _number(0.0, 1.0),
    "clip_eps": _positive(),
    "value_clip_eps": _positive(),
    "vf_coef": _number(0.0),
    "max_grad_norm": _positive(),
    "update_epochs": _int_from(1),
    "num_minibatches": _int_from(1),
    "target_kl": _positive(),
    "temperatures": _number(0.0, 1.0),
    "restarts": _number(0.0, 1.0),
    "self_imitation": _number(0.0),
    "hidden": _int_from(1),
    "num_hops": (lambda x: type(x) is int and 0 <= x <= 3, "an integer from 0 to 3"),
    "num_rounds": _int_from(0),
}
