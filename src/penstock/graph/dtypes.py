"""The element types an array of a graph may have, each identified by one name.

A name means the same in a manifest on disk, in a handle on the wire and in an error message. NumPy
has no bfloat16: it is stored as 16-bit integers, and only its name says what they are. Numbers are
little-endian, as on disk. This module must not import torch: it recognises torch's dtypes by how
they print.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

STORAGE: Final[dict[str, np.dtype[Any]]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
    "int16": np.dtype("<i2"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "bool": np.dtype("?"),
    "float64": np.dtype("<f8"),
}

# Plain uint16 is not a supported type, and must not be taken for bfloat16 by mistake.
_NAMES: Final = {storage: name for name, storage in STORAGE.items() if name != "bfloat16"}

SUPPORTED: Final = tuple(STORAGE)


# Cached because it is called for every array of every batch, with few different arguments.
@functools.lru_cache(maxsize=256)
def dtype_name(dtype: object) -> str:
    """Return the name of `dtype`: a name, a NumPy dtype or scalar type, or a torch dtype."""
    if isinstance(dtype, np.dtype | type):
        name = _NAMES.get(np.dtype(dtype))
    else:
        name = str(dtype).removeprefix("torch.")
    if name not in STORAGE:
        raise ValueError(f"unsupported dtype {dtype!s}: use one of {', '.join(SUPPORTED)}")
    return name


@functools.lru_cache(maxsize=256)
def storage_dtype(dtype: object) -> np.dtype[Any]:
    """Return the NumPy dtype that elements of `dtype` are stored as."""
    return STORAGE[dtype_name(dtype)]


def itemsize(dtype: object) -> int:
    """Return the bytes per element of `dtype`."""
    return storage_dtype(dtype).itemsize
