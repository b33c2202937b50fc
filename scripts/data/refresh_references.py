"""Makes the references of sets: ``python scripts/data/refresh_references.py --help``."""

from __future__ import annotations

from veenv.agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
import json
import sys
from pathlib import Path

import tyro

import veenv
from veenv.agents.config.args import fail

sys.path.insert(0, str(Path(__file__).parents[2]))  # a checkout is not installed

from scripts.leaderboard import read_learners, read_policies
from veenv.env import TaskDistribution
from veenv.orders.documents import write_text
from veenv.orders.order import fingerprint
from veenv.search import search
from veenv.tasks.evaluation_sets import evaluation_set

BOARD = Path(__file__).parents[2] / "docs" / "leaderboard"
FILE = Path(veenv.__file__).parent / "tasks" / "data" / "references.json"


DRAWS = 4
"""How many functions are drawn for each one that a set has; most that are left out."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Searches the functions of a test set with several seeds and keeps the least cost of each.

    Random functions are drawn until so many have a cost below their best classical order as the set
    has; the others are noted as left out.  What is known of the graphs of named tasks counts too,
    and what the leaderboard has; without seeds only these.
    """

    set: str
    """Name of the set."""
    method: str = "anneal"
    """Method of search, as `veenv.search.search` takes it."""
    budget: str = "200000"
    """Evaluations, or a time such as `100s`, for each seed."""
    seeds: int = 1
    """Number of seeds, from 0 on."""
    board: Path = BOARD
    """Folder of the leaderboard."""
    file: Path = FILE
    """The file of references; other sets in it stay."""


def main(config: Config) -> None:
    """Anneals, and writes the file after every function, so that a run can be cut off."""
    chosen = evaluation_set(config.set)
    found = json.loads(config.file.read_text())
    before = found["sets"].get(chosen.name, {})
    costs = found["sets"][chosen.name] = dict(before) if chosen.family is None else {}
    left_out = found["left_out"][chosen.name] = []
    of_search = {"method": config.method, "budget": config.budget, "seeds": config.seeds}
    if config.seeds:
        found["budgets"][chosen.name] = of_search
    elif chosen.family is not None:
        raise ValueError(f"the functions of {chosen.name} are chosen by search: seeds must be 1")
    policies, learners = config.board / "policies", config.board / "learners"
    listed = [
        (row.fingerprint, cost)
        for one in (*read_policies(policies), *read_learners(learners))
        for row in one.rows
        for cost in row.costs
    ]
    budget = int(config.budget) if config.budget.isdecimal() else config.budget
    every = chosen
    if chosen.family is not None:
        every = dataclasses.replace(chosen, number=DRAWS * chosen.number, left_out=())
    played = TaskDistribution.of(every)
    for name, graph, orders in zip(every.functions, played.graphs, played.classical, strict=True):
        classical, print_of = min(orders.values()), fingerprint(graph)
        searched = (
            search(graph, config.method, budget=budget, seed=seed).cost
            for seed in range(config.seeds)
        )
        listed_here = (cost for print_of_row, cost in listed if print_of_row == print_of)
        least = min((*searched, *listed_here), default=classical)
        print(f"{name}: {least:,} (best classical order {classical:,})", flush=True)
        known = before.get(name, {})
        if chosen.family is None and known.get("fingerprint") == print_of:
            least = min(least, known["cost"])
        if chosen.family is None or least < classical:
            costs[name] = {"cost": min(least, classical), "fingerprint": print_of}
        else:
            left_out.append(int(name))
        write_text(config.file, json.dumps(found, indent=0, sort_keys=True) + "\n")
        if chosen.family is not None and len(costs) == chosen.number:
            return
    if chosen.family is None:
        return
    raise ValueError(
        f"{chosen.name} has {chosen.number} functions, and of {len(played)} draws only "
        f"{len(costs)} have a cost below their best classical order"
    )


def run() -> None:
    """Parses the command line; what is wrong with it is one line."""
    config = tyro.cli(Config)
    try:
        main(config)
    except ValueError as error:
        fail(str(error))


if __name__ == "__main__":
    run_script(run)
