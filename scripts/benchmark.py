"""Measures veenv on this machine: ``python scripts/benchmark.py --help``.

Every benchmark prints tables in Markdown. What takes ``--quick`` measures little with it, in less
than a minute: whether it works, not how fast. Options that follow go before its own.
"""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import tyro

sys.path.insert(0, str(Path(__file__).parents[1]))  # a checkout is not installed

from scripts.benchmarks.record import recorded


class Benchmark(NamedTuple):
    """What there is to run.

    Attributes:
      module: of `scripts.benchmarks`, which has a function of the benchmark's name.
      about: what it measures.
      quick: its options with ``--quick``; None: it has that option itself, and writes its files.
    """

    module: str
    about: str
    quick: str | None


BENCHMARKS = {
    "adapters": Benchmark(
        "adapters",
        "random play through the interfaces of other libraries",
        "--task Robertson --num-envs 16 --seconds 0.05 --repeats 1",
    ),
    "budgets": Benchmark(
        "budgets", "whether searches keep their budgets", "--only markowitz --calls 1"
    ),
    "compile-for": Benchmark(
        "compile_for", "programs compiled for a TPU or GPU that is not there", None
    ),
    "device-run": Benchmark("device_run", "kernels, rollouts, training on an accelerator", None),
    "engine": Benchmark(
        "engine",
        "Jacobians as XLA compiles them, beside JAX's modes",
        "--task RobotArm_6DOF --batch 64 --orders reverse --repeats 5 --seconds 0.5 --no-sparse",
    ),
    "env": Benchmark(
        "env",
        "steps of the environment a second",
        "--task Robertson --num-envs 16 --seconds 0.05 --repeats 1",
    ),
    "env-scaling": Benchmark(
        "env",
        "steps of the environment on graphs of growing size",
        "--sizes 10 20 --num-envs 2 --seconds 0.05 --repeats 1 --out {folder}/growth.svg",
    ),
    "equal-time": Benchmark("equal_time", "PPO and AlphaZero after equal time", None),
    "fuse": Benchmark(
        "fuse",
        "whole steps as one kernel, beside JAX's modes or generated code",
        "--step 'implicit Euler, kinetics' --batch 64 --seconds 0.2 "
        "--out {folder}/fuse-figures.json",
    ),
    "kernel": Benchmark(
        "kernel",
        "Jacobians as one kernel, and what the order decides there",
        "--parts speed orders --task RobotArm_6DOF --batch 64 --repeats 5 --seconds 0.5 "
        "--num-orders 5 --out {folder}/kernel-figures.json",
    ),
    "long-games": Benchmark(
        "long_games",
        "searches on graphs of thousands of vertices",
        "--sizes 500 --seconds 2 --functions 2 --sets wide structured",
    ),
    "memory": Benchmark("scaling", "memory of sparse Jacobians by size", "--sizes 100 1000"),
    "observations": Benchmark(
        "observations",
        "what observations cost",
        "--task Robertson --num-envs 16 --seconds 0.05 --repeats 1",
    ),
    "ppo": Benchmark("ppo", "PPO on tasks with several seeds", None),
    "ppo-sets": Benchmark("ppo_sets", "PPO alone on functions of the named sets", None),
    "prediction": Benchmark(
        "prediction",
        "measures programs and fits the numbers that predict their time",
        "--no-measure --function reactor --batch 1 --out {folder}/prediction-table.json",
    ),
    "realistic": Benchmark(
        "realistic",
        "thirty functions that people differentiate",
        "--quick --batch 1 --budget 1s --seconds 0.1 "
        "--out {folder}/realistic-figures.json --plot {folder}/realistic-plot.svg",
    ),
    "sparse": Benchmark(
        "sparse",
        "sparse Jacobians, and whole solutions with them, beside other libraries",
        "--case 'Brusselator 2-D, 800' --dense 'fifth-order upwind, 1,000' --repeats 2 "
        "--solutions 1 --small",
    ),
    "tracing": Benchmark(
        "scaling",
        "seconds to trace long functions",
        "--sizes 100 --function solves --repeats 1",
    ),
    "weights": Benchmark(
        "weights",
        "measures operations and fits the table of their weights",
        "--batch 64 --repeats 2 --out {folder}/weights-table.json",
    ),
    "zero-shot": Benchmark("zero_shot", "the shipped policy on functions it has not seen", None),
}


USAGE = """usage: benchmark.py BENCHMARK [--results FOLDER] [--quick] [OPTIONS]

{about}
  BENCHMARK --help says what its OPTIONS are.
  --results FOLDER  for NAME.json (with machine and command), NAME.md and NAME.svg (a plot);
                    benchmark-results by default
  --quick           measure little

{names}"""


def run(arguments: Sequence[str]) -> int | None:
    """Runs a benchmark and writes its files.

    Raises:
      SystemExit: the command line is not understood.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--results", type=Path, default=Path("benchmark-results"))
    parser.add_argument("--quick", action="store_true")
    own, rest = parser.parse_known_args(arguments)
    name = next((word for word in rest if not word.startswith("-")), "")
    if name not in BENCHMARKS:
        names = "\n".join(f"  {name:14}{one.about}" for name, one in BENCHMARKS.items())
        about = (__doc__ or "").partition("\n\n")[2]
        print(USAGE.format(about=about, names=names))
        return 0 if {"-h", "--help"} & set(rest) else 2
    rest.remove(name)
    one = BENCHMARKS[name]
    module = importlib.import_module(f"scripts.benchmarks.{one.module}")
    if one.quick is None:
        return module.main([*rest, *["--quick"] * own.quick])
    if own.quick and not {"-h", "--help"} & set(rest):
        own.results.mkdir(parents=True, exist_ok=True)
        rest = [*(word.format(folder=own.results) for word in shlex.split(one.quick)), *rest]
    command = partial(tyro.cli, getattr(module, name.replace("-", "_")), args=rest)
    recorded(name, command, own.results)
    print(f"written: {own.results / name}.json, .md and .svg")
    return None


if __name__ == "__main__":
    run_script(lambda: run(sys.argv[1:]))
