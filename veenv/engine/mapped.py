"""Programs whose loops that carry nothing are written as what they do at all turns at once.

So `jax.lax.map` is what `jax.vmap` is, whose axes `veenv.engine.parts` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def without_maps(program: Program) -> Program:
    """The same program without such loops, and with arrays as constants instead of literals.

    Examples:
      >>> import jax.numpy as jnp
      >>> program = trace(lambda x: jax.lax.map(jnp.sin, x), (jnp.ones(3),))
      >>> [e.primitive.name for e in without_maps(program).equations]
      ['sin']
    """
    found = _Opened(program)
    return _lifted(_renamed(program, found.equations, found.avals, found.read))


class _Opened:
    """The equations of a program, with those of loops that carry nothing in their place."""

    def __init__(self, program: Program):
        self.avals = list(program.avals)
        self.equations: list[Equation] = []
        self._alias: dict[Var, Atom] = {}
        for e in program.equations:
            self._add(e)

    def read(self, atom: Atom) -> Atom:
        """What a variable is now."""
        return self._alias.get(atom, atom) if isinstance(atom, int) else atom

    def _add(self, e: Equation) -> None:
        e = replace(e, inputs=tuple(map(self.read, e.inputs)))
        body = _at_once(e)
        if body is None:
            self.equations.append(e)
            return
        known: dict[Var, Atom] = dict(enumerate(e.inputs))
        known.update(enumerate(map(Literal, body.constants), len(e.inputs)))

        def read(atom: Atom) -> Atom:
            return self.read(known[atom]) if isinstance(atom, int) else atom

        for own in body.equations:
            inputs = tuple(map(read, own.inputs))
            for v in own.outputs:
                if v is not None:
                    known[v] = len(self.avals)
                    self.avals.append(body.avals[v])
            outputs = tuple(None if v is None else known[v] for v in own.outputs)
            source = own.source or e.source
            self._add(replace(own, inputs=inputs, outputs=outputs, source=source))  # pyright: ignore[reportArgumentType]
        for v, out in zip(e.outputs, body.outputs, strict=True):
            if v is not None:
                self._alias[v] = read(out)


def _at_once(e: Equation) -> Program | None:
    """What all turns of a loop do, if it is one that carries nothing."""
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
    return None if more else found


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
