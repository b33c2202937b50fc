"""The page in Chromium: the slider plays the game, and its prices are the order's."""

from __future__ import annotations

import html
import itertools
import json
import re
import shutil
import subprocess

import pytest

import veenv
from tests.measure.report.test_page import subject_of
from veenv.measure.report import Subject, write_report

NAMES = "chromium", "chromium-browser", "google-chrome"
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (apt: chromium)"),
]

PLAY = """
<script>
const seen = {};
for (const option of byId("which").options) {
  byId("which").value = option.value;
  byId("which").dispatchEvent(new Event("change"));
  seen[option.value] = [];
  for (let k = 0; k <= Number(byId("step").max); k += 1) {
    byId("step").value = k;
    byId("step").dispatchEvent(new Event("input"));
    const shown = document.querySelectorAll("#board path:not(.gone):not([style*=none])").length;
    seen[option.value].push([byId("paid").textContent, shown]);
  }
}
document.body.innerHTML = "<pre id=seen></pre>";
byId("seen").textContent = JSON.stringify(seen);
</script>
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> tuple[Subject, str]:
    subject = subject_of("Robertson")
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, subject, rounds=0, points=1)
    return subject, path


def edges_left(graph: veenv.Graph, ids: tuple[int, ...]) -> list[int]:
    """Number of edges after each number of eliminations, counted by the tableau."""
    tableau = graph.tableau()
    counts = [len(graph.edges)]
    for vertex in ids:
        node = graph.node(vertex)
        tableau.eliminate(node, lambda a, b: a, lambda a, b: a, keep=node in graph.output_nodes)
        counts.append(sum(map(len, tableau.preds)))
    return counts


def test_the_slider_plays_every_order_at_its_price(report, tmp_path):
    subject, path = report
    page = tmp_path / "played.html"
    page.write_text(path.read_text().replace("</body>", PLAY + "</body>"))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
               f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout)
    assert found, done.stderr[-2000:]
    seen = json.loads(html.unescape(found[1]))
    assert list(seen) == list(subject.ids())
    for name, ids in subject.ids().items():
        prices = list(itertools.accumulate(subject.graph.costs(ids), initial=0))
        assert [int(price.replace(",", "")) for price, _ in seen[name]] == prices
        assert [edges for _, edges in seen[name]] == edges_left(subject.graph, ids)


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    with api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "light"), (390, "dark")])
def test_it_fits_asks_for_nothing_and_obeys_the_keyboard(report, browser, width, scheme):
    subject, path = report
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    problems, asked = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.focus("#step")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    costs = subject.graph.costs(subject.order.ids)
    assert page.inner_text("#paid") == str(sum(costs[:2]))
    page.keyboard.press("End")
    assert page.inner_text("#paid") == str(sum(costs))
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.wait_for_selector(f"#paid:text-is('{costs[0]}')", timeout=5000)
    page.keyboard.press("Space")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select, svg[role=img]')]"
        ".filter((e) => !(e.labels?.length || e.getAttribute('aria-label')"
        " || e.textContent.trim())).length"
    )
    assert unnamed == 0
    assert problems == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()
