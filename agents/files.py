"""Files that readers see whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file aside and renames it into place.

    Raises:
      OSError: the folder cannot be written; an older file stays as it is.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
