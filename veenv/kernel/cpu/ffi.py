"""Where things are in the structures of XLA's FFI, in bytes.

The structures are those of ``xla/ffi/api/c_api.h`` in `jax.ffi.include_dir()`; what is used of them
is the same in API versions 0.3 and 0.5, of jaxlib 0.10 and 0.12.
"""

FRAME = {"extension": 8, "api": 16, "ctx": 24, "args": 72, "rets": 112, "attrs": 160}
API = {
    "major": 32, "minor": 36, "error_create": 48, "error_destroy": 64, "state_set": 104,
    "state_get": 112, "schedule": 136, "num_threads": 144,
}  # fmt: skip
