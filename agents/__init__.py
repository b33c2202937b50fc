"""The reference agent of `veenv`: PPO with a graph network whose size no graph decides.

Names are listed in `__init__.pyi` and load their modules when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
