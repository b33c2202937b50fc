"""Trains PPO on a task: ``veenv-train --task RoeFlux_1d``, or ``scripts/train.py``."""

from __future__ import annotations

import os
import sys
import threading
import time

import jax

from veenv.agents.cli.session import run_training
from veenv.agents.config.args import fail, parse_training
from veenv.agents.training.loop import COMPILING


def main(started: float | None = None) -> int:
    """Parses the command line and trains; the exit code (0 right, 1 wrong, 2 bad input).

    The time limit counts from `started` on, a `time.monotonic()`; from now on by default.
    """
    started = time.monotonic() if started is None else started
    args = parse_training()
    try:
        code = run_training(args, sys.stdout, started=started)
        if any(thread.name == COMPILING for thread in threading.enumerate()):
            sys.stdout.flush()
            os._exit(code)  # nothing else ends a compilation
        return code
    except (ValueError, OSError) as error:
        fail(str(error))
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        fail(f"not enough memory: {error}")
