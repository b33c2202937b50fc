"""From a jaxpr to a scalar program: what each primitive is in operations on single numbers."""

from __future__ import annotations
