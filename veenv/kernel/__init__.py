"""One kernel: a Jacobian as a straight line of scalar operations, compiled as one loop.

`program` is the data that the backends share; `unroll` makes it from a jaxpr, `fuse` puts it in
the place of a function, `primitive` is what JAX sees. `cpu` compiles it with LLVM, `c` writes it
as C, `pallas` runs it on GPUs and TPUs.
"""
