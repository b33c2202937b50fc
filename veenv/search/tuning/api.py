"""`tune`: returns the Jacobian of a function in the form that is fastest by measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from threading import Event
from typing import TYPE_CHECKING, Any

from veenv.search.background import Background
from veenv.search.budget import Budget

if TYPE_CHECKING:
    from veenv.search.tuning.jacobian import Jacobian


def tune(
    fun: Callable[..., Any],
    *args: Any,
    argnums: int | Iterable[int] | None = 0,
    batch: int | None = None,
    budget: str = "20s",
    has_aux: bool = False,
    holomorphic: bool = False,
    in_axes: Any = 0,
    cache: bool = True,
    seed: int = 0,
) -> Jacobian:
    """Chooses the fastest form of a function's Jacobian on this machine by measuring.

    Tried are what `jacve` does by itself, JAX's own two modes, and `jacve` under several orders
    (classical, shipped, found by a search), with and without pinned values, by XLA and as one
    kernel.  All are timed in turn, and those that cannot win are dropped.  The fastest of the first
    three is the answer unless another form is faster with about 95 % confidence.  When nothing
    could be timed, the answer is what `jacve` does by itself.

    Args:
      fun: function of pytrees of arrays, with output a pytree of arrays.
      *args: the point at which the forms are timed, with values.
      argnums: which arguments to differentiate by, as for `jax.jacrev`. None: `fun` is a whole step
        with Jacobians inside, and is tuned itself: by XLA as it is, or as one kernel by
        `veenv.fuse`.  A step that has an argument ``jacobian`` is given `jax.jacfwd`, `jax.jacrev`
        and `veenv.jacve` for it, each by XLA and as one kernel.
      batch: time ``jax.vmap`` of the Jacobian over so many points near the given one; None for
        the Jacobian alone.  The result is that of one point either way.
      budget: time from call to return, such as ``"20s"``, compiling included.  It returns earlier
        once the choice is certain.
      has_aux: whether `fun` returns ``(output, aux)``; aux may hold anything.
      holomorphic: `fun` is a holomorphic function of complex arguments.
      in_axes: 0 for what the batch runs over, None for the rest (weights), as a prefix of the
        arguments' trees, as `jax.vmap` takes it.
      cache: take what was found before, by this machine and these versions, for this program,
        these shapes, dtypes and this batch with at least this budget; remember what is found
        (``VEENV_CACHE_DIR`` says where, see tune.html).
      seed: seed of the points of a batch.

    Returns:
      The Jacobian, or the step; `Jacobian.table` shows what was tried.

    Raises:
      ValueError: if argnums is out of range, or batch, budget or in_axes is not valid.
      Exception: what `jax.jacrev` raises where neither of JAX's modes can differentiate `fun`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> f = lambda x: jnp.sin(jnp.exp(x)) * x
      >>> jacobian = tune(f, jnp.ones(3), batch=16, budget="3s", cache=False)
      >>> jax.vmap(jacobian)(jnp.ones((5, 3))).shape
      (5, 3, 3)
    """
    began = time.perf_counter()
    seconds = Budget.parse(budget).seconds
    if seconds is None:
        raise ValueError(f"budget must be a time, as '{budget}s' for seconds, got {budget!r}")
    # What these import (the engine) takes a second the first time, which the budget pays.
    from veenv.search.tuning.jacobian import Jacobian
    from veenv.search.tuning.work import Tuning

    left = Event()
    kinds = has_aux, holomorphic
    tuning = Tuning(fun, args, argnums, batch, kinds, in_axes, cache, seed, began, seconds, left)
    background = Background(tuning.run)
    try:
        background.wait(began + seconds - time.perf_counter())
    finally:
        left.set()
    if background.wait(0.0):
        background.result()
    return Jacobian(fun, tuning.record())
