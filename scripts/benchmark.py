"""Measures veenv's speed on this machine: ``python scripts/benchmark.py --help``.

Every subcommand prints tables in Markdown and writes them as ``NAME.json`` (with machine, versions
and command), ``NAME.md`` and ``NAME.svg`` (a plot) to ``--results FOLDER``, by default
``benchmark-results``. ``--quick`` measures little, in less than a minute: whether it works, not how
fast. Options that follow go before its own.
"""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import argparse
import shlex
import sys
from functools import partial
from pathlib import Path

import tyro
from benchmark_adapters import adapters
from benchmark_budgets import budgets
from benchmark_engine import engine
from benchmark_env import env, env_scaling
from benchmark_fuse import fuse
from benchmark_kernel import kernel
from benchmark_long_games import long_games
from benchmark_observations import observations
from benchmark_prediction import prediction
from benchmark_realistic import realistic
from benchmark_record import recorded
from benchmark_scaling import memory, tracing
from benchmark_sparse import sparse
from benchmark_weights import weights

COMMANDS = {
    "adapters": adapters,
    "budgets": budgets,
    "env": env,
    "env-scaling": env_scaling,
    "engine": engine,
    "fuse": fuse,
    "kernel": kernel,
    "long-games": long_games,
    "prediction": prediction,
    "realistic": realistic,
    "memory": memory,
    "observations": observations,
    "tracing": tracing,
    "sparse": sparse,
    "weights": weights,
}

QUICK = {
    "adapters": "--task Robertson --num-envs 16 --seconds 0.05 --repeats 1",
    "budgets": "--only markowitz --calls 1",
    "env": "--task Robertson --num-envs 16 --seconds 0.05 --repeats 1",
    "env-scaling": "--sizes 10 20 --num-envs 2 --seconds 0.05 --repeats 1 "
    "--out {folder}/growth.svg",
    "engine": "--task RobotArm_6DOF --batch 64 --orders reverse --repeats 5 --seconds 0.5 "
    "--no-sparse",
    "fuse": "--step 'implicit Euler, kinetics' --batch 64 --seconds 0.2 "
    "--out {folder}/fuse-figures.json",
    "kernel": "--parts speed orders --task RobotArm_6DOF --batch 64 --repeats 5 --seconds 0.5 "
    "--num-orders 5 --out {folder}/kernel-figures.json",
    "long-games": "--sizes 500 --seconds 2 --functions 2 --sets wide structured",
    "prediction": "--no-measure --function reactor --batch 1 --out {folder}/prediction-table.json",
    "realistic": "--quick --batch 1 --budget 1s --seconds 0.1 "
    "--out {folder}/realistic-figures.json --plot {folder}/realistic-plot.svg",
    "memory": "--sizes 100 1000",
    "observations": "--task Robertson --num-envs 16 --seconds 0.05 --repeats 1",
    "tracing": "--sizes 100 --function solves --repeats 1",
    "sparse": "--case 'Brusselator 2-D, 800' --dense 'fifth-order upwind, 1,000' --repeats 2 "
    "--solutions 1 --small",
    "weights": "--batch 64 --repeats 2 --out {folder}/weights-table.json",
}
"""What a subcommand measures with ``--quick``."""


def run(arguments: list[str]) -> None:
    """Runs a subcommand and writes its files.

    Raises:
      SystemExit: the command line is not understood.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--results", type=Path, default=Path("benchmark-results"))
    parser.add_argument("--quick", action="store_true")
    own, rest = parser.parse_known_args(arguments)
    name = next((word for word in rest if not word.startswith("-")), "")
    command = partial(tyro.extras.subcommand_cli_from_dict, COMMANDS)
    if name not in COMMANDS or {"-h", "--help"} & set(rest):
        command(args=rest)
        return
    if own.quick:
        own.results.mkdir(parents=True, exist_ok=True)
        quick = [word.format(folder=own.results) for word in shlex.split(QUICK[name])]
        rest = [name, *quick, *rest[1:]]
    recorded(name, partial(command, args=rest), own.results)
    print(f"written: {own.results / name}.json, .md and .svg")


if __name__ == "__main__":
    run_script(lambda: run(sys.argv[1:]))
