"""Convert between NumPy arrays, which the layers below use, and torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def tensor_over(array: npt.NDArray[Any], dtype: str | None = None) -> Tensor:
    """Return a tensor in the array's memory, which it keeps alive.

    `dtype` names a dtype that NumPy does not have.
    """
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def integers_of(given: Any, name: str) -> npt.NDArray[Any]:
    """Return a user's ids or times, from any device, as int64; ValueError if not integers."""
    array = array_of(given)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} has dtype {array.dtype}; expected integers")
    integers = np.ascontiguousarray(array, np.int64)
    return integers if integers.flags.writeable else integers.copy()  # torch wants it writeable


def array_of(given: Any) -> npt.NDArray[Any]:
    """Return a tensor of any device, an array, a list or a range as an array."""
    if isinstance(given, Tensor):
        tensor = given.detach().cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    if isinstance(given, list | tuple):  # may contain tensors
        given = [entry.tolist() if isinstance(entry, Tensor) else entry for entry in given]
    return np.asarray(given)
