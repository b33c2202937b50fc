"""The structures of XLA's FFI, as ``xla/ffi/api/c_api.h`` in `jax.ffi.include_dir()` has them.

Only what kernels use is named; a name is that of the header, without ``XLA_FFI_`` and ``_Args``.
"""

from __future__ import annotations

import ctypes
from typing import Any

TESTED = ((0, 3), (0, 4), (0, 5))
"""Versions of the API, of jaxlib 0.10, 0.11.2 and 0.12, in which all of this is the same."""
METADATA = 1
"""The type of an extension that asks for a handler's version."""
NOT_FOUND, RESOURCE_EXHAUSTED = 5, 8
"""Codes of errors."""
_INT, _WORD, _PTR = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p


def _struct(name: str, **fields: Any) -> type[ctypes.Structure]:
    head = {"struct_size": _WORD, "extension_start": _PTR}
    return type(name, (ctypes.Structure,), {"_fields_": list((head | fields).items())})


def _list(name: str, *fields: str) -> type[ctypes.Structure]:
    return _struct(name, size=_WORD, **dict.fromkeys(fields, _PTR))


CALLS = {
    "Error_Create": _struct("Error_Create", message=_PTR, errc=_INT),
    "Error_Destroy": _struct("Error_Destroy", error=_PTR),
    "State_Set": _struct("State_Set", ctx=_PTR, stage=_INT, type_id=_PTR, state=_PTR),
    "State_Get": _struct("State_Get", ctx=_PTR, stage=_INT, type_id=_PTR, state=_PTR),
    "ThreadPool_Schedule": _struct("ThreadPool_Schedule", ctx=_PTR, task=_PTR, data=_PTR),
    "ThreadPool_NumThreads": _struct("ThreadPool_NumThreads", ctx=_PTR, num_threads=_PTR),
}
"""What a kernel asks of XLA: the arguments of each function."""
Version = _struct("Api_Version", major_version=_INT, minor_version=_INT)
_FUNCTIONS = (
    "Error_Create Error_GetMessage Error_Destroy Handler_Register Stream_Get Type_Register "
    "ExecutionContext_Get State_Set State_Get DeviceMemory_Allocate DeviceMemory_Free "
    "ThreadPool_Schedule ThreadPool_NumThreads"
)
Api = _struct(
    "Api", api_version=Version, internal_api=_PTR, **dict.fromkeys(_FUNCTIONS.split(), _PTR)
)
Buffer = _struct("Buffer", dtype=_INT, data=_PTR, rank=_WORD, dims=_PTR)
Args, Rets = _list("Args", "types", "args"), _list("Rets", "types", "rets")
Attrs = _list("Attrs", "types", "names", "attrs")
CallFrame = _struct("CallFrame", api=_PTR, ctx=_PTR, stage=_INT, args=Args, rets=Rets, attrs=Attrs)
"""What a handler gets."""
TypeInfo = _struct("TypeInfo", deleter=_PTR)


class Metadata(ctypes.Structure):
    """What a handler says of itself."""

    _fields_ = (
        ("struct_size", _WORD), ("api_version", Version), ("traits", _INT), ("state_type_id", _WORD)
    )  # fmt: skip


class Metadata_Extension(ctypes.Structure):  # noqa: N801
    """How it is asked."""

    _fields_ = (
        ("struct_size", _WORD), ("type", _INT), ("next", _PTR), ("metadata", _PTR)
    )  # fmt: skip


STRUCTURES = (
    Version, Api, Buffer, Args, Rets, Attrs, CallFrame, TypeInfo, Metadata, Metadata_Extension
)  # fmt: skip
"""All but the arguments of `CALLS`."""
