"""Batches copied to pinned memory in the background, one ahead of the user.

Pinned memory is what a GPU copies from while the program goes on. To fill it takes as long as to
read a batch, so another thread does that while the user computes. It is given batches that are
finished but for this; everything else happens in the user's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch


def pin(data: Any) -> Any:
    """A batch in pinned memory; PyG's know how."""
    return data.pin_memory()


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
        return self._thread.submit(self._copy, data)

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        self._thread.shutdown(cancel_futures=True)
