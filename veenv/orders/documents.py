"""Reads and writes files safely: regular files of limited size, written aside and then renamed.

A path is one of the file system or an address such as ``gs://bucket/run``: `as_path` makes both.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast


def as_path(path: str | os.PathLike[str]) -> Path:
    """Returns a path of the file system, or of an address (``gs://…``) an `etils.epath` path.

    Raises:
      ValueError: there are no such addresses, or a slash is missing.
      OSError: an address cannot be reached.
    """
    text = os.fspath(path)
    if "://" not in text:
        if re.match(r"\w{2,}:/", text):
            raise ValueError(f"{text} lacks a slash: write addresses as text, not as pathlib.Path")
        return Path(path)
    if not isinstance(path, str):
        return cast(Path, path)
    try:
        from etils import epath  # of the extra `agents`

        address = epath.Path(path)
        with contextlib.suppress(FileNotFoundError):
            address.stat()  # missing packages or credentials raise here
    except KeyError:
        raise ValueError(f"{text}: no file system has addresses of this kind") from None
    except Exception as error:  # stores raise errors of many kinds
        reason = f"{type(error).__name__}: {error}"
        raise OSError(f"{text} cannot be reached: {reason}") from error
    return cast(Path, address)


def is_local(path: Path) -> bool:
    """Returns whether a path is one of the file system, with folders, locks and renaming."""
    return isinstance(path, Path)


def read_bytes(path: str | os.PathLike[str], most: int, kind: str) -> bytes:
    """Reads at most so many bytes of a regular file; errors name the kind expected.

    Raises:
      IsADirectoryError: if it is a folder.
      ValueError: if it is no regular file or too large.
    """
    path = as_path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{kind} {path} is a directory")
    if is_local(path) and not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a regular file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        size = max(os.stat(path).st_size if is_local(path) else 0, len(data))
        raise ValueError(f"size: {size} bytes, expected at most {most}")
    return data


def parse_object(data: bytes) -> dict[str, Any]:
    """Parses an untrusted JSON object in UTF-8: finite numbers, every field once.

    Raises:
      ValueError: if it is anything else, saying what.
    """
    hooks: dict[str, Any] = {"parse_constant": _no_constant, "parse_int": _int}
    hooks |= {"parse_float": _float, "object_pairs_hook": _no_duplicates}
    try:
        document = json.loads(data.decode("utf-8"), **hooks)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError("not valid JSON: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"expected an object of JSON, got {type(document).__name__}")
    return document


def _int(digits: str) -> int:
    """Parses an integer with a limited number of digits."""
    if len(digits) > 20:
        raise ValueError(f"an integer of {len(digits)} digits: {digits[:20]}…")
    return int(digits)


def _float(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text:.20} is too large a number")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"{repeated!a:.60}: the field stands twice in one object")
    return record


def file_name(name: str, used: Iterable[str] = ()) -> str:
    """Makes a name fit for a file: letters, digits, ``+-_.``, other characters as dots.

    At most 100 bytes. Where a name in `used` gives the same, a hash tells them apart.
    """
    plain = re.sub(r"[^\w.+-]+", ".", name).strip(".") or "function"
    alike = (file_name(other).casefold() == plain.casefold() for other in used if other != name)
    if len(plain.encode()) <= 100 and not any(alike):
        return plain
    head = plain.encode()[:91].decode(errors="ignore")
    return f"{head}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file as UTF-8, so that readers see the old or the new content, never a part.

    Its directory is made if need be.
    """
    path = as_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file so that readers see the old or the new content, never a part.

    A file ``.NAME….part`` is next to it meanwhile; where writing fails, an older file stays.
    Stores behind addresses need no such file: they show an object once it is whole.
    """
    path = as_path(path)
    if not is_local(path):
        path.write_bytes(content)
        return
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

    Raises:
      ValueError: if the document does not have both markers, each on a line of its own.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    whole = Path(path).read_text(encoding="utf-8")
    before, opening, rest = whole.partition(begin)
    _, ended, after = rest.partition(end)
    if not (opening and ended):
        raise ValueError(f"{os.fspath(path)} has no lines {begin.strip()!r} and {end.strip()!r}")
    write_text(path, f"{before}{begin}{text}{end}{after}")
