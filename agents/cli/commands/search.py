"""Searches for an order: ``veenv-search --task RoeFlux_1d``, or ``scripts/search.py``."""

from __future__ import annotations

import dataclasses

from tqdm import tqdm
from tyro.conf import OmitArgPrefixes

from veenv import Order, tasks
from veenv.agents.cli.report import optimality, result_table
from veenv.agents.cli.signals import raising_interrupts
from veenv.agents.config.args import fail, parse, say
from veenv.agents.config.function import FunctionConfig
from veenv.env.rewards import classical_costs
from veenv.graph.graph import CostModel, Graph
from veenv.measure.comparison import compare
from veenv.orders.documents import as_path, is_local
from veenv.search import Progress, SearchResult, search
from veenv.tasks.user import trace_task


@dataclasses.dataclass(frozen=True)
class SearchArgs:
    """Searches, without learning, for a vertex-elimination order that costs little.

    Example: veenv-search --task RoeFlux_1d --budget 10s

    Ctrl-C ends the search early; the best order so far is reported and written all the same.

    Raises:
      ValueError: unless exactly one of a task and a function is given.
    """

    task: str | None = None
    """Task to search for (`python -c "import veenv; print(*veenv.tasks.list_tasks())"`)."""

    own: OmitArgPrefixes[FunctionConfig] = dataclasses.field(default_factory=FunctionConfig)

    method: str = "auto"
    """One of auto, anneal, exact, forward, reverse, markowitz, cost; or
    policy, policy-SAMPLES: the pretrained policy, which has not seen the task."""

    budget: str = "10s"
    """Time, such as `10s` or `2m`, or a number of evaluations: `60` is sixty of them, `60s` a
    minute."""

    cost: CostModel = "multiplications"
    """`multiplications` is the literature's count, `executed` what the Jacobian really multiplies,
    `operations` adds its additions."""

    seed: int = 0
    """Seed of everything random."""

    timing: float = 10.0
    """Seconds, about, in which the order is timed in the end, as one kernel and as XLA, beside
    reverse and JAX's modes; 0 leaves it out."""

    out: str | None = None
    """File for the order, such as `order.json`."""

    def __post_init__(self) -> None:
        """Checks that there is one thing to search for, and the time."""
        self.own.check_one(self.task)
        if not self.timing >= 0:
            raise ValueError(f"timing must not be negative, got {self.timing}")


def main() -> int:
    """Parses the command line and searches; the exit code (0 right, 2 bad input)."""
    args = parse(SearchArgs)
    try:
        task, graph = read_graph(args)
        out = None if args.out is None else as_path(args.out)
        if out is not None and is_local(out) and not out.parent.is_dir():
            raise ValueError(f"folder of --out {args.out} does not exist")
        with raising_interrupts():
            result = find(args, graph)
        say(report(graph, result))
        if out is not None:
            found_by = f"search {found_with(result)}, seed {result.seed}, budget {args.budget}"
            Order.from_graph(graph, result.order, task.name, found_by).save(out)
            say(f"order written to {out}")
            if (classical := result.classical) is not None:
                beside = out.with_name(f"{out.stem}-classical{out.suffix}")
                dataclasses.replace(classical[1], name=task.name).save(beside)
                say(f"the cheapest classical order, {classical[0]}, written to {beside}")
        if args.timing > 0:
            say(compare(task, result.order, limit=args.timing).text())
    except (ValueError, OSError) as error:
        fail(str(error))
    return 0


def read_graph(args: SearchArgs) -> tuple[tasks.Task, Graph]:
    """Returns the task that the arguments ask for, and its graph.

    Raises:
      ValueError: if there is no such task or function, or the function cannot be traced.
    """
    task = args.own.read() or tasks.get(args.task or "")
    return task, trace_task(task)


def find(args: SearchArgs, graph: Graph) -> SearchResult:
    """Searches with a progress line on stderr."""
    with tqdm(desc=args.method, unit=" evaluations", disable=None, leave=False) as bar:

        def show(progress: Progress) -> None:
            bar.set_postfix_str(f"best {progress.cost}", refresh=False)
            bar.update(progress.evaluations - bar.n)

        return search(
            graph,
            args.method,
            cost=args.cost,
            budget=args.budget,
            seed=args.seed,
            callback=show,
        )


def report(graph: Graph, result: SearchResult) -> str:
    """The table of counts, the lower bound and the effort."""
    classical = classical_costs(graph, result.cost_model)
    proof = optimality(graph, result.cost, result.cost_model, result.lower_bound)
    if not result.ready:
        proof += f"; {result.method} is still compiling, for later runs: this one ends when it has"
    return (
        f"{result_table(classical, result.cost, found_with(result), cost=result.cost_model)}\n"
        f"{proof}; {result.evaluations:,} evaluations in {result.seconds:.1f} s "
        f"(count: {result.cost_model})"
    )


def found_with(result: SearchResult) -> str:
    """The method that found the order: hill climbing where the one asked for was not ready."""
    return result.method if result.ready else "hill climbing"
