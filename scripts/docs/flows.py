"""Draws docs/pictures/flow-*.svg: the files that data passes, in this order.

The pages under docs/internals explain each picture; a test compares pictures, pages and files.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from scripts.docs.architecture import document

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WIDTH, ROW, LEFT = 480, 46, 20

Step = tuple[str, str, str]
"""A file, what it does, and what it passes on."""
FLOWS: dict[tuple[str, str], tuple[Step, ...]] = {
    ("engine", "jacobian"): (
        ("veenv/engine/api.py", "stores the options in a record", "Request"),
        ("veenv/engine/jacobian.py", "calls the others, shapes the result", "arguments"),
        ("veenv/graph/program.py", "traces the function, inlines calls", "Program"),
        ("veenv/graph/linearisation.py", "finds partials by veenv/rules", "Linearisation"),
        ("veenv/orders/resolve.py", "turns the order into vertex ids", "ids"),
        ("veenv/engine/alternatives.py", "offers other orders, JAX's modes", "Candidates"),
        ("veenv/engine/evaluation.py", "runs equations, values partials", "edges"),
        ("veenv/engine/elimination.py", "multiplies and adds edges", "jaxpr"),
        ("veenv/engine/form_selection.py", "takes the form of least price", "jaxpr"),
        ("veenv/engine/materialise.py", "marks values that XLA must store", "to XLA"),
    ),
    ("engine", "sparse"): (
        ("veenv/graph/program.py", "traces the function", "Program"),
        ("veenv/engine/repeated/unvmap.py", "writes lax.map as vmap", "Program"),
        ("veenv/engine/repeated/gather_motion.py", "gathers before it computes", "Program"),
        ("veenv/engine/repeated/outlining.py", "groups batched regions", "regions"),
        ("veenv/engine/repeated/batched_region.py", "makes each one equation", "Program"),
        ("veenv/graph/linearisation.py", "finds partials", "Linearisation"),
        ("veenv/engine/evaluation.py", "runs equations, values partials", "edges"),
        ("veenv/engine/sparse/partials.py", "gathers become entries", "entries"),
        ("veenv/engine/sparse/indexing.py", "eliminates both kinds", "entries left"),
        ("veenv/engine/jacobian.py", "collects the blocks", "terms"),
        ("veenv/engine/sparse/tensor.py", "stores values and pattern", "SparseTensor"),
    ),
    ("kernel", "kernel"): (
        ("veenv/kernel/fusing.py", "traces the function at one point", "jaxpr"),
        ("veenv/kernel/building/callbacks.py", "takes error calls out", "jaxpr"),
        ("veenv/kernel/building/unrolling.py", "unrolls arrays", "scalars"),
        ("veenv/kernel/building/builder.py", "merges equal operations", "operations"),
        ("veenv/kernel/ordering.py", "drops what is unused, orders the rest", "ScalarProgram"),
        ("veenv/kernel/primitive.py", "binds a primitive; vmap sets the batch", "batch"),
        ("veenv/kernel/cpu/kernel_registry.py", "looks in the process and on disk", "key"),
        ("veenv/kernel/cpu/codegen.py", "writes vector instructions", "LLVM IR"),
        ("veenv/kernel/cpu/compile.py", "compiles for this processor", "machine code"),
        ("veenv/kernel/cpu/records.py", "describes arrays to the driver", "record"),
        ("veenv/kernel/cpu/driver.c", "loops over the batch, called by XLA", "results"),
    ),
    ("learning", "ppo"): (
        ("agents/training/loop.py", "steps until the budget is spent", "TrainState"),
        ("agents/ppo/trainer.py", "compiles one train step", "keys, params"),
        ("agents/ppo/rollouts.py", "plays episodes", "State"),
        ("agents/nn/encoding.py", "reads an observation", "features"),
        ("agents/nn/networks.py", "scores the slots", "logits, value"),
        ("veenv/env/env.py", "eliminates the chosen vertex", "reward"),
        ("agents/ppo/gae.py", "compares returns with values", "advantages"),
        ("agents/ppo/updates.py", "draws minibatches, steps Adam", "Batch"),
        ("agents/ppo/losses.py", "computes the loss", "gradient"),
        ("agents/training/best.py", "counts the cheapest orders again", "Order"),
        ("agents/run/folder.py", "writes orders and metrics", "files"),
    ),
}
"""The steps by the page in docs/internals and the name of the picture."""


def svg(steps: Sequence[Step]) -> str:
    """Returns the picture of a flow."""
    title = "The files that data passes, top to bottom, what each does, and what it passes on"
    parts = []
    for k, (file, does, out) in enumerate(steps):
        y = 20 + ROW * k
        if k + 1 < len(steps):
            end = y + ROW - 8
            parts.append(f'<path d="M{LEFT},{y} V{end} m-4,-6 l4,6 l4,-6"/>')
        parts += [
            f'<circle cx="{LEFT}" cy="{y}" r="5"/>',
            f'<text class="name" x="{LEFT + 16}" y="{y + 4}">{escape(file)}</text>',
            f'<text x="{LEFT + 16}" y="{y + 21}">{escape(does)}</text>',
            f'<text class="out" x="{WIDTH - 8}" y="{y + 21}">{escape(out)}</text>',
        ]
    return document(WIDTH, ROW * len(steps) + 16, title, parts)


def write() -> None:
    """Writes all pictures."""
    for (_, name), steps in FLOWS.items():
        (FOLDER / f"flow-{name}.svg").write_text(svg(steps), encoding="utf-8")
