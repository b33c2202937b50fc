"""How the axes of an equation go together: along which it does the same at each index.

Most of it is in the record of a primitive (`whole`); what takes code is here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from veenv.rules import walk
from veenv.rules.indexmap import moved, numbered, windows_of
from veenv.rules.table import facts, named

Axes = tuple[int, ...]
_Shapes = Sequence[tuple[int, ...]]


class Tie(NamedTuple):
    """An axis of the results, or one that is gone, and the same axis of the operands.

    Attributes:
      out: the axis of every result; None where entries along it are combined.
      ins: of each operand its axis; None where it has the same for every index.
      combine: what combines them, such as "sum"; empty where they are apart, or where the equation
        combines them with its first operand.
    """

    out: int | None
    ins: tuple[int | None, ...]
    combine: str = ""


@dataclass(frozen=True)
class Product:
    """The axes of both operands of a `dot_general`; each field has a tuple for each operand."""

    batch: tuple[Axes, Axes]  # those of separate products, which the result has first
    own: tuple[Axes, Axes]  # those that the result has after them, the left operand's first
    summed: tuple[Axes, Axes]  # those along which products are added up

    @classmethod
    def of(cls, equation: Any) -> Product:
        """Those of an equation.

        Examples:
          >>> import jax, jax.numpy as jnp
          >>> (dot,) = jax.make_jaxpr(jnp.dot)(jnp.ones((2, 3)), jnp.ones((3, 4))).eqns
          >>> Product.of(dot)
          Product(batch=((), ()), own=((0,), (1,)), summed=((1,), (0,)))
        """
        numbers = equation.params["dimension_numbers"]
        return cls.named(numbers, [len(a.shape) for a in walk.in_avals(equation)])

    @classmethod
    def named(cls, numbers: Any, ranks: Sequence[int]) -> Product:
        """Those that `dimension_numbers` say, of operands of so many axes."""
        (left, right), (batch_left, batch_right) = numbers
        rows = zip(ranks, (left, right), (batch_left, batch_right), strict=True)
        own = [tuple(j for j in range(n) if j not in (*gone, *kept)) for n, gone, kept in rows]
        return cls(
            (tuple(batch_left), tuple(batch_right)),
            (own[0], own[1]),
            (tuple(left), tuple(right)),
        )

    def grouped(self, x: Any, operand: int) -> Any:
        """An operand as [batch, own, summed]."""
        groups = self.batch[operand], self.own[operand], self.summed[operand]
        sizes = [prod(x.shape[j] for j in axes) for axes in groups]
        return x.transpose([j for axes in groups for j in axes]).reshape(sizes)

    def terms(self, equation: Any) -> int:
        """How many products each entry of the result adds up."""
        return prod(walk.in_avals(equation)[0].shape[j] for j in self.summed[0])

    def pairs(self, operand: int) -> list[tuple[int, int]]:
        """(axis of the result, axis of an operand) of the axes that both have."""
        count = len(self.batch[0])
        first = count + (len(self.own[0]) if operand else 0)
        return [*enumerate(self.batch[operand]), *enumerate(self.own[operand], first)]

    def ties(self) -> list[Tie]:
        """As of any equation."""
        left, right = (dict(self.pairs(operand)) for operand in (0, 1))
        found = [Tie(k, (left.get(k), right.get(k))) for k in sorted({*left, *right})]
        return [*found, *(Tie(None, pair, "sum") for pair in zip(*self.summed, strict=True))]


def ties_of(equation: Any, *, indexed: bool = True) -> list[Tie]:
    """The axes of an equation; none of one that is not known to have any.

    `indexed`: those that indices have, too.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> (sums,) = jax.make_jaxpr(lambda x: x.sum(axis=0))(jnp.ones((2, 3))).eqns
      >>> [tuple(tie) for tie in ties_of(sums)]
      [(0, (1,), ''), (None, (0,), 'sum')]
    """
    known = facts(equation.primitive.name)
    shapes = [tuple(a.shape) for a in walk.in_avals(equation)]
    out = tuple(walk.out_avals(equation)[0].shape)
    if known.whole is not None:
        return _apart(equation, known.whole, shapes, out)
    rule = _BY_NAME.get(known.name) or _BY_FORM.get(known.form)
    found = [] if rule is None else rule(equation, shapes, out)
    return found if indexed or rule is not _windows else [t for t in found if t.ins[1] is None]


def indexed_ties(equation: Any) -> list[Tie]:
    """Axes of the indices of a gather, or of a scatter that combines, which the array has not.

    A scatter has none of them in its result: along them it adds to its first operand.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> take = jax.make_jaxpr(lambda x, i: x[i])(jnp.ones(5), jnp.zeros(3, int))
      >>> [tuple(tie) for tie in indexed_ties(take.eqns[-1])]
      [(0, (None, 0), '')]
    """
    known = facts(equation.primitive.name)
    gathers = known.form == "take"
    if _BY_NAME.get(known.name) is not _windows or not (gathers or known.combine):
        return []
    windows, avals = windows_of(equation), walk.in_avals(equation)
    rank = len((walk.out_avals(equation)[0] if gathers else avals[2]).shape)
    taken = {i for _, i in windows.shared}
    own = enumerate(k for k in range(rank) if k not in windows.own)
    pairs = [(k, i) for i, k in own if i not in taken]
    return [Tie(k, (None, i)) if gathers else Tie(None, (None, i, k)) for k, i in pairs]


def has_ties(name: str) -> bool:
    """Whether the axes of a primitive follow from its record or its parameters alone."""
    known = facts(name)
    return known.whole is not None or name in _BY_NAME or known.form == "window"


def _apart(equation: Any, whole: str | int, shapes: _Shapes, out: tuple[int, ...]) -> list[Tie]:
    """All axes but those that are worked on as a whole, which a reduction has lost."""
    shape, name = max(shapes, key=len, default=out), equation.primitive.name
    if isinstance(whole, int):
        rank = len(shapes[0]) - whole
        apart, gone = range(rank), range(rank, rank)
    else:
        named = np.atleast_1d(np.array(equation.params.get(whole, -1) if whole else (), int))
        gone = [int(j) % len(shape) for j in named]
        rank = len(shape) if gone else min(len(shape), len(out))
        apart = [j for j in range(rank) if j not in gone]
    lost = len(out) == len(apart)
    found = [
        Tie(k if lost else j, tuple(j if s else None for s in shapes)) for k, j in enumerate(apart)
    ]
    sums = lost and facts(name).form == "reduce" and len(shapes) == 1
    return [*found, *(Tie(None, (j,), name.removeprefix("reduce_")) for j in gone if sums)]


def _windows(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> list[Tie]:
    """Of gathers and scatters: batch axes, and axes that are taken or written whole."""
    gathers = facts(equation.primitive.name).form == "take"
    alike = windows_of(equation).alike(shapes[0], len(out if gathers else shapes[2]))
    return [Tie(k, (j, i)) if gathers else Tie(j, (j, i, k)) for k, j, i in alike]


def _reach(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> list[Tie]:
    """Axes that windows do not reach along."""
    p = equation.params
    kinds = "window_dimensions", "window_strides", "base_dilation", "window_dilation"
    ones = (1,) * len(p["padding"])
    every = zip(*(p.get(kind, ones) for kind in kinds), p["padding"], strict=True)
    alone = [(*sizes, tuple(pad)) == (1, 1, 1, 1, (0, 0)) for *sizes, pad in every]
    return [Tie(k, tuple(k if s else None for s in shapes)) for k, one in enumerate(alone) if one]


def _convolution(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> list[Tie]:
    """Points of the batch, which the image has; output features, which the kernel has."""
    numbers = equation.params["dimension_numbers"]
    features = Tie(numbers.out_spec[1], (None, numbers.rhs_spec[0]))
    grouped = equation.params["batch_group_count"] != 1
    batch = Tie(numbers.out_spec[0], (numbers.lhs_spec[0], None))
    return [features] if grouped else [batch, features]


def _solve(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> list[Tie]:
    """Matrices of a batch, and the right sides of one, which come last."""
    batch = range(len(shapes[-1]) - 2)
    left = equation.params.get("left_side", True)
    several = len(batch) + 1 if left else len(batch)
    right = Tie(several, (*(None for _ in shapes[1:]), several))
    return [*(Tie(k, (k,) * len(shapes)) for k in batch), right]


def _of_solver(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> list[Tie]:
    """Of a linear solve by functions: axes that all arrays have in front."""
    every = [*shapes, *(a.shape for a in walk.out_avals(equation))]
    batch = range(min(map(len, every)) - 1)
    alike = (k for k in batch if len({shape[k] for shape in every}) == 1)
    return [Tie(k, (k,) * len(shapes)) for k in alike]


def _class(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> list[Tie]:
    """Of primitives that newer versions of JAX tell apart by a class alone."""
    own = type(equation.params["_prim"])
    known = own.__name__ == "Ldexp" and own.__module__.startswith("jax.")
    return _apart(equation, "", shapes, out) if known else []


def _moves(equation: Any, shapes: _Shapes, out: tuple[int, ...]) -> list[Tie]:
    """Of what moves entries as shapes say: where each comes from tells."""
    starts = np.cumsum([0, *map(prod, shapes)])
    numbers = [numbered(s, int(k)) for s, k in zip(shapes, starts[:-1], strict=True)]
    results = moved(equation.primitive.name, equation.params, numbers, out)
    if not results or not results[0].size:
        return []
    found = []
    for k in range(results[0].ndim):
        if any(r.ndim <= k or r.shape[k] != results[0].shape[k] for r in results):
            continue
        ins: list[int | None] = []
        for operand, shape in enumerate(shapes):
            partner = {_partner(r, k, shape, int(starts[operand])) for r in results}
            ins.append(partner.pop() if len(partner) == 1 else -1)
        if -1 not in ins:
            found.append(Tie(k, tuple(ins)))
    return found


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


_BY_NAME: dict[str, Callable[[Any, _Shapes, tuple[int, ...]], list[Tie]]] = {
    **dict.fromkeys(named(form="put") - {"dynamic_update_slice"}, _windows),
    "call_hi_primitive": _class,
    "conv_general_dilated": _convolution,
    "dot_general": lambda equation, *_: Product.of(equation).ties(),
    "fft": lambda equation, shapes, out: _apart(
        equation, len(equation.params["fft_lengths"]), shapes, out
    ),
    "gather": _windows,
    "triangular_solve": _solve,
    "tridiagonal_solve": _solve,
}
_BY_FORM = {"move": _moves, "solve": _of_solver, "window": _reach}
