"""The tables of the leaderboard are what its runs say; a document with a gap is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from functools import cache

import numpy as np
import pytest

from scripts.benchmarks.document import Document
from scripts.benchmarks.runs import jobs_of
from scripts.data.refresh_references import offered
from scripts.docs.leaderboard import (
    DOCS,
    FOLDER,
    PAGE,
    PICTURES,
    TIMED,
    Paired,
    by_function,
    held_out,
    main_table,
    neighbour,
    orders_table,
    profile,
    protocol_line,
    run_times,
    what_learning_adds,
    write,
)
from veenv.env.factory import task_graph
from veenv.env.rewards import classical_cost
from veenv.orders.order import fingerprint

SETS = {"core": ("Robertson", "PropaneCombustion"), "real": ("LIF",)}
ANNEAL = {"Robertson": "reverse", "PropaneCombustion": "markowitz"}
"""The rule that seed 0 of `anneal` plays; all others play the best classical one."""
FAILED = {"failure": "MemoryError: none", "cost": None, "order": [], "trace": []}
BEST = {"Robertson": "markowitz", "PropaneCombustion": "reverse", "LIF": "reverse"}


@cache
def played(function, rule):
    """Vertex ids of a rule's order, and its multiplications."""
    graph = task_graph(function)
    order = graph.legal(getattr(graph, rule)())
    return [*map(int, order)], graph.cost(order)


def run_of(job):
    """A run that plays forward first, and the order of a rule later; alone, it fails."""
    function, method, seed = job.function, job.method, job.seed
    if job.alone:
        return {**dataclasses.asdict(job), **FAILED, "seconds": 15.0, "eliminations": 0}
    vertices = len(task_graph(function).eliminable)
    rule = BEST[function] if method in ("optimize", "anneal") else "forward"
    if (method, seed) == ("anneal", 0):
        rule = ANNEAL[function]
    order, cost = played(function, rule)
    later, games = {"optimize": (5.0, 4), "anneal": (20.0, 10)}.get(method, (30.0, 12))
    trace = [[0.5, vertices, played(function, "forward")[1]], [later, games * vertices, cost]]
    total = {"noisy-markowitz": 5, "optimize": 60}.get(method, 120) * vertices
    return {
        **dataclasses.asdict(job), "seconds": 60.0, "eliminations": total, "cost": cost,
        "order": order, "trace": trace[-1:] if rule == "forward" else trace, "failure": "",
    }  # fmt: skip


@cache
def _document():
    functions = [
        {
            "set": chosen,
            "function": name,
            "fingerprint": fingerprint(graph),
            "vertices": len(graph.eliminable),
            "classical": classical_cost(graph, "multiplications"),
            "rule": BEST[name],
            "arrays": name == "LIF",
        }
        for chosen, names in SETS.items()
        for name in names
        for graph in [task_graph(name)]
    ]
    pairs = [(chosen, name) for chosen, names in SETS.items() for name in names]
    runs = [run_of(job) for job in jobs_of(pairs, 3)]
    protocol = {"seconds": 60, "seeds": 3, "veenv": "0.3.0", "jax": "0.12", "python": "3.13"}
    protocol |= {"machine": "AMD | EPYC", "date": "2026-11-29", "hours": 1.9}
    return {"protocol": protocol, "functions": functions, "runs": runs}


@pytest.fixture
def document():
    return copy.deepcopy(_document())


def row(text, name):
    """The cells of a table's row of that name."""
    [line] = [x for x in text.splitlines() if x.startswith((f"| {name} |", f"| {name},"))]
    return line.strip("| ").split(" | ")


def runs_of(document, method, function="Robertson", alone=False):
    wanted = method, function, alone
    return [x for x in document["runs"] if (x["method"], x["function"], x["alone"]) == wanted]


def test_a_row_has_ratios_seconds_and_effort(document):
    table = main_table(Document.of(document))
    cells = row(table, "anneal")
    # sorted ratios: 1, 1, 1, 1, 18 / 17, 111 / 90; the middle four count
    assert cells[1].startswith(f"{(3 + 18 / 17) / 4:.3f} (1.000 to ")
    assert cells[2] == f"{(18 / 17 * 111 / 90) ** (1 / 6):.3f}"
    # to the references, 17 and 88: 1, 1, 90 / 88, 90 / 88, 18 / 17, 111 / 88
    assert cells[3] == f"{(1 + 2 * 90 / 88 + 18 / 17) / 4:.3f}"
    assert cells[4:6] == ["20", f"{120 * (6 + 51) * 3 / (6 * 60):,.0f}"]
    # after five games, `noisy-markowitz`'s, it has the forward orders alone
    assert cells[6:] == [f"{(20 / 17 + 151 / 90) / 2:.3f}", "classical orders"]
    optimize = row(table, "optimize")
    assert optimize[1:2] == ["1.000 (1.000 to 1.000)"]
    assert optimize[4] == "5"
    assert optimize[6] == "1.000"
    assert row(table, "alphazero")[4] == "-"
    assert row(table, "reverse")[1] == f"{(20 / 17 + 151 / 90) / 2:.3f}"  # one seed: no interval
    lines = [float(line.split(" | ")[1].split()[0]) for line in table.splitlines()[2:]]
    assert lines == sorted(lines)


def test_a_failure_counts_as_the_best_classical_order(document):
    for one in runs_of(document, "alphazero"):
        one |= FAILED
    table = main_table(Document.of(document))
    assert row(table, "alphazero")[0] == "alphazero, 3 of 6 runs failed"
    assert row(table, "alphazero")[2] == f"{(151 / 90) ** 0.5:.3f}"
    assert row(by_function(Document.of(document)), "Robertson")[8 + 1] == "**17**"
    said = protocol_line(Document.of(document))
    assert said.startswith(f"{len(document['runs']) - 2} runs, ")  # without the control runs
    assert said.endswith("3 runs failed.")


def test_functions_have_their_counts_and_the_printed_ones(document):
    table = by_function(Document.of(document))
    columns = table.splitlines()[0].strip("| ").split(" | ")
    assert columns[4:7] == ["published: AlphaZero / PPO", "optimize", "anneal"]
    assert row(table, "Robertson")[:7] == [
        "Robertson", "6", "17 (markowitz)", "17", "", "**17**", f"{52 / 3:.1f}"
    ]  # fmt: skip
    assert row(table, "PropaneCombustion")[2:6] == ["90 (reverse)", "88", "88 / 92", "**90**"]
    real = held_out(Document.of(document))
    assert "published" not in real
    assert "optimize" not in real
    assert row(real, "markowitz")[1] == f"{792 / 552:.3f}"
    assert row(real, "LIF")[:4] == ["LIF", "10", "552 (reverse)", "474"]


def test_the_same_search_is_compared_with_and_without_the_policy(document):
    text = what_learning_adds(Document.of(document))
    assert row(text, "1 s")[1:] == ["1.0000 (1.0000 to 1.0000)", "0", "0", "2"]
    ratio = (17 / 20 * 90 / 151) ** 0.5
    assert row(text, "10 s")[1] == f"{ratio:.4f} ({ratio:.4f} to {ratio:.4f})"
    assert row(text, "60 s")[1].startswith(f"{(17 / 18 * 90 / 111) ** (1 / 6):.4f} (")
    assert row(text, "60 s")[2:] == ["2", "0", "0"]
    assert f"After 10 s orders are {100 * (1 - ratio):.2f} % cheaper with the policy." in text
    assert "After 1 s the policy adds nothing to annealing that these seeds can show." in text
    dear = Paired.of(np.array([[4, 8], [2, 2]]), np.array([[2, 4], [2, 2]]))
    assert (dear.cheaper, dear.costlier, dear.equal) == (0, 1, 1)
    assert dear.low == dear.ratio == pytest.approx(2**0.5)


def test_the_neighbour_is_measured_by_eliminations_of_the_same_second(document):
    assert neighbour(Document.of(document)) == ""
    [first, *_] = runs_of(document, "anneal")
    [control] = runs_of(document, "anneal", alone=True)
    control |= first | {"alone": True, "seconds": 20.0, "eliminations": 66}
    control |= {"order": played("Robertson", "forward")[0], "cost": 20, "trace": first["trace"][:1]}
    assert "made 1.10 times as many eliminations" in neighbour(Document.of(document))
    control["seconds"] = 14.0  # it has ended before its time
    assert neighbour(Document.of(document)) == ""
    assert main_table(Document.of(document)) == main_table(Document.of(_document()))


def test_reported_runs_are_marked_and_escaped(document):
    for one in [*runs_of(document, "anneal"), *runs_of(document, "anneal", "PropaneCombustion")]:
        document["runs"].append(one | {"method": "<b>x</b> | y", "origin": "reported"})
    said, document = protocol_line(Document.of(_document())), Document.of(document)
    assert protocol_line(document) == said
    cells = row(main_table(document), "&#60;b&#62;x&#60;/b&#62; &#124; y *reported*")
    assert cells[1:7] == row(main_table(document), "anneal")[1:7]
    assert cells[7] == "-"
    assert "machine" not in protocol_line(document)
    assert "AMD &#124; EPYC" in protocol_line(document)


def test_a_trial_on_core_alone_is_drawn(document, tmp_path):
    document["functions"].pop()
    document["runs"] = [run for run in document["runs"] if run["set"] == "core"]
    read = Document.of(document)
    assert held_out(read) == ""
    PICTURES["generalisation"](read, tmp_path / "one.svg")
    assert "core, 2 functions" in (tmp_path / "one.svg").read_text(encoding="utf-8")


def test_profiles_are_shares_of_runs(document):
    document = Document.of(document)
    shares = profile(document, ("anneal", "rerun"), np.array([1.0, 1.06, 1.24]))
    assert shares.tolist() == [4 / 6, 5 / 6, 1.0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["runs"].remove(runs_of(d, "optimize")[2]),
         "optimize on Robertson of core, seed 2 is missing$"),
        (lambda d: d["runs"].remove(runs_of(d, "scored", "LIF")[0]),
         "scored on LIF of real, seed 0 is missing$"),
        (lambda d: d["runs"].append(runs_of(d, "anneal")[0]), "seed 0 is there 2 times$"),
        (lambda d: d["runs"].append(runs_of(d, "reverse")[0] | {"seed": 1}),
         "reverse on Robertson of core, seed 1 is no run of the protocol$"),
        (lambda d: d["runs"].append(runs_of(d, "anneal")[0] | {"method": "mine"}),
         "mine on Robertson of core, seed 0 is no run of the protocol$"),
        (lambda d: d["functions"].pop(), "on LIF of real, seed 0 is no run of the protocol"),
        (lambda d: d.update(functions=[]), "there is no function of core"),
        (lambda d: d["runs"].append(runs_of(d, "anneal")[0] | {"origin": "reported"}),
         "anneal on PropaneCombustion of core, seed 0 is missing$"),
        (lambda d: d["runs"].clear(), "; and [0-9]+ more$"),
        (lambda d: d["protocol"].pop("jax"), "protocol.jax: expected text"),
    ],
)  # fmt: skip
def test_a_document_with_a_gap_is_refused(document, change, said):
    change(document)
    with pytest.raises(ValueError, match=said):
        Document.of(document)


def test_the_page_has_a_section_for_each_table(document, tmp_path):
    page, folder = tmp_path / PAGE, tmp_path / FOLDER
    shutil.copy(DOCS / PAGE, page)
    read = Document.of(document)
    write(read, tmp_path)
    text = page.read_text(encoding="utf-8")
    for part in (main_table(read), by_function(read), held_out(read), orders_table()):
        assert part in text
    for name in PICTURES:
        assert f"pictures/{name}.svg" in text
        assert (folder / f"{name}.svg").read_text(encoding="utf-8").count("<svg ") == 1
    panels = (folder / "cost-by-time.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in panels for name in (*SETS["core"], *TIMED))


def test_shipped_orders_are_listed_once():
    table = orders_table()
    assert row(table, "RoeFlux_1d")[1] == "295"
    names = [line.split(" | ")[0] for line in table.splitlines()]
    assert len(names) == len({*names})


def test_run_times_are_the_rows_of_the_result():
    assert run_times([]) == ""
    text = run_times([{"function": "f", "ratio": "0.73"}])
    assert text == "| function | ratio |\n| --- | ---: |\n| f | 0.73 |"


def test_orders_of_the_runs_are_offered_as_references(document, tmp_path):
    (tmp_path / "runs.json").write_text(json.dumps(document))
    reported = [run | {"method": "mine"} for run in runs_of(document, "anneal")]
    (tmp_path / "reported").mkdir()
    (tmp_path / "reported" / "mine.json").write_text(json.dumps({"runs": reported}))
    orders = offered(tmp_path)[fingerprint(task_graph("Robertson"))]
    assert ("mine, seed 0, 60 s", played("Robertson", "reverse")[0]) in orders
    assert ("optimize, seed 2, 60 s", played("Robertson", "markowitz")[0]) in orders
    without = offered(tmp_path / "nothing")[fingerprint(task_graph("Robertson"))]
    assert {by for by, _ in without}.isdisjoint(by for by, _ in orders if "seed 2, 60 s" in by)
