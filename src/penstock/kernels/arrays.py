"""The shapes and types that kernels read and write, shared by the face and the NumPy twin."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.int64]


def as_ids(values: npt.ArrayLike, name: str) -> Ids:
    """`values` as one-dimensional int64; ids of another kind are an error, not a conversion."""
    array = np.asarray(values)
    if array.size == 0 and array.ndim == 1:
        return array.astype(np.int64)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, not shape {list(array.shape)}")
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise ValueError(f"{name} must be integers, not {array.dtype}")
    return array.astype(np.int64, copy=False)


def raw_bytes(array: Array, name: str = "array") -> npt.NDArray[np.uint8]:
    """The bytes of a C-contiguous array, without copying."""
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be C-contiguous")
    if array.size == 0:
        return np.empty(0, np.uint8)
    return array.reshape(-1).view(np.uint8)


def check_word(value: int, name: str) -> int:
    """`value` as an unsigned 64-bit word: seeds, epochs, indices."""
    word = int(value)
    if word != value or not 0 <= word < 2**64:
        raise ValueError(f"{name} must be an integer with 0 <= {name} < 2**64, not {value!r}")
    return word
