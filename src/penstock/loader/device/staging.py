"""Brings memory that is not page-locked to a GPU: through page-locked memory, piece by piece.

For what lies outside of slots: tensors that were made here, and batches too large for a slot. The
memory for it is bounded: it is used again once the GPU has copied what was in it.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from penstock.loader.device.gpu import Gpu, Mark

BUFFER: Final = 4 << 20
BUFFERS: Final = 4
# Tensors in a buffer begin at multiples of this.
_GRAIN: Final = 64


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
        gpu, given = self._gpu, tensor.contiguous()
        out = gpu.empty(given.shape, given.dtype)
        source, target, begin = _flat(given), _flat(out), 0
        while begin < source.numel():
            room = self._room()
            piece = source[begin : begin + room.numel()]
            room = room[: piece.numel()].copy_(piece)
            gpu.copy_into(target[begin : begin + piece.numel()], room)
            begin += piece.numel()
            self._filled += -(-piece.numel() // _GRAIN) * _GRAIN
        return out

    def _room(self) -> Tensor:
        """Return what is left of the current buffer, or the next one."""
        if not self._ring:
            self._ring.append(self._gpu.pinned(BUFFER))
            self._marks.append(None)
        elif self._filled >= BUFFER:
            self._marks[self._at] = self._gpu.mark()
            self._at, self._filled = (self._at + 1) % BUFFERS, 0
            if self._at == len(self._ring):
                self._ring.append(self._gpu.pinned(BUFFER))
                self._marks.append(None)
            elif (mark := self._marks[self._at]) is not None:
                mark.wait()
        return self._ring[self._at][self._filled :]


def _flat(tensor: Tensor) -> Tensor:
    """Return the bytes of a contiguous tensor."""
    return tensor.detach().reshape(-1).view(torch.uint8)
