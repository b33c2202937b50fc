"""Audits the functions of test sets: ``python scripts/data/refresh_references.py --help``."""

from __future__ import annotations

from veenv.agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import jax
import tyro

import veenv
from veenv.agents.config.args import fail
from veenv.env.rewards import classical_orders
from veenv.env.task_set import graphs_of
from veenv.graph.graph import Graph
from veenv.orders.documents import parse_object, write_section, write_text
from veenv.orders.order import Order, fingerprint
from veenv.orders.shipped import proved_bound, shipped_orders
from veenv.search import search
from veenv.search.exact.bounds import vertex_bounds
from veenv.search.heuristic.greedy_rules import greedy
from veenv.search.problem import prepare
from veenv.tasks.evaluation_sets import (
    CANDIDATES,
    FAMILIES,
    LEAST_GAIN,
    SOLVED,
    Known,
    evaluation_set,
    read_known,
)

ROOT = Path(__file__).parents[2]
BOARD = ROOT / "docs" / "leaderboard"
PAGE = ROOT / "docs" / "internals" / "proofs.md"
FILE = Path(veenv.__file__).parent / "tasks" / "data" / "references.json"

AUDITED = (*FAMILIES, *CANDIDATES)
"""Sets whose functions are chosen here; `veenv.tasks.evaluation_sets.FIXED` never changes."""

ENOUGH = 400
"""Most vertices of a function that a proof is tried for: none of a larger one ever came."""
BOUNDED = 1400
"""Most vertices of a function that gets a lower bound."""

Offered: TypeAlias = dict[str, list[tuple[str, Sequence[int]]]]
"""By fingerprint of the graph: by whom an order is, and its vertex ids."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Searches for the best order of every function that may be in a test set, and for a proof.

    The first search of a function begins with nothing, each other one with the best order known
    and a seed of its own. The file is written after each function, and the same command goes on
    where it was. Then it writes which functions are in which set, and the table of all. Orders of
    the leaderboard and of the package are looked at, too.
    """

    sets: tuple[str, ...] = ()
    """Test sets; all by default."""
    tasks: tuple[str, ...] = ()
    """Only these tasks of the sets."""
    orders: tuple[Path, ...] = ()
    """Order files that are handed in: a cheaper one becomes the reference. Nothing is searched."""
    pieces: int = 1
    """How many searches each function has had in the end."""
    budget: str = "20000"
    """Evaluations, or a time such as `60s`, of one search."""
    proof: str = "2s"
    """Time of each proof; it is tried once."""
    board: Path = BOARD
    """Folder of the leaderboard."""
    file: Path = FILE
    """The file of references."""
    docs: Path = PAGE
    """Page to write the table into, between ``<!-- audit: begin -->`` and end."""


class Audit:
    """The file of what is known of all functions."""

    def __init__(self, config: Config):
        """Reads the file, and the orders of others.

        Raises:
          ValueError: a file holds something else.
        """
        self.config = config
        self.document = parse_object(config.file.read_bytes())
        self.known = read_known(self.document)
        self.left_out: dict[str, dict[str, list[int]]] = self.document["left_out"]
        self.offered = offered(config.board)

    def write(self) -> None:
        """Writes the file."""
        self.document["known"] = {
            key: {**vars(one), "seconds": round(one.seconds, 1)}
            for key, one in sorted(self.known.items(), key=lambda pair: _line(pair[1]))
        }
        write_text(self.config.file, as_text(self.document))

    def take(self, name: str, graph: Graph) -> Known:
        """Returns what is known of a function by the orders that are there already."""
        key = fingerprint(graph)
        known = self.known.get(key) or of_nothing(name, graph)
        known = dataclasses.replace(known, bound=max(known.bound, proved_bound(graph)))
        for by, ids in self.offered.get(key, ()):
            known = better(known, graph, ids, by)
        self.known[key] = known
        return known

    def search(self, name: str, graph: Graph) -> Known:
        """Returns what is known of a function after all its searches and a proof."""
        known, key = self.take(name, graph), fingerprint(graph)
        budget = int(self.config.budget) if self.config.budget.isdecimal() else self.config.budget
        while known.pieces < self.config.pieces and not known.solved:
            began, kind = time.process_time(), "anneal" if known.pieces else "auto"
            begin = known.order if known.pieces else None
            result = search(graph, kind, budget=budget, seed=known.pieces, start=begin)
            by = f"{kind}, budget {budget}, seed {known.pieces}"
            known = better(known, graph, result.order, by)
            known = dataclasses.replace(
                known,
                bound=max(known.bound, result.lower_bound),
                first=known.first if known.pieces else result.cost,
                pieces=known.pieces + 1,
                seconds=known.seconds + time.process_time() - began,
            )
        large, proof = len(graph.eliminable) > ENOUGH, self.config.proof
        if not (known.solved or large or known.tried == proof):
            result = search(graph, "exact", budget=proof, start=known.order)
            known = better(known, graph, result.order, f"exact, budget {proof}")
            bound = max(known.bound, result.lower_bound)
            known = dataclasses.replace(known, bound=bound, tried=proof)
        self.known[key] = known
        return known

    def random_set(self, name: str) -> list[str]:
        """The functions of a set of random ones: draws in order, until there are enough."""
        chosen, number = evaluation_set(name), FAMILIES[name][1]
        members: list[str] = []
        gone = self.left_out.setdefault(name, {})
        for draw in itertools.count():
            if len(members) == number:
                break
            if str(draw) in gone:
                continue
            one = dataclasses.replace(chosen, draws=(draw,))
            [(task, graph)] = graphs_of(one, "multiplications").items()
            known = self.search(task, graph)
            if known.gain < LEAST_GAIN:
                gone[str(draw)] = [known.classical, known.cost, known.bound]
                del self.known[fingerprint(graph)]
            elif not known.solved:
                members.append(task)
            self.told(known)
        return members

    def named_set(self, name: str) -> list[str]:
        """The functions of a set of tasks."""
        members = []
        for task in CANDIDATES[name]:
            known = self.search(task, veenv.make(task).graph)
            if known.gain >= LEAST_GAIN and not known.solved:
                members.append(task)
            self.told(known)
        return members

    def told(self, known: Known) -> None:
        """Says what is known of a function, and writes the file."""
        self.write()
        print(
            f"{known.task}: {known.cost:,}, at least {known.bound:,}, classical "
            f"{known.classical:,}, {known.seconds:.0f} s",
            flush=True,
        )


def main(config: Config) -> None:
    """Audits, and writes the file and the table.

    Raises:
      ValueError: there is no such set or task, or a file is none of orders.
    """
    audit = Audit(config)
    for path in config.orders:
        hand_in(audit, Order.load(path))
    names = () if config.orders else config.sets or AUDITED
    for name in names:
        if name not in AUDITED:
            raise ValueError(f"unknown test set {name!r}; known: {', '.join(AUDITED)}")
        tasks = CANDIDATES.get(name, ())
        if config.tasks:
            for task in tasks:
                if task in config.tasks:
                    audit.told(audit.search(task, veenv.make(task).graph))
            continue
        members = audit.named_set(name) if tasks else audit.random_set(name)
        audit.document["sets"][name] = members
    solved = {one.task for one in audit.known.values() if one.solved}
    for name, members in audit.document["sets"].items():
        audit.document["sets"][name] = [task for task in members if task not in solved]
    audit.document["sets"][SOLVED] = sorted(solved, key=_place)
    audit.write()
    write_section(config.docs, "audit", table(audit))


def hand_in(audit: Audit, order: Order) -> None:
    """Makes an order the reference if it is cheaper.

    Raises:
      ValueError: it is for no function of any set.
    """
    known = audit.known.get(order.fingerprint)
    if known is None:
        raise ValueError(f"order {order.name!r} is for no function of a test set")
    alone = dataclasses.replace(evaluation_set(SOLVED), tasks=(known.task,))
    [graph] = graphs_of(alone, "multiplications").values()
    new = better(known, graph, order.ids_for(graph), order.found_by)
    audit.known[order.fingerprint] = new
    print(f"{known.task}: {new.cost:,}, was {known.cost:,}")


def of_nothing(name: str, graph: Graph) -> Known:
    """Computes what classical orders and bounds say of a function."""
    problem = prepare(graph)
    orders = classical_orders(graph)
    orders["greedy by cost"] = graph.legal(problem.to_ids(greedy(problem, "cost")))
    costs = {rule: graph.cost(ids) for rule, ids in orders.items()}
    rule = min(costs, key=costs.__getitem__)
    # The flows behind these bounds take many minutes on the largest functions.
    bound = int(vertex_bounds(problem).sum()) if problem.n <= BOUNDED else 0
    cost = costs[rule]
    return Known(name, cost, rule, cost, bound, orders[rule], found_by=rule, jax=jax.__version__)


def better(known: Known, graph: Graph, ids: Sequence[int], by: str) -> Known:
    """Updates what is known of a function with another order."""
    cost = graph.cost(graph.check_order(ids))
    if cost >= known.cost:
        return known
    changed = {"cost": cost, "order": tuple(ids), "found_by": by, "jax": jax.__version__}
    return dataclasses.replace(known, **changed)


def offered(board: Path) -> Offered:
    """The orders of the leaderboard and of the package."""
    orders: Offered = defaultdict(list)
    for order in shipped_orders():
        orders[order.fingerprint].append((order.found_by, order.ids))
    for key, by, ids in _of_runs(board):
        orders[key].append((by, ids))
    return orders


def _of_runs(board: Path) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Yields fingerprint, method and ids of each order on the leaderboard, reported ones too."""
    if not (board / "runs.json").exists():
        return
    documents = [
        parse_object(path.read_bytes())
        for path in (board / "runs.json", *sorted((board / "reported").glob("*.json")))
    ]
    prints = {
        (one["set"], one["function"]): one["fingerprint"] for one in documents[0]["functions"]
    }
    for run in (run for document in documents for run in document["runs"]):
        key = prints.get((run["set"], run["function"]))
        if key and run["order"]:
            yield key, f"{run['method']}, seed {run['seed']}, {run['seconds']:.0f} s", run["order"]


def table(audit: Audit) -> str:
    """Lists the functions that were looked at, as Markdown."""
    rows = [
        "| function | vertices | best classical | rule | first search | best known | bound "
        "| gain, % | searched, s | set |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    seen: set[str] = set()
    where = {task: name for name, tasks in audit.document["sets"].items() for task in tasks}
    for known in sorted(audit.known.values(), key=_line):
        first = "" if known.first is None else f"{known.first:,}"
        bound = "proved" if known.solved else f"{known.bound:,}" if known.bound else ""
        gain = f"{100 * (known.gain - 1):.1f}"
        name = known.task if known.task not in seen else f"{known.task}, jax {known.jax}"
        seen.add(known.task)
        cells = name, f"{len(known.order):,}", f"{known.classical:,}", known.rule, first
        cells = *cells, f"{known.cost:,}", bound, gain, f"{known.seconds:.0f}"
        rows.append(f"| {' | '.join((*cells, where.get(known.task, '')))} |")
    gone = ", ".join(f"{len(draws)} draws of {name}" for name, draws in audit.left_out.items())
    return "\n".join([*rows, "", f"Left out, as less than 3 % was found to gain: {gone}."])


def as_text(document: Any) -> str:
    """The file: a line for each function."""
    parts = []
    for name, entries in sorted(document.items()):
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(entries[key])}" for key in entries)
        parts.append(f"{json.dumps(name)}: {{\n{lines}\n}}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(known: Known) -> tuple[Any, ...]:
    """The sort key of a function in tables; of its two graphs that of the newer JAX is first."""
    return *_place(known.task), tuple(-int(part) for part in known.jax.split(".")[:2])


def _place(task: str) -> tuple[int, int, str]:
    """The place of a function in tables: by set, then by draw or as the set lists it."""
    base, _, draw = task.partition(" ")
    if base in FAMILIES:
        return tuple(FAMILIES).index(base), int(draw), ""
    for k, (name, tasks) in enumerate(CANDIDATES.items()):
        if task in tasks:
            return len(FAMILIES) + k, tasks.index(task), name
    return len(FAMILIES) + len(CANDIDATES), 0, task


def run() -> None:
    """Parses the command line; what is wrong with it is one line."""
    config = tyro.cli(Config)
    try:
        main(config)
    except ValueError as error:
        fail(str(error))


if __name__ == "__main__":
    run_script(run)
