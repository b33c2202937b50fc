"""Compiles `veenv/kernel/cpu/driver.c` to the LLVM IR that ships beside it.

    pip install ziglang==0.14.1
    python scripts/data/refresh_driver.py

Ziglang brings a clang of LLVM 19, whose text every LLVM reads that llvmlite has. What is written
suits every processor of 64 bits: it names no target, and attributes, which say nothing that the
code needs, are left away.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import tyro

SOURCE = Path(__file__).parents[2] / "veenv/kernel/cpu/driver.c"
_COMMAND = (
    "-S -emit-llvm -Os -g0 -std=c11 -target x86_64-linux-gnu -ffreestanding -fno-sanitize=all "
    "-fno-vectorize -fno-slp-vectorize -fno-unroll-loops -fno-strict-aliasing"
)
_LEFT_AWAY = (
    r"^(source_filename|target|attributes|!|; ).*\n",
    r"^(declare|  call) void @llvm\.lifetime.*\n",
    r", ![\w.]+ !\d+",  # metadata
    r" #\d+",
    r" *; preds.*",
    r" (dso_local|local_unnamed_addr|noundef|nonnull|nocapture|readonly|writeonly|readnone)\b",
    r" range\([^)]*\)",
)


def main() -> None:
    """Writes the IR."""
    compiler = [sys.executable, "-m", "ziglang", "cc", *_COMMAND.split()]
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "driver.ll"
        subprocess.run([*compiler, "-I", jax.ffi.include_dir(), SOURCE, "-o", compiled], check=True)
        text = compiled.read_text()
    for pattern in _LEFT_AWAY:
        text = re.sub(pattern, "", text, flags=re.MULTILINE)
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    SOURCE.with_suffix(".ll").write_text(f"; of driver.c {digest}\n{text.strip()}\n")


if __name__ == "__main__":
    tyro.cli(main)
