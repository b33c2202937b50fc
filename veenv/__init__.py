"""veenv: finding fast Jacobians by vertex elimination.

A function is traced to its computational graph (`make_graph`); eliminating its vertices one by
one turns it into the Jacobian, and each elimination costs multiplications.  `make` turns the
graph into a reinforcement-learning environment, and `jacve` runs an elimination order as an exact
Jacobian.

Names are listed in `__init__.pyi` and load their modules when they are first used.
"""

from pathlib import Path

import lazy_loader

from veenv import _gymnasium

__version__ = "0.3.0"
"""The one place of the version."""

if not Path(__file__).with_name("agents").exists():  # a checkout that is not installed
    __path__.append(str(Path(__file__).parents[1]))

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_gymnasium.watch()
