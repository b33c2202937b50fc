"""Rewrites loops that carry nothing, and indexing by row numbers, as batched equations.

In: a `Program`. Out: the same program as `jax.vmap` would write it: all steps of such loops at
once, and a batch axis instead of the row numbers of `x[jnp.arange(n), at]`, which is how the
derivative of `jnp.linalg.det` indexes. `veenv.engine.repeated.outlining` then finds the axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from veenv import _compat
from veenv.engine.known import Known
from veenv.graph.equations import Equation, Literal, Var
from veenv.graph.program import Program, trace
from veenv.rules import walk
from veenv.rules.base import is_key
from veenv.rules.indexmap import joined_axis, windows_of, without_row_numbers
from veenv.rules.table import facts

Atom = Var | Literal


def with_batch_axes(program: Program) -> Program:
    """Returns the needed equations of a program, batched, arrays as constants, no literals.

    Examples:
      >>> import jax.numpy as jnp
      >>> program = trace(lambda x: jax.lax.map(jnp.sin, x), (jnp.ones(3),))
      >>> [e.primitive.name for e in with_batch_axes(program).equations]
      ['sin']
    """
    return _Batched(program).done()


class Rewriting:
    """Base of rewrites: copies a program equation by equation."""

    def __init__(self, program: Program):
        self._program = program
        self._avals = list(program.avals)
        self._equations: list[Equation] = []
        self._alias: dict[Var, Atom] = {}

    def read(self, atom: Atom) -> Atom:
        """Returns the variable or literal that stands for an atom."""
        return self._alias.get(atom, atom) if isinstance(atom, int) else atom

    def rewrite(self, e: Equation) -> Sequence[Atom] | None:
        """Returns replacements of an equation's results; None where the equation stays."""
        raise NotImplementedError

    def put(self, e: Equation) -> None:
        """Adds an equation, or what it is rewritten as."""
        e = replace(e, invars=tuple(map(self.read, e.invars)))
        replacements = self.rewrite(e)
        if replacements is None:
            self._equations.append(e)
            return
        self._alias.update(
            (v, a) for v, a in zip(e.outvars, replacements, strict=True) if v is not None
        )

    def inline(self, body: Program, operands: Sequence[Atom], source: str) -> list[Atom]:
        """Adds the equations of another program at `operands`; returns its results."""
        known: dict[Var, Atom] = dict(enumerate([*operands, *map(Literal, body.constants)]))

        def read(atom: Atom) -> Atom:
            return self.read(known[atom]) if isinstance(atom, int) else atom

        for equation in body.equations:
            invars = tuple(map(read, equation.invars))
            for v in equation.outvars:
                if v is not None:
                    known[v] = len(self._avals)
                    self._avals.append(body.avals[v])
            outvars = tuple(None if v is None else known[v] for v in equation.outvars)
            self.put(
                replace(equation, invars=invars, outvars=outvars, source=equation.source or source)
            )  # pyright: ignore[reportArgumentType]
        return [read(out) for out in body.outputs]

    def done(self) -> Program:
        """Returns the program, without what is not needed, with arrays as constants."""
        program = self._program
        for e in program.equations:
            self.put(e)
        equations = walk.needed(self._equations, map(self.read, program.returned))
        first = program.num_inputs + len(program.constants)
        operands = (a for e in equations for a in e.invars if isinstance(a, Literal))
        arrays = {id(a): a for a in operands if np.ndim(a.val)}
        numbers = {key: first + k for k, key in enumerate(arrays)}

        def name(atom: Atom) -> Any:
            atom = self.read(atom)
            if isinstance(atom, int):
                return atom if atom < first else atom + len(arrays)
            return numbers.get(id(atom), atom)

        renamed = tuple(
            replace(
                e,
                invars=tuple(map(name, e.invars)),
                outvars=tuple(None if v is None else name(v) for v in e.outvars),
            )
            for e in equations
        )
        values = [a.val for a in arrays.values()]
        return replace(
            program,
            constants=(*program.constants, *values),
            equations=renamed,
            avals=(*self._avals[:first], *map(jax.typeof, values), *self._avals[first:]),
            outputs=tuple(map(name, program.outputs)),
            aux=program.aux and (tuple(map(name, program.aux[0])), *program.aux[1:]),
        )


class _Batched(Rewriting):
    """Rewrites loops that carry nothing as all steps at once, row numbers as a batch axis."""

    def __init__(self, program: Program):
        super().__init__(program)
        self._known = Known(replace(program, equations=()))  # those that stay are added

    def rewrite(self, e: Equation) -> Sequence[Atom] | None:
        batched = _at_once(e) or _by_rows(e, self._known)
        if batched is None:
            self._known.add(e)
        return batched and self.inline(*batched, e.source)


def _at_once(e: Equation) -> tuple[Program, tuple[Atom, ...]] | None:
    """Returns a program of all steps of a loop that carries nothing, and its inputs; else None."""
    loop = walk.loop_of(e)
    if loop is None or not loop.length or e.effects or loop.ends[1] != loop.ends[2]:
        return None
    if any(map(is_key, (*e.in_avals, *e.out_avals))):
        return None
    closed, avals = loop.body, list(map(_compat.abstract, e.in_avals))

    axes = [None if k < loop.ends[1] else 0 for k in range(len(avals))]
    every = jax.vmap(core.jaxpr_as_fun(closed), axes, axis_size=loop.length)
    program = trace(every, avals, argnums=tuple(range(len(avals))))
    more = _num_loops(program.equations) > _num_loops(closed)  # a callback became a loop
    return None if more else (program, e.invars)


def _by_rows(e: Equation, known: Known) -> tuple[Program, tuple[Atom, ...]] | None:
    """Returns a gather or scatter with a batch axis instead of row numbers, and its inputs.

    The other indices may be unknown: the operands of a concatenation are looked at one by one.
    """
    if facts(e.primitive.name).form not in ("take", "put") or "dimension_numbers" not in e.params:
        return None
    x, index, *updates = e.invars
    parts, avals, last = (index,), (e.in_avals[1],), len(e.in_avals[1].shape) - 1
    maker = known.makers[index][0] if index in known.makers else None
    if maker and joined_axis(maker) == last:
        parts, avals = maker.invars, maker.in_avals
    values = [known(part) for part in parts]
    every = [np.full(a.shape, -1) if v is None else v for v, a in zip(values, avals, strict=True)]
    found = windows_of(e).row_numbers(e.in_avals[0].shape, np.concatenate(every, last))
    if found is None:
        return None
    number, params = found[0], without_row_numbers(e.params, *found)

    def run(x: Any, parts: Sequence[Any], updates: Sequence[Any]) -> Any:
        columns = [part[..., k : k + 1] for part in parts for k in range(part.shape[-1])]
        rest = [*columns[:number], *columns[number + 1 :]]
        index = jnp.concatenate(rest, -1) if rest else columns[0][..., :0]
        return _compat.bind(e.primitive, params, [x, index, *updates])

    first, _, *others = map(_compat.abstract, e.in_avals)
    program = trace(run, (first, [*map(_compat.abstract, avals)], others), argnums=(0, 1, 2))
    return program, (x, *parts, *updates)


def _num_loops(of: Any) -> int:
    return sum(walk.loop_of(e) is not None for e in walk.every(of))
