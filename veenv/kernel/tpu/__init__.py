"""Scalar programs on a TPU, by Pallas (Mosaic)."""

from __future__ import annotations
