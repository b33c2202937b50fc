"""Fixtures that every test shares: the platform, float64, the published reference data."""

import contextlib
import ctypes
import functools
import gc
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The strictest arithmetic: no array is silently widened in rank or dtype, here and in the
# processes that tests start. A test of promotion itself uses `jax.numpy_dtype_promotion` or
# `jax.numpy_rank_promotion` where it does.
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
# Most programs of the tests run once: less time goes into their machine code, here and in the
# processes that tests start. A test of memory or speed asks for the fixture `optimised`.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# What fails in a form that nobody asked for is an error, not a reason to take another form.
os.environ["VEENV_STRICT"] = "1"
# A program that was compiled once, in whichever process, is read from disk the next time, by the
# next run of the tests, too: compiling is two fifths of what they take.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    kept = Path(__file__).parents[1] / ".pytest_cache" / "programs"
    try:
        if sum(file.stat().st_size for file in kept.glob("*")) > 1 << 30:
            shutil.rmtree(kept)  # most of it is of code that has changed
        kept.mkdir(parents=True, exist_ok=True)
    except OSError:  # where nothing can be kept, the folder goes with the tests
        passing = tempfile.TemporaryDirectory(prefix="veenv-tests-", ignore_cleanup_errors=True)
        kept = passing.name
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(kept)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax
import pytest
from hypothesis import HealthCheck, settings

from veenv import _compat

_FOUND = _compat.compilation_cache
MOST_BYTES, MOST_MAPPINGS = 3 << 29, 20_000
DATA = Path(__file__).parent / "data"

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", settings.get_profile("default"))  # all of `tests.sampling.few`
settings.register_profile("long", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


SEARCHES = (
    "tests/search/", "tests/orders/", "tests/agents/test_policy.py",
    "tests/graph/test_reverse_only.py", "tests/scripts/test_evaluate.py",
)  # fmt: skip
"""Tests that need the kernels of the searches, which take a minute to compile."""


def group_of(nodeid: str) -> str:
    """Tests of one group are run by one process, in their order: they share compiled programs."""
    if nodeid.startswith(SEARCHES):
        return "searches"
    return "agents" if nodeid.startswith("tests/agents/") else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands out whole groups, in their order, where `--dist` does not ask for something else."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)


def pytest_collection_finish() -> None:
    """What was imported is not looked through for garbage again and again, and the rest seldom.

    Traces are many objects, and few of them are garbage.
    """
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)


@pytest.fixture(autouse=True, scope="session")
def machine_code_is_new() -> Iterator[None]:
    """No test takes machine code of another run, or of a test that made it in another way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_compat, "compilation_cache", lambda: ("", 0))
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A compilation cache in use, without JAX's own part in it."""
    monkeypatch.setattr(_compat, "compilation_cache", _FOUND)
    settings = "jax_compilation_cache_dir", "jax_compilation_cache_max_size"
    before = [getattr(jax.config, name) for name in settings]
    jax.config.update(settings[0], str(tmp_path))
    yield tmp_path
    for name, value in zip(settings, before, strict=True):
        jax.config.update(name, value)


@pytest.fixture
def x64() -> Iterator[None]:
    """Runs one test with 64-bit types; without it JAX's default (float32) holds."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=[False, True], ids=["float32", "float64"])
def precision(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs one test twice, in float32 and in float64; the value is the float type's name."""
    with jax.enable_x64(request.param):
        yield "float64" if request.param else "float32"


@pytest.fixture(scope="session")
def task_graph() -> Callable[[str], Any]:
    """The graph of a task, traced once a session: ``task_graph(name)``."""
    from veenv.env import factory

    return functools.cache(factory.task_graph)


@pytest.fixture(scope="session")
def reference() -> Callable[[str], dict[str, Any]]:
    """Reads the published point, value, Jacobian (and graph) of a task: ``reference(name)``."""
    return lambda name: json.loads((DATA / f"{name}.json").read_text())


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Calls a command that has wrong input: exit code 2, and the one line that it says."""

    def complaint_of(command: Callable[..., Any], *args: Any) -> str:
        with pytest.raises(SystemExit) as ended:
            sys.exit(command(*args))  # as a script ends with what its main returns
        assert ended.value.code == 2
        said, complaint = capsys.readouterr()
        assert said == ""
        assert complaint.count("\n") == 1
        return complaint

    return complaint_of


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiles with XLA's usual optimisations what one test makes, and what processes of it do.

    What was compiled before stays as it is.
    """
    usual = jax.config.read("jax_disable_most_optimizations")
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", usual)


def held() -> tuple[int, int]:
    """Bytes and mappings of memory that this process holds; more than allowed if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return MOST_BYTES, MOST_MAPPINGS


def give_back() -> None:
    """Hands memory that is free back to the system, which else counts it as held."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_programs() -> Iterator[None]:
    """Drops compiled programs at a module's end, before they add up to gigabytes.

    Until then modules share those of single operations. The system limits mappings to 65,530.
    """
    yield
    if held()[0] >= MOST_BYTES:
        give_back()
    size, mappings = held()
    if size >= MOST_BYTES or mappings >= MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()
        give_back()
