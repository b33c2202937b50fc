"""Which operations of a program are the same in all lanes: they depend on nothing but constants."""

from __future__ import annotations

from collections.abc import Sequence

from veenv.kernel.scalar_program import Loop, ScalarProgram, remembered


@remembered
def uniform(program: ScalarProgram, given: tuple[bool, ...]) -> Sequence[bool]:
    """Of each operation whether it is the same at all points, given the same of input leaves."""
    found: list[bool] = []
    results: dict[int, list[bool]] = {}
    for position, op in enumerate(program.ops):
        args = [found[a] for a in op.args]
        same = given[op.attr[0]] if op.name == "input" else all(args) and op.name != "write"
        if op.name == "loop":
            results[position] = _results(op.attr, args)
        elif op.name == "part":
            same = results[op.args[0]][op.attr]
        found.append(same)
    return found


def within(loop: Loop, args: Sequence[bool]) -> list[bool]:
    """Of each input leaf of a loop's body whether it is the same at all points, given arguments."""
    arrays = [bool(leaf.shape) for leaf in loop.body.inputs[: loop.carries]]
    given = [flag and not any(arrays[k : k + 1]) for k, flag in enumerate(args)]
    while True:
        found = uniform(loop.body, tuple(given))
        ends = all(found[i] for i in loop.body.results[-1]) if loop.length is None else True
        carried = [
            flag and ends and found[ids[0]]
            for flag, ids in zip(given[: loop.carries], loop.body.results, strict=False)
        ]
        if carried == given[: loop.carries]:
            return given
        given[: loop.carries] = carried


def _results(loop: Loop, args: Sequence[bool]) -> list[bool]:
    given = within(loop, args)
    found = uniform(loop.body, tuple(given))
    stacked = loop.body.results[loop.carries :]
    return [*given[: loop.carries], *(found[ids[0]] for ids in stacked)]
