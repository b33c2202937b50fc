"""Pictures: a graph, an order as colours, a state of an episode, an episode as an animation."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from veenv.env.env import VertexEnv
from veenv.env.factory import task_graph
from veenv.env.render import DPI, changes, paint
from veenv.env.state import State
from veenv.graph.graph import CostModel, Graph
from veenv.graph.layout import Positions, positions
from veenv.graph.playback import PlayedElimination, play
from veenv.orders.documents import write_bytes
from veenv.orders.order import Order
from veenv.orders.resolve import resolve_order

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawable: TypeAlias = "Graph | Order | State | Sequence[int] | str"

HEIGHT = 5.4


def draw(what: Drawable, of: Graph | VertexEnv | None = None) -> Figure:
    """Draws a graph by depth, from inputs on the left to outputs on the right.

    Args:
      what: a graph, or the name of a task; an order, whose time is the colour; or the state of an
        episode, with the edges that are left, the last elimination's in colour.
      of: the graph of an order, by default that of the task it names; the environment of a state.

    Returns:
      A figure of Matplotlib, which shows itself in a notebook; ``figure.savefig("graph.svg")``.

    Raises:
      TypeError: `what` is none of these, or `of` is missing.
      ValueError: an order is for another graph.
      ImportError: Matplotlib is not installed (``pip install 'veenv[plots]'``).

    Examples:
      >>> import veenv
      >>> figure = veenv.draw(veenv.best_order("HumanHeartDipole"))
      >>> [int(n) for n in figure.get_size_inches() * figure.dpi]
      [960, 540]
    """
    graph, steps, done, ids = _read(what, of)
    return _painted(graph, positions(graph), steps, done, ids)


def animate(
    path: str | os.PathLike[str],
    order: Order | Sequence[int] | str,
    of: Graph | None = None,
    *,
    cost: CostModel = "multiplications",
    seconds: float = 12.0,
    dpi: int = DPI,
) -> int:
    """Writes a GIF of an episode: a picture before the first elimination and one after each.

    Args:
      path: the file.
      order: the order; or the name of a task, for the best one known.
      of: its graph, as for `draw`.
      cost: the cost model of the price in the title.
      seconds: length of the animation, without the pause of two seconds at its end.
      dpi: dots per inch; a picture is 9.6 by 5.4 inches.

    Returns:
      The number of pictures.

    Raises:
      TypeError: the first argument is no path, the second no order, or `of` is missing.
      ValueError: the order is for another graph, or `seconds` is not positive.
      ImportError: Matplotlib is not installed (``pip install 'veenv[plots]'``).
      OSError: the file cannot be written.

    Examples:
      >>> import tempfile, veenv
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     veenv.animate(f"{folder}/episode.gif", veenv.best_order("Robertson"))
      7
    """
    from PIL import Image  # comes with Matplotlib

    if not isinstance(path, str | os.PathLike):
        got = type(path).__name__
        raise TypeError(f"animate(path, order, of): expected the file first, got {got}")
    if isinstance(order, str) and of is None:
        order, of = "best", task_graph(order)
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, got {seconds}")
    graph, steps, _, ids = _read(order, of, cost)
    where, frames = positions(graph), []
    for done in range(len(ids) + 1):
        picture = io.BytesIO()
        _painted(graph, where, steps, done, ids).savefig(picture, format="png", dpi=dpi)
        frames.append(Image.open(picture).convert("RGB"))
    palette = frames[len(frames) // 2].quantize(32)  # shared: unchanged pixels take no space
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    pauses = [max(20, int(1000 * seconds / len(frames)))] * (len(frames) - 1) + [2000]
    content = io.BytesIO()
    frames[0].save(content, "gif", save_all=True, append_images=frames[1:], duration=pauses, loop=0)
    write_bytes(path, content.getvalue())
    return len(frames)


def _read(
    what: Drawable, of: Graph | VertexEnv | None, cost: CostModel = "multiplications"
) -> tuple[Graph, tuple[PlayedElimination, ...], int, tuple[int, ...]]:
    """Returns graph, eliminations, number of them done, and order (empty for a graph)."""
    if isinstance(what, Graph) or (isinstance(what, str) and of is None):
        return task_graph(what), (), 0, ()
    if isinstance(what, State):
        if not isinstance(of, VertexEnv):
            raise TypeError("a state needs its environment: draw(state, env)")
        done = of.order(what)
        graph = of.graph
        rest = [v for v in graph.reverse() if v not in done]
        return graph, play(graph, (*done, *rest), of.cost), len(done), done
    graph = of.graph if isinstance(of, VertexEnv) else of
    if not isinstance(what, Order | Sequence):
        got = type(what).__name__
        raise TypeError(f"expected a graph, a task's name, an order or a state, got {got}")
    if graph is None:
        if not isinstance(what, Order):
            raise TypeError("vertex ids need their graph: pass it after them")
        try:
            graph = task_graph(what.name)
        except ValueError as error:
            raise ValueError(
                f"the order is for {what.name!r}, which is no task: pass its graph after it"
            ) from error
    ids = resolve_order(what, graph)
    return graph, play(graph, ids, cost), 0, ids


def _painted(
    graph: Graph,
    where: Positions,
    steps: Sequence[PlayedElimination],
    done: int,
    ids: Sequence[int],
) -> Figure:
    """Draws the graph after the first `done` eliminations."""
    title = f"{len(graph.eliminable)} vertices to eliminate, {len(graph.edges)} edges"
    if done:
        paid = sum(step.cost for step in steps[:done])
        title = f"{done} of {len(graph.eliminable)} vertices eliminated, price {paid:,}"
    elif ids:
        title = f"An order that costs {sum(step.cost for step in steps):,}; dark goes first"
    return paint(graph, where, changes(graph, steps[:done]), done, ids, title, HEIGHT)
