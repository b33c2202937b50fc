"""Our agent with several seeds: mean and spread of the learning curves, as a plot.

python docs/examples/sweep_seeds.py
"""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from veenv import agents


def main(task="HumanHeartDipole", seeds=5, steps=20_000, out="sweep.png", **settings):
    """Trains with each seed, draws ``out`` and returns the best counts."""
    best, curves = [], []
    for seed in range(seeds):
        run = agents.train(task, agents.PPOConfig(seed=seed, steps=steps, **settings))
        best.append(run.order.counts["multiplications"])
        curves.append([row["mean_cost"][task] for row in run.history])
        played = [row["steps"] for row in run.history]
    mean, spread = np.mean(curves, 0), np.std(curves, 0)
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xlabel="environment steps", ylabel="mean cost", title=task)
    axes.plot(played, mean)
    axes.fill_between(played, mean - spread, mean + spread, alpha=0.3)
    figure.savefig(out)
    print(f"{task}: best orders of {seeds} seeds cost {best}; at the end {mean[-1]:.1f} ± "
          f"{spread[-1]:.1f}")  # fmt: skip
    return best


if __name__ == "__main__":
    main()
