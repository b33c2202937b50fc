"""Trains PPO on a task: ``python scripts/train.py --task RoeFlux_1d`` (see ``--help``)."""

from veenv.agents.cli.entry import run

if __name__ == "__main__":
    run("train")
