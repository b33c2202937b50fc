"""Kernels on disk, in a folder of its own inside JAX's compilation cache.

What is read is executed. So a file is taken only if it and its folder are this user's and nobody
else may write there, and if it is whole: it begins with a hash of the rest, and names the key that
it was written for. A key is a hash of what it is of, the processor, and all software that has a
part in making it. Where anything is wrong it is made anew; that is never an error.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from itertools import accumulate, pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import jax
import llvmlite
from llvmlite import binding as llvm

from veenv import _compat
from veenv.kernel.cpu.compile import Objects, host

FOLDER = "veenv-kernels"
"""Name of the folder; files in it have keys as their names."""
_HASH = hashlib.sha256().digest_size
_SOURCES = (".py", ".ll", ".json")  # orders are in files, too
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Found(NamedTuple):
    """What a file holds."""

    head: dict[str, Any]  # plain data
    parts: tuple[bytes, ...]


def objects(name: str, make: Callable[[], Objects]) -> Objects:
    """The machine code of a name: from the disk if it is there, else made and put there.

    The name says all that the code depends on but the processor and versions of software.
    """
    found = known_objects(name)
    if found is None:
        found = make()
        put(name, {"symbols": found.symbols, "stack": found.stack}, found.code)
    return found


def known_objects(name: str) -> Objects | None:
    """The machine code of a name, if it is on the disk and can be run here."""
    read = find(name)
    found = read and Objects(read.parts, tuple(read.head["symbols"]), read.head["stack"])
    return found if found and found.are_callable() else None


def find(name: str) -> Found | None:
    """What was put on the disk for a name."""
    path = _path(name)
    return path and _read(path)


def put(name: str, head: dict[str, Any], parts: Sequence[bytes]) -> None:
    """Keeps something for a name, if there is a place."""
    path = _path(name)
    if path is not None:
        with suppress(OSError):  # the disk may be full
            _write(path, head, parts)


def _path(name: str) -> Path | None:
    """The file of a name, in a folder that is made if need be.

    None where JAX has no cache on disk, or where the folder is not this user's alone.
    """
    cache, most = _compat.compilation_cache()
    if not most or not hasattr(os, "geteuid"):
        return None
    folder = Path(cache) / FOLDER
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_own(folder.lstat(), stat.S_ISDIR):
            return folder / hashlib.sha256(f"{_made_by()} {name}".encode()).hexdigest()
    return None


@functools.cache
def _made_by() -> str:
    """What has a part in making it, beside the program: sources, libraries, the processor."""
    package, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(p for p in package.rglob("*") if p.suffix in _SOURCES):
        digest.update(path.read_bytes())
    libc = "CS_GNU_LIBC_VERSION"
    libc = os.confstr(libc) if libc in os.confstr_names else ""
    versions = llvmlite.__version__, llvm.llvm_version_info, jax.__version__, version("jaxlib")
    return repr((digest.hexdigest(), versions, libc, llvm.get_process_triple(), host()))


def _is_own(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """Whether a file is of a kind and this user's, and nobody else may write it."""
    return is_kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS


def _read(path: Path) -> Found | None:
    """What a file holds; None where there is none that may be executed here."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            text = file.read() if _is_own(os.fstat(file.fileno()), stat.S_ISREG) else b""
        os.utime(path)  # what is used stays longest
    except OSError:
        return None
    line, _, rest = text[_HASH:].partition(b"\n")
    if hashlib.sha256(text[_HASH:]).digest() != text[:_HASH]:
        return None
    head = json.loads(line)
    ends = pairwise(accumulate(head["sizes"], initial=0))
    return Found(head, tuple(rest[a:b] for a, b in ends)) if head["key"] == path.name else None


def _write(path: Path, head: dict[str, Any], parts: Sequence[bytes]) -> None:
    """Puts a file in its place at once; where there is no room, what was used longest ago goes."""
    line = json.dumps({**head, "key": path.name, "sizes": [*map(len, parts)]})
    text = b"\n".join([line.encode(), b"".join(parts)])
    text = hashlib.sha256(text).digest() + text
    if not _make_room(path.parent, _compat.compilation_cache()[1] - len(text)):
        return
    number, aside = tempfile.mkstemp(dir=path.parent)  # for this user alone
    try:
        with open(number, "wb") as file:
            file.write(text)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def _make_room(folder: Path, room: float) -> bool:
    """Removes the oldest files until the others take no more than there is room; if there is."""
    if 0 <= room < inf:
        known = [(file.stat(), file) for file in folder.iterdir()]
        known.sort(key=lambda each: -each[0].st_mtime)
        taken = accumulate(found.st_size for found, _ in known)
        for (_, file), size in zip(known, taken, strict=True):
            if size > room:
                file.unlink(missing_ok=True)
    return room >= 0
