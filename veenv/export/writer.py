"""Equations as lines of Python."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.extend import core

from veenv import _compat
from veenv.export.primitives import CannotWriteError, dtype, expression, number
from veenv.graph.program import Equation, Literal, Program, trace
from veenv.rules import walk
from veenv.rules.base import is_key
from veenv.rules.meanings import meaning_of

MAX_CONSTANT = 1_000_000
_LONGEST_LIST = 64
_CUSTOM = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}


class Writer:
    """Collects the lines of a function, and the constants of the module by their source."""

    def __init__(self, outer: Writer | None = None):
        self.lines: list[str] = []
        self.constants: dict[str, str] = {} if outer is None else outer.constants
        self._counter: list[int] = [0] if outer is None else outer._counter

    def block(self, program: Program, inputs: Sequence[str]) -> list[str]:
        """Writes a program's needed equations; returns the names of its outputs."""
        names: dict[int, str] = dict(enumerate(inputs))
        needed = {o for o in program.outputs if isinstance(o, int)}
        kept: list[Equation] = []
        for equation in reversed(program.equations):
            if any(variable in needed for variable in equation.outputs):
                kept.append(equation)
                needed.update(a for a in equation.inputs if isinstance(a, int))
        for variable, value in enumerate(program.constants, program.num_inputs):
            if variable in needed:
                names[variable] = self._constant(value)
        for equation in reversed(kept):
            operands = [self._operand(a, names) for a in equation.inputs]
            results = self._equation(equation, operands)
            for variable, result in zip(equation.outputs, results, strict=True):
                if variable is not None:
                    names[variable] = result
        return [self._result(o, names) for o in program.outputs]

    def _equation(self, equation: Equation, operands: Sequence[str]) -> list[str]:
        """Writes one equation; returns a name for each result."""
        primitive, params = equation.primitive.name, equation.params
        if primitive in _CUSTOM:
            return self.block(_program(params[_CUSTOM[primitive]], equation.source), operands)
        meaning = meaning_of(equation)
        if meaning is not None:
            return self.block(_program(meaning, equation.source), operands)
        try:
            loop = walk.loop_of(equation)
            if loop is not None:
                write = self._while if loop.length is None else self._scan
                right = write(loop, operands, equation.source)
            elif walk.branches_of(equation):
                right = self._cond(params, operands, equation.source)
            else:
                right = expression(primitive, operands, params)
        except CannotWriteError as error:
            where = f" ({equation.source})" if equation.source else ""
            raise CannotWriteError(f"{error.args[0]}{where}") from None
        if right in operands:
            return [right]
        names = [self._new("v") if variable is not None else "_" for variable in equation.outputs]
        single = primitive == "optimization_barrier" and len(names) == 1
        unpack = equation.primitive.multiple_results and not single
        target = ", ".join(names) + ("," if unpack and len(names) == 1 else "")
        shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in equation.out_avals)
        self.lines.append(f"{target} = {right}  # {shapes}")
        return names

    def _cond(self, params: dict[str, Any], operands: Sequence[str], source: str) -> str:
        branches = [self._function(b, source) for b in params["branches"]]
        return f"lax.switch({operands[0]}, [{', '.join(branches)}], {', '.join(operands[1:])})"

    def _while(self, loop: walk.LoopParts, operands: Sequence[str], source: str) -> str:
        tested, consts, carry, _ = loop.split(operands)
        cond, body = self._function(loop.test, source), self._function(loop.body, source)
        test, step, start = (", ".join(some) for some in ([*tested, "*c"], [*consts, "*c"], carry))
        return f"lax.while_loop(lambda c: {cond}({test})[0], lambda c: {body}({step}), ({start},))"

    def _scan(self, loop: walk.LoopParts, operands: Sequence[str], source: str) -> str:
        _, consts, carried, stacked = loop.split(operands)
        step, count = self._function(loop.body, source), len(carried)
        call = f"{step}({', '.join([*consts, '*c', '*x'])})"
        both = f"(lambda r: (r[:{count}], r[{count}:]))({call})"
        carry, stacks = (
            f"({''.join(f'{x}, ' for x in some).rstrip()})" for some in (carried, stacked)
        )
        named = f"length={loop.length}, reverse={bool(loop.reverse)}"
        return f"_sum(lax.scan(lambda c, x: {both}, {carry}, {stacks}, {named}), ())"

    def _function(self, closed: Any, source: str) -> str:
        """Writes a local function of a jaxpr that returns a tuple; returns its name."""
        program = _program(closed, source)
        inner = Writer(self)
        inputs = [self._new("v") for _ in range(program.num_inputs)]
        results = inner.block(program, inputs)
        name = self._new("f")
        self.lines.append(f"def {name}({', '.join(inputs)}):")
        self.lines += [f"    {line}" for line in inner.lines]
        self.lines.append(f"    return ({', '.join(results)},)")
        return name

    def _operand(self, atom: int | Literal, names: dict[int, str]) -> str:
        if isinstance(atom, int):
            return names[atom]
        if atom.value.ndim == 0:
            return _scalar(atom.value)
        return self._constant(atom.value)

    def _result(self, atom: int | Literal, names: dict[int, str]) -> str:
        name = self._operand(atom, names)
        return name if re.match(r"[xv]\d", name) else f"jnp.asarray({name})"

    def _constant(self, value: Any) -> str:
        if isinstance(value, Tracer):
            raise CannotWriteError(
                "a constant of the function is traced; call to_code outside of jit"
            )
        if is_key(value):
            dtype(value.dtype)  # refuses it
        source = _array(np.asarray(value))
        if source not in self.constants:
            self.constants[source] = f"c{len(self.constants) + 1}"
        return self.constants[source]

    def _new(self, kind: str) -> str:
        self._counter[0] += 1
        return f"{kind}{self._counter[0]}"


def _program(closed: Any, source: str) -> Program:
    """A nested jaxpr as a flat program."""
    if not hasattr(_compat.open_jaxpr(closed), "eqns"):
        raise CannotWriteError(f"a nested function cannot be written as source code ({source})")
    if not hasattr(closed, "consts"):
        closed = core.ClosedJaxpr(closed, ())  # pyright: ignore[reportPrivateImportUsage]
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals]
    return trace(core.jaxpr_as_fun(closed), shapes, argnums=tuple(range(len(shapes))))


def _scalar(value: np.ndarray) -> str:
    if value.dtype == np.bool_:
        return f"np.bool_({bool(value)})"
    name = dtype(value.dtype)
    if hasattr(np, name[4:]):
        return f"np.{name[4:]}({number(value[()])})"
    return f"np.asarray({number(float(value))}, {name})"


def _array(value: np.ndarray) -> str:
    """A constant as source."""
    kind = dtype(value.dtype)
    if value.size > MAX_CONSTANT:
        raise CannotWriteError(
            f"a constant of {value.size} numbers is too large for source code (at most "
            f"{MAX_CONSTANT}); make it an argument"
        )
    if value.size and (value == value.flat[0]).all():
        return f"np.full({value.shape}, {number(value.flat[0])}, {kind})"
    matrix = value.squeeze()
    if matrix.ndim == 2 and np.array_equal(matrix, np.eye(*matrix.shape, dtype=value.dtype)):
        rows, columns = matrix.shape
        reshaped = "" if value.ndim == 2 else f".reshape({value.shape})"
        return f"np.eye({rows}, {columns}, dtype={kind}){reshaped}"
    if value.size <= _LONGEST_LIST:
        items = ", ".join(number(v) for v in value.flat)
        return f"np.array([{items}], {kind}).reshape({value.shape})"
    data = base64.b64encode(zlib.compress(value.tobytes(), 9)).decode()
    raw = f'zlib.decompress(base64.b64decode("{data}"))'
    return f"np.frombuffer({raw}, {kind}).reshape({value.shape})"
