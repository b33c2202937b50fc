"""The figures of the pages are those of the committed results, docs/results/*.json."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest

import veenv
from scripts.docs import pages
from tests.docs.pages import rows_of
from tests.paths import ROOT

RATIO = "ratio (10 … 90 %)"
RESULTS = {path.stem: path for path in sorted((ROOT / "docs" / "results").glob("*.json"))}


def text_of(page):
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def ratios(function, batch):
    """The ratios of a function's orders at a batch, ascending."""
    chosen = [r for r in rows_of("jacobians") if (r["function"], r["batch"]) == (function, batch)]
    return sorted(float(row[RATIO].split("**")[1]) for row in chosen)


def test_pages_are_what_the_results_say():
    for page, text in pages.pages().items():
        assert page.read_text(encoding="utf-8") == text, f"{page}: run scripts/docs/pages.py"


@pytest.mark.parametrize("name", RESULTS)
def test_tables_of_the_pages_are_the_results(name):
    document = json.loads(RESULTS[name].read_text(encoding="utf-8"))
    assert document["command"].startswith("python ")
    assert document["machine"]
    lines = (ROOT / document["page"]).read_text(encoding="utf-8").splitlines()
    shown = {tuple(cell.strip() for cell in x.strip("|").split(" | ")) for x in lines}
    for table in document["tables"]:
        for row in [table["columns"], *table["rows"]]:
            assert tuple(row) in shown, f"{document['page']} has no row {row}"


def kernel_ratio(function, batch, order):
    """The ratio of a kernel's time to the faster JAX mode's; `order` may be "writing", too."""
    [row] = [
        row
        for row in rows_of("kernels")
        if (row["function"], row["batch"]) == (function, f"{batch:,}")
        and order in row["method"].removeprefix("kernel, ")
        and not row["method"].startswith("XLA")
    ]
    return row[RATIO].split("**")[1]


def test_the_page_says_how_fast_kernels_are():
    def row(function):
        kernels = [kernel_ratio(function, batch, "best-operations") for batch in (65536, 4096, 1)]
        others = [kernel_ratio(function, 65536, order) for order in ("reverse", "writing")]
        return f"| {' | '.join([function, *kernels, *others])} |"

    page = (ROOT / "docs" / "jacobians.md").read_text(encoding="utf-8")
    table = page.split("| only writing |\n")[1].split("\n\n")[0].splitlines()
    kernels = dict.fromkeys(row["function"] for row in rows_of("kernels"))
    assert table[1:] == [row(function) for function in kernels]
    assert len(kernels) == 10


def test_the_comparison_cites_the_kernels():
    names = "RoeFlux_3d RobotArm_6DOF RoeFlux_1d PropaneCombustion HumanHeartDipole".split()
    *first, last = (f"{kernel_ratio(n, 65536, 'best-operations')} on {n}" for n in names)
    assert f"{', '.join(first)} and {last}" in text_of("docs/comparison.md")


def test_the_comparison_says_what_the_engine_takes():
    page = text_of("docs/comparison.md").split("## Published orders")[0]
    found = dict(re.findall(r"\| (\w+)(?: \(one `scan`\))? \| ([\d.]+) \|", page))
    assert len(found) == 7
    for name in found:
        batch = "32,768" if name == "Encoder" else "65,536"
        assert float(found[name]) == ratios(name, batch)[0], name


def test_the_questions_say_what_the_engine_takes():
    page = text_of("docs/choose.md")
    by_xla = ratios("RoeFlux_3d", "65,536")[0]
    kernel = kernel_ratio("RoeFlux_3d", batch=65536, order="best-operations")
    said = f"`RoeFlux_3d` takes {by_xla:.2f} of the faster mode's time by XLA, and {kernel} as one"
    assert said in page
    scan = [ratios("lorenz_rollout", batch)[0] for batch in ("1", "4,096", "65,536")]
    assert f"(`lorenz_rollout`: {min(scan):.2f} to {max(scan):.2f} of the faster mode)" in page
    assert f"(`Encoder`: {ratios('Encoder', '4,096')[-1]:.2f} at a batch of 4,096)" in page


def test_the_comparison_says_what_ppo_found():
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    for row in rows_of("agents")[:4]:
        assert f"| {row['task']} | {row['worst']} | {row['goal']} |" in page


def test_the_comparison_says_what_sparse_jacobians_take():
    page = text_of("docs/comparison.md")
    rows = rows_of("sparse")
    assert all(row["true"] == row["stored"] for row in rows)
    rows = [row for row in rows if row["asdex ms"] != "–"]  # it has no pattern of the others
    ratios = [float(row["ms"]) / float(row["asdex ms"]) for row in rows]
    assert f"a Jacobian takes {min(ratios):.2f} to {max(ratios):.2f} of asdex's time" in page
    slower = [row for row in rows if float(row["first"]) > float(row["asdex first"])]
    said = str(len(rows) - len(slower)) if slower else "all"
    assert f"first call (compilation included) is faster on {said}" in page


def test_the_page_says_what_elements_and_dense_arrays_take():
    page = text_of("docs/sparse.md")
    [cubes] = (row for row in rows_of("sparse") if row["case"].startswith("hyperelastic hexa"))
    assert f"take {float(cubes['ms']) / float(cubes['sparsejac ms']):.2f} of sparsejac's" in page
    dense = json.loads(RESULTS["sparse"].read_text(encoding="utf-8"))["tables"][1]
    ratios = [float(row[1]) for row in dense["rows"]]
    assert f"take {min(ratios):.2f} to {max(ratios):.2f} of the time of JAX's" in page


def test_the_comparison_says_what_laplacians_take():
    tables = json.loads(RESULTS["sparse"].read_text(encoding="utf-8"))["tables"]
    with_folx = (t for t in tables if "folx ms" in t["columns"])
    mlp, pair = (dict(zip(t["columns"], t["rows"][0], strict=True)) for t in with_folx)
    own = float(mlp["ms"]) / float(mlp["folx ms"])
    pairs = float(pair["Laplacian ms"]) / float(pair["folx ms"])
    hessian = float(pair["Hessian ms"]) / float(pair["jax.hessian ms"])
    said = (
        f"The Laplacian of an MLP takes {own:.2f} of folx's time, that of a pair potential "
        f"{pairs:.2f}, where the Hessian takes {hessian:.2f} of `jax.hessian`'s."
    )
    assert said in text_of("docs/comparison.md")


def test_the_readme_says_what_is_gained():
    kernel = partial(kernel_ratio, batch=65536, order="best-operations")
    fused = {
        row["step"]: row["ratio"].strip("*") for row in rows_of("fuse") if row["batch"] == "4,096"
    }
    table = json.loads(RESULTS["realistic"].read_text(encoding="utf-8"))["tables"][0]
    auto, compiled = (table["columns"].index(name) for name in ("auto", "compile: auto"))
    times = {tuple(row[:2]): float(row[auto].strip("*")) for row in table["rows"]}
    half, above = (sum(t <= 0.5 for t in times.values()), sum(t > 1.05 for t in times.values()))
    assert max(times, key=times.get) == ("hidden_markov", "1")
    longer = sum(float(row[compiled].strip("*")) > 1.5 for row in table["rows"])
    by_xla = [ratios(name, "65,536")[0] for name in ("RobotArm_6DOF", "RoeFlux_3d")]
    rows = {
        "a robot arm, 65,536 points, one kernel": kernel("RobotArm_6DOF"),
        "the 3-D Roe flux, the same": kernel("RoeFlux_3d"),
        "robot arm and 3-D Roe flux as XLA compiles them": f"{by_xla[0]}, {by_xla[1]}",
        "implicit Euler step, 4,096 points, fused": fused["implicit Euler, kinetics"],
        "Kalman filter's step, 4,096 points, fused": fused["extended Kalman filter"],
        f"1 and 256 points, {len(times)} cases": f"at most 0.5 in {half}",
        f"the same {len(times)} cases": f"above 1.05 in {above}",
        "its worst, a hidden Markov model at one point": f"{max(times.values()):.2f}",
        "a function that writes 121 numbers a point": kernel("PropaneCombustion"),
        f"compile time, of {len(times)} cases more than 1.5 times JAX's": longer,
    }
    readme = text_of("README.md")
    for case, figure in rows.items():
        assert f"{case} | {figure} |" in readme, case
    graph = veenv.make("RoeFlux_1d").graph
    orders = {"forward": graph.forward(), "reverse": graph.reverse()}
    said = ", ".join(f"{name} {graph.cost(order)}" for name, order in orders.items())
    assert f"multiplications: {said}, Markowitz {graph.cost(graph.markowitz())}" in readme
    assert f"best found (PPO) 298 {298 / graph.cost(graph.reverse()):.3f}" in readme
