"""The element types an array of a graph may have, each known by one name.

A name means the same in a manifest on disk, in a handle on the wire and in an error message.
bfloat16 has no NumPy dtype: it is stored as 16-bit integers and only its name tells what they are.
Numbers are little-endian, as on disk. This module must not import torch: its dtypes are known by
how they print.
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

# Plain uint16 is not a name of ours, and must not be taken for bfloat16 unasked.
_NAMES: Final = {storage: name for name, storage in STORAGE.items() if name != "bfloat16"}

SUPPORTED: Final = tuple(STORAGE)


# Asked for with every array of every batch; there are few answers.
@functools.lru_cache(maxsize=256)
def dtype_name(dtype: object) -> str:
    """The name of `dtype`: a name already, a NumPy dtype or scalar type, or a torch dtype."""
    if isinstance(dtype, np.dtype | type):
        name = _NAMES.get(np.dtype(dtype))
    else:
        name = str(dtype).removeprefix("torch.")
    if name not in STORAGE:
        raise ValueError(f"unsupported dtype {dtype!s}: use one of {', '.join(SUPPORTED)}")
    return name


@functools.lru_cache(maxsize=256)
def storage_dtype(dtype: object) -> np.dtype[Any]:
    """The NumPy dtype that elements of `dtype` are stored as."""
    return STORAGE[dtype_name(dtype)]


def itemsize(dtype: object) -> int:
    """Bytes per element of `dtype`."""
    return storage_dtype(dtype).itemsize
