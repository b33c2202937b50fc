"""Programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys


def said(program: str, *args: object, timeout: float | None = 300, **environment: str) -> str:
    """What a program of Python writes, given some arguments and variables of the environment.

    Raises:
      AssertionError: with the end of its errors, if it fails.
    """
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, *map(str, args)],
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    return done.stdout
