"""Files and folders of runs: new names, whole appends, locks, damaged files set aside."""

from __future__ import annotations

import datetime
import errno
import os
import secrets
from pathlib import Path

from veenv.orders.documents import is_local

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


def new_folder(parent: Path) -> Path:
    """Makes a folder named after the time, with a number added if that name is taken.

    Raises:
      OSError: it cannot be made.
    """
    stamp = datetime.datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
    if not is_local(parent):  # a bucket has no folders that could be taken
        stamp += f"-{secrets.token_hex(4)}"
    for number in range(1, 1000):
        path = parent / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"no free name for a run in {parent}")


def set_aside(path: Path) -> Path:
    """Renames what cannot be used to ``NAME.damaged``, or with a number where that is taken."""
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}.damaged" + f"-{number}" * (number > 1))
        if not aside.exists():
            return path.rename(aside)
    raise FileExistsError(f"no free name for {path.name}.damaged in {path.parent}")


def append_bytes(path: Path, content: bytes) -> int:
    """Appends to a file, all or nothing.

    Returns:
      The size of the file before.

    Raises:
      OSError: it cannot be written; it is as long as before.
    """
    with path.open("ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            written = file.write(content)
            if written != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        except OSError:
            file.truncate(size)
            raise
    return size


def lock_folder(path: Path) -> int | None:
    """Keeps other processes from locking a folder until this one ends, however it ends.

    Returns:
      The descriptor that holds the lock; None where there are no locks, as at an address.

    Raises:
      BlockingIOError: another process holds it.
      OSError: the folder cannot be opened.
    """
    if fcntl is None or not is_local(path):
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BlockingIOError(f"{path} is in use by another process") from None
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor
