"""Shows `agents/` as `veenv/agents`, for type checkers; pyproject.toml has the rest."""

import sys
from pathlib import Path

from setuptools import setup

agents = Path(__file__).resolve().parent / "veenv" / "agents"
if not agents.exists():  # in a source distribution it does
    if sys.platform == "win32":  # where a link needs a privilege, and a junction none
        import _winapi

        _winapi.CreateJunction(str(agents.parents[1] / "agents"), str(agents))
    else:
        agents.symlink_to("../agents")
setup()
