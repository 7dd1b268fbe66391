"""Brings memory that is not page-locked to a GPU: through page-locked memory, piece by piece.

For what lies outside of slots: tensors that were made here, and batches too large for a slot. The
memory for it is bounded: it is used again once the GPU has copied what was in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import torch
from torch import Tensor

from penstock.loader.device.gpu import Gpu, Mark

BUFFER: Final = 4 << 20
BUFFERS: Final = 4
# Tensors in a buffer begin at multiples of this.
_GRAIN: Final = 64


# Writes bytes to a piece of page-locked memory: which rows, from the first to behind the last.
Write: TypeAlias = Callable[[Tensor, int, int], None]


class Staging:
    """A ring of page-locked buffers, filled one after the other. For one thread at a time."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._ring: list[Tensor] = []
        self._marks: list[Mark | None] = []  # behind the last copy from each buffer
        self._at = 0  # the buffer that is being filled
        self._filled = 0

    def copy(self, tensor: Tensor) -> Tensor:
        """Ask for a copy on the device, in the current stream; `tensor` may change afterwards."""
        given = tensor.contiguous()
        out = self._gpu.empty(given.shape, given.dtype)
        if not given.numel():
            return out
        source = _flat(given)
        self._fill_bytes(_flat(out), 1, lambda room, first, last: room.copy_(source[first:last]))
        return out

    def fill(self, out: Tensor, write: Write) -> None:
        """Ask for rows to be copied to the device, in the current stream, as they are written.

        Args:
            out: Memory of the device for the rows, contiguous.
            write: Writes some of the rows, as bytes, into page-locked memory.
        """
        if not out.numel():
            return
        row_bytes = out.nbytes // len(out)
        if row_bytes > BUFFER:
            given = torch.empty(out.nbytes, dtype=torch.uint8, device="cpu")
            write(given, 0, len(out))
            self._fill_bytes(_flat(out), 1, lambda room, first, last: room.copy_(given[first:last]))
            return
        self._fill_bytes(_flat(out), row_bytes, write)

    def _fill_bytes(self, target: Tensor, grain: int, write: Callable[..., object]) -> None:
        begin = 0
        while begin < target.numel():
            room = self._room(grain)
            size = min(room.numel() // grain * grain, target.numel() - begin)
            room, end = room[:size], begin + size
            write(room, begin // grain, end // grain)
            # First: if an interrupt strikes in between, what may be copied is not written over.
            self._filled += -(-size // _GRAIN) * _GRAIN
            self._gpu.copy_into(target[begin:end], room)
            begin = end

    def _room(self, least: int) -> Tensor:
        """Return what is left of the current buffer, or the next one if that is too little."""
        if BUFFER - self._filled < least:
            self._marks[self._at] = self._gpu.mark()
            self._at, self._filled = (self._at + 1) % BUFFERS, 0
        if self._at == len(self._ring):
            self._marks.append(None)  # first: an interrupt may leave one too many
            self._ring.append(self._gpu.pinned(BUFFER))
        elif (mark := self._marks[self._at]) is not None:
            mark.wait()  # once more, if an interrupt ends it
            self._marks[self._at] = None
        return self._ring[self._at][self._filled :]


def _flat(tensor: Tensor) -> Tensor:
    """Return the bytes of a contiguous tensor."""
    return tensor.detach().reshape(-1).view(torch.uint8)
