"""The reference agent of `veenv`: PPO with a graph network whose size no graph decides.

Names are listed in `__init__.pyi` and load their modules when they are first used.
"""

from typing import Any

import lazy_loader

from veenv._support import extra

if __name__ != "veenv.agents":
    raise ImportError(f"{__name__} is a part of veenv: write `from veenv import agents`")

_loaded, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    with extra("agents"):
        return _loaded(name)
