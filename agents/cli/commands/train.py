"""Trains PPO on a task: ``veenv-train --task RoeFlux_1d``, or ``scripts/train.py``."""

from __future__ import annotations

import sys
import time

import jax

from veenv.agents.cli.session import run_training
from veenv.agents.config.args import fail, parse_training


def main() -> int:
    """Parses the command line and trains; the exit code (0 right, 1 wrong, 2 bad input)."""
    started = time.monotonic()
    args = parse_training()
    try:
        return run_training(args, sys.stdout, started=started)
    except (ValueError, OSError) as error:
        fail(str(error))
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        fail(f"not enough memory: {error}")
