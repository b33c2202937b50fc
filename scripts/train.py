"""Trains PPO on a task: ``python scripts/train.py --task RoeFlux_1d`` (see ``--help``)."""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import sys
import time

from agents.cli.session import run_training
from agents.config.args import fail, parse_training


def main() -> int:
    """Parses the command line and trains; the exit code (0 right, 1 wrong, 2 bad input)."""
    started = time.monotonic()
    args = parse_training()
    try:
        return run_training(args, sys.stdout, started=started)
    except (ValueError, OSError) as error:
        fail(str(error))


if __name__ == "__main__":
    run_script(main)
