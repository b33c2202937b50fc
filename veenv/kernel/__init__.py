"""One kernel: a Jacobian as a straight line of scalar operations, compiled as one loop.

`scalar_program` is the data that the backends share; `unrolling` makes it from a jaxpr, `fusing`
puts it in the place of a function, `primitive` is what JAX sees. `cpu` compiles it with LLVM,
`veenv.export.c` writes it as C.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
