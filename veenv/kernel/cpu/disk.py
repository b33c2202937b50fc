"""Kernels on disk, in a folder of its own inside JAX's compilation cache.

What is read is executed. So a file is taken only if it and its folder are this user's and nobody
else may write there, and if it is whole: it begins with a hash of the rest, and says what it was
written for: what it is of, the processor, and all software that has a part in making it. A hash of
that is its name. Where anything is wrong it is made anew; that is never an error.
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
from typing import Any, TypeVar

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
T = TypeVar("T")


def objects(name: str, make: Callable[[], Objects]) -> Objects:
    """The machine code of a name: from the disk if it is there, else made and put there.

    The name says all that the code depends on but the processor and versions of software.
    """
    objects = known_objects(name)
    if objects is None:
        objects = make()
        put(name, {"symbols": objects.symbols, "stack": objects.stack}, objects.code)
    return objects


def known_objects(name: str) -> Objects | None:
    """The machine code of a name, if it is on the disk and can be run here."""

    def read(head: dict[str, Any], parts: Sequence[bytes]) -> Objects | None:
        read = Objects(tuple(parts), tuple(head["symbols"]), head["stack"])
        return read if read.stack >= 0 and read.are_callable() else None

    return find(name, read)


def find(name: str, read: Callable[[dict[str, Any], Sequence[bytes]], T | None]) -> T | None:
    """Returns what `read` makes of the head and the parts that were put on the disk for a name."""
    path = _path(name)
    text = path and _text(path)
    if not text:
        return None
    line, _, rest = text.partition(b"\n")
    try:
        head = json.loads(line)
        sizes = head["sizes"]
        if head["for"] != _record(name) or sum(sizes) != len(rest) or any(n < 0 for n in sizes):
            return None
        return read(head, [rest[a:b] for a, b in pairwise(accumulate(sizes, initial=0))])
    except Exception:  # anything may be in a file of which only the hash is right
        return None


def put(name: str, head: dict[str, Any], parts: Sequence[bytes]) -> None:
    """Keeps something for a name, if there is a place."""
    path = _path(name)
    if path is not None:
        with suppress(OSError):  # the disk may be full
            _write(path, {**head, "for": _record(name)}, parts)


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
            return folder / hashlib.sha256(json.dumps(_record(name)).encode()).hexdigest()
    return None


def _record(name: str) -> list[str]:
    """Returns everything that a file depends on."""
    return [_made_by(), name]


@functools.cache
def _made_by() -> str:
    """Returns what a file depends on besides the program: sources, libraries, the processor."""
    package, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(p for p in package.rglob("*") if p.suffix in _SOURCES):
        digest.update(path.read_bytes())
    libc = "CS_GNU_LIBC_VERSION"
    libc = os.confstr(libc) if libc in os.confstr_names else ""
    versions = llvmlite.__version__, llvm.llvm_version_info, jax.__version__, version("jaxlib")
    return repr((digest.hexdigest(), versions, libc, llvm.get_process_triple(), host()))


def _is_own(status: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """Whether a file is of a kind and this user's, and nobody else may write it."""
    return (
        is_kind(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS
    )


def _text(path: Path) -> bytes:
    """Returns what a file holds behind its hash; nothing where it may not be executed here."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe would make it wait
    try:
        with open(os.open(path, flags), "rb") as file:
            text = file.read() if _is_own(os.fstat(file.fileno()), stat.S_ISREG) else b""
        os.utime(path)  # what is used stays longest
    except OSError:
        return b""
    digest, text = text[:_HASH], text[_HASH:]
    return text if hashlib.sha256(text).digest() == digest else b""


def _write(path: Path, head: dict[str, Any], parts: Sequence[bytes]) -> None:
    """Puts a file in its place at once; where there is no room, what was used longest ago goes."""
    line = json.dumps({**head, "sizes": [*map(len, parts)]})
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
        sizes = accumulate(status.st_size for status, _ in known)
        for (_, file), size in zip(known, sizes, strict=True):
            if size > room:
                file.unlink(missing_ok=True)
    return room >= 0
