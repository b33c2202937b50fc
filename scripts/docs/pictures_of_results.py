"""Pictures of the documentation that are made from committed results and shipped orders."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

import veenv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
OURS, OTHER, THIRD, INK = "#d9730d", "#8a97a6", "#3f7fbf", "#808890"
"""Colours that are read on white and on black."""
JACOBIANS = {  # of docs/kernel.json
    "RobotArm_6DOF": "Jacobian, robot arm",
    "RoeFlux_3d": "Jacobian, 3-D Roe flux",
    "DoublePendulum_RK4": "Jacobian, double pendulum",
    "PropaneCombustion": "Jacobian, combustion",
}
FUSED = {  # of docs/results/fuse.json
    "implicit Euler, kinetics": "step, implicit Euler",
    "extended Kalman filter": "step, Kalman filter",
    "Levenberg-Marquardt": "step, a fit",
    "Monte Carlo price": "step, Monte Carlo Greeks",
}
PUBLISHED = {
    "RoeFlux_1d": "Roe\nflux",
    "RobotArm_6DOF": "robot\narm",
    "HumanHeartDipole": "heart\ndipole",
    "PropaneCombustion": "com-\nbustion",
    "Encoder": "encoder",
}
"""Tasks of the published work; its count of the last one is by other formulas and left out."""


def canvas(width: float, height: float) -> Figure:
    """An empty figure, transparent, with axes in a colour that any background shows."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams.update(
        {
            **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
            "axes.edgecolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.hashsalt": "veenv",
            "font.size": 9,
        }
    )
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    return figure


def axes_of(figure: Figure, rows: int = 1, columns: int = 1) -> list[Axes]:
    """The panels of a figure, transparent."""
    panels = np.ravel(figure.subplots(rows, columns))
    for panel in panels:
        panel.patch.set_alpha(0)
    return list(panels)


def save(figure: Figure, path: Path) -> None:
    """Writes an SVG that is the same whenever it is made."""
    figure.savefig(path, metadata={"Date": None})
    print(path)


def time_ratios() -> dict[str, float]:
    """Time over that of the faster JAX mode: Jacobians at 65,536 points, steps at 4,096."""
    speed = json.loads((ROOT / "docs/kernel.json").read_text("utf-8"))["speed"]
    ratios = {
        JACOBIANS[row["function"]]: float(row["ratio"])
        for row in speed
        if row["function"] in JACOBIANS
        and (row["batch"], row["method"]) == (65536, "kernel, best-operations")
    }
    table = json.loads((ROOT / "docs/results/fuse.json").read_text("utf-8"))["tables"][0]
    rows = (dict(zip(table["columns"], row, strict=True)) for row in table["rows"])
    return ratios | {
        FUSED[row["step"]]: float(row["ratio"].strip("*"))
        for row in rows
        if row["step"] in FUSED and row["batch"] == "4,096"
    }


def counts() -> dict[str, tuple[int, int | None, int]]:
    """Multiplications of reverse mode, the best published order and the best one here, by task."""
    table = json.loads((ROOT / "docs/results/ppo.json").read_text("utf-8"))["tables"][0]
    goals = {row[0]: int(row[1].replace(",", "")) for row in table["rows"]}
    found = {}
    for name in PUBLISHED:
        graph = veenv.make(name).graph
        best = veenv.best_order(name).counts["multiplications"]
        published = None if name == "Encoder" else goals[name]
        found[name] = (graph.cost(graph.reverse()), published, best)
    return found


def gains(path: Path) -> None:
    """What is gained: time against the faster JAX mode, and multiplications by task."""
    figure = canvas(9.5, 3.4)
    left, right = axes_of(figure, 1, 2)
    ratios = time_ratios()
    left.barh(list(ratios), list(ratios.values()), color=OURS)
    left.invert_yaxis()
    left.set_xscale("log")
    left.set_xlim(0.004, 2.2)
    left.axvline(1, color=INK, lw=1)
    for place, ratio in enumerate(ratios.values()):
        inside = ratio > 0.5  # beside the bar it would cross the line
        where, side, ink = (0.93, "right", "white") if inside else (1.06, "left", INK)
        left.text(ratio * where, place, f"{ratio:.2g}", va="center", ha=side, color=ink)
    left.set_xlabel("time / time with JAX's faster mode, which is the line at 1")
    found = counts()
    for k, (label, colour) in enumerate(
        [("reverse mode", OTHER), ("best published order", THIRD), ("best order here", OURS)]
    ):
        shares = [
            (place, count / row[0], count)
            for place, row in enumerate(found.values())
            if (count := row[k]) is not None
        ]
        places = [place + 0.27 * (k - 1) for place, _, _ in shares]
        right.bar(places, [share for _, share, _ in shares], 0.25, color=colour, label=label)
        for place, (_, share, count) in zip(places, shares, strict=True):
            right.text(place, share + 0.01, f"{count:,}", ha="center", rotation=90, va="bottom")
    right.set_xticks(range(len(found)), list(PUBLISHED.values()), fontsize=7.5)
    right.set_ylim(0, 1.65)
    right.set_yticks([0, 0.5, 1])
    right.set_ylabel("multiplications / reverse mode")
    right.legend(frameon=False, fontsize=8, loc="upper right", ncols=3, columnspacing=1)
    save(figure, path)


def elimination(path: Path) -> None:
    """An episode in four frames: the graph, and what is left of it while vertices go."""
    order, env = veenv.best_order("Robertson"), veenv.make("Robertson")
    slots = [int(x) for x in env.default_params.vertex_ids]
    _, state = env.reset(jax.random.key(0))
    frames = [state]
    for vertex in order.ids_for(env.graph):
        _, state, *_ = env.step(None, state, jnp.asarray(slots.index(vertex)))
        frames.append(state)
    chosen = [0, len(frames) // 3, 2 * len(frames) // 3, len(frames) - 1]
    figure = canvas(9.5, 5.6)
    for panel, k in zip(axes_of(figure, 2, 2), chosen, strict=True):
        picture = io.BytesIO()
        veenv.draw(frames[k], env).savefig(picture, dpi=90)
        panel.imshow(Image.open(picture))
        panel.axis("off")
    save(figure, path)


def step(path: Path) -> None:
    """A step of the environment: what vanishes, what is filled in, and the arrays that show it."""

    def fun(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        product = x * y
        return jnp.sin(product) * x, jnp.exp(product) + y

    names = {"x": (0, 1), "y": (0, 0), "x·y": (1, 0.5), "sin": (2, 0.72), "exp": (2, 0.28)}
    names |= {"sin·x": (3.1, 1), "exp+y": (3.1, 0)}
    env = veenv.make(fun, 0.5, 2.0, argnums=(0, 1))
    before, state = env.reset()
    after, _, reward, *_ = env.step(None, state, jnp.asarray(0))
    rows, columns = ["x", "y", "x·y", "sin", "exp"], ["x·y", "sin", "exp", "sin·x", "exp+y"]
    seen = [np.asarray(obs.adjacency) != 0 for obs in (before, after)]
    figure = canvas(9.5, 2.5)
    panels = axes_of(figure, 1, 4)
    titles = ("before: three legal actions", f"after action 0: reward −{-float(reward):.0f}")
    for k, (panel, title) in enumerate(zip(panels[:2], titles, strict=True)):
        changed = seen[k] & ~seen[1 - k]
        for r, c in zip(*np.nonzero(seen[k]), strict=True):
            colour = (OURS, THIRD)[k] if changed[r, c] else OTHER
            line = {"arrowstyle": "-|>", "color": colour, "lw": 2 if changed[r, c] else 1}
            line |= {"shrinkA": 13, "shrinkB": 13}
            panel.annotate("", xy=names[columns[c]], xytext=names[rows[r]], arrowprops=line)
        for name, place in names.items():
            if k and name == "x·y":
                continue
            box = {"boxstyle": "round", "fc": "none", "ec": OURS if name in columns[:3] else INK}
            panel.text(place[0], place[1], name, ha="center", va="center", fontsize=8, bbox=box)
        panel.set_xlim(-0.4, 3.7)
        panel.set_ylim(-0.35, 1.35)
        panel.axis("off")
        panel.set_title(title, fontsize=8)
    for k, panel in enumerate(panels[2:]):
        spy(panel, seen[k].astype(float))
        for (r, c), square in zip(np.argwhere(seen[k]), panel.patches, strict=True):
            square.set_color(OTHER if seen[1 - k][r, c] else (OURS, THIRD)[k])
        panel.set_xticks(np.arange(5) + 0.46, columns, rotation=60, fontsize=7)
        panel.set_yticks(np.arange(5) + 0.46, rows, fontsize=7)
        panel.set_title(("adjacency before", "adjacency after")[k], fontsize=8)
    save(figure, path)


def structures(path: Path) -> None:
    """Structures of local Jacobians as small matrices: what is stored, and what is zero."""
    x, matrix = jnp.linspace(0.2, 1.0, 6), jnp.linspace(-1.0, 1.0, 36).reshape(6, 6)
    maps = {
        "sin(x): a diagonal": jnp.sin,
        "2 x: one number": lambda x: 2 * x,
        "x[2:5]: a selection": lambda x: x[2:5],
        "x.sum(): ones": lambda x: x.sum(keepdims=True),
        "A @ x: dense": lambda x: matrix @ x,
        "cumsum(x): an operator": jnp.cumsum,
    }
    figure = canvas(9.5, 1.9)
    for panel, (title, fun) in zip(axes_of(figure, 1, len(maps)), maps.items(), strict=True):
        spy(panel, np.asarray(jax.jacfwd(fun)(x)))
        panel.set_title(title, fontsize=8)
    save(figure, path)


def patterns(path: Path) -> None:
    """Sparse Jacobians: the entries that `sparse_representation=True` stores."""
    n = 24
    shuffle = np.random.default_rng(0).permutation(n)
    maps = {
        "a stencil": lambda x: jnp.roll(x, 1) - 2 * x + jnp.roll(x, -1),
        "a gather": lambda x: jnp.sin(x)[shuffle],
        "springs": lambda x: x.at[1:].add(jnp.sin(x[:-1])).at[::6].add(x[0] ** 2),
        "blocks": lambda x: jax.vmap(lambda p: jnp.sum(p**2) * p)(x.reshape(-1, 4)).ravel(),
    }
    figure = canvas(9.5, 2.5)
    for panel, (title, fun) in zip(axes_of(figure, 1, len(maps)), maps.items(), strict=True):
        found = veenv.jacve(fun, sparse_representation=True)(jnp.linspace(0.1, 1.0, n))
        dense = np.asarray(found.todense())
        spy(panel, dense)
        panel.set_title(f"{title}: {found.nse} of {dense.size:,} stored", fontsize=8)
    save(figure, path)


def sparse(path: Path) -> None:
    """Sparse Jacobians over asdex's, and the better of our ways over the fastest other one."""
    tables = json.loads((ROOT / "docs/results/sparse.json").read_text("utf-8"))["tables"]
    single = {row[0]: float(row[1]) for row in tables[0]["rows"] if row[1] != "–"}
    whole: dict[str, float] = {}
    for problem, ratio, way, *_ in tables[-1]["rows"]:
        if "veenv" in way:
            whole[problem] = min(whole.get(problem, np.inf), float(ratio))
    figure = canvas(9.5, 0.4 + 0.23 * max(len(single), len(whole)))
    names = "a Jacobian / asdex's", "a solution, our best / the fastest other"
    for panel, name, found in zip(axes_of(figure, 1, 2), names, (single, whole), strict=True):
        panel.barh(list(found), list(found.values()), color=OURS)
        panel.invert_yaxis()
        panel.axvline(1, color=INK, lw=1)
        for place, ratio in enumerate(found.values()):
            panel.text(ratio + 0.01, place, f"{ratio:.2f}", va="center", fontsize=7.5)
        panel.set_xlabel(f"time of {name}", fontsize=8)
        panel.tick_params(axis="y", labelsize=7.5)
    save(figure, path)


def fuse(path: Path) -> None:
    """Fused steps and Jacobians over those with JAX's faster mode, at the largest common batch."""
    table = json.loads((ROOT / "docs/results/fuse.json").read_text("utf-8"))["tables"][0]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    found = {
        row["step"]: (float(row["ratio"].strip("*")), row["batch"])
        for row in rows
        if row["batch"] in ("4,096", "512")
    }
    figure = canvas(9.5, 4.2)
    [panel] = axes_of(figure)
    colours = {"4,096": OURS, "512": THIRD}
    panel.barh(
        list(found),
        [ratio for ratio, _ in found.values()],
        color=[colours[b] for _, b in found.values()],
    )
    for place, (ratio, _) in enumerate(found.values()):
        panel.text(ratio * 1.04, place, f"{ratio:.2g}", va="center", fontsize=7)
    for batch, colour in colours.items():
        panel.barh([0], [0], color=colour, label=f"{batch} points")
    panel.legend(frameon=False, fontsize=8, loc="lower right")
    panel.invert_yaxis()
    panel.set_xscale("log")
    panel.axvline(1, color=INK, lw=1)
    panel.tick_params(axis="y", labelsize=7.5)
    panel.set_xlabel("time / time with JAX's faster mode, which is the line at 1")
    save(figure, path)


def tasks(path: Path) -> None:
    """Each task's best known order against its best classical one, from the table of the page."""
    shares: dict[str, float] = {}
    for line in (ROOT / "docs/tasks.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 6 and cells[0] in veenv.tasks.list():
            best, *classical = (int(re.sub(r"[,*]| / .*", "", cell)) for cell in cells[1:5])
            shares[cells[0]] = best / min(classical)
    shares = dict(sorted(shares.items(), key=lambda item: -item[1]))
    figure = canvas(9.5, 5.2)
    [panel] = axes_of(figure)
    panel.barh(list(shares), list(shares.values()), color=OURS)
    panel.axvline(1, color=INK, lw=1)
    for place, share in enumerate(shares.values()):
        label = {"ha": "right", "va": "center", "fontsize": 7.5, "color": "white"}
        panel.text(share - 0.005, place, f"{share:.2f}", **label)
    panel.set_xlabel("multiplications / those of the best classical order")
    panel.tick_params(axis="y", labelsize=7.5)
    save(figure, path)


def kernels(path: Path) -> None:
    """Jacobians as one kernel and by XLA, over the faster of JAX's modes, at 65,536 points."""
    found = _speed(65536)
    figure = canvas(9.5, 3.6)
    [panel] = axes_of(figure)
    for offset, (kind, colour) in enumerate((("kernel", OURS), ("XLA", OTHER))):
        places = np.arange(len(found)) + 0.4 * offset
        best = [
            min(float(row["ratio"]) for method, row in rows.items() if method.startswith(kind))
            for rows in found.values()
        ]
        label = "one kernel" if kind == "kernel" else "jacve as XLA compiles it"
        panel.barh(places, best, 0.38, color=colour, label=label)
        for place, ratio in zip(places, best, strict=True):
            panel.text(ratio + 0.01, place, f"{ratio:.2g}", va="center", fontsize=7.5)
    panel.invert_yaxis()
    panel.axvline(1, color=INK, lw=1)
    panel.set_yticks(np.arange(len(found)) + 0.2, list(found), fontsize=8)
    panel.set_xlabel("time / time of JAX's faster mode, which is the line at 1")
    panel.legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(0.93, 0.85))
    save(figure, path)


def roofline(path: Path) -> None:
    """What bounds the kernels: operations a second over operations a byte, at 65,536 points."""
    document = json.loads((ROOT / "docs/kernel.json").read_text("utf-8"))
    alone = {row["function"]: row["alone_ns"] for row in document["orders"] if "alone_ns" in row}
    figure = canvas(9.5, 4.2)
    [panel] = axes_of(figure)
    writing = in_cache = 0.0
    names: dict[str, tuple[float, float]] = {}
    for name, rows in _speed(65536).items():
        task = veenv.tasks.get(name)
        args = task.example_args()
        blocks = jax.eval_shape(jax.jacfwd(task.fun, task.argnums), *args)
        written, read = (4 * sum(x.size for x in jax.tree.leaves(tree)) for tree in (blocks, args))
        work = rows["kernel, best-operations"]["work"]
        writing = max(writing, written * 65536 / rows["writing"]["ms"] / 1e6)
        in_cache = max(in_cache, 2 * work / alone[name])
        at = work / (written + read)
        for method, colour in (("kernel, best-operations", OURS), ("XLA, best-operations", OTHER)):
            panel.loglog(at, work * 65536 / rows[method]["ms"] / 1e6, "o", color=colour)
        names[name] = at, work * 65536 / rows["kernel, best-operations"]["ms"] / 1e6
    for number, (name, place) in enumerate(sorted(names.items(), key=lambda item: item[1])):
        side = {"xytext": (-5, 4), "ha": "right"} if number % 2 else {"xytext": (5, -7)}
        turned = {"rotation": -25, "rotation_mode": "anchor", "fontsize": 7, **side}
        panel.annotate(name, place, textcoords="offset points", **turned)
    at = np.geomspace(0.15, 12, 50)
    panel.loglog(at, np.minimum(writing * at, in_cache), color=INK, lw=1)
    panel.text(0.32, writing * 0.28, f"XLA only writing: {writing:.0f} GB/s", fontsize=8)
    panel.text(5.2, in_cache * 1.08, f"two cores in the cache: {in_cache:.0f} Gop/s", fontsize=8)
    panel.plot([], [], "o", color=OURS, label="one kernel")
    panel.plot([], [], "o", color=OTHER, label="jacve as XLA compiles it")
    panel.legend(frameon=False, fontsize=8, loc="lower right")
    panel.set_ylim(3, 250)
    panel.set_xlabel("operations for each byte of arguments and Jacobian")
    panel.set_ylabel("billion operations a second")
    save(figure, path)


def work(path: Path) -> None:
    """The work of fifty orders each against their time, the machine code alone."""
    document = json.loads((ROOT / "docs/kernel.json").read_text("utf-8"))
    found = [row for row in document["orders"] if "works" in row]
    figure = canvas(9.5, 2.6)
    for panel, row in zip(axes_of(figure, 1, len(found)), found, strict=True):
        times = [row["seconds"][order] * 1e9 for order in row["works"]]
        panel.plot(list(row["works"].values()), times, ".", color=OURS)
        name = row["function"].replace(", 300 equations", "")
        panel.set_title(f"{name}: {row['work']:.2f}", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.set_xlabel("work of a point", fontsize=8)
    figure.axes[0].set_ylabel("ns a point", fontsize=8)
    save(figure, path)


def _speed(batch: int) -> dict[str, dict[str, dict[str, float]]]:
    """Rows of kernels at a batch, by function and method."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in json.loads((ROOT / "docs/kernel.json").read_text("utf-8"))["speed"]:
        if row["batch"] == batch:
            found.setdefault(row["function"], {})[row["method"]] = row
    return found


def spy(panel: Axes, matrix: np.ndarray) -> None:
    """Squares where a matrix is not zero, darker where it is larger."""
    rows, columns = np.nonzero(matrix)
    from matplotlib.patches import Rectangle

    largest = np.abs(matrix).max()
    for r, c in zip(rows, columns, strict=True):
        strength = 0.35 + 0.65 * abs(matrix[r, c]) / largest
        panel.add_patch(
            Rectangle((float(c), float(r)), 0.92, 0.92, color=OURS, alpha=strength, lw=0)
        )
    panel.set_xlim(-0.3, matrix.shape[1] + 0.3)
    panel.set_ylim(matrix.shape[0] + 0.3, -0.3)
    panel.set_aspect("equal")
    panel.set_xticks([])
    panel.set_yticks([])


PICTURES = {
    f.__name__: f
    for f in (
        gains,
        elimination,
        step,
        structures,
        patterns,
        sparse,
        fuse,
        tasks,
        kernels,
        roofline,
        work,
    )
}
