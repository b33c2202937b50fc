"""Products of structures without links: an einsum with Kronecker deltas, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from veenv.structure.structure import FREE, Link, Structure

Label = tuple[str, int]
"""An axis of an edge's values: ("out", k), ("in", j) or ("link", 0)."""


def labels_of(s: Structure) -> list[Label]:
    """Labels of the axes of a structure's values, in storage order."""
    labels: list[Label] = [("out", k) for k, v in enumerate(s.out_values) if v]
    if s.link_values:
        labels.append(("link", 0))
    return labels + [("in", j) for j, v in enumerate(s.in_values) if v]


def sizes_of(s: Structure) -> dict[Label, int]:
    """Size of every label of a structure."""
    sizes: dict[Label, int] = {("out", k): n for k, n in enumerate(s.out_shape)}
    sizes.update({("in", j): n for j, n in enumerate(s.in_shape)})
    if s.link is not Link.NONE:
        sizes[("link", 0)] = s.link_size
    return sizes


@dataclass(frozen=True, slots=True)
class Contraction:
    """How the values of two structures without links are multiplied.

    Attributes:
      post: the left factor.
      pre: the right factor.
      structure: the product.
      scale: product of the sizes of the middle axes that both factors are constant along: a factor
        of every entry.
      multiplications: scalar multiplications it takes.
      additions: scalar additions it takes.
    """

    post: Structure
    pre: Structure
    structure: Structure
    scale: int
    multiplications: int
    additions: int

    def labels(self) -> tuple[list[Label], list[Label], list[Label]]:
        """One label for each axis of the values of post, of pre and of the product.

        Axes that a δ joins have one label; labels that the product has not are summed.
        """
        s, p, result = self.post, self.pre, self.structure
        outs: list[Label] = [("out", k) for k in range(len(s.out_shape))]
        ins: list[Label] = [("in", j) for j in range(len(p.in_shape))]
        for k, j in enumerate(result.pairs):
            if j != FREE:
                ins[j] = outs[k]
        middle: list[Label] = [("mid", m) for m in range(len(s.in_shape))]
        for k, m in enumerate(s.pairs):
            if m != FREE:
                middle[m] = outs[k]
        for m, j in enumerate(p.pairs):
            if j != FREE and middle[m][0] == "mid":
                middle[m] = ins[j]
        return (
            [outs[i] if side == "out" else middle[i] for side, i in labels_of(s)],
            [middle[i] if side == "out" else ins[i] for side, i in labels_of(p)],
            [ins[i] if side == "in" else (side, i) for side, i in labels_of(result)],
        )


def contract(post: Structure, pre: Structure) -> Contraction:
    """The product of two structures without links."""
    pairs, outs = [], []
    ins = [v and j not in pre.pairs for j, v in enumerate(pre.in_values)]
    for k, m in enumerate(post.pairs):
        value = post.out_values[k]
        if m == FREE:
            pairs.append(FREE)
        else:
            pairs.append(pre.pairs[m])
            value |= pre.out_values[m]
        outs.append(value)
    summed, scale = 1, 1
    diagonal_post = set(post.pairs)
    for m, n in enumerate(post.in_shape):
        if m in diagonal_post:
            continue
        if pre.pairs[m] != FREE:
            ins[pre.pairs[m]] = pre.out_values[m] or post.in_values[m]
        elif post.in_values[m] and pre.out_values[m]:
            summed *= n
        elif not post.in_values[m] and not pre.out_values[m]:
            scale *= n
    result = Structure(
        post.out_shape,
        pre.in_shape,
        tuple(pairs),
        tuple(outs),
        tuple(ins),
        post.unit and pre.unit and scale == 1,
    )
    count = 0
    if not (post.unit or pre.unit):
        count = result.num_values * summed + (post.num_values if scale != 1 else 0)
    elif scale != 1 and not (post.unit and pre.unit):
        count = result.num_values
    additions = _additions(post, pre, result, summed)
    return Contraction(post, pre, result, scale, count, additions)


def _additions(post: Structure, pre: Structure, result: Structure, summed: int) -> int:
    """Additions of a contraction: axes valued in one factor are summed there, the rest jointly."""
    total = 0
    middle = [m for m, j in enumerate(pre.pairs) if j == FREE and m not in post.pairs]
    valued = post.in_values, pre.out_values
    for factor, own, other in ((post, *valued), (pre, *valued[::-1])):
        if not factor.unit:
            alone = prod(post.in_shape[m] for m in middle if own[m] and not other[m])
            total += factor.num_values - factor.num_values // max(alone, 1)
    if not (post.unit or pre.unit):
        total += result.num_values * (summed - 1) if summed else 0
    return total
