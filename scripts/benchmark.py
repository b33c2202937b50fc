"""Measures veenv's speed on this machine: ``python scripts/benchmark.py --help``."""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import tyro
from benchmark_budgets import budgets
from benchmark_engine import engine
from benchmark_env import env, env_scaling
from benchmark_kernel import kernel
from benchmark_observations import observations
from benchmark_prediction import prediction
from benchmark_realistic import realistic
from benchmark_scaling import memory, tracing
from benchmark_search import evaluations, search
from benchmark_sparse import sparse
from benchmark_weights import weights

COMMANDS = {
    "budgets": budgets,
    "env": env,
    "env-scaling": env_scaling,
    "engine": engine,
    "kernel": kernel,
    "prediction": prediction,
    "realistic": realistic,
    "search": search,
    "evaluations": evaluations,
    "memory": memory,
    "observations": observations,
    "tracing": tracing,
    "sparse": sparse,
    "weights": weights,
}

if __name__ == "__main__":
    run_script(lambda: tyro.extras.subcommand_cli_from_dict(COMMANDS))
