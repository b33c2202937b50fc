"""Ctrl-C: one line and exit code 130 while there is nothing to keep, at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.paths import ROOT

TRAIN = ("train.py", "--task", "RoeFlux_1d", "--time-limit", "10m", "--timing", "0")
VALIDATE = ("validate.py",)
EVALUATE = ("evaluate.py", "--task", "RoeFlux_1d,RoeFlux_3d", "--anneal", "0")


def start(script: str, *args: str, folder: Path) -> subprocess.Popen[str]:
    """Starts a script; returns when it heeds signals, which it does before its long imports."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / script), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        cwd=folder,
    )
    threads = Path(f"/proc/{process.pid}/task")
    deadline = time.monotonic() + 60
    while threads.exists() and len(list(threads.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


def interrupt(process: subprocess.Popen[str], delay: float) -> tuple[int, str, str]:
    """Exit code, stdout and stderr after Ctrl-C, which must come at once."""
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    try:
        said, complaint = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert time.monotonic() - sent < 10
    return process.returncode, said, complaint


def test_an_interrupt_in_the_first_moments(tmp_path):
    code, said, complaint = interrupt(start(*TRAIN, folder=tmp_path), 0.3)
    assert (code, said, complaint) == (130, "", "interrupted\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.3, 1.0, 1.5, 2.5, 3.5, 5.0])
@pytest.mark.parametrize("command", [TRAIN, VALIDATE, EVALUATE], ids=lambda c: c[0])
def test_an_interrupt_before_there_is_a_result(command, delay, tmp_path):
    code, _, complaint = interrupt(start(*command, folder=tmp_path), delay)
    if command is TRAIN and code == 0:  # a fast machine: training has begun
        return
    assert (code, complaint) == (130, "interrupted\n")
