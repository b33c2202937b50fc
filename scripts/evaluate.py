"""Plays tasks with trained weights: ``python scripts/evaluate.py --run RUN`` (see ``--help``)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from agents.cli import fail, parse
from agents.evaluation import evaluate
from agents.start import make_task_game
from agents.weights import load_weights
from veenv.graph import CostModel


@dataclasses.dataclass(frozen=True)
class EvaluateArgs:
    """Plays tasks with trained weights, without learning, beside the classical orders.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    run: str
    """Run folder of `scripts/train.py` (its `weights.eqx`), or a file of weights."""

    task: str | None = None
    """Tasks to play, separated by commas; without it those the run was trained on."""

    cost: CostModel = "multiplications"
    """What an elimination costs."""

    samples: int = 32
    """Episodes sampled on each task, by the policy and by uniformly random play."""

    temperature: float = 1.0
    """Temperature of the sampling; below 1 the policy is surer of itself."""

    seed: int = 0
    """Seed of the sampling."""

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if self.samples < 1:
            raise ValueError(f"samples must be an integer of at least 1, got {self.samples}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a number above 0, got {self.temperature}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be an integer from 0 to 2**32 - 1, got {self.seed}")


def main() -> None:
    """Parses the command line, plays and prints the table."""
    args = parse(EvaluateArgs)
    try:
        path = Path(args.run)
        network = load_weights(path / "weights.eqx" if path.is_dir() else path)
        game = make_task_game(args.task or trained_on(path), args.cost)
        results = evaluate(
            network, game, samples=args.samples, temperature=args.temperature, seed=args.seed
        )
    except (ValueError, OSError) as error:
        fail(str(error))
    best_of = f"best of {args.samples}"
    columns = ("forward", "reverse", "Markowitz", "random", "greedy", "mean", best_of)
    print(f"{'task':<22}" + "".join(f"{column:>13}" for column in columns))
    for result, classical in zip(results, game.classical, strict=True):
        costs = [*classical.values(), result.random, result.greedy, result.mean, result.best]
        cells = [f"{cost:,.1f}" if isinstance(cost, float) else f"{cost:,}" for cost in costs]
        print(f"{result.name:<22}" + "".join(f"{cell:>13}" for cell in cells))


def trained_on(path: Path) -> str:
    """The tasks of a run folder.

    Raises:
      ValueError: the path is no run folder.
      OSError: its settings cannot be read.
    """
    if not path.is_dir():
        raise ValueError("a file of weights does not say its tasks; name them with --task")
    return ",".join(json.loads((path / "config.json").read_text())["graphs"])


if __name__ == "__main__":
    main()
