"""On what figures were measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax


def where() -> Mapping[str, str]:
    """The device and the versions that figures are of."""
    device, config = jax.devices()[0], jax.config
    settings: Any = config
    return {
        "backend": device.platform,
        "device": device.device_kind,
        "processor": _processor() if device.platform == "cpu" else "",
        "cores": str(os.cpu_count()),
        "x64": str(bool(settings.jax_enable_x64)),
        "matmul precision": str(settings.jax_default_matmul_precision),
        "XLA flags": os.environ.get("XLA_FLAGS", "")[:500],
        "jax": jax.__version__,
        "jaxlib": _version("jaxlib"),
        "veenv": _version("veenv"),
    }


@cache
def _processor() -> str:
    """The model of the processor, as far as the system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2] for line in text.splitlines() if line.startswith("model name"))
    return next(names, platform.machine()).strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def free_bytes() -> float:
    """Bytes of memory that a program may take: half of what is free; infinite if unknown."""
    try:
        return 0.5 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return float("inf")
