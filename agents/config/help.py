"""Writes what ``--help`` prints: an example first, then the options in groups, in 80 columns."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import tyro

HEADINGS = {
    "task": "What to train on, and how long",
    "function": "A function of your own, instead of a task",
    "out": "Results",
    "polish": "After the training",
    "config": "Settings, checkpoints, going on with a run",
    "seed": "Environments and steps",
    "learning_rate": "Learning",
    "window": "Large graphs",
    "hidden": "Network",
    "num_simulations": "Search of --agent alphazero",
    "devices": "Several devices or processes",
}
"""The first option of each group of a long help, and the group's title."""
COLUMNS, INDENT, LABEL, LONG = 80, 2, 24, 24
"""Of a line at most; before an option; for its name; options of a help that has groups."""
_VALUES = {int: "N", float: "X", str: "TEXT"}


def help_text(record: type, program: str, called: str) -> str:
    """The help of a command.

    Args:
      record: its options, a dataclass whose docstring has an ``Example:``.
      program: what it is called in that example.
      called: what it is called here.
    """
    width = min(COLUMNS, shutil.get_terminal_size().columns)
    said = inspect.getdoc(record) or ""
    paragraphs = re.sub(r"\n*^Raises:.*", "", said, flags=re.M | re.S).split("\n\n")
    examples = [p for p in paragraphs if p.startswith("Example: ")]
    lines = [text.replace(program, called) for text in examples]
    for text in paragraphs:
        if text not in examples:
            lines += ["", *textwrap.wrap(text, width)]
    every = list(_options(record))
    grouped = len(every) > LONG
    if not grouped:
        lines += ["", "Options"]
    for option in every:
        if grouped and option.name in HEADINGS:
            lines += ["", HEADINGS[option.name]]
        lines += option.lines(width)
    ever = {"-h, --help": "this help", "--version": "the version of veenv"}
    lines += ["", *(f"  {name:<{LABEL - INDENT}}{text}" for name, text in ever.items())]
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class _Option:
    """An option: its name as a field, its type, its default and what its record says of it."""

    name: str
    kind: Any
    default: Any
    text: str

    @property
    def label(self) -> str:
        """Returns how it is written: ``--num-envs N``."""
        flag = self.name.replace("_", "-")
        kinds = [self.kind]
        if typing.get_origin(self.kind) is typing.Annotated:
            if tyro.conf.Positional in typing.get_args(self.kind):
                return flag.upper()
            kinds = list(typing.get_args(self.kind)[:1])
        if kinds == [bool]:
            return f"--no-{flag}" if self.default is True else f"--{flag}"
        if typing.get_origin(kinds[0]) in (typing.Union, types.UnionType):
            kinds = [kind for kind in typing.get_args(kinds[0]) if kind is not type(None)]
        if typing.get_origin(kinds[0]) is tuple:
            kinds = list(typing.get_args(kinds[0]))
        return " ".join([f"--{flag}", *("|".join(map(str, _choices(kind))) for kind in kinds)])

    def lines(self, width: int) -> list[str]:
        """The option and its text beside it, or below where its name is long."""
        shown = isinstance(self.default, str | float | tuple) or type(self.default) is int
        default = f" (default {self.default})" if shown and self.default != "" else ""
        said = f"{' '.join(self.text.split())}{default}"
        text = textwrap.wrap(said, width - LABEL, break_on_hyphens=False)
        label = " " * INDENT + self.label
        beside = len(label) <= LABEL - 2
        first = [f"{label:<{LABEL}}{text.pop(0)}" if beside and text else label]
        return first + [" " * LABEL + line for line in text]


def _choices(kind: Any) -> tuple[Any, ...]:
    """Returns what an option takes: a letter for a type, or the values of a literal."""
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    return (_VALUES.get(kind, "FILE"),)


def _options(record: type) -> Iterator[_Option]:
    """The options of a record, those of nested records in their places."""
    kinds, texts = typing.get_type_hints(record, include_extras=True), _texts(record)
    for field in dataclasses.fields(record):
        bare = typing.get_type_hints(record)[field.name]
        if dataclasses.is_dataclass(bare):
            yield from _options(typing.cast(type, bare))
        else:
            yield _Option(field.name, kinds[field.name], field.default, texts.get(field.name, ""))


def _texts(record: type) -> dict[str, str]:
    """The text below each field of a record."""
    [body] = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            texts[ast.unparse(field.target)] = ast.literal_eval(below.value)
    return texts
