"""Measures veenv's speed on this machine: ``python scripts/benchmark.py --help``."""

from __future__ import annotations

import tyro
from benchmark_engine import engine
from benchmark_env import env, env_scaling
from benchmark_kernel import kernel
from benchmark_scaling import memory, tracing
from benchmark_search import evaluations, search

if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(
        {
            "env": env,
            "env-scaling": env_scaling,
            "engine": engine,
            "kernel": kernel,
            "search": search,
            "evaluations": evaluations,
            "memory": memory,
            "tracing": tracing,
        }
    )
