"""Conversion between torch tensors and the kernels' arrays, in the same memory.

Torch is imported inside functions only: a caller with a tensor has imported it already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.kernels import _native
from penstock.kernels.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor, dtype

# A random stream of its own, whatever torch's generator gives: see docs/random.md.
_TORCH_DOMAIN: Final = 0x746F726368000001


def array_of(tensor: Any, name: str) -> Array:
    """Return a tensor's numbers, in its own memory if that is contiguous."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}; expected a tensor")
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ValueError(f"{name} is on {tensor.device} as {tensor.layout}; expected plain memory")
    # `detach` makes another object: what is made of the array does not keep the tensor alive.
    plain = tensor.detach().contiguous()
    array: Array = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    return array


def tensor_of(array: Array, kind: dtype | None = None) -> Tensor:
    """Return a tensor with an array's memory; `kind`: convert to another integer type."""
    import torch

    made = torch.from_numpy(array)
    return made if kind is None else made.to(kind)


def drawn_key() -> int:
    """Return the key of a call: one number from torch's default generator.

    So `torch.manual_seed` makes calls repeatable, and each worker of a DataLoader has its own keys.
    """
    import torch

    word = int(torch.randint(2**63 - 1, (), dtype=torch.int64))
    return _native.fold(_TORCH_DOMAIN, word)


def same_length(array: Array, count: int, name: str, of: str) -> Array:
    """Return `array` if it has one number for each of `count` things; else ValueError."""
    if array.shape != (count,):
        raise ValueError(f"{name} has shape {list(array.shape)}; there are {count} {of}")
    return array


def offsets_of(tensor: Tensor, name: str) -> Array:
    """Return the offsets of rows, as the kernels read them."""
    array = array_of(tensor, name)
    if array.ndim != 1 or len(array) == 0 or array.dtype.kind != "i":
        raise ValueError(
            f"{name} is {array.dtype} {list(array.shape)}; expected the offsets of rows, [n + 1]"
        )
    return array.astype(np.int64, copy=False)
