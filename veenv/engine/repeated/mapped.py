"""Programs in which what is the same at each index of an axis is written as `jax.vmap` has it.

Loops that carry nothing do all turns at once.  `veenv.engine.repeated.parts` finds the axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.extend import core

from veenv import _compat
from veenv.graph.equations import Equation, Literal, Var
from veenv.graph.program import Program, trace
from veenv.rules import walk
from veenv.rules.base import is_key

Atom = Var | Literal


def opened(program: Program) -> Program:
    """What is needed of a program, written so, with arrays as constants instead of literals.

    Examples:
      >>> import jax.numpy as jnp
      >>> program = trace(lambda x: jax.lax.map(jnp.sin, x), (jnp.ones(3),))
      >>> [e.primitive.name for e in opened(program).equations]
      ['sin']
    """
    return _Opened(program).done()


class Rewriting:
    """A program written anew, equation by equation."""

    def __init__(self, program: Program):
        self._program = program
        self._avals = list(program.avals)
        self._equations: list[Equation] = []
        self._alias: dict[Var, Atom] = {}

    def read(self, atom: Atom) -> Atom:
        """What a variable is now."""
        return self._alias.get(atom, atom) if isinstance(atom, int) else atom

    def rewrite(self, e: Equation) -> Sequence[Atom] | None:
        """What is in place of the results of an equation; None where it stays."""
        raise NotImplementedError

    def put(self, e: Equation) -> None:
        """Adds an equation, or what it is written as."""
        e = replace(e, inputs=tuple(map(self.read, e.inputs)))
        found = self.rewrite(e)
        if found is None:
            self._equations.append(e)
            return
        self._alias.update((v, a) for v, a in zip(e.outputs, found, strict=True) if v is not None)

    def inline(self, body: Program, given: Sequence[Atom], source: str) -> list[Atom]:
        """Adds the equations of another program at some arguments; its results."""
        known: dict[Var, Atom] = dict(enumerate(given))
        known.update(enumerate(map(Literal, body.constants), len(given)))

        def read(atom: Atom) -> Atom:
            return self.read(known[atom]) if isinstance(atom, int) else atom

        for own in body.equations:
            inputs = tuple(map(read, own.inputs))
            for v in own.outputs:
                if v is not None:
                    known[v] = len(self._avals)
                    self._avals.append(body.avals[v])
            outputs = tuple(None if v is None else known[v] for v in own.outputs)
            self.put(replace(own, inputs=inputs, outputs=outputs, source=own.source or source))  # pyright: ignore[reportArgumentType]
        return [read(out) for out in body.outputs]

    def done(self) -> Program:
        """The program, without what is not needed, with arrays as constants."""
        program = self._program
        for e in program.equations:
            self.put(e)
        outputs = *program.outputs, *(program.aux[0] if program.aux else ())
        equations = walk.needed(self._equations, map(self.read, outputs))
        return _lifted(_renamed(program, equations, self._avals, self.read))


class _Opened(Rewriting):
    """Loops that carry nothing are all their turns at once."""

    def rewrite(self, e: Equation) -> Sequence[Atom] | None:
        found = _at_once(e)
        return found and self.inline(*found, e.source)


def _at_once(e: Equation) -> tuple[Program, tuple[Atom, ...]] | None:
    """What all turns of a loop do, if it is one that carries nothing, and its inputs."""
    loop = walk.loop_of(e)
    if loop is None or not loop.length or e.effects or loop.ends[1] != loop.ends[2]:
        return None
    if any(map(is_key, (*e.in_avals, *e.out_avals))):
        return None
    closed, given = loop.body, list(map(_compat.abstract, e.in_avals))

    axes = [None if k < loop.ends[1] else 0 for k in range(len(given))]
    every = jax.vmap(core.jaxpr_as_fun(closed), axes, axis_size=loop.length)
    found = trace(every, given, argnums=tuple(range(len(given))))
    more = _num_loops(found.equations) > _num_loops(closed)  # of callbacks, one turn at a time
    return None if more else (found, e.inputs)


def _num_loops(of: Any) -> int:
    return sum(walk.loop_of(e) is not None for e in walk.every(of))


def _renamed(
    program: Program,
    equations: Iterable[Equation],
    avals: Iterable[Any],
    name: Callable[[Atom], Any],
    constants: Iterable[Any] = (),
) -> Program:
    """The program with other names of variables, and more constants."""
    every = tuple(
        replace(
            e,
            inputs=tuple(map(name, e.inputs)),
            outputs=tuple(None if v is None else name(v) for v in e.outputs),
        )
        for e in equations
    )
    aux = program.aux and (tuple(map(name, program.aux[0])), *program.aux[1:])
    return replace(
        program,
        constants=(*program.constants, *constants),
        equations=every,
        avals=tuple(avals),
        outputs=tuple(map(name, program.outputs)),
        vertex_variables=tuple(v for e in every for v in e.outputs if v is not None),
        aux=aux,
    )


def _lifted(program: Program) -> Program:
    """The program with arrays as constants instead of literals."""
    first = program.num_inputs + len(program.constants)
    arrays = {
        id(a): a
        for e in program.equations
        for a in e.inputs
        if isinstance(a, Literal) and np.ndim(a.value)
    }
    numbers = {key: first + k for k, key in enumerate(arrays)}

    def name(atom: Atom) -> Atom:
        if isinstance(atom, int):
            return atom if atom < first else atom + len(arrays)
        return numbers.get(id(atom), atom)

    values = [a.value for a in arrays.values()]
    avals = [*program.avals[:first], *map(jax.typeof, values), *program.avals[first:]]
    return _renamed(program, program.equations, avals, name, values)
