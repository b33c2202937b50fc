"""Draws the pictures of the documentation: ``python scripts/docs/pictures.py [RUN]``.

Those of packages, results and shipped orders always; with a run's folder those of its report, too.
"""

from __future__ import annotations

import importlib
import io
import itertools
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # a checkout is not installed

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from PIL import Image

import veenv
from scripts.benchmarks.cases import PUBLISHED
from scripts.docs import architecture, flows
from veenv.graph.graph import Graph
from veenv.graph.layout import Positions, positions
from veenv.measure.report import read_subjects, write_report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
SIZES = {"desktop": (1180, 860, "light"), "dark": (1180, 860, "dark"), "phone": (390, 844, "light")}
"""Width, height and colour scheme of each screenshot."""
STEP = 40
"""Eliminations that have been played in them."""
WIDE, SPACE, RADIUS = 800, 22, 7
"""Of a graph's picture: its width, the height of a node, and a node's largest radius."""
TO_FASTER = "time / time with JAX's faster mode, which is the line at 1"
OURS, OTHER, THIRD, INK = "#d9730d", "#8a97a6", "#3f7fbf", "#808890"
"""Colours that are read on white and on black."""
JACOBIANS = {  # of docs/results/kernels.json
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
LABELS = {
    "RoeFlux_1d": "Roe\nflux", "RobotArm_6DOF": "robot\narm", "HumanHeartDipole": "heart\ndipole",
    "PropaneCombustion": "com-\nbustion", "Encoder": "encoder",
}  # fmt: skip
"""Tasks of the published work; its count of the last one is by other formulas and left out."""


def canvas(width: float, height: float) -> Figure:
    """An empty figure, transparent, with axes in a colour that any background shows."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    settings: Any = rcParams
    inked = "text.color axes.labelcolor axes.edgecolor xtick.color ytick.color".split()
    settings.update(
        dict.fromkeys(inked, INK)
        | {"svg.hashsalt": "veenv", "font.size": 9, "legend.frameon": False}
    )
    settings.update({"axes.spines.top": False, "axes.spines.right": False})
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


def read(name: str) -> dict[str, Any]:
    """A document of figures."""
    return json.loads((ROOT / "docs" / f"{name}.json").read_text("utf-8"))


def table(name: str, number: int = 0) -> list[dict[str, str]]:
    """The rows of a committed table."""
    rows_of = read(f"results/{name}")["tables"][number]
    return [dict(zip(rows_of["columns"], row, strict=True)) for row in rows_of["rows"]]


def fused(batch: str) -> dict[str, float]:
    """Ratios of fused steps at a batch."""
    rows = (row for row in table("fuse") if row["batch"] == batch)
    return {row["step"]: float(row["ratio"].strip("*")) for row in rows}


def speed(batch: str) -> dict[str, dict[str, float]]:
    """Ratios of kernels at a batch, by function and method."""
    ratios: dict[str, dict[str, float]] = {}
    for row in table("kernels"):
        if row["batch"] == batch:
            ratio = float(row["ratio (10 … 90 %)"].split("**")[1])
            ratios.setdefault(row["function"], {})[row["method"]] = ratio
    return ratios


def bars(panel: Axes, label: str, series: Mapping[str, Mapping[str, float]]) -> None:
    """Draws ratios by name as bars with their numbers, by a line at 1, one or two series by title.

    The bars of series of the same names stand together.
    """
    names = list(dict.fromkeys(name for ratios in series.values() for name in ratios))
    count = len(series) if all(len(ratios) == len(names) for ratios in series.values()) else 1
    for k, (title, ratios) in enumerate(series.items()):
        places = [names.index(name) + 0.8 * (k % count) / count for name in ratios]
        how: Any = {"height": 0.76 / count, "color": (OURS, OTHER)[k], "label": title}
        drawn = panel.barh(places, [*ratios.values()], **how)
        panel.bar_label(drawn, fmt="{:.2g}", padding=2, fontsize=7.5, color=INK)
    panel.set_yticks(np.arange(len(names)) + 0.4 - 0.4 / count, names, fontsize=7.5)
    panel.invert_yaxis()
    panel.axvline(1, color=INK, lw=1)
    panel.set_xlabel(label, fontsize=8)
    if len(series) > 1:
        panel.legend(fontsize=8, loc="upper right", bbox_to_anchor=(0.93, 0.88))


def counts() -> dict[str, tuple[int, int | None, int]]:
    """Multiplications of reverse mode, the best published order and the best one here, by task."""
    by_task = {}
    for name in LABELS:
        graph = veenv.make(name).graph
        best = veenv.best_order(name).counts["multiplications"]
        by_task[name] = (graph.cost(graph.reverse()), PUBLISHED.get(name), best)
    return by_task


def gains(path: Path) -> None:
    """Draws speed beside the faster JAX mode, and multiplications by task."""
    figure = canvas(5, 5.2)  # its text is read on a phone
    left, right = axes_of(figure, 2, 1)
    jacobians, steps = speed("65,536"), fused("4,096")
    times = {x: 1 / jacobians[name]["kernel, best-operations"] for name, x in JACOBIANS.items()}
    times |= {x: 1 / steps[name] for name, x in FUSED.items()}
    drawn = left.barh(list(times), list(times.values()), color=OURS)
    left.bar_label(
        drawn, [f"×{x:.0f}" if x > 9 else f"×{x:.1f}" for x in times.values()], padding=3
    )
    left.invert_yaxis()
    left.set(xlim=(0, 1.15 * max(times.values())), xlabel="times as fast as JAX's faster mode")
    rows = counts()
    labels = ("reverse mode", OTHER), ("best published order", THIRD), ("best order here", OURS)
    for k, (label, colour) in enumerate(labels):
        known = {place: row for place, row in enumerate(rows.values()) if row[k] is not None}
        places = [place + 0.27 * (k - 1) for place in known]
        shares = [float(row[k] or 0) / row[0] for row in known.values()]
        drawn = right.bar(places, shares, 0.25, color=colour, label=label)
        right.bar_label(drawn, [f"{row[k]:,}" for row in known.values()], rotation=90, padding=2)
    right.set_xticks(range(len(rows)), list(LABELS.values()))
    right.set(ylim=(0, 1.9), yticks=[0, 0.5, 1], ylabel="multiplications /\nreverse mode")
    right.legend(loc="upper right", ncols=2, columnspacing=1)
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
    figure = canvas(5, 4.6)  # its text is read on a phone
    panels = axes_of(figure, 2, 2)
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
    matrices(path, 1.9, {title: np.asarray(jax.jacfwd(fun)(x)) for title, fun in maps.items()})


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
    shown = {}
    for title, fun in maps.items():
        jacobian = veenv.jacve(fun, sparse_representation=True)(jnp.linspace(0.1, 1.0, n))
        shown[f"{title}: {jacobian.nse} of {n * n} stored"] = np.asarray(jacobian.todense())
    matrices(path, 2.5, shown)


def sparse(path: Path) -> None:
    """Sparse Jacobians over asdex's, and the better of our ways over the fastest other one."""
    rows = (row for row in table("sparse") if row["ratio"] != "–")
    single = {row["case"]: float(row["ratio"]) for row in rows}
    whole: dict[str, float] = {}
    for row in table("sparse", -1):
        if "veenv" in row["way"]:
            known = whole.get(row["problem"], np.inf)
            whole[row["problem"]] = min(known, float(row["ratio"]))
    figure = canvas(9.5, 0.4 + 0.23 * max(len(single), len(whole)))
    left, right = axes_of(figure, 1, 2)
    bars(left, "time of a Jacobian / asdex's", {"": single})
    bars(right, "time of a solution, our best / the fastest other", {"": whole})
    save(figure, path)


def fuse(path: Path) -> None:
    """Fused steps and Jacobians over those with JAX's faster mode, at the largest common batch."""
    figure = canvas(9.5, 4.2)
    [panel] = axes_of(figure)
    panel.set_xscale("log")
    bars(panel, TO_FASTER, {f"{batch} points": fused(batch) for batch in ("4,096", "512")})
    save(figure, path)


def systems(path: Path) -> None:
    """Draws the times of fused solves and factors over XLA's, by rows of the matrix and batch."""
    rows, colours = table("systems"), {"1": OTHER, "64": THIRD, "2,048": OURS}
    names = list(dict.fromkeys(row["matrices"] for row in rows))
    figure = canvas(9.5, 3)
    panels = axes_of(figure, 1, len(names))
    for panel, name in zip(panels, names, strict=True):
        for batch, kind in itertools.product(colours, ("float32", "float64")):
            shown = [
                (int(row["rows"]), float(row["ratio"].strip("*")))
                for row in rows
                if (row["matrices"], row["batch"], row["dtype"]) == (name, batch, kind)
            ]
            style, label = ("-", batch) if kind == "float32" else (":", None)
            at = np.array(shown).reshape(-1, 2).T
            panel.plot(*at, style, color=colours[batch], label=label, marker=".")
        panel.axhline(1, color=INK, lw=1)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_title(name, fontsize=9)
        panel.set_xlabel("rows (dotted: float64)", fontsize=8)
    panels[0].set_ylabel("time / XLA's time", fontsize=8)
    panels[-1].legend(title="points", fontsize=8, title_fontsize=8)
    save(figure, path)


def tasks(path: Path) -> None:
    """Draws the best known order of each task against its best classical one."""
    shares = {
        name: facts["best"]["multiplications"]
        / min(counts["multiplications"] for counts in facts["classical"].values())
        for name, facts in read("tasks").items()
    }
    figure = canvas(5, 6)
    [panel] = axes_of(figure)
    label = "multiplications / those of the best classical order"
    bars(panel, label, {"": dict(sorted(shares.items(), key=lambda item: item[1]))})
    save(figure, path)


def realistic(path: Path) -> None:
    """Ratios of all forms of the functions that people differentiate, a panel for each batch."""
    rows = table("realistic")
    names = list(dict.fromkeys(row["function"] for row in rows))
    sizes = sorted({row["batch"] for row in rows}, key=int)
    figure = canvas(9.5, 0.2 * len(names) + 1)
    for panel, size in zip(axes_of(figure, 1, len(sizes)), sizes, strict=True):
        for form, marker, colour in zip(("tune", "auto"), "os", (THIRD, OURS), strict=True):
            shown = [row for row in rows if row["batch"] == size and row[form]]
            ratios = [float(row[form].strip("*")) for row in shown]
            places = [names.index(row["function"]) for row in shown]
            panel.plot(ratios, places, marker, color=colour, label=form, alpha=0.7)
        panel.axvline(1, color=INK, lw=1)
        panel.set(xscale="log", title=f"batch {size}", ylim=(len(names) - 0.5, -0.5))
        panel.set_xlabel(TO_FASTER, fontsize=8)
        panel.set_yticks(range(len(names)), names if size == sizes[0] else [], fontsize=7.5)
    figure.axes[0].legend(fontsize=8)
    save(figure, path)


def kernels(path: Path) -> None:
    """Jacobians as one kernel and by XLA, over the faster of JAX's modes, at 65,536 points."""
    figure = canvas(9.5, 3.6)
    [panel] = axes_of(figure)
    series: dict[str, dict[str, float]] = {"one kernel": {}, "jacve as XLA compiles it": {}}
    for name, ratios in speed("65,536").items():
        for kind, best in zip(("kernel", "XLA"), series.values(), strict=True):
            best[name] = min(ratio for way, ratio in ratios.items() if way.startswith(kind))
    bars(panel, TO_FASTER, series)
    save(figure, path)


def learning_curves(path: Path) -> None:
    """Mean costs of PPO's updates, thin, and best costs so far, a panel for each task."""
    from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

    goals = {row["task"]: int(row["goal"].replace(",", "")) for row in table("agents")}
    figure = canvas(12, 5.6)
    panels = dict(zip(goals, axes_of(figure, 2, 3), strict=False))
    for task, seed, *cells in read("results/agents")["curves"]["rows"]:
        steps, mean, best = ([float(x) for x in cell.split()] for cell in cells)
        panels[task].plot(steps, mean, color=f"C{seed}", lw=0.7, alpha=0.5)
        panels[task].plot(steps, best, color=f"C{seed}", lw=1.5, label=f"seed {seed}")
    for task, panel in panels.items():
        panel.axhline(goals[task], color="gray", ls="--", lw=0.8)
        panel.set(xscale="log", yscale="log", title=task)
        panel.set(xlabel="environment steps", ylabel="multiplications")
        panel.yaxis.set_major_locator(MaxNLocator(6, prune="lower"))
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        panel.yaxis.set_minor_formatter(NullFormatter())
    figure.axes[0].legend(fontsize="small")
    save(figure, path)


def spy(panel: Axes, matrix: np.ndarray) -> None:
    """Squares where a matrix is not zero, darker where it is larger."""
    from matplotlib.patches import Rectangle

    largest = np.abs(matrix).max()
    for r, c in np.argwhere(matrix).tolist():
        strength = 0.35 + 0.65 * abs(matrix[r, c]) / largest
        panel.add_patch(Rectangle((c, r), 0.92, 0.92, color=OURS, alpha=strength, lw=0))
    (height, width) = matrix.shape
    panel.set(xlim=(-0.3, width + 0.3), ylim=(height + 0.3, -0.3), aspect="equal")
    panel.set(xticks=[], yticks=[])


def matrices(path: Path, height: float, shown: Mapping[str, np.ndarray]) -> None:
    """Draws matrices side by side, by title."""
    figure = canvas(9.5, height)
    for panel, (title, matrix) in zip(axes_of(figure, 1, len(shown)), shown.items(), strict=True):
        spy(panel, matrix)
        panel.set_title(title, fontsize=8)
    save(figure, path)


PICTURES: dict[str, Callable[[Path], None]] = {
    draw.__name__.replace("_", "-"): draw
    for draw in (
        elimination, fuse, gains, kernels, learning_curves, patterns, realistic, sparse,
        step, structures, systems, tasks,
    )
}  # fmt: skip
"""The function that draws each file of docs/pictures."""


def graph_picture(graph: Graph) -> str:
    """A graph as SVG; lines and discs are one path for each kind, so that it stays small."""
    where: Positions = positions(graph)
    last = max(x for x, _ in where.values()) or 1.0
    tallest = max(Counter(x for x, _ in where.values()).values())
    height = SPACE * (tallest + 1)
    radius = min(RADIUS, 0.4 * WIDE / (last + 2))

    def at(x: float, y: float) -> str:
        return f"{2 * RADIUS + x * (WIDE - 4 * RADIUS) / last:.0f} {height * y:.0f}"

    moves, discs = {graph.node(v) for v in graph.eliminable}, {"#3f7fbf": "", "#d9730d": ""}
    for node, place in where.items():
        colour = "#d9730d" if node in moves else "#3f7fbf" if node < graph.num_inputs else "#2a9a5f"
        discs[colour] = discs.get(colour, "") + f"M{at(*place)}h0"
    lines = ""
    for u, v in graph.edges:
        (x, y), (across, down) = where[u], where[v]
        sag = 0.07 * ((u + v) % 2 * 2 - 1) * min(across - x - 1.0, 4.0)
        middle = min(1.0, max(0.0, (y + down) / 2 + sag))
        lines += f"M{at(x, y)}Q{at((x + across) / 2, middle)} {at(across, down)}"
    drawn = "".join(
        f'<path stroke="{colour}" stroke-width="{2 * radius:.3g}" d="{path}"/>\n'
        for colour, path in discs.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {height}" fill="none" '
        f'stroke-linecap="round">\n<path stroke="#808890" d="{lines}"/>\n{drawn}</svg>\n'
    )


def screenshots(page: Path) -> None:
    """Takes pictures of the page in Chromium (needs playwright, and Chromium)."""
    api: Any = importlib.import_module("playwright.sync_api")  # of the extra `browser`
    with api.sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (width, height, scheme) in SIZES.items():
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(page.as_uri())
            tab.evaluate(f"show({STEP})")
            full = name == "phone"
            shot = Image.open(io.BytesIO(tab.screenshot(full_page=full)))
            shot = (_in_columns(shot, 4) if full else shot).convert("RGB").quantize(128)
            # Few colours take a third of the space.
            shot.save(FOLDER / f"report-{name}.png", optimize=True)
        browser.close()


def _in_columns(shot: Image.Image, count: int) -> Image.Image:
    """A long picture, cut and laid side by side."""
    height, gap = -(-shot.height // count), 16
    sheet = Image.new("RGB", ((shot.width + gap) * count - gap, height), "white")
    for k in range(count):
        piece = shot.crop((0, k * height, shot.width, min(shot.height, (k + 1) * height)))
        sheet.paste(piece, (k * (shot.width + gap), 0))
    return sheet


def main(run: Annotated[str | None, tyro.conf.Positional] = None) -> None:
    """Draws packages, results, structures and an episode; and the report of a run.

    Args:
      run: its folder.
    """
    architecture.PICTURE.write_text(architecture.svg(), encoding="utf-8")
    flows.write()
    for name, draw in PICTURES.items():
        draw(FOLDER / f"{name}.svg")
    veenv.animate(FOLDER / "episode.gif", veenv.best_order("Robertson"), dpi=64, seconds=5.0)
    if run is None:
        return
    [subject] = read_subjects(run)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(page, subject)
        screenshots(page)


if __name__ == "__main__":
    tyro.cli(main)
