"""A Jacobian as a C99 file that needs nothing but libm."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from veenv.engine.api import jacve, value_and_jacve
from veenv.graph.program import normalise_argnums
from veenv.kernel.backend import Backend, InLoop, Scope
from veenv.kernel.fusing import trace_point
from veenv.kernel.ordering import Place, entries
from veenv.kernel.scalar_program import FLOATS, CannotFuseError, Leaf, Op, ScalarProgram, Strided
from veenv.rules.operations import OPERATIONS

if TYPE_CHECKING:
    from veenv.orders.resolve import OrderLike

_TYPES = {"float32": "float", "float64": "double", "bool": "bool"}
_RESERVED = re.compile(
    # Keywords up to C23, and what gcc adds to them.
    "alignas|alignof|asm|auto|bool|break|case|char|const|constexpr|continue|default|do|double|else|"
    "enum|extern|false|float|for|goto|if|inline|int|long|main|nullptr|register|restrict|return|short|"
    "signed|sizeof|static|static_assert|struct|switch|thread_local|true|typedef|typeof|"
    "typeof_unqual|union|unsigned|void|volatile|while|linux|unix|i386|"
    # Types and macros of the headers; identifiers that compilers keep for themselves.
    r"(u?int(_least|_fast)?\d+|u?int(ptr|max)|s?size|ptrdiff|wchar|max_align|nullptr|float|double|"
    r"locale)_t|NULL|NAN|SNAN\w*|INFINITY|HUGE(_VAL\w*)?|MATH_\w+|math_errhandling|FP_\w+|M_\w+|"
    r"(U?INT\w*|PTRDIFF|SIZE|WCHAR|WINT|SIG_ATOMIC)_(MAX|MIN|C|WIDTH)|DOMAIN|SING|OVERFLOW|UNDERFLOW|"
    r"[PT]LOSS|MAXFLOAT|fpclassify|signbit|is(finite|inf|nan|normal|unordered|lessgreater|zero|"
    r"(greater|less)(equal)?|signaling|canonical|subnormal|eqsig)|offsetof|unreachable|alloca|atexit|"
    r"_[A-Z_]\w*"
)


def to_c(
    order: OrderLike,
    fun: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    with_value: bool = False,
    name: str = "jacobian",
) -> str:
    """Writes the Jacobian of `fun` under an elimination order as one C99 file.

    The file defines ``void NAME(…)`` for one point and ``void NAME_batch(size_t count, …)`` for
    `count` points, which lie one after the other in every array. Their parameters are pointers: to
    the arrays of `args`, in the order of `jax.tree.leaves`, then to the results. Arrays are
    row-major. The file needs libm (``-lm``) and nothing else.

    Args:
      order: as for `jacve`.
      fun: the function.
      *args: its arguments, arrays or `jax.ShapeDtypeStruct`s, which give shapes and dtypes.
      argnums: which of them to differentiate by.
      with_value: write fun's value in front of the Jacobian.
      name: name of the function, a C identifier.

    Returns:
      The text of the file.

    Raises:
      CannotFuseError: (a ValueError) naming the primitive that has no form in C.
      ValueError: for a name that is no C identifier, or one that C or its library has taken, such
        as ``"sin"``; for an order that does not fit.

    Examples:
      >>> import jax.numpy as jnp
      >>> source = to_c("reverse", lambda x: x * jnp.sin(x), 1.0)
      >>> "= sinf(v0);" in source
      True
    """
    check_name(name)
    transformed = (value_and_jacve if with_value else jacve)(
        fun, order, argnums, kernel="xla", pin=False
    )
    wanted = normalise_argnums(argnums, len(args))
    traced = trace_point(transformed, args, {}, wanted, abstract=True)
    if traced.lifted:
        raise CannotFuseError(
            "a constant of the function is traced or large; make it an argument of to_c"
        )
    return _file(traced.program(), name)


def check_name(name: str) -> None:
    """Checks that a C function can have a name, which this machine's C library must not define.

    Args:
      name: the name.

    Raises:
      ValueError: if it cannot.

    Examples:
      >>> check_name("slope")
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name must be a C identifier, got {name!r}")
    try:
        defined = hasattr(ctypes.CDLL(None), name)
    except (OSError, TypeError):  # as on Windows
        defined = False
    if defined or _RESERVED.fullmatch(name):
        raise ValueError(f"name must be a free C identifier, got {name!r}, which C reserves")


def _file(program: ScalarProgram, name: str) -> str:
    """Returns the text of the file of a program."""
    statements = _Statements(program, name)
    statements.run(range(len(program.ops)))
    for k, ids in enumerate(program.results):
        statements.output(f"out{k}", ids)
    lines = statements.lines
    named = [(f"in{k}", "const ", leaf) for k, leaf in enumerate(program.inputs)]
    named += [(f"out{k}", "", leaf) for k, leaf in enumerate(program.outputs)]
    leaves = [(x, f"{const}{_type(leaf.dtype)} *restrict", leaf) for x, const, leaf in named]
    there = set(re.findall(r"\b(?:in|out)\d+(?=\[)", "\n".join(lines)))
    lines += [f"(void){x};" for x, _, _ in leaves if x not in there]
    tail = "_" if name in {"count", "i", *(x for x, _, _ in leaves)} else ""
    comment = "\n".join(f"//   {x}: {_shape(leaf)}" for x, _, leaf in leaves)
    steps = ", ".join(f"{x}{tail} + {leaf.size} * i{tail}" for x, _, leaf in leaves)
    single = ", ".join(f"{kind} {x}" for x, kind, _ in leaves)
    batch = "".join(f", {kind} {x}{tail}" for x, kind, _ in leaves)
    body = "\n".join(f"  {line}" for line in lines)
    helpers = "".join(f"\n{text}\n" for text in statements.helpers.values())
    return f"""\
// Generated by veenv: {program.size} operations a point. Arrays are row-major:
{comment}

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
{helpers}
void {name}({single}) {{
{body}
}}

void {name}_batch(size_t count{tail}{batch}) {{
  for (size_t i{tail} = 0; i{tail} < count{tail}; ++i{tail})
    {name}({steps});
}}
"""


@dataclass(frozen=True)
class _Array(Strided):
    """Strided view of an array in C."""

    name: str

    def at(self, index: int | str) -> str:
        if isinstance(index, int):
            return f"{self.name}[{self.place(index)}]"
        index = index if self.stride == 1 else f"{self.stride} * {index}"
        return f"{self.name}[{index}{f' + {self.start}' if self.start else ''}]"


class _Statements(Backend[_Array]):
    """C statements of a program; names in a loop's body begin with the loop's name.

    Names of the functions that convert numbers, the `helpers`, begin with `name`.
    """

    READ = frozenset({"input"})

    def __init__(self, program: ScalarProgram, name: str):
        self.lines: list[str] = []
        self.helpers: dict[str, str] = {}
        self.scope = Scope(program, [_Array(f"in{k}") for k in range(len(program.inputs))], "v")
        self._name = name

    def inside(self, position: int) -> str:
        """Returns the prefix of names in the body of a loop."""
        return f"{self.scope.where}{position}_"

    def named(self, position: int, value: str) -> str:
        """Declares a variable with a value, and returns its name."""
        name = f"{self.scope.where}{position}"
        dtype = self.scope.program.ops[position].dtype
        self.lines.append(f"const {_type(dtype)} {name} = {value};")
        return name

    def const(self, op: Op) -> str:
        """Returns a literal."""
        return _literal(op.attr)

    def memory(self, place: Place) -> _Array:
        """Returns an array named by its operation; declares arrays that are filled later."""
        (position, k), program = place, self.scope.program
        op, source = program.ops[position], position
        name = f"{self.scope.where}{position}"
        if k is not None:
            name, source = f"{name}_c{k}" if op.name == "loop" else name, op.args[k]
        if op.name != "array":
            kind = _type(program.ops[source].dtype)
            self.lines.append(f"{kind} {name}[{entries(program, source)}];")
        return _Array(name)

    def fill(self, position: int, args: Sequence[int]) -> None:
        """Declares an array with its entries, constant where nothing is written to it."""
        scope, array = self.scope, self.stored(position).name
        written = any(scope.program.ops[p].args[k] == position for p, k in scope.in_place)
        kind = f"{'' if written else 'const '}{_type(scope.program.ops[position].dtype)}"
        values = ", ".join(map(self.operand, args))
        self.lines.append(f"{kind} {array}[{len(args)}] = {{{values}}};")

    def load(self, array: _Array, index: str | int) -> str:
        """Returns an entry."""
        return array.at(index)

    def put(self, array: _Array, index: str | int, value: str) -> None:
        """Writes an entry."""
        self.lines.append(f"{array.at(index)} = {value};")

    def copy(self, source: _Array, target: _Array, count: int, mask: None = None) -> None:
        """Writes a loop that copies entries."""
        head = f"for (int32_t k = 0; k < {count}; ++k)"
        self.lines.append(f"{head} {target.at('k')} = {source.at('k')};")

    def output(self, name: str, ids: Sequence[int]) -> None:
        """Fills an output; entries evenly spaced in an array are copied in a loop."""
        of_array: dict[int, list[int]] = {}
        for e, i in enumerate(ids):
            op = self.scope.program.ops[i]
            of_array.setdefault(op.args[0] if op.name == "entry" else -1, []).append(e)
        single, even = set(of_array.pop(-1, ())), []
        for array, places in of_array.items():
            sources = [self.scope.program.ops[ids[e]].attr for e in places]
            steps = {
                (f - e, t - s)
                for e, f, s, t in zip(places, places[1:], sources, sources[1:], strict=False)
            }
            if len(steps) != 1:
                single.update(places)
                continue
            ((step, move),) = steps
            source = self.stored(array).view(sources[0], move)
            even.append((source, _Array(name, start=places[0], stride=step), len(places)))
        for e in sorted(single):
            self.put(_Array(name), e, self.operand(ids[e]))
        for source, target, count in even:
            self.copy(source, target, count)

    def compute(self, op: Op) -> str:
        """Returns an expression."""
        if op.name == "read":
            return self.stored(op.args[0]).at(self.operand(op.args[1]))
        args = [self.operand(a) for a in op.args]
        of = self.scope.program.ops[op.args[0]].dtype
        if op.name in ("convert", "bitcast"):
            return self._cast(op.name, of, op.dtype, args[0])
        known = OPERATIONS[op.attr if op.name == "call" else op.name]
        kind, suffix = _type(of), "f" if of == "float32" else ""
        wraps = "uint64_t" if np.dtype(of).itemsize == 8 else "uint32_t"
        unsigned = f"u{kind.removeprefix('u')}"
        text = known.c if of in FLOATS else known.c_int
        return text.format(*args, f=suffix, T=kind, U=unsigned, W=wraps)

    def _cast(self, kind: str, of: str, to: str, x: str) -> str:
        """Converts `x`, by a helper where C leaves the result undefined or has no operator."""
        if kind == "convert" and not (of in FLOATS and to not in FLOATS):
            return f"({_type(to)}){x}"
        name = f"{self._name}_{kind}_{of}_{to}"
        source, target = _type(of), _type(to)
        if kind == "bitcast":
            body = f"{target} y; memcpy(&y, &x, sizeof y); return y;"
        else:
            info = np.iinfo(to)
            low, high = (_literal(np.dtype(of).type(float(v))) for v in (info.min, info.max))
            least, most = (_literal(np.dtype(to).type(v)) for v in (info.min, info.max))
            body = f"return x != x ? 0 : x <= {low} ? {least} : x >= {high} ? {most} : ({target})x;"
        self.helpers[name] = f"static inline {target} {name}({source} x) {{ {body} }}"
        return f"{name}({x})"

    def repeat(self, loop: InLoop[_Array]) -> list[str]:
        """Writes a loop that carries numbers in variables, and returns their names."""
        name, of = f"{self.scope.where}{loop.position}", loop.loop
        kinds, step = list(map(_type, loop.dtypes)), f"{name}_k"
        carries = [f"{name}_c{k}" for k in loop.numbers]
        rows = [*zip(kinds, carries, loop.starts, strict=True)]
        self.lines += [f"{kind} {carry} = {start};" for kind, carry, start in rows]
        head = f"for (int32_t {step} = 0; {step} < {of.length}; ++{step}) {{"
        if of.length is None:
            head = "for (;;) {"
        elif of.reverse:
            head = f"for (int32_t {step} = {of.length - 1}; {step} >= 0; --{step}) {{"
        self.lines.append(head)
        first = len(self.lines)
        loop.begin(carries, step)
        if of.length is None:
            self.lines.append(f"if (!{self.operand(loop.condition)}) break;")
        rows = [*zip(kinds, carries, loop.finish(), strict=True)]
        self.lines += [f"const {kind} {carry}n = {value};" for kind, carry, value in rows]
        loop.bring()
        self.lines += [f"{carry} = {carry}n;" for carry in carries]
        self.lines[first:] = [*(f"  {line}" for line in self.lines[first:]), "}"]
        return carries


def _type(dtype: str) -> str:
    return _TYPES.get(dtype, f"{dtype}_t")


def _shape(leaf: Leaf) -> str:
    return f"{_type(leaf.dtype)}{''.join(f'[{n}]' for n in leaf.shape) or ' (one number)'}"


def _literal(value: Any) -> str:
    """Returns a NumPy scalar as C; floats in hexadecimal, which is exact."""
    dtype = value.dtype.name
    if dtype == "bool":
        return "true" if value else "false"
    if dtype not in FLOATS:
        if dtype == "int64" and value == np.iinfo(np.int64).min:
            return "INT64_MIN"
        macro = f"{dtype.upper()}_C({int(value)})"
        return macro if value >= 0 else f"({macro})"
    suffix = "f" if dtype == "float32" else ""
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = f"{float(value).hex()}{suffix}"
    return f"({text})" if text.startswith("-") else text
