"""Machine code that another process made is run, and nothing else that lies there."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.kernel.test_lifetime import forget_all
from veenv.kernel.cpu import compile, disk
from veenv.kernel.cpu.compile import Objects

MADE = Objects((b"first" * 400, b"second"), ("sinf",), 64)


def files(cache: Path) -> list[Path]:
    return sorted((cache / disk.FOLDER).iterdir())


def maker(made: Objects = MADE) -> Mock:
    """Makes code, and counts how often."""
    return Mock(return_value=made)


def times_made() -> int:
    """How often code is made that is asked for twice."""
    make = maker()
    assert [disk.objects("a", make), disk.objects("a", make)] == [MADE, MADE]
    return make.call_count


def test_made_once(cache):
    assert times_made() == 1
    other = maker(Objects((b"other",), ()))
    assert disk.objects("b", other).code == (b"other",)
    assert disk.objects("b", other).code == (b"other",)
    assert [path.stat().st_mode & 0o777 for path in files(cache)] == [0o600, 0o600]
    assert (cache / disk.FOLDER).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("folder", [None, "", "gs://bucket/folder"])
def test_nothing_is_written_without_a_cache(cache, monkeypatch, folder):
    monkeypatch.chdir(cache)
    jax.config.update("jax_compilation_cache_dir", folder)
    assert times_made() == 2
    assert not [*cache.iterdir()]


def flipped(path, text):
    path.write_bytes(text[:-1] + bytes([text[-1] ^ 1]))


def cut(path, text):
    path.write_bytes(text[: len(text) // 2])


def longer(path, text):
    path.write_bytes(text + b"more")


def empty(path, text):
    path.write_bytes(b"")


def of_another_program(path, text):
    disk.objects("other", maker(Objects((b"other",), ())))
    (other,) = set(path.parent.iterdir()) - {path}
    os.replace(other, path)


def with_an_odd_head(head):
    """Another head, with a hash that is right."""

    def damage(path, text):
        line, _, code = text[32:].partition(b"\n")
        rest = json.dumps(head(json.loads(line))).encode() + b"\n" + code
        path.write_bytes(hashlib.sha256(rest).digest() + rest)

    return damage


def a_pipe(path, text):
    path.unlink()
    os.mkfifo(path)


def for_others_to_write(path, text):
    path.chmod(0o666)


def a_link(path, text):
    aside = path.parent.parent / "aside"
    path.rename(aside)
    path.symlink_to(aside)


DAMAGES = [flipped, cut, longer, empty, of_another_program, for_others_to_write, a_link]
ODD = [
    {"for": "a"}, {"sizes": "2000"}, {"sizes": [1, -1]}, {"sizes": [2000]}, {"stack": "64"},
    {"stack": -1}, {"symbols": ["no_such_function_anywhere"]}, {"symbols": [3]}, {"symbols": None},
]  # fmt: skip
DAMAGES += [a_pipe, *(with_an_odd_head(lambda _, head=head: head) for head in (None, [1], {}))]
DAMAGES += [with_an_odd_head(lambda head, odd=odd: {**head, **odd}) for odd in ODD]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_right_is_made_anew(cache, damage):
    make = maker()
    disk.objects("a", make)
    (path,) = files(cache)
    damage(path, path.read_bytes())
    assert disk.objects("a", make) == MADE
    assert make.call_count == 2
    assert disk.objects("a", make) == MADE
    assert make.call_count == 2  # it is right again
    assert path.stat(follow_symlinks=False).st_mode & 0o777 == 0o600


def a_file(folder):
    folder.write_bytes(b"")


def for_all(folder):
    folder.mkdir()
    folder.chmod(0o777)


def elsewhere(folder):
    aside = folder.parent / "aside"
    aside.mkdir()
    folder.symlink_to(aside)


@pytest.mark.parametrize("make_folder", [a_file, for_all, elsewhere])
def test_a_folder_that_is_not_this_users_alone_is_left_alone(cache, make_folder):
    make_folder(cache / disk.FOLDER)
    assert times_made() == 2
    assert not [path for path in cache.rglob("*") if path.is_file() and path.stat().st_size]


def test_of_another_user(cache, monkeypatch):
    disk.objects("a", maker())
    uid = os.geteuid() + 1
    monkeypatch.setattr(disk.os, "geteuid", lambda: uid)
    make = maker()
    assert disk.objects("a", make) == MADE
    assert make.call_count == 1


def test_another_processor_or_another_version(cache, monkeypatch):
    make = maker()
    disk.objects("a", make)
    other = dataclasses.replace(disk.host(), features=disk.host().features + ",-avx2")
    for name, value in {
        "host": lambda: other,
        "llvmlite": type("l", (), {"__version__": "0"}),
    }.items():
        disk._made_by.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(disk, name, value)
            disk.objects("a", make)
    disk._made_by.cache_clear()
    assert make.call_count == 3
    assert disk.objects("a", make) == MADE
    assert make.call_count == 3


@pytest.mark.parametrize("step", ["tempfile.mkstemp", "os.replace"])
def test_a_full_disk(cache, monkeypatch, step):
    disk.objects("b", maker())
    full = OSError(errno.ENOSPC, "no space left on device")
    monkeypatch.setattr(step, Mock(side_effect=full))
    assert times_made() == 2
    assert len(files(cache)) == 1


def test_two_at_once(cache):
    both = threading.Barrier(2)

    def make() -> Objects:
        both.wait(10)
        return MADE

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(lambda _: disk.objects("a", make), range(2))] == [MADE, MADE]
    assert len(files(cache)) == 1
    assert disk.objects("a", lambda: pytest.fail("it is there")) == MADE


def test_it_takes_no_more_than_the_cache_may(cache):
    """What was used longest ago goes."""
    jax.config.update("jax_compilation_cache_max_size", 9000)
    makers = {name: maker() for name in "abc"}
    for at, name in enumerate("ab"):
        disk.objects(name, makers[name])
        for path in files(cache):
            os.utime(path, (at, at))
    disk.objects("a", makers["a"])
    disk.objects("c", makers["c"])
    for name in "ac":
        disk.objects(name, makers[name])
    assert {name: make.call_count for name, make in makers.items()} == {"a": 1, "b": 1, "c": 1}
    assert sum(path.stat().st_size for path in files(cache)) <= 9000
    disk.objects("b", makers["b"])
    assert makers["b"].call_count == 2
    too_large = maker(Objects((bytes(9000),), ()))
    disk.objects("d", too_large)
    disk.objects("d", too_large)
    assert too_large.call_count == 2
    jax.config.update("jax_compilation_cache_max_size", 0)
    make = maker()
    disk.objects("a", make)
    assert make.call_count == 1


def test_a_kernel_is_run_from_the_disk(cache, monkeypatch):
    """One that calls libm."""
    x = np.linspace(0, 1, 120, dtype="f4").reshape(3, 40)

    def fun(x):
        a, b, c = (jnp.roll(x, k) for k in (1, 2, 3))
        return jnp.tanh(jnp.sum(jnp.sin(x * a) * jnp.exp(b) + c**2))

    def run() -> np.ndarray:
        forget_all()
        jacobian = veenv.jacve(fun, "reverse", kernel="fused")
        return np.asarray(jax.jit(jax.vmap(jacobian))(x))

    first = run()
    np.testing.assert_allclose(first, jax.vmap(jax.grad(fun))(x), rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(compile, "_object", lambda text: pytest.fail("compiled again"))
    np.testing.assert_array_equal(run(), first)
