"""The array types that kernels read and write, shared by the interface and the NumPy twins."""

from __future__ import annotations

import operator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.int64]

_IDS: Final = np.dtype(np.int64)  # there is one such object; others that equal it are converted

MOST_NEIGHBORS: Final = 2**62  # more than any list can hold; sums of it do not overflow


def as_ids(values: npt.ArrayLike, name: str) -> Ids:
    """Return `values` as one-dimensional int64; other kinds of ids are an error, not converted."""
    # Nearly all ids are as they must be. This comes first because `np.require` takes microseconds,
    # for each array of each batch.
    if type(values) is np.ndarray and values.dtype is _IDS and values.ndim == 1:
        ids: Ids = values
        if ids.flags.aligned:
            return ids
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, not shape {list(array.shape)}")
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise ValueError(f"{name} must be integers, not {array.dtype}")
    return np.require(array, np.int64, "A")


def as_numbers(values: npt.ArrayLike, name: str) -> Array:
    """Return `values` as they are if they are int32 or int64, else as `as_ids` does.

    For kernels that read both: what came over a network is not converted.
    """
    if type(values) is np.ndarray and values.dtype == np.int32 and values.ndim == 1:
        return values if values.flags.aligned else np.require(values, np.int32, "A")
    return as_ids(values, name)


def check_output(array: Any, name: str) -> Ids:
    """Check that a kernel can write ids to `array`, and return it.

    Nothing is converted: the kernel would write to a copy that the caller never sees.
    """
    if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != 1:
        kind = (
            f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array)
        )
        raise ValueError(f"{name} must be a one-dimensional array of int64, not {kind}")
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable):
        raise ValueError(f"{name} must be contiguous, aligned and writeable")
    return array


def raw_bytes(array: Array, name: str = "array") -> npt.NDArray[np.uint8]:
    """Return the bytes of a C-contiguous array, without copying."""
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be C-contiguous")
    if array.size == 0:
        return np.empty(0, np.uint8)
    return array.reshape(-1).view(np.uint8)


def check_integer(value: Any, name: str, low: int, high: int) -> int:
    """Return `value` as a plain int with low <= value < high; bools and fractions are refused."""
    if type(value) is int and low <= value < high:
        return value
    try:
        number = operator.index(value) if not isinstance(value, (bool, np.bool_)) else None
    except TypeError:
        number = None
    if number is None or not low <= number < high:
        raise ValueError(f"{name} is {value!r}; expected an integer, {low} <= {name} < {high}")
    return number


def check_word(value: Any, name: str) -> int:
    """Return `value` as an unsigned 64-bit word: for seeds, epochs and indices."""
    return check_integer(value, name, 0, 2**64)


def check_fanout(value: Any, name: str) -> int:
    """Return `value` as a fan-out: -1 for all, 0 for none, or a number."""
    try:
        return check_integer(value, name, -1, MOST_NEIGHBORS + 1)
    except ValueError:
        raise ValueError(
            f"{name} is {value!r}; expected -1 (all), 0 (none) or a number up to 2**62"
        ) from None
