"""The arguments that forms are timed at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from veenv.measure.timing import near

_ARRAYS = (jax.Array, np.ndarray, np.generic)
_NUMBERS = (*_ARRAYS, float, complex, int)


@dataclass(frozen=True)
class Point:
    """Arguments of a function: the leaves that vary, and the rest as it is."""

    whole: tuple[Any, ...]  # all leaves
    tree: Any  # their structure
    # which leaves are arguments of the compiled programs: arrays, and all numbers of what is
    # differentiated by
    varying: tuple[int, ...]
    axes: tuple[bool, ...]  # for each leaf that varies whether the batch runs over it

    @classmethod
    def of(cls, args: Sequence[Any], wanted: Sequence[int], batched: Sequence[bool]) -> Point:
        """The point of some arguments, of which `wanted` are differentiated by."""
        owners = [a for a, x in enumerate(args) for _ in jax.tree.leaves(x)]
        leaves, tree = jax.tree.flatten(tuple(args))
        varying = tuple(
            k
            for k, (a, x) in enumerate(zip(owners, leaves, strict=True))
            if isinstance(x, _NUMBERS if a in wanted else _ARRAYS)
        )
        axes = tuple(batched[owners[k]] for k in varying)
        return cls(tuple(leaves), tree, varying, axes)

    def function(self, jacobian: Callable[..., Any]) -> Callable[..., Any]:
        """A function of all arguments as one of the leaves that vary."""

        def of_leaves(*values: Any) -> Any:
            leaves = list(self.whole)
            for k, value in zip(self.varying, values, strict=True):
                leaves[k] = value
            return jacobian(*jax.tree.unflatten(self.tree, leaves))

        return of_leaves

    def values(self, batch: int | None, seed: int) -> list[Any]:
        """What the programs are called with: the point, or a batch of points near it."""
        found = []
        for number, (k, batched) in enumerate(zip(self.varying, self.axes, strict=True)):
            x = self.whole[k]
            if batch is not None and batched and jnp.issubdtype(jnp.result_type(x), jnp.floating):
                x = jnp.asarray(near(x, [seed, number], batch), jnp.result_type(x))
            elif batch is not None and batched:
                x = jnp.broadcast_to(jnp.asarray(x), (batch, *np.shape(x)))
            elif isinstance(x, _ARRAYS):
                x = jnp.asarray(x)
            found.append(x)
        return found


def shapes_of(args: Sequence[Any]) -> tuple[tuple[int, ...] | None, ...]:
    """Shape of each leaf of some arguments; None of what is no array or number."""
    return tuple(
        tuple(np.shape(x)) if isinstance(x, (*_NUMBERS, jax.core.Tracer)) else None
        for x in jax.tree.leaves(tuple(args))
    )
