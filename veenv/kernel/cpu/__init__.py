"""Scalar programs on a CPU: LLVM makes machine code of them, XLA's FFI calls it."""
