"""Between NumPy's arrays, which the layers below speak, and torch's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def tensor_over(array: npt.NDArray[Any], dtype: str | None = None) -> Tensor:
    """A tensor in the array's memory, which it keeps alive. `dtype`: what NumPy has no name for."""
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def integers_of(given: Any, name: str) -> npt.NDArray[Any]:
    """Ids or times as a user has them, int64, wherever they lie; ValueError if they are others."""
    array = array_of(given)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} has dtype {array.dtype}; expected integers")
    integers = np.ascontiguousarray(array, np.int64)
    return integers if integers.flags.writeable else integers.copy()  # torch wants it so


def array_of(given: Any) -> npt.NDArray[Any]:
    """A tensor of any device, an array, a list or a range, as an array."""
    if isinstance(given, Tensor):
        tensor = given.detach().cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    if isinstance(given, list | tuple):  # tensors may be among them
        given = [entry.tolist() if isinstance(entry, Tensor) else entry for entry in given]
    return np.asarray(given)
