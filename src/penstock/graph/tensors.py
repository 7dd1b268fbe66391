"""Arrays as users give them (NumPy, torch, lists), turned into a `PlainArray` without a copy.

A `PlainArray` keeps the name of its argument, so that an error can name it. Torch is never imported
here: only a program that has imported it can pass a tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph.dtypes import dtype_name, storage_dtype
from penstock.graph.shared import SharedArray


@dataclass(frozen=True, eq=False)
class PlainArray:
    """An array of a supported type, in its storage dtype; `label` is the user's name for it."""

    label: str
    array: npt.NDArray[Any]
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


def is_array(value: object) -> bool:
    """Return whether `value` is an array already, rather than something to make one from."""
    return isinstance(value, np.ndarray | np.generic | SharedArray) or is_tensor(value)


def is_tensor(value: object) -> bool:
    """Return whether `value` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_sparse(value: object) -> bool:
    """Return whether `value` is a sparse matrix or tensor of torch, torch_sparse or SciPy."""
    if is_tensor(value):
        return str(getattr(value, "layout", None)) != "torch.strided"
    return type(value).__name__ == "SparseTensor" or hasattr(value, "tocoo")


def plain(label: str, value: Any) -> PlainArray:
    """Return `value` as an array of a supported type; an array's memory is shared."""
    if is_sparse(value):
        raise ValueError(f"{label} is sparse ({_kind(value)}); make it dense first")
    if isinstance(value, SharedArray):
        return PlainArray(label, value.array, value.dtype)
    if is_tensor(value):
        return _from_tensor(label, value)
    return _from_numpy(label, as_numpy(label, value))


def integers(label: str, value: Any) -> PlainArray:
    """Return ids as `plain` does; an empty list, which has no type, becomes integers."""
    if isinstance(value, Sequence):
        value = as_numpy(label, value)
        value = value if value.size else value.astype(np.int64)
    return plain(label, value)


def as_numpy(label: str, value: Any) -> npt.NDArray[Any]:
    """Return `value` as a NumPy array of any type but objects."""
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{label} is a masked array; fill its gaps first")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{label} is no array ({_kind(value)}): {error}") from None
    if array.dtype == object:
        raise ValueError(f"{label} is an array of objects ({_kind(value)}); expected numbers")
    return array


def floats(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Return a piece of an array as numbers that can be compared: bfloat16 is widened."""
    if dtype != "bfloat16":
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def _from_tensor(label: str, value: Any) -> PlainArray:
    name = _supported(label, value.dtype)
    value = value.detach().cpu().resolve_neg()
    if name == "bfloat16":
        return PlainArray(
            label, value.view(sys.modules["torch"].int16).numpy().view(np.uint16), name
        )
    return PlainArray(label, value.numpy(), name)


def _from_numpy(label: str, array: npt.NDArray[Any]) -> PlainArray:
    if array.dtype.name == "bfloat16":  # from a package that adds it to NumPy
        return PlainArray(label, array.view(np.uint16), "bfloat16")
    little_endian = array.dtype.newbyteorder("<")
    name = _supported(label, little_endian)
    return PlainArray(label, array.astype(storage_dtype(name), copy=False), name)


def _supported(label: str, dtype: object) -> str:
    try:
        return dtype_name(dtype)
    except ValueError as error:
        raise ValueError(f"{label} has an {error}") from None


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
