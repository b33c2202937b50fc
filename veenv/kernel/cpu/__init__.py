"""Scalar programs on a CPU: LLVM makes machine code of them, XLA's FFI calls it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["kernel_registry"])
