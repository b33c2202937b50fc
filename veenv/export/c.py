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
from veenv.kernel.fusing import trace_point
from veenv.kernel.ordering import entries, in_place, replacing
from veenv.kernel.program import FLOATS, CannotFuseError, Leaf, Loop, Op, ScalarProgram, Strided
from veenv.rules.operations import OPERATIONS

if TYPE_CHECKING:
    from veenv.orders.resolve import OrderLike

_TYPES = {"float32": "float", "float64": "double", "bool": "bool"}
_TAKEN = re.compile(
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
    return _Writer(traced.program(), name).text()


def check_name(name: str) -> None:
    """Checks that a function of C can have a name; on this machine also that its library has none.

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
        taken = hasattr(ctypes.CDLL(None), name)
    except (OSError, TypeError):  # as on Windows
        taken = False
    if taken or _TAKEN.fullmatch(name):
        raise ValueError(
            f"name must be a free C identifier, got {name!r}, which C itself has taken"
        )


class _Writer:
    def __init__(self, program: ScalarProgram, name: str):
        self.program = program
        self.name = name
        self.helpers: dict[str, str] = {}

    def text(self) -> str:
        whole = [_Array(f"in{k}") for k in range(len(self.program.inputs))]
        part = _Part(self.program, "v", whole, self._cast)
        lines = part.lines(range(len(self.program.ops)))
        for k, ids in enumerate(self.program.results):
            lines += part.writing(f"out{k}", ids)
        inputs, outputs = self.program.inputs, self.program.outputs
        types = [f"const {_type(x.dtype)} *restrict" for x in inputs]
        types += [f"{_type(x.dtype)} *restrict" for x in outputs]
        there = set(re.findall(r"\b(?:in|out)\d+(?=\[)", "\n".join(lines)))
        every = [f"in{k}" for k in range(len(inputs))] + [f"out{k}" for k in range(len(outputs))]
        lines += [f"(void){name};" for name in every if name not in there]
        tail = "_" if self.name in {"count", "i", *every} else ""
        leaves = [*zip(every, types, (*inputs, *outputs), strict=True)]
        shapes = [f"{x}: {_shape(leaf)}" for x, _, leaf in leaves]
        steps = [f"{x}{tail} + {leaf.size} * i{tail}" for x, _, leaf in leaves]
        single = ", ".join(f"{kind} {x}" for x, kind, _ in leaves)
        batch = "".join(f", {kind} {x}{tail}" for x, kind, _ in leaves)
        body = "\n".join(f"  {line}" for line in lines)
        helpers = "".join(f"\n{text}\n" for text in self.helpers.values())
        comment = "\n".join(f"//   {line}" for line in shapes)
        return f"""\
// Generated by veenv: {self.program.size} operations a point. Arrays are row-major:
{comment}

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
{helpers}
void {self.name}({single}) {{
{body}
}}

void {self.name}_batch(size_t count{tail}{batch}) {{
  for (size_t i{tail} = 0; i{tail} < count{tail}; ++i{tail})
    {self.name}({", ".join(steps)});
}}
"""

    def _cast(self, kind: str, of: str, to: str, x: str) -> str:
        if kind == "convert" and not (of in FLOATS and to not in FLOATS):
            return f"({_type(to)}){x}"
        name = f"{self.name}_{kind}_{of}_{to}"
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


@dataclass(frozen=True)
class _Array(Strided):
    """Entries of an array of C."""

    name: str

    def at(self, index: int | str) -> str:
        if isinstance(index, int):
            return f"{self.name}[{self.place(index)}]"
        index = index if self.stride == 1 else f"{self.stride} * {index}"
        return f"{self.name}[{index}{f' + {self.start}' if self.start else ''}]"


def _is_leaf(op: Op) -> bool:
    """Whether an operation is a whole input leaf."""
    return op.name == "input" and op.attr[1] is None


class _Part:
    """The statements of a program, or of the body of a loop, whose variables have a prefix.

    `given` are its inputs, numbers of a body as text; `cast` writes a conversion.
    """

    def __init__(
        self,
        program: ScalarProgram,
        prefix: str,
        given: Sequence[_Array | str],
        cast: Callable[[str, str, str, str], str],
        carries: int = 0,
    ):
        self.program, self.prefix, self.given, self.cast = program, prefix, given, cast
        self.in_place = in_place(program, carries)
        self.parts = [(i, op) for i, op in enumerate(program.ops) if op.name == "part"]

    def lines(self, span: range) -> list[str]:
        """The statements of some operations."""
        found = []
        for i in span:
            op = self.program.ops[i]
            if op.name == "loop":
                found += self._loop(i, op)
            elif op.name == "array":
                values = ", ".join(map(self.operand, op.args))
                found.append(
                    f"{self._const(i)}{_type(op.dtype)} {self._name(i)}[{len(op.args)}] = "
                    f"{{{values}}};"
                )
            elif op.name == "write":
                if (i, 0) not in self.in_place:
                    count, source = entries(self.program, i), self._array(op.args[0])
                    found += _copy(_type(op.dtype), self._name(i), source, count)
                place, value = map(self.operand, op.args[1:])
                found.append(f"{self._array(i).at(place)} = {value};")
            elif op.name not in ("const", "view", "entry", "part") and not _is_leaf(op):
                kind = _type(op.dtype)
                found.append(f"const {kind} {self._name(i)} = {self._expression(op)};")
        return found

    def _const(self, i: int) -> str:
        """What is in front of an array that nothing is written in."""
        written = any(self.program.ops[p].args[k] == i for p, k in self.in_place)
        return "" if written else "const "

    def _carried(self, loop: int, k: int) -> _Array:
        """An array that a loop carries."""
        if (loop, k) in self.in_place:
            return self._array(self.program.ops[loop].args[k])
        return _Array(f"{self._name(loop)}_c{k}")

    def _name(self, i: int) -> str:
        return f"{self.prefix}{i}"

    def operand(self, i: int) -> str:
        """A number."""
        op = self.program.ops[i]
        if op.name == "entry":
            return self._array(op.args[0]).at(op.attr)
        return _literal(op.attr) if op.name == "const" else self._name(i)

    def writing(self, name: str, ids: Sequence[int]) -> list[str]:
        """The statements that fill an output; what lies evenly in an array is copied in a loop."""
        of_array: dict[int, list[int]] = {}
        for e, i in enumerate(ids):
            op = self.program.ops[i]
            of_array.setdefault(op.args[0] if op.name == "entry" else -1, []).append(e)
        single, found = set(of_array.pop(-1, ())), []
        for array, places in of_array.items():
            sources = [self.program.ops[ids[e]].attr for e in places]
            steps = {
                (f - e, t - s)
                for e, f, s, t in zip(places, places[1:], sources, sources[1:], strict=False)
            }
            if len(steps) != 1:
                single.update(places)
                continue
            ((step, move),) = steps
            source = self._array(array).view(sources[0], move).at("k")
            target = _Array(name, start=places[0], stride=step).at("k")
            head = f"for (int32_t k = 0; k < {len(places)}; ++k)"
            found.append(f"{head} {target} = {source};")
        return [*(f"{name}[{e}] = {self.operand(ids[e])};" for e in sorted(single)), *found]

    def _array(self, i: int) -> _Array:
        op = self.program.ops[i]
        if op.name == "view":
            return self._array(op.args[0]).view(*op.attr[:2])
        if op.name == "input":
            given = self.given[op.attr[0]]
            assert isinstance(given, _Array)
            return given
        if op.name == "write" and (i, 0) in self.in_place:
            return self._array(op.args[0])
        if op.name == "part" and op.attr < self.program.ops[op.args[0]].attr.carries:
            return self._carried(op.args[0], op.attr)
        return _Array(self._name(i))

    def _expression(self, op: Op) -> str:
        if op.name == "input":
            given = self.given[op.attr[0]]
            return given if isinstance(given, str) else given.at(op.attr[1])
        if op.name == "read":
            return self._array(op.args[0]).at(self.operand(op.args[1]))
        args = [self.operand(a) for a in op.args]
        of = self.program.ops[op.args[0]].dtype
        if op.name in ("convert", "bitcast"):
            return self.cast(op.name, of, op.dtype, args[0])
        known = OPERATIONS[op.attr if op.name == "call" else op.name]
        kind, suffix = _type(of), "f" if of == "float32" else ""
        wraps = "uint64_t" if np.dtype(of).itemsize == 8 else "uint32_t"
        unsigned = f"u{kind.removeprefix('u')}"
        text = known.c if of in FLOATS else known.c_int
        return text.format(*args, f=suffix, T=kind, U=unsigned, W=wraps)

    def _loop(self, position: int, op: Op) -> list[str]:
        loop: Loop = op.attr
        body, name, first = loop.body, self._name(position), loop.carries + loop.stacked
        carries: list[Any] = [f"{name}_c{k}" for k in range(loop.carries)]
        kinds = [_type(leaf.dtype) for leaf in body.inputs[: loop.carries]]
        found, single = [], [k for k in range(loop.carries) if not body.inputs[k].shape]
        for k, (kind, a) in enumerate(zip(kinds, op.args, strict=False)):
            if k in single:
                found.append(f"{kind} {carries[k]} = {self.operand(a)};")
                continue
            if (position, k) not in self.in_place:
                found += _copy(kind, carries[k], self._array(a), body.inputs[k].size)
            carries[k] = self._carried(position, k)
        parts = {o.attr: i for i, o in self.parts if o.args[0] == position}
        arrays = {k: i for k, i in parts.items() if k >= loop.carries}
        for i in arrays.values():
            found.append(f"{_type(self.program.ops[i].dtype)} {self._name(i)}[{loop.length}];")
        step = f"{name}_k"
        columns = [self._array(a).at(step) for a in op.args[loop.carries : first]]
        same = [
            self._array(a) if leaf.shape else self.operand(a)
            for a, leaf in zip(op.args[first:], body.inputs[first:], strict=True)
        ]
        given = [*carries, *columns, *same]
        inside = _Part(body, f"{name}_", given, self.cast, loop.carries)
        results = [ids[0] for ids in body.results]
        if loop.length is None:
            lines = inside.lines(range(loop.tested))
            lines.append(f"if (!{inside.operand(results[-1])}) break;")
            lines += inside.lines(range(loop.tested, len(body.ops)))
            head = "for (;;) {"
        else:
            lines = inside.lines(range(len(body.ops)))
            head = f"for (int32_t {step} = 0; {step} < {loop.length}; ++{step}) {{"
            if loop.reverse:
                head = f"for (int32_t {step} = {loop.length - 1}; {step} >= 0; --{step}) {{"
        lines += [
            f"{self._name(i)}[{step}] = {inside.operand(results[k])};" for k, i in arrays.items()
        ]
        rows = [(kinds[k], carries[k], f"{carries[k]}n", results[k]) for k in single]
        lines += [f"const {kind} {new} = {inside.operand(i)};" for kind, _, new, i in rows]
        for k in replacing(op):
            if (written := inside._array(results[k])) != carries[k]:
                lines.append(_moved(carries[k], written, body.inputs[k].size))
        lines += [f"{carry} = {new};" for _, carry, new, _ in rows]
        found += [head, *(f"  {line}" for line in lines), "}"]
        for k, i in parts.items():
            if k in single:
                found.append(f"const {kinds[k]} {self._name(i)} = {carries[k]};")
        return found


def _copy(kind: str, name: str, source: _Array, count: int) -> list[str]:
    """A new array with the entries of another."""
    return [f"{kind} {name}[{count}];", _moved(_Array(name), source, count)]


def _moved(target: _Array, source: _Array, count: int) -> str:
    """A loop that copies entries."""
    head = f"for (int32_t k = 0; k < {count}; ++k)"
    return f"{head} {target.at('k')} = {source.at('k')};"


def _type(dtype: str) -> str:
    return _TYPES.get(dtype, f"{dtype}_t")


def _shape(leaf: Leaf) -> str:
    return f"{_type(leaf.dtype)}{''.join(f'[{n}]' for n in leaf.shape) or ' (one number)'}"


def _literal(value: Any) -> str:
    """A NumPy scalar as C; floats in hexadecimal, which is exact."""
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
