"""What machine the figures are from."""

from __future__ import annotations

import os
import platform

import jax


def machine() -> str:
    """One line on the machine and the versions."""
    devices = ", ".join(sorted({d.device_kind for d in jax.devices()}))
    return (
        f"{os.cpu_count()} CPU cores ({platform.processor() or platform.machine()}), JAX devices: "
        f"{devices}; Python {platform.python_version()}, jax {jax.__version__}"
    )
