"""Axis mappings: the axes of an equation along which it does the same at each index.

From an equation to `AxisMapping`s. Most primitives say it in their record (`whole`); the others
have a function here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from veenv.rules import walk
from veenv.rules.indexmap import move_elements, numbered, windows_of
from veenv.rules.table import facts, named

Axes = tuple[int, ...]
_Shapes = Sequence[tuple[int, ...]]


class AxisMapping(NamedTuple):
    """One axis of the results, or one that is reduced, and the axis of each operand it comes from.

    Attributes:
      out: the axis of every result; None where entries along it are combined.
      ins: of each operand its axis; None where it has the same for every index.
      combine: what combines them, such as "sum"; empty where they are apart, or where the equation
        combines them with its first operand.
    """

    out: int | None
    ins: tuple[int | None, ...]
    combine: str = ""


_Mappings = list[AxisMapping]


@dataclass(frozen=True)
class Product:
    """The axes of both operands of a `dot_general`; each field has a tuple for each operand."""

    batch: tuple[Axes, Axes]  # those of separate products, which the result has first
    free: tuple[Axes, Axes]  # those that the result has after them, the left operand's first
    summed: tuple[Axes, Axes]  # those along which products are added up

    @classmethod
    def of(cls, equation: Any) -> Product:
        """Returns the axes of an equation.

        Examples:
          >>> import jax, jax.numpy as jnp
          >>> (dot,) = jax.make_jaxpr(jnp.dot)(jnp.ones((2, 3)), jnp.ones((3, 4))).eqns
          >>> Product.of(dot)
          Product(batch=((), ()), free=((0,), (1,)), summed=((1,), (0,)))
        """
        numbers = equation.params["dimension_numbers"]
        return cls.named(numbers, [len(a.shape) for a in walk.in_avals(equation)])

    @classmethod
    def named(cls, numbers: Any, ranks: Sequence[int]) -> Product:
        """Returns the axes that `dimension_numbers` say, of operands of so many axes."""
        (left, right), (batch_left, batch_right) = numbers
        rows = zip(ranks, (left, right), (batch_left, batch_right), strict=True)
        free = [tuple(j for j in range(n) if j not in (*s, *b)) for n, s, b in rows]
        return cls(
            (tuple(batch_left), tuple(batch_right)),
            (free[0], free[1]),
            (tuple(left), tuple(right)),
        )

    def grouped(self, x: Any, operand: int) -> Any:
        """An operand as [batch, free, summed]."""
        groups = self.batch[operand], self.free[operand], self.summed[operand]
        sizes = [prod(x.shape[j] for j in axes) for axes in groups]
        return x.transpose([j for axes in groups for j in axes]).reshape(sizes)

    def terms(self, equation: Any) -> int:
        """The number of products that each entry of the result adds up."""
        return prod(walk.in_avals(equation)[0].shape[j] for j in self.summed[0])

    def pairs(self, operand: int) -> list[tuple[int, int]]:
        """(axis of the result, axis of an operand) of the axes that both have."""
        count = len(self.batch[0])
        first = count + (len(self.free[0]) if operand else 0)
        return [*enumerate(self.batch[operand]), *enumerate(self.free[operand], first)]

    def axis_mappings(self) -> list[AxisMapping]:
        """The axis mappings, as `axis_mappings` returns them of any equation."""
        left, right = (dict(self.pairs(operand)) for operand in (0, 1))
        kept_axes = [AxisMapping(k, (left.get(k), right.get(k))) for k in sorted({*left, *right})]
        return kept_axes + [AxisMapping(None, j, "sum") for j in zip(*self.summed, strict=True)]


def axis_mappings(equation: Any, *, indexed: bool = True) -> list[AxisMapping]:
    """Returns the axis mappings of an equation; none of one that is not known to have any.

    `indexed`: also those along which indices vary.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> (sums,) = jax.make_jaxpr(lambda x: x.sum(axis=0))(jnp.ones((2, 3))).eqns
      >>> [tuple(mapping) for mapping in axis_mappings(sums)]
      [(0, (1,), ''), (None, (0,), 'sum')]
    """
    known = facts(equation.primitive.name)
    shapes = [tuple(a.shape) for a in walk.in_avals(equation)]
    out = tuple(walk.out_avals(equation)[0].shape)
    if known.whole is not None:
        return _apart(equation, known.whole, shapes, out)
    rule = _BY_NAME.get(known.name) or _BY_FORM.get(known.form)
    mappings = [] if rule is None else rule(equation, shapes, out)
    return [m for m in mappings if indexed or rule is not _windows or m.ins[1] is None]


def index_axis_mappings(equation: Any) -> list[AxisMapping]:
    """Axes of the indices of a gather, or of a scatter that combines, which the array has not.

    A scatter has none of them in its result: along them it adds to its first operand.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> take = jax.make_jaxpr(lambda x, i: x[i])(jnp.ones(5), jnp.zeros(3, int))
      >>> [tuple(mapping) for mapping in index_axis_mappings(take.eqns[-1])]
      [(0, (None, 0), '')]
    """
    known = facts(equation.primitive.name)
    gathers = known.form == "take"
    if _BY_NAME.get(known.name) is not _windows or not (gathers or known.combine):
        return []
    windows, avals = windows_of(equation), walk.in_avals(equation)
    rank = len((walk.out_avals(equation)[0] if gathers else avals[2]).shape)
    shared_index_axes = {i for _, i in windows.shared}
    index_axes = enumerate(k for k in range(rank) if k not in windows.window_axes)
    alone = [(k, i) for i, k in index_axes if i not in shared_index_axes]
    return [AxisMapping(*((k, (None, i)) if gathers else (None, (None, i, k)))) for k, i in alone]


def has_axis_mappings(name: str) -> bool:
    """Returns whether a primitive's axis mappings follow from its record or parameters alone."""
    known = facts(name)
    return (
        known.whole is not None
        or name in _BY_NAME
        or known.form in ("convolution", "dot", "window")
    )


def _apart(equation: Any, whole: str | int, shapes: _Shapes, out: tuple[int, ...]) -> _Mappings:
    """Maps all axes but those that are worked on as a whole, which a reduction has lost."""
    shape, name = max(shapes, key=len, default=out), equation.primitive.name
    if isinstance(whole, int):
        rank = len(shapes[0]) - whole
        apart, lost_axes = range(rank), range(rank, rank)
    else:
        named = np.atleast_1d(np.array(equation.params.get(whole, -1) if whole else (), int))
        lost_axes = [int(j) % len(shape) for j in named]
        rank = len(shape) if lost_axes else min(len(shape), len(out))
        apart = [j for j in range(rank) if j not in lost_axes]
    lost = len(out) == len(apart)
    mappings = [
        AxisMapping(k if lost else j, tuple(j if s else None for s in shapes))
        for k, j in enumerate(apart)
    ]
    sums = lost and facts(name).form == "reduce" and len(shapes) == 1
    kind = name.removeprefix("reduce_")
    return mappings + [AxisMapping(None, (j,), kind) for j in lost_axes if sums]


def _windows(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> _Mappings:
    """Maps batch axes of gathers and scatters, and axes that are read or written whole."""
    gathers = facts(equation.primitive.name).form == "take"
    alike = windows_of(equation).alike(shapes[0], len(out if gathers else shapes[2]))
    return [AxisMapping(k, (j, i)) if gathers else AxisMapping(j, (j, i, k)) for k, j, i in alike]


def _reach(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> _Mappings:
    """Maps axes that windows do not reach along."""
    p = equation.params
    kinds = "window_dimensions", "window_strides", "base_dilation", "window_dilation"
    ones = (1,) * len(p["padding"])
    every = zip(*(p.get(kind, ones) for kind in kinds), p["padding"], strict=True)
    alone = [(*sizes, tuple(pad)) == (1, 1, 1, 1, (0, 0)) for *sizes, pad in every]
    axes = [k for k, one in enumerate(alone) if one]
    return [AxisMapping(k, tuple(k if s else None for s in shapes)) for k in axes]


def _convolution(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> _Mappings:
    """Maps the axis of the batch, of the image, and that of output features, of the kernel."""
    numbers = equation.params["dimension_numbers"]
    features = AxisMapping(numbers.out_spec[1], (None, numbers.rhs_spec[0]))
    grouped = equation.params["batch_group_count"] != 1
    batch = AxisMapping(numbers.out_spec[0], (numbers.lhs_spec[0], None))
    return [features] if grouped else [batch, features]


def _solve(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> _Mappings:
    """Maps the axes of a batch of matrices, and that of right sides, which comes last."""
    batch = range(len(shapes[-1]) - 2)
    left = equation.params.get("left_side", True)
    several = len(batch) + 1 if left else len(batch)
    right = AxisMapping(several, (*(None for _ in shapes[1:]), several))
    return [*(AxisMapping(k, (k,) * len(shapes)) for k in batch), right]


def _of_solver(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> _Mappings:
    """Maps the leading axes that all arrays of a linear solve by functions share."""
    every = [*shapes, *(a.shape for a in walk.out_avals(equation))]
    batch = range(min(map(len, every)) - 1)
    alike = (k for k in batch if len({shape[k] for shape in every}) == 1)
    return [AxisMapping(k, (k,) * len(shapes)) for k in alike]


def _class(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> _Mappings:
    """Maps axes of primitives that newer versions of JAX tell apart by a class alone."""
    cls = type(equation.params["_prim"])
    known = cls.__name__ == "Ldexp" and cls.__module__.startswith("jax.")
    return _apart(equation, "", shapes, out) if known else []


def _moves(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> _Mappings:
    """Maps axes of primitives that move entries as shapes say, by where each entry comes from."""
    starts = np.cumsum([0, *map(prod, shapes)])
    numbers = [numbered(s, int(k)) for s, k in zip(shapes, starts[:-1], strict=True)]
    results = move_elements(equation.primitive.name, equation.params, numbers, out)
    if not results or not results[0].size:
        return []
    mappings = []
    for k in range(results[0].ndim):
        if any(r.ndim <= k or r.shape[k] != results[0].shape[k] for r in results):
            continue
        ins: list[int | None] = []
        for operand, shape in enumerate(shapes):
            partner = {_partner(r, k, shape, int(starts[operand])) for r in results}
            ins.append(partner.pop() if len(partner) == 1 else -1)
        if -1 not in ins:
            mappings.append(AxisMapping(k, tuple(ins)))
    return mappings


def _partner(places: np.ndarray, k: int, shape: tuple[int, ...], start: int) -> int | None:
    """The axis of an operand that goes with axis k of a result; None for none, -1 for no single."""
    from_here = (places >= start) & (places < start + int(np.prod(shape)))
    if (from_here != from_here.take([0], k)).any():
        return -1
    if (places == places.take([0], k))[from_here].all():
        return None
    index = np.broadcast_to(
        np.arange(places.shape[k]).reshape((-1,) + (1,) * (places.ndim - 1 - k)), places.shape
    )[from_here]
    coordinates = np.unravel_index(places[from_here] - start, shape)
    for j, along in enumerate(coordinates):
        if shape[j] == places.shape[k] and (along == index).all():
            return j
    return -1


_BY_NAME: dict[str, Callable[[Any, _Shapes, tuple[int, ...]], _Mappings]] = {
    **dict.fromkeys(named(form="put") - {"dynamic_update_slice"}, _windows),
    "call_hi_primitive": _class,
    "fft": lambda equation, shapes, out: _apart(
        equation, len(equation.params["fft_lengths"]), shapes, out
    ),
    "gather": _windows,
    "triangular_solve": _solve,
    "tridiagonal_solve": _solve,
}
_BY_FORM: dict[str, Callable[[Any, _Shapes, tuple[int, ...]], _Mappings]] = {
    "convolution": _convolution,
    "dot": lambda equation, *_: Product.of(equation).axis_mappings(),
    "move": _moves, "solve": _of_solver, "window": _reach,
}  # fmt: skip
