"""What does the same at each index of some axes of a program, as one equation each."""

from __future__ import annotations
