"""Measures veenv on this machine: ``python scripts/benchmark.py --help``.

A benchmark is a function of `scripts.benchmarks` that yields its tables while it fills them.
"""

from __future__ import annotations

from veenv.agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # a checkout is not installed


class Benchmark(NamedTuple):
    """One benchmark: a function of the module of `scripts.benchmarks` that has its name, too.

    Attributes:
      about: what it measures.
      quick: its options with ``--quick``; None: it needs what few machines have.
    """

    about: str
    quick: str | None


BENCHMARKS = {
    name: Benchmark(about, quick)
    for name, about, quick in (
        ("ablations", "what each mechanism of engine and kernel wins",
         "--only 'lax.map as a batch' --minutes 0.01"),
        ("agents", "PPO on tasks with several seeds",
         "--parts training time --task Robertson --seeds 1 --steps 200 --anneal 1s"),
        ("devices", "programs for accelerators, compiled or timed",
         "--parts jacobians rollouts --small"),
        ("env", "random play, with observations, other interfaces, growing graphs",
         "--parts play observations adapters growth --task Robertson --num-envs 16 --sizes 10 20 "
         "--seconds 0.05 --repeats 1"),
        ("fit", "the numbers by which programs and operations are priced",
         "--parts prices weights --function reactor --batch 1 --points 64 --seconds 0.1 "
         "--repeats 2 --measurements {folder}/measurements.json --weights {folder}/weights.json"),
        ("fuse", "whole steps as one kernel, beside JAX's modes; systems of matrices",
         "--parts steps systems --step 'implicit Euler, kinetics' --matrices solve --size 4 12 "
         "--batch 64 --seconds 0.2"),
        ("jacobians", "Jacobians of tasks by XLA and as one kernel, by order",
         "--parts xla kernel orders runtimes --task RobotArm_6DOF --batch 64 --repeats 5 "
         "--seconds 0.5"),
        ("libraries", "solves of diffrax, optimistix, lineax, jaxopt, optax, fused",
         None),
        ("realistic", "thirty functions that people differentiate",
         "--function neuron --batch 1 --budget 1s --seconds 0.1"),
        ("searches", "budgets of searches, and graphs of thousands of vertices",
         "--parts budgets large --only markowitz --calls 1 --sizes 400 --seconds 1 --functions 2"),
        ("sparse", "sparse Jacobians beside other libraries, writings, solutions",
         "--parts sparse dense second solutions writings --scale 0.05 --repeats 2 "
         "--case permutation 'fifth-order upwind' 'Newton on a line' volumes"),
    )
}  # fmt: skip


def run(arguments: Sequence[str]) -> None:
    """Runs a benchmark and writes its files; what is wrong with the command line is one line.

    Raises:
      SystemExit: something is, or help was asked for.
    """
    asked = argparse.ArgumentParser(
        prog="benchmark.py",
        usage="benchmark.py BENCHMARK [--results FOLDER] [--out FILE] [--quick] [OPTIONS]",
        description="Measures, and prints tables in Markdown.",
        epilog="\n".join(
            ["BENCHMARK --help says what its OPTIONS are:"]
            + [f"  {name:14}{one.about}" for name, one in BENCHMARKS.items()]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    asked.add_argument(
        "--results",
        type=Path,
        default=Path("benchmark-results"),
        help="folder for NAME.json (with machine and command) and NAME.md",
    )
    asked.add_argument("--out", type=Path, help="file for the JSON alone")
    asked.add_argument(
        "--quick", action="store_true", help="measure little: whether it works, not how fast"
    )
    options, rest = asked.parse_known_args(arguments)
    name = next((word for word in rest if not word.startswith("-")), "")
    if name not in BENCHMARKS:
        asked.print_help()
        raise SystemExit(0 if {"-h", "--help"} & {*rest} else 2)
    rest.remove(name)
    command = getattr(importlib.import_module(f"scripts.benchmarks.{name}"), name)
    from scripts.benchmarks.tables import recorded
    from veenv.agents.config.args import fail, parse

    if options.quick:
        quick = shlex.split(BENCHMARKS[name].quick or fail(f"{name} has no --quick"))
        rest = [*(word.format(folder=options.results) for word in quick), *rest]
    file = options.out or options.results / f"{name}.json"
    said = shlex.join(["python", "scripts/benchmark.py", *arguments])
    try:
        recorded(name, parse(command, rest), file, said, whole=options.out is None)
    except ValueError as error:
        fail(str(error))
    except ModuleNotFoundError as error:
        fail(f"benchmark {name} needs the package {error.name!r}, which is not installed")


if __name__ == "__main__":
    run_script(lambda: run(sys.argv[1:]))
