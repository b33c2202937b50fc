"""Plays tasks with trained weights: ``python scripts/evaluate.py --run RUN``."""

from veenv.agents.cli.entry import run

if __name__ == "__main__":
    run("evaluate")
