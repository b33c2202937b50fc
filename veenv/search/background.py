"""Work in a thread of its own, which its caller leaves behind when the time is up."""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import jax

T = TypeVar("T")

_running: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Background(Generic[T]):
    """A function that runs in a thread of its own, under the caller's settings of JAX.

    A thread cannot be stopped from outside: work that may be left behind must look itself, often
    enough, whether it is still wanted. Python handles signals in the main thread only, so that a
    main thread that waits here sees Ctrl-C at once, whatever compiles in the background.
    """

    def __init__(self, work: Callable[[], T]):
        """Starts the work."""
        self._work, self._settings = work, _Settings()
        self._ended = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        thread = threading.Thread(target=self._run, name="veenv background", daemon=True)
        _running.add(thread)
        thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether the work has ended, after waiting for it for some seconds at most."""
        return self._ended.wait(max(0.0, seconds))

    def result(self) -> T:
        """What the work returned, when it has ended."""
        if self._error is not None:
            raise self._error
        return self._value  # pyright: ignore[reportReturnType]  # T may include None

    def _run(self) -> None:
        try:
            with self._settings.active():
                self._value = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()


class _Settings:
    """The settings of JAX that a `with` block can change for one thread."""

    def __init__(self) -> None:
        config: Any = jax.config
        self._managers: list[tuple[Callable[[Any], Any], Any]] = [
            (jax.enable_x64, config.jax_enable_x64),
            (jax.default_matmul_precision, config.jax_default_matmul_precision),
            (jax.numpy_rank_promotion, config.jax_numpy_rank_promotion),
            (jax.numpy_dtype_promotion, config.jax_numpy_dtype_promotion),
            (jax.default_device, config.jax_default_device),
        ]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """The settings, in another thread."""
        with contextlib.ExitStack() as stack:
            for manager, value in self._managers:
                stack.enter_context(manager(value))
            yield


@atexit.register
def _wait_for_the_last() -> None:
    """Lets compilations end: a process that ends under a running compiler may be aborted by it.

    All that is waited for is one compilation, or a few steps, of work that looks whether it is
    wanted; whoever does not want to wait has Ctrl-C.
    """
    with contextlib.suppress(KeyboardInterrupt):
        for thread in list(_running):
            thread.join()
