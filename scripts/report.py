"""Shows a run, or an order, as one HTML page: ``python scripts/report.py RUN``."""

from veenv.agents.cli.entry import run

if __name__ == "__main__":
    run("report")
