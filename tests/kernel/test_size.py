"""What compiling a kernel goes with: a program above a limit is refused."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from veenv.kernel.building.unrolling import unroll
from veenv.kernel.cpu.size import size_of
from veenv.kernel.fusing import trace_point
from veenv.kernel.scalar_program import CannotFuseError


def test_too_large_a_program_is_refused():
    def with_a_copy(x, y):  # which nobody reads
        return jnp.outer(jnp.exp(-x), jnp.cumsum(jnp.sin(x) / x)), y

    point = trace_point(with_a_copy, (np.ones(4, "f4"), np.ones(100, "f4")), {}, (0, 1))
    program = point.program()
    size = size_of(program)
    assert program.size < size  # it reads
    assert unroll(point.closed, size=size).digest() == program.digest()
    assert point.program_within(size).digest() == program.digest()
    with pytest.raises(CannotFuseError, match="longer than there is time"):
        unroll(point.closed, size=size - 1)
    assert point.program_within(size - 1) is None
