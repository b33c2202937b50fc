"""The figures of the pages are those of the committed results, docs/results/*.json."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import veenv
from veenv.tasks.best import best_order
from veenv.tasks.evaluation_sets import evaluation_set

ROOT = Path(__file__).parents[2]
COUNT = "multiplications"
SPEED = json.loads((ROOT / "docs" / "kernel.json").read_text(encoding="utf-8"))["speed"]
KERNELS = tuple(dict.fromkeys(row["function"] for row in SPEED))
RESULTS = {path.stem: path for path in sorted((ROOT / "docs" / "results").glob("*.json"))}


def text_of(page):
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def rows_of(name):
    """The rows of the first table of a result, as dictionaries by column."""
    table = json.loads(RESULTS[name].read_text(encoding="utf-8"))["tables"][0]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def ratios(function, batch):
    """The ratios of a function's orders at a batch, ascending."""
    chosen = [r for r in rows_of("engine") if (r["function"], r["batch"]) == (function, batch)]
    column = "ratio (10 … 90 %)"
    return sorted(float(re.match(r"\*\*([\d.]+)\*\*", row[column])[1]) for row in chosen)


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


def test_readme_says_what_ppo_found():
    readme = text_of("README.md")
    for row in rows_of("ppo")[:4]:
        optimal = int(row["worst"]) == best_order(row["task"]).lower_bounds.get(COUNT)
        worst = row["worst"] + (" (optimal)" if optimal else "")
        assert f"| {row['task']} | {row['goal']} | {worst} | {row['seconds']} |" in readme


def test_the_page_says_how_many_draws_test_sets_leave_out():
    def said(name):
        chosen = evaluation_set(name)
        return len(chosen.left_out), chosen.draws[-1] + 1

    (small, of_small), (arrays, of_arrays) = said("scalar-small"), said("arrays")
    assert (arrays, said("scalar-large")[0]) == (1, 0)
    sentence = (
        f"leaves out {small} of {of_small} draws, `arrays` one of {of_arrays}, `scalar-large`"
    )
    assert sentence in text_of("docs/training.md")


def test_where_the_policy_is_above_others():
    sets = json.loads(RESULTS["zero-shot-sets"].read_text(encoding="utf-8"))["functions"]
    for row in (dict(zip(sets["columns"], cells, strict=True)) for cells in sets["rows"]):
        assert "*" in row["best of 32"], row  # "below every classical order on all of them"
    above = [
        row["function"]
        for row in rows_of("zero-shot")
        if int(row["best of 32"].strip("*").replace(",", ""))
        > int(row["annealing"].replace(",", ""))
    ]
    said = f"The two tasks on which the policy is above annealing are {' and '.join(above)}."
    assert said in text_of("docs/training.md")


def test_readme_says_what_clients_found():
    readme = text_of("README.md")
    maskable, rejax, mctx = rows_of("clients")
    said = (
        f"MaskablePPO finds {maskable['best count']} in {maskable['episodes']} episodes, rejax "
        f"{rejax['best count']} in {rejax['episodes']}, mctx {mctx['best count']} in one; random "
        f"play {mctx['random play']}"
    )
    assert said in readme


def kernel_ratio(function, batch, order):
    """The ratio of a kernel's time to the faster JAX mode's; `order` may be "writing", too."""
    [row] = [
        row
        for row in SPEED
        if (row["function"], row["batch"]) == (function, batch)
        and order in row["method"].removeprefix("kernel, ")
        and not row["method"].startswith("XLA")
    ]
    return f"{row['ratio']:.2g}"


def test_the_page_says_how_fast_kernels_are():
    def row(function):
        kernels = [kernel_ratio(function, batch, "best-operations") for batch in (65536, 4096, 1)]
        others = [kernel_ratio(function, 65536, order) for order in ("reverse", "writing")]
        return f"| {' | '.join([function, *kernels, *others])} |"

    page = (ROOT / "docs" / "kernel.md").read_text(encoding="utf-8")
    table = page.split("| only writing |\n")[1].split("\n\n")[0].splitlines()
    assert table[1:] == [row(function) for function in KERNELS]
    assert len(KERNELS) == 10


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            "README.md",
            "takes {RobotArm_6DOF} of the time of the faster JAX mode on the robot arm, "
            "{RoeFlux_3d} on the 3-d Roe flux, {DoublePendulum_RK4} on a double pendulum, "
            "{RoeFlux_1d} on the 1-d Roe flux, and {PropaneCombustion} and {HumanHeartDipole} on "
            "functions that write 121 and 64 numbers",
        ),
        (
            "docs/comparison.md",
            "{RoeFlux_3d} on RoeFlux_3d, {RobotArm_6DOF} on RobotArm_6DOF, {RoeFlux_1d} on "
            "RoeFlux_1d, {PropaneCombustion} on PropaneCombustion and {HumanHeartDipole} on",
        ),
    ],
)
def test_pages_cite_the_kernels(page, said):
    ratios = {name: kernel_ratio(name, 65536, "best-operations") for name in KERNELS}
    assert said.format(**ratios) in text_of(page)


def test_readme_says_what_orders_cost():
    readme = text_of("README.md")
    graph = veenv.make("RoeFlux_1d").graph
    orders = {
        "forward": graph.forward(),
        "reverse": graph.reverse(),
        "Markowitz": graph.markowitz(),
    }
    costs = {name: graph.cost(order) for name, order in orders.items()}
    assert "multiplications: " + ", ".join(f"{k} {v}" for k, v in costs.items()) in readme
    for name, cost in costs.items():
        assert f"{name} {cost} {cost / min(costs.values()):.3f}" in readme


def test_readme_says_what_the_engine_takes():
    said = re.search(
        r"same Jacobian takes ([\d.]+) on the robot arm, ([\d.]+) on the 3-d Roe flux and ([\d.]+) "
        r"to ([\d.]+) on smaller functions",
        text_of("README.md"),
    )
    smaller = [
        ratios(name, "65,536")[0]
        for name in ("RoeFlux_1d", "HumanHeartDipole", "PropaneCombustion", "mlp")
    ]
    expected = [ratios("RobotArm_6DOF", "65,536")[0], ratios("RoeFlux_3d", "65,536")[0]]
    assert [float(x) for x in said.groups()] == [*expected, min(smaller), max(smaller)]


def test_the_comparison_says_what_the_engine_takes():
    page = text_of("docs/comparison.md").split("## Published orders")[0]
    found = dict(re.findall(r"\| (\w+)(?: \(one `scan`\))? \| ([\d.]+) \|", page))
    assert len(found) == 7
    for name in found:
        batch = "32,768" if name == "Encoder" else "65,536"
        assert float(found[name]) == ratios(name, batch)[0], name


def test_the_questions_say_what_the_engine_takes():
    page = text_of("docs/faq.md")
    low, high = ratios("RoeFlux_3d", "65,536")[0], ratios("RoeFlux_3d", "65,536")[1]
    assert f"`RoeFlux_3d` takes {low:.2f} to {high:.2f} of the faster mode's time" in page
    scan = [ratios("lorenz_rollout", batch)[0] for batch in ("1", "4,096", "65,536")]
    assert f"(`lorenz_rollout`: {min(scan):.2f} to {max(scan):.2f} of the faster mode)" in page
    assert f"(`Encoder`: {ratios('Encoder', '4,096')[-1]:.2f} at a batch of 4,096)" in page


def test_the_comparison_says_what_sparse_jacobians_take():
    page = text_of("docs/comparison.md")
    rows = rows_of("sparse")
    assert all(row["true"] == row["stored"] for row in rows)
    ratios = [float(row["ms"]) / float(row["asdex ms"]) for row in rows]
    assert f"a Jacobian takes {min(ratios):.2f} to {max(ratios):.2f} of asdex's time" in page
    slower = [row for row in rows if float(row["first"]) > float(row["asdex first"])]
    said = str(len(rows) - len(slower)) if slower else "all"
    assert f"and the first call is faster in {said}" in page


def test_readme_says_what_functions_that_people_differentiate_gain():
    def ratios(form: str, *of: str, name: str = "realistic") -> list[float]:
        table = json.loads(RESULTS[name].read_text(encoding="utf-8"))["tables"][0]
        column = table["columns"].index(form)  # of the first that is called so
        rows = [row for row in table["rows"] if of in ((), tuple(row[:2]))]
        return [float(row[column].strip("*")) for row in rows]

    def most(form: str, name: str = "realistic") -> tuple[int, int]:
        found = ratios(form, name=name)
        half, alike = (sum(ratio <= bound for ratio in found) for bound in (0.5, 1.05))
        return half, alike

    readme = text_of("README.md")
    (half, alike), cases = most("auto"), len(rows_of("realistic"))
    assert f"half of the faster JAX mode's time in {half} of {cases} cases and at most" in readme
    assert f"at most 1.05 in {alike}; it loses most on" in readme
    model = ratios("auto", "hidden_markov", "1")
    neuron = ratios("auto", "neuron", "256")
    assert sorted(ratios("auto"))[-2:] == sorted([*model, *neuron])
    said = "hidden Markov model at one point ({:.2f}) and on a model of a neuron at 256 ({:.2f})"
    assert said.format(*model, *neuron) in readme
    half, alike = most("reverse")
    assert f"it is {half} and {alike} ({max(ratios('reverse')):.2f} at most)" in readme
    half, most_tuned = most("tune")[0], max(ratios("tune"))
    assert f"takes at most half in {half} cases and {most_tuned:.2f} at most" in readme
    half, alike = most("auto", "realistic-jax-0.10")
    cases = len(rows_of("realistic-jax-0.10"))
    assert f"On jax 0.10.2 those of `jacve(f)` are {half} and {alike} of {cases}." in readme
    compiled = ratios("compile: auto")
    above, longest = sum(ratio > 1.5 for ratio in compiled), max(compiled)
    assert f"mode's time in {above} cases, {longest:.1f} at most" in readme


def test_the_comparison_says_what_laplacians_take():
    tables = json.loads(RESULTS["sparse"].read_text(encoding="utf-8"))["tables"]
    mlp, pair = (dict(zip(t["columns"], t["rows"][0], strict=True)) for t in tables[1:3])
    own = float(mlp["ms"]) / float(mlp["folx ms"])
    pairs = float(pair["Laplacian ms"]) / float(pair["folx ms"])
    hessian = float(pair["Hessian ms"]) / float(pair["jax.hessian ms"])
    said = (
        f"The Laplacian of an MLP takes {own:.2f} of folx's time, that of a pair potential "
        f"{pairs:.2f}, where the Hessian takes {hessian:.2f} of `jax.hessian`'s."
    )
    assert said in text_of("docs/comparison.md")
