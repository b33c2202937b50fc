"""Searches for an elimination order: ``python scripts/search.py --task RoeFlux_1d``."""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, raising_interrupts, run_script

exit_on_interrupt(__name__)

import ast
import dataclasses
import importlib
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from tqdm import tqdm

from agents.cli.report import result_table
from agents.config.args import fail, parse
from veenv import Order, make_graph, tasks
from veenv.graph.graph import CostModel, Graph
from veenv.search import Progress, SearchResult, search


@dataclasses.dataclass(frozen=True)
class SearchArgs:
    """Searches, without learning, for a vertex-elimination order that costs little.

    Ctrl-C ends the search early; the best order so far is reported and written all the same.

    Raises:
      ValueError: unless exactly one of a task and a function is given.
    """

    task: str | None = None
    """Task to search for (`python -c "import veenv; print(*veenv.tasks.list())"`)."""

    function: str | None = None
    """Function to search for, as MODULE:NAME; it is traced at --args."""

    args: str | None = None
    """Arguments of the function as a Python tuple, such as `(1.0, [2.0, 3.0])`; only their shapes
    and types matter."""

    argnums: Annotated[tuple[int, ...], tyro.conf.UseAppendAction] = ()
    """Argument to differentiate by, once for each; all by default."""

    method: str = "auto"
    """One of auto, anneal, beam, beam-WIDTH, exact, forward, reverse, markowitz, cost,
    relative-markowitz, fill-in, lookahead, lookahead-DEPTH; or policy, policy-SAMPLES: the
    pretrained policy, which has not seen the task."""

    budget: str = "10s"
    """Time, such as `10s` or `2m`, or a number of evaluations, such as `100000`."""

    cost: CostModel = "multiplications"
    """`multiplications` is the literature's count, `executed` what the Jacobian really multiplies,
    `operations` adds its additions."""

    seed: int = 0
    """Seed of everything random."""

    out: str | None = None
    """File for the order, such as `order.json`."""

    def __post_init__(self) -> None:
        """Checks that there is one thing to search for."""
        if (self.task is None) == (self.function is None):
            raise ValueError("give either --task NAME or --function MODULE:NAME")
        if self.function is not None and self.args is None:
            raise ValueError("--function needs --args, a Python tuple such as '(1.0, [2.0, 3.0])'")
        if self.task is not None and (self.args is not None or self.argnums):
            raise ValueError("--args and --argnums belong to --function")


def main() -> int:
    """Parses the command line and searches; the exit code (0 right, 2 bad input)."""
    args = parse(SearchArgs)
    try:
        name, graph = read_graph(args)
        if args.out is not None and not os.path.isdir(os.path.dirname(args.out) or "."):
            raise ValueError(f"folder of --out {args.out} does not exist")
        with raising_interrupts():
            result = find(args, graph)
        print(report(graph, result))
        if args.out is not None:
            found_by = f"search {result.method}, seed {result.seed}, budget {args.budget}"
            Order.from_graph(graph, result.order, name, found_by).save(args.out)
            print(f"order written to {args.out}")
    except (ValueError, OSError) as error:
        fail(str(error))
    return 0


def read_graph(args: SearchArgs) -> tuple[str, Graph]:
    """Name and graph of what the arguments ask for.

    Raises:
      ValueError: if there is no such task or function, or the function cannot be traced.
    """
    if args.task is not None:
        task = tasks.get(args.task)
        return task.name, make_graph(task.fun, task.argnums)(*task.example_args())
    assert args.function is not None
    fun, point = find_function(args.function), read_point(args.args or "")
    wanted = args.argnums or tuple(range(len(point)))
    try:
        graph = make_graph(fun, wanted)(*point)
    except Exception as error:
        raise ValueError(
            f"{args.function} cannot be traced at {args.args}: {type(error).__name__}: {error}"
        ) from error
    return args.function, graph


def find_function(path: str) -> Callable[..., Any]:
    """The function MODULE:NAME, looked for in the current folder first.

    Raises:
      ValueError: if there is no such module or function.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"--function must be MODULE:NAME, got {path!r}")
    sys.path.insert(0, os.getcwd())
    try:
        fun = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--function {path}: {error}") from error
    if not callable(fun):
        raise ValueError(f"--function {path}: expected a function, got {type(fun).__name__}")
    return fun


def read_point(text: str) -> tuple[Any, ...]:
    """Arguments from a Python literal; lists become arrays, dicts and tuples stay pytrees.

    Raises:
      ValueError: if the text is not the literal of a tuple of numbers, lists, tuples and dicts.
    """
    try:
        value = ast.literal_eval(text)
        if not isinstance(value, tuple):
            raise TypeError("not a tuple")
        return tuple(
            jax.tree.map(_as_array, x, is_leaf=lambda leaf: isinstance(leaf, list)) for x in value
        )
    except (ValueError, SyntaxError, TypeError) as error:
        raise ValueError(
            f"--args must be a Python tuple of numbers and lists such as '(1.0, [2.0, 3.0])', "
            f"got {text!r} ({error})"
        ) from None


def _as_array(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{leaf!r} is not a number or a list of numbers")
    return array


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
    classical = {
        "forward": graph.cost(graph.forward(), result.cost_model),
        "reverse": graph.cost(graph.reverse(), result.cost_model),
        "Markowitz": graph.cost(graph.markowitz(), result.cost_model),
    }
    if result.optimal:
        proof = "proven optimal"
    else:
        proof = f"no order costs less than {result.lower_bound:,}"
    return (
        f"{result_table(classical, result.cost, result.method, cost=result.cost_model)}\n"
        f"{proof}; {result.evaluations:,} evaluations in {result.seconds:.1f} s "
        f"(count: {result.cost_model})"
    )


if __name__ == "__main__":
    run_script(main)
