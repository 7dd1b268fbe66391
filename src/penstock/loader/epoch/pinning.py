"""Copies batches to pinned memory in the background, one batch ahead of the user.

A GPU can copy from pinned memory while the program goes on. Filling that memory takes as long as
reading a batch, so another thread does it while the user computes. That thread is given batches
that are finished except for pinning; everything else happens in the user's thread.

A batch may be dropped while the GPU still copies from it: the memory is torch's, which reuses it
only when that copy has ended. A GPU never copies from a slot later: the slot goes back when its
content has been copied here, and CUDA reads memory that is not pinned before a copy call returns.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import torch
from torch.utils.data._utils.pin_memory import pin_memory
from torch_geometric.data.data import BaseData

# Torch has no types for these functions.
_pinned_by_torch: Final[Callable[[Any], Any]] = pin_memory
_is_in_use: Final[Callable[[], bool]] = torch.cuda.is_initialized


def pin(data: Any) -> Any:
    """Copy a batch to pinned memory; if a transform returned something else, do as torch does."""
    return data.apply(_pinned) if isinstance(data, BaseData) else _pinned_by_torch(data)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Pin a tensor, unless it is on a GPU already because the user's own data is."""
    return tensor.pin_memory() if tensor.device.type == "cpu" else tensor


def _with_device(device: int, copy: Callable[[Any], Any], data: Any) -> Any:
    with torch.cuda.device(device):  # of this thread; -1: no change
        return copy(data)


class Pinning:
    """A thread that copies batches to pinned memory, in order."""

    def __init__(self, copy: Callable[[Any], Any] = pin) -> None:
        self._copy = copy
        # The thread ends with this object, too, so `close` is optional.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-pinning")

    @classmethod
    def where_wanted(cls, wanted: bool) -> Pinning | None:
        """Return a `Pinning`, or None if not wanted.

        None also without a GPU to copy to: then pinning would only cost time.
        """
        return cls() if wanted and torch.cuda.is_available() else None

    def begin(self, data: Any) -> Future[Any]:
        """Start to copy a batch in the background."""
        # Without this check, a rank that has not used its own GPU yet would initialise GPU 0, and
        # so would every other rank.
        device = torch.cuda.current_device() if _is_in_use() else -1
        return self._thread.submit(_with_device, device, self._copy, data)

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._thread.shutdown(cancel_futures=True)
