"""The settings of PPO: one frozen record, from which the command line is generated."""

from __future__ import annotations

import dataclasses

from veenv.agents.config.checks import check_integers, check_numbers, check_positive

LARGE = 150
"""Most vertices of a task that is learned from nothing; all with published counts are smaller."""


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
    """How far the probability ratio may move before the policy loss stops rewarding it, and the
    value, in units of the best classical order's cost, in one update."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Global norm at which gradients are clipped."""
    update_epochs: int = 2
    """Passes over the episodes of one update."""
    learned_share: float | None = None
    """Share of the steps that a pass reads, drawn anew in each; 1 is slower and learns more from
    every step. By default 0.25 for PPO, and 1 for AlphaZero, whose steps take longer to play."""
    num_minibatches: int = 4
    """Parts into which each pass is split, each giving one step of Adam."""
    target_kl: float = 0.03
    """Approximate KL divergence from the acting policy at which an update stops early."""
    window: int | None = None
    """Vertices that the policy chooses among: the next ones in the best order so far, which
    training then starts from; for AlphaZero those that cost least now. 0: all vertices. Default: 32
    on graphs of more than 150 vertices, else 0."""
    from_nothing: bool = False
    """Start from no order on large graphs: with a window, the first update chooses among the
    vertices that cost least now."""
    hidden: int = 32
    """Width of the network's layers."""
    num_hops: int = 1
    """Hops over which neighbours' features are summed for the network, free of parameters."""
    bfloat16: bool = False
    """Compute hidden layers in bfloat16 (for GPUs and TPUs)."""

    def __post_init__(self) -> None:
        """Checks every field."""
        check_integers(self, "seed", 0, 2**32 - 1)
        check_integers(self, "num_envs steps update_epochs num_minibatches hidden")
        check_integers(self, "num_hops", 0, 3)
        check_integers(self, "window", 0)
        positive = "learning_rate clip_eps max_grad_norm target_kl learned_share"
        check_positive(self, positive)
        check_numbers(self, "final_learning_rate ent_coef final_ent_coef vf_coef")
        check_numbers(self, "gae_lambda learned_share", 0.0, 1.0)


def window_on(num_vertices: int, config: PPOConfig) -> int:
    """The window on graphs of at most so many vertices; 0 for all vertices.

    >>> window_on(150, PPOConfig()), window_on(700, PPOConfig())
    (0, 32)
    """
    window = (32 if num_vertices > LARGE else 0) if config.window is None else config.window
    return window if window < num_vertices else 0
