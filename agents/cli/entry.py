"""Starts the console commands; nothing that takes time is imported before Ctrl-C is heeded."""

from __future__ import annotations

import ctypes
import importlib
import sys
import time
from functools import partial
from typing import NoReturn

from veenv import __version__
from veenv._support import extra
from veenv.agents.cli.signals import exit_on_interrupt, run_script

TRIM_THRESHOLD, MMAP_THRESHOLD, KEPT = -1, -3, 2**30
"""Options of glibc's `mallopt`, and the bytes that it keeps: more than most train steps take."""


def keep_memory() -> None:
    """Has glibc keep what a train step frees: the next one would fault for each page again."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(libc, "mallopt"):
        for option in (TRIM_THRESHOLD, MMAP_THRESHOLD):
            libc.mallopt(option, KEPT)


def run(command: str) -> NoReturn:
    """Runs a command of `veenv.agents.cli.commands` and ends the program with its exit code.

    Args:
      command: its name, such as ``"train"``.

    Raises:
      SystemExit: with the exit code; 2 where a package of the extra ``agents`` is missing.
    """
    exit_on_interrupt("__main__")
    started = time.monotonic()
    if command == "train":
        keep_memory()
    if "--version" in sys.argv[1:]:
        sys.stdout.write(f"veenv {__version__}\n")
        raise SystemExit(0)
    try:
        with extra("agents"):
            module = importlib.import_module(f"veenv.agents.cli.commands.{command}")
    except ModuleNotFoundError as error:
        if "pip install" not in str(error):
            raise
        sys.stderr.write(f"error: {command} {error}\n")
        raise SystemExit(2) from None
    # What is imported belongs to a time limit.
    run_script(partial(module.main, started) if command == "train" else module.main)


train, search, validate, report, evaluate, tune = (
    partial(run, name) for name in ("train", "search", "validate", "report", "evaluate", "tune")
)
"""``veenv-train`` and the others."""
