"""Ctrl-C: one line and exit code 130 until there is a result to keep, a clean end from then on.

An exception is not enough for that: raised in a callback of a compiler it is printed and lost, and
while a compiler runs in C++ it is not raised at all.  So scripts have a thread of their own that
waits for the signal.  This module imports nothing that takes time, for a script to call
`exit_on_interrupt` before it imports the rest.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

INTERRUPTED = 130
"""Exit code of a program that SIGINT has ended, as shells have it."""

PREEMPTED = 75
"""Exit code of a run that SIGTERM has ended: "try again later" (EX_TEMPFAIL of sysexits.h)."""

_NO_READER = 141
"""Exit code where nobody reads the output any more, as shells have it (SIGPIPE)."""

_RELEASE = 0
"""What is written behind the numbers of signals: those before it were still held."""

_holds = 0
"""How often Ctrl-C was kept from ending the program; written by the main thread only."""
_releases = 0
"""How often it was let again; written by the thread that reads the numbers, if there is one."""
_writer: socket.socket | None = None
_watcher: threading.Thread | None = None
"""The thread that reads the numbers of signals."""
_PATIENCE = 2.0
"""Seconds that the main thread leaves to the other one to end the program."""
_undo: list[Callable[[], object]] = []
"""What takes `exit_on_interrupt` back."""


def exit_on_interrupt(name: str = "__main__") -> None:
    """Makes Ctrl-C end the program at once from here on, whatever it is doing.

    Args:
      name: the caller's ``__name__``; nothing happens where it is not that of a script.
    """
    global _writer, _watcher
    if name != "__main__" or _undo or threading.current_thread() is not threading.main_thread():
        return
    reader, _writer = socket.socketpair()
    _writer.setblocking(False)
    previous = signal.signal(signal.SIGINT, _wait_for_the_end)
    descriptor = signal.set_wakeup_fd(_writer.fileno(), warn_on_full_buffer=False)
    _undo.append(lambda: signal.signal(signal.SIGINT, previous))
    _undo.append(lambda: signal.set_wakeup_fd(descriptor))
    _undo.append(_end_thread)
    _watcher = threading.Thread(target=_watch, args=(reader,), name="interrupts", daemon=True)
    _watcher.start()


def run_script(main: Callable[[], int | None]) -> NoReturn:
    """Runs a script's main function and ends the program with its exit code.

    Args:
      main: the function.

    Raises:
      SystemExit: with the exit code.
    """
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        _leave()
    except BrokenPipeError:  # who reads the output, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise SystemExit(_NO_READER) from None
    finally:
        while _undo:
            _undo.pop(0)()


@contextmanager
def raising_interrupts() -> Iterator[None]:
    """Within the context Ctrl-C raises KeyboardInterrupt, as it does outside of scripts."""
    with _holding({signal.SIGINT: signal.default_int_handler}):
        yield


class Stop:
    """A request for the end by a signal, and by which.

    Attributes:
      name: of the signal; empty before it.
    """

    def __init__(self) -> None:
        """No signal is heeded yet."""
        self.name = ""
        self._stack = contextlib.ExitStack()
        self._armed = False

    def is_set(self) -> bool:
        """Returns whether one did."""
        return bool(self.name)

    @property
    def preempted(self) -> bool:
        """Returns whether it was SIGTERM, by which schedulers take a machine away."""
        return self.name == "SIGTERM"

    def arm(self) -> None:
        """There is something to keep now: the first SIGINT or SIGTERM only asks for the end."""
        if not self._armed:
            self._armed = True
            signals = signal.SIGINT, signal.SIGTERM
            self._stack.enter_context(_holding(dict.fromkeys(signals, self._on_signal)))

    def disarm(self) -> None:
        """Signals act as ever."""
        self._stack.close()

    def _on_signal(self, number: int, frame: Any) -> None:
        del frame
        self.name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        self.disarm()  # a second one acts as ever


@contextmanager
def until_signal() -> Iterator[Stop]:
    """Turns the first SIGINT or SIGTERM into a request to stop."""
    stop = Stop()
    try:
        yield stop
    finally:
        stop.disarm()


@contextmanager
def _holding(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Other handlers, and no end of the program by itself."""
    global _holds
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    _holds += 1
    try:
        yield
    finally:
        _release()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _release() -> None:
    """Lets signals act as before; one that the thread has not read yet was still held."""
    global _releases
    if _writer is None:
        _releases += 1
    else:
        _writer.send(bytes([_RELEASE]))


def _end_thread() -> None:
    global _writer
    if _writer is not None:
        _writer.close()
        _writer = None


def _watch(reader: socket.socket) -> None:
    """Ends the program when the number of the signal arrives; the main thread may be busy in C."""
    global _releases
    with reader:
        while numbers := reader.recv(64):
            for number in numbers:
                if number == _RELEASE:
                    _releases += 1
                elif number == signal.SIGINT and _holds == _releases:
                    _leave()


def _wait_for_the_end(number: int, frame: Any) -> None:
    """The main thread's part: the other one ends the program, and only one of them says so."""
    del number, frame
    if _holds == _releases:
        if _watcher is not None:
            _watcher.join(_PATIENCE)
        _leave()


def _leave() -> NoReturn:
    """Ends the program with one line: no cleaning up, which could be what hangs."""
    flushing = threading.Thread(target=sys.stdout.flush, daemon=True)
    flushing.start()
    flushing.join(1.0)
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
