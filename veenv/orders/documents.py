"""Files that are written aside first and then renamed into place."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


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
