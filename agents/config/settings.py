"""Settings from files and presets: ``--config file.toml``, ``--preset gpu``, ``--resume RUN``.

All of them are turned into command-line options that come before the user's own, so that there is
one set of names, one check and one rule: what is said later wins.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from veenv.orders.documents import as_path, read_bytes
from veenv.tasks.user import refuse_code

MAX_BYTES = 2**14
"""Of a file of settings: a run's has 3 KiB, and reading takes the square of the dots in a key."""

CONFIG_NAME = "config.toml"
"""The file of settings in a run folder."""

SOURCES = ("config", "preset", "resume")
"""Options that say where other options come from; they are no settings themselves."""

_PROCESSES = ("coordinator", "num_processes", "process_id", "distributed")
FROM_COMMAND_LINE = (*SOURCES, "folder", *_PROCESSES)
"""Options that are in no file: those, the place of a run, and which processes take part in it."""

_ACCELERATOR = {"num_envs": 512, "num_minibatches": 8, "bfloat16": True}
PRESETS: dict[str, dict[str, Any]] = {
    "cpu": {},
    "gpu": _ACCELERATOR,
    "tpu": _ACCELERATOR,
}
"""Options that suit a kind of device, where they differ from the defaults."""


def expand(record: type, args: Sequence[str]) -> list[str]:
    """Puts the options of presets, settings files and resumed runs before those of a command line.

    Returns:
      A longer command line.

    Raises:
      ValueError: a file is not what it should be, or an option in it is unknown.
      OSError: a file cannot be read.
    """
    config, preset, resume = (_value_of(name, args) for name in SOURCES)
    if config is not None and resume is not None:
        raise ValueError("--resume takes the settings of the run; give no --config with it")
    before: list[str] = []
    folder = _value_of("folder", args)
    if resume is None and folder is not None and _is_run(folder):
        resume = folder
        before.append(f"--resume={folder}")
    if preset is not None:
        kind = jax.default_backend() if preset == "auto" else preset
        before += to_args(record, PRESETS.get(kind, {}), f"preset {preset}")
    if resume is not None:
        if not _is_run(resume):
            raise ValueError(f"{resume} is not a run folder: it has no {CONFIG_NAME}")
        config = str(as_path(resume) / CONFIG_NAME)
    if config is not None:
        settings = read_toml(config)
        where = str(settings.get("init_from", ""))
        if resume is not None and "://" in where and _value_of("init-from", args) is None:
            raise ValueError(
                f"{config} names {where!r}: no address that a run folder names is read; give it "
                "with --init-from"
            )
        for code in ("function", "network", "loss"):
            if settings.get(code) is not None and _value_of(code, args) is None:
                refuse_code(config, settings[code], code)
        before += to_args(record, settings, config)
    return before + list(args)


def _is_run(folder: str) -> bool:
    """Returns whether a folder has settings; raises when a store does not answer."""
    try:
        (as_path(folder) / CONFIG_NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_toml(path: str) -> dict[str, Any]:
    """Reads a file of settings.

    Raises:
      ValueError: it is not TOML.
      OSError: it cannot be read.
    """
    try:
        return tomllib.loads(read_bytes(path, MAX_BYTES, "settings file").decode())
    except OSError as error:
        reason = error.strerror or error
        raise type(error)(f"cannot read the settings file {path}: {reason}") from None
    except RecursionError:
        raise ValueError(f"{path} is not TOML: nested too deeply") from None
    except ValueError as error:  # some are of Python's own, of integers with too many digits
        raise ValueError(f"{path} is not TOML: {error}") from None


def to_args(record: type, settings: Mapping[str, Any], source: str) -> list[str]:
    """Settings as command-line options; a list stands for a text with commas.

    Raises:
      ValueError: an option is unknown or its value of no use.

    >>> from veenv.agents.config.args import TrainArgs
    >>> to_args(TrainArgs, {"task": ["mlp", "LSTM"], "num_envs": 8, "bfloat16": True}, "a file")
    ['--task=mlp,LSTM', '--num-envs=8', '--bfloat16']
    """
    known = {name: kind for name, kind in options(record) if name not in FROM_COMMAND_LINE}
    args = []
    for name, value in settings.items():
        if name in FROM_COMMAND_LINE:
            raise ValueError(f"{name} in {source}: it is an option of the command line alone")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "--help lists all of them"
            raise ValueError(f"unknown option {name!r} in {source}; {hint}")
        if (wanted := _wanted(known[name], value)) is not None:
            raise ValueError(f"{name} in {source} must be {wanted}, got {value!r}")
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            args.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list) and _takes(known[name], value):
            args.append(f"--{flag}={','.join(map(str, value))}")
        elif isinstance(value, str | int | float):
            args.append(f"--{flag}={value}")
        else:
            raise ValueError(f"{name} in {source} must be a number, text or list of texts")
    return args


def _wanted(kind: Any, value: Any) -> str | None:
    """Returns what an option of a type must be where a value is not; None where it may be."""
    if kind is bool:
        return None if isinstance(value, bool) else "true or false"
    kinds = [k for k in (typing.get_args(kind) or [kind]) if k is not type(None)]
    choices = typing.get_args(kinds[0]) or [k for k in kinds if isinstance(k, str)]
    if choices:
        return None if value in choices else f"one of {', '.join(choices)}"
    for number, words in ((int, "a whole number"), (float, "a number")):
        if number in kinds:
            try:
                number(str(value))
            except ValueError:
                return words
    return None


def _takes(kind: Any, items: Sequence[Any]) -> bool:
    """Returns whether an option of a type, not one of numbers, can hold the items of a list."""
    return kind not in (int, float) and all(isinstance(item, str | int) for item in items)


def to_toml(record: Any) -> str:
    """The options of a dataclass as TOML that `read_toml` and `to_args` read again.

    >>> from veenv.agents.config.args import TrainArgs
    >>> to_toml(TrainArgs("mlp")).splitlines()[0]
    'task = "mlp"'
    """
    lines = []
    for name, value in _values(record):
        if name not in FROM_COMMAND_LINE and value is not None:
            lines.append(f"{name} = {json.dumps(value, ensure_ascii=False)}\n")
    return "".join(lines)


def options(record: type) -> Iterable[tuple[str, Any]]:
    """Name and type of every option of a dataclass, those of nested ones included."""
    hints = typing.get_type_hints(record)
    for field in dataclasses.fields(record):
        if dataclasses.is_dataclass(kind := hints[field.name]):
            yield from options(typing.cast(type, kind))
        else:
            yield field.name, kind


def _values(record: Any) -> Iterable[tuple[str, Any]]:
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            yield from _values(value)
        else:
            yield field.name, value


def _value_of(name: str, args: Sequence[str]) -> str | None:
    """The value of an option on the command line; None if it is not given."""
    value = None
    for arg, following in zip(args, [*args, None][1:], strict=True):
        flag, equals, text = arg.partition("=")
        if flag.replace("_", "-") == f"--{name}":
            value = text if equals else following
    return value
