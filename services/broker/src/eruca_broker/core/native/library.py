"""The compiled functions, as Python calls them.

They are in one library beside this package, compiled at its installation (``hatch_build.py``). They
are called with the GIL held. A call takes microseconds, or some milliseconds for millions of keys,
and never blocks.

The caller must ensure that every address and count is right; the functions do not check them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray


def _load(module: str) -> ctypes.PyDLL:
    """Load the library that a module of this name would be."""
    found = find_spec(module)
    if found is None or found.origin is None:
        raise ImportError(f"{module} is not compiled: install the package again")
    return ctypes.PyDLL(found.origin)


_library: Final = _load("_eruca_broker")
# ISA-L's function itself: a call from C takes a quarter of the time of a call from Python.
_crc32: Final = _load(isal_zlib.__name__).crc32_gzip_refl


class ExpectedRecord(ctypes.Structure):
    """The fields that every record of a request must have; ``struct expected``."""

    _fields_ = (
        ("topic", c_char_p),
        ("crc32", c_void_p),
        ("born_timestamp_max", c_int64),
        ("topic_size", c_uint32),
        ("body_at", c_uint32),
        ("body_bytes_max", c_uint32),
        ("properties_size_max", c_uint32),
        ("queue_id", c_uint32),
        ("sys_flag_mask", c_uint32),
        ("sys_flag", c_uint32),
        ("key_hash_start", c_uint32),
        ("key_size_max", c_uint32),
    )


class Delay(ctypes.Structure):
    """The additions to the records of a batch that wait for delivery times; ``struct delay``."""

    _fields_ = (
        ("topic", c_char_p),
        ("added", c_char_p),
        ("now_ms", c_int64),
        ("deliver_ms_max", c_int64),
        ("topic_size", c_uint32),
        ("added_size", c_uint32),
        ("key_hash_start", c_uint32),
    )


class QueuePlace(ctypes.Structure):
    """Place that the next record of a queue must name as its own; ``struct place``."""

    _fields_ = (
        ("topic", c_char_p),
        ("log_offset", c_int64),
        ("queue_offset", c_int64),
        ("topic_size", c_uint32),
        ("queue_id", c_uint32),
    )


CRC32_AT: Final = ctypes.cast(_crc32, c_void_p).value
"""Address of the checksum function that compiled functions call."""


def _function(
    name: str, result: type[c_uint32 | c_uint64] | None, *parameters: type[ctypes._SimpleCData[Any]]
) -> Callable[..., int]:
    function: ctypes._NamedFuncPointer = getattr(_library, name)
    function.restype = result
    function.argtypes = parameters
    return function


prove_records: Final = _function(
    "prove_records", c_uint32, c_void_p, c_void_p, c_uint32, c_uint32, c_void_p, c_void_p
)
delay_records: Final = _function(
    "delay_records",
    c_uint32,
    *(c_void_p, c_void_p, c_uint32, c_uint32, c_void_p, c_void_p, c_void_p, c_void_p),
)
enter_times: Final = _function(
    "enter_times", c_uint32, c_void_p, c_uint32, c_uint32, c_void_p, c_void_p
)
gather_singles: Final = _function(
    "gather_singles",
    c_uint32,
    *(c_void_p, c_char_p, c_char_p, c_char_p, c_uint32, c_void_p, c_void_p),
)
read_records: Final = _function(
    "read_records", c_uint32, c_void_p, c_uint32, c_uint32, c_uint32, c_void_p
)
read_properties: Final = _function(
    "read_properties", c_uint32, c_void_p, c_void_p, c_void_p, c_void_p, c_uint32, c_void_p
)
read_text: Final = _function(
    "read_text", c_uint32, c_char_p, c_uint32, c_uint32, c_uint32, c_uint32, c_void_p
)
stamp_records: Final = _function(
    "stamp_records",
    None,
    *(c_void_p, c_uint32, c_int64, c_int64, c_char_p, c_uint32, c_uint32, c_void_p, c_void_p),
    c_void_p,
)
prove_stored: Final = _function(
    "prove_stored", None, c_void_p, c_void_p, c_void_p, c_uint32, c_void_p, c_void_p
)
divide_run: Final = _function(
    "divide_run",
    c_uint32,
    *(c_void_p, c_uint32, c_int64, c_char_p, c_uint32, c_void_p, c_void_p, c_uint32),
)
enter_records: Final = _function("enter_records", None, c_uint32, c_int64, c_void_p, c_void_p)
whole_records: Final = _function(
    "whole_records", c_uint32, c_void_p, c_uint32, c_int64, c_uint32, c_void_p
)
prove_queued: Final = _function(
    "prove_queued", c_uint32, c_void_p, c_uint32, c_void_p, c_void_p, c_void_p, c_void_p
)
prove_entries: Final = _function(
    "prove_entries",
    c_uint32,
    *(c_char_p, c_uint32, c_void_p, c_uint32, c_int64, c_void_p, c_void_p, c_void_p),
)
gather_records: Final = _function(
    "gather_records", None, c_void_p, c_void_p, c_void_p, c_uint32, c_void_p
)
chain_keys: Final = _function(
    "chain_keys", c_uint32, c_void_p, c_uint32, c_int32, c_void_p, c_uint32, c_void_p
)
encode_index_entries: Final = _function(
    "encode_index_entries",
    None,
    *(c_void_p, c_void_p, c_void_p, c_void_p, c_uint32, c_int64, c_void_p),
)


in_memory_until: Final = _function("in_memory_until", c_uint64, c_void_p, c_uint64, c_uint64)


def address_of(buffer: bytearray | memoryview, at: int = 0) -> int:
    """Return the address of byte *at* of *buffer*; valid until the buffer is resized or freed.

    It must be writable; of read-only memory, :func:`address_of_array` returns it.
    """
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer, at))


def address_of_array(array: NDArray[Any], dtype: type[np.generic]) -> int:
    """Return the address of an array's first element, of *dtype*; the others follow directly."""
    assert array.dtype == dtype, array.dtype
    assert array.flags.c_contiguous, array.strides
    address: int = array.__array_interface__["data"][0]
    return address
