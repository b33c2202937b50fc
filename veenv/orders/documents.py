"""Files: read where they are regular and small enough, written aside first and then renamed."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path


def read_bytes(path: str | os.PathLike[str], most: int, kind: str) -> bytes:
    """The bytes of a regular file that is not too large.

    Args:
      path: the file.
      most: bytes that are read at most.
      kind: what the file should be, for the error.

    Raises:
      IsADirectoryError: if it is a folder.
      ValueError: if it is no regular file or too large.
      OSError: if it cannot be read.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write_text(f"{folder}/order", "2 1")
      ...     read_bytes(f"{folder}/order", 100, "order file")
      b'2 1'
    """
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(f"{kind} {os.fspath(path)} is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("not a regular file")
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        size = max(status.st_size, len(data))
        raise ValueError(f"size: {size} bytes, expected at most {most}")
    return data


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file so that readers see the old or the new content, never a part.

    Args:
      path: the file; its directory is made if need be.
      text: the content, written as UTF-8.

    Raises:
      OSError: if the directory cannot be written.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write_text(f"{folder}/notes/order.txt", "2 1")
      ...     Path(folder, "notes", "order.txt").read_text()
      '2 1'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file so that readers see the old or the new content, never a part.

    Args:
      path: the file, in a directory that exists; a file ``.NAME….part`` is next to it meanwhile.
      content: the content.

    Raises:
      OSError: if the directory cannot be written; an older file stays as it is.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write_bytes(f"{folder}/order", b"2 1")
      ...     Path(folder, "order").read_bytes()
      b'2 1'
    """
    path = Path(path)
    aside = path.parent / f".{path.name}.{secrets.token_hex(8)}.part"
    try:
        with open(aside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_section(path: str | os.PathLike[str], name: str, text: str) -> None:
    r"""Replaces the part of a document between ``<!-- name: begin -->`` and ``<!-- name: end -->``.

    Args:
      path: the document, UTF-8.
      name: name of the part.
      text: what it shall be, without the line ends around it.

    Raises:
      ValueError: if the document does not have both markers, each on a line of its own.
      OSError: if it cannot be read or written.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     note = Path(folder, "note.md")
      ...     write_text(note, "<!-- count: begin -->\n1\n<!-- count: end -->\n")
      ...     write_section(note, "count", "2")
      ...     note.read_text().splitlines()
      ['<!-- count: begin -->', '2', '<!-- count: end -->']
    """
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    whole = Path(path).read_text(encoding="utf-8")
    before, found, rest = whole.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"{os.fspath(path)} has no lines {begin.strip()!r} and {end.strip()!r}")
    write_text(path, f"{before}{begin}{text}{end}{after}")
