"""What does the same at each index of some axes of a program, as one equation each."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["parts", "points"])
