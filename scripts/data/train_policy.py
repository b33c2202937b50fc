"""Trains the policy that comes with the package: ``python scripts/data/train_policy.py --help``."""

from __future__ import annotations

from veenv.agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
import json
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import tyro

from veenv.agents.training.score import FAMILIES, ScoreConfig, train_score
from veenv.orders.documents import write_text


@dataclasses.dataclass(frozen=True)
class Arguments(ScoreConfig):
    """Trains the score that the policy plays by, and writes it with how it was made."""

    out: Path = Path("policy.json")
    """The file; the package ships `policy-scalar.json` and `policy-arrays.json`."""


def main(arguments: Arguments) -> None:
    """Trains, and writes the weights and their card."""
    began = time.monotonic()

    def tell(step: int, logarithm: float, _: np.ndarray) -> None:
        if step % 20 == 0:
            seconds = time.monotonic() - began
            print(f"{step} steps, {seconds:.0f} s: {np.exp(logarithm):.3f} of the best classical",
                  flush=True)  # fmt: skip

    weights, validation = train_score(arguments, tell)
    settings = dataclasses.asdict(arguments)
    del settings["out"]
    card = {
        "command": shlex.join(["python", "scripts/data/train_policy.py", *sys.argv[1:]]),
        "settings": settings,
        "families": [dataclasses.asdict(family) for family in FAMILIES[arguments.kind]],
        "seconds": round(time.monotonic() - began),
        "validation": [round(float(np.exp(mean)), 4) for mean in validation],
        "note": "validation: greedy games on functions that training has not seen, over the best "
        "classical order, geometric mean by family",
        "weights": weights.tolist(),
    }
    write_text(arguments.out, json.dumps(card, indent=1) + "\n")
    print(f"validation by family: {card['validation']}; written: {arguments.out}")


if __name__ == "__main__":
    run_script(lambda: main(tyro.cli(Arguments)))
