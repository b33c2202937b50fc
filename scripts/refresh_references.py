"""Makes the reference costs of the evaluation sets: ``python scripts/refresh_references.py -h``."""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
import json
from pathlib import Path

import tyro

import veenv
from scripts.evaluate import tasks_of_set
from veenv.orders.documents import write_text
from veenv.orders.order import fingerprint
from veenv.search import search
from veenv.tasks.evaluation_sets import evaluation_set

FILE = Path(veenv.__file__).parent / "tasks" / "data" / "references.json"


@dataclasses.dataclass(frozen=True)
class Config:
    """Anneals every function of a test set with several seeds and keeps the least cost."""

    set: str
    """Name of the set."""
    evaluations: int = 200_000
    """Evaluations of annealing for each seed."""
    seeds: int = 1
    """Number of seeds, from 0 on."""
    file: Path = FILE
    """The file of references; other sets in it stay."""


def main(config: Config) -> None:
    """Anneals, and writes the file after every function, so that a run can be cut off."""
    chosen = evaluation_set(config.set)
    played = tasks_of_set(chosen)
    found = json.loads(config.file.read_text())
    costs = found["sets"][chosen.name] = {}
    for index, graph in enumerate(played.graphs):
        name = chosen.tasks[index] if chosen.tasks else str(index)
        least = min(
            search(graph, "anneal", budget=config.evaluations, seed=seed).cost
            for seed in range(config.seeds)
        )
        classical = min(played.classical[index].values())
        costs[name] = {"cost": min(least, classical), "fingerprint": fingerprint(graph)}
        print(f"{name}: {least:,} (best classical order {classical:,})", flush=True)
        found.setdefault("budgets", {})[chosen.name] = {
            "evaluations": config.evaluations,
            "seeds": config.seeds,
        }
        write_text(config.file, json.dumps(found, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    run_script(lambda: main(tyro.cli(Config)))
