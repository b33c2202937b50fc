"""Plays tasks with trained weights: ``python scripts/evaluate.py --run RUN``."""

from agents.cli.entry import run

if __name__ == "__main__":
    run("evaluate")
