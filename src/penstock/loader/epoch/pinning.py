"""Batches copied to pinned memory in the background, one ahead of the user.

Pinned memory is what a GPU copies from while the program goes on. To fill it takes as long as to
read a batch, so another thread does that while the user computes. It is given batches that are
finished but for this; everything else happens in the user's thread.

A batch may be dropped while the GPU still copies from it: the memory is torch's, which lends it out
again when that copy has ended. Slots never are what a GPU copies from later. They go back when
their content has been copied here; and what was not pinned, CUDA takes in before a copy returns.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import torch
from torch.utils.data._utils.pin_memory import pin_memory
from torch_geometric.data.data import BaseData

# Torch has no types for these.
_pinned_by_torch: Final[Callable[[Any], Any]] = pin_memory
_is_in_use: Final[Callable[[], bool]] = torch.cuda.is_initialized


def pin(data: Any) -> Any:
    """A batch in pinned memory; what is no batch any more, after a transform, as torch does it."""
    return data.apply(_pinned) if isinstance(data, BaseData) else _pinned_by_torch(data)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    """What already lies on a GPU, since the user's own data does, has no need of it."""
    return tensor.pin_memory() if tensor.device.type == "cpu" else tensor


def _with_device(device: int, copy: Callable[[Any], Any], data: Any) -> Any:
    with torch.cuda.device(device):  # of this thread; -1: as it is
        return copy(data)


class Pinning:
    """A thread that copies, in order."""

    def __init__(self, copy: Callable[[Any], Any] = pin) -> None:
        self._copy = copy
        # It ends with this object, too: nobody need close it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-pinning")

    @classmethod
    def where_wanted(cls, wanted: bool) -> Pinning | None:
        """None if nobody wants it, or where there is no GPU to copy to: then it would be a loss."""
        return cls() if wanted and torch.cuda.is_available() else None

    def begin(self, data: Any) -> Future[Any]:
        """Copies a batch while others do something else."""
        # Else a rank that has not used its own GPU yet would set up the first one, of all ranks.
        device = torch.cuda.current_device() if _is_in_use() else -1
        return self._thread.submit(_with_device, device, self._copy, data)

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        self._thread.shutdown(cancel_futures=True)
