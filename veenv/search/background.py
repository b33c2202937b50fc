"""Background threads for work that the caller abandons when its time is up."""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import jax

T = TypeVar("T")

_running: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Background(Future[T]):
    """A function running in a background thread, under the caller's settings of JAX.

    A thread cannot be stopped from outside: work that may be left behind must look itself, often
    enough, whether it is still wanted. Python handles signals in the main thread only, so that a
    main thread that waits here sees Ctrl-C at once, whatever compiles in the background.
    """

    def __init__(self, work: Callable[[], T]):
        """Starts the work."""
        super().__init__()
        config: Any = jax.config
        settings: list[tuple[Callable[[Any], Any], Any]] = [
            (jax.enable_x64, config.jax_enable_x64),
            (jax.default_matmul_precision, config.jax_default_matmul_precision),
            (jax.numpy_rank_promotion, config.jax_numpy_rank_promotion),
            (jax.numpy_dtype_promotion, config.jax_numpy_dtype_promotion),
            (jax.default_device, config.jax_default_device),
        ]

        def run() -> None:
            try:
                with contextlib.ExitStack() as stack:
                    for manager, value in settings:
                        stack.enter_context(manager(value))
                    result = work()
                self.set_result(result)
            except BaseException as error:
                self.set_exception(error)

        thread = threading.Thread(target=run, name="veenv background", daemon=True)
        _running.add(thread)
        thread.start()

    def wait(self, seconds: float) -> bool:
        """Waits for some seconds at most, and returns whether the work has ended."""
        return bool(wait([self], min(max(0.0, seconds), threading.TIMEOUT_MAX)).done)


@atexit.register
def _wait_for_the_last() -> None:
    """Waits for compilations at exit: a process that ends meanwhile may be aborted by them.

    All that is waited for is one compilation, or a few steps, of work that looks whether it is
    wanted; whoever does not want to wait has Ctrl-C.
    """
    with contextlib.suppress(KeyboardInterrupt):
        for thread in list(_running):
            thread.join()
