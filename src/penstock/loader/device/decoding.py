"""Decode attributes that are stored in a smaller type: here, or on a GPU.

Batches have rows as they are stored, so fewer bytes are moved. Here they are decoded by
`Codec.decode`; on a GPU by the same operations, each rounded once, which give the same bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.graph.codec import Codec
from penstock.loader.device.gpu import Gpu
from penstock.loader.device.staging import Staging
from penstock.loader.pyg.tensors import tensor_over

# Of the dtypes that a codec knows.
_DTYPES = {"int8": torch.int8, "float16": torch.float16, "bfloat16": torch.bfloat16}


class CodedRows(Tensor):
    """Stands for rows that the GPU will decode: their shape and dtype, and no memory.

    Attributes:
        stored: The rows as they are stored.
        codec: How they are read.
    """

    stored: Tensor
    codec: Codec

    @classmethod
    def of(cls, stored: Tensor, codec: Codec) -> CodedRows:
        """Make what stands for these rows."""
        made = torch.empty(stored.shape, dtype=torch.float32, device="meta").as_subclass(cls)
        made.stored, made.codec = stored, codec
        return made


def is_coded(rows: Tensor, codec: Codec) -> bool:
    """Return whether rows are as they are stored: a user's sampler may give rows of its own."""
    return rows.dtype == _DTYPES[codec.stored]


def decoded(stored: Tensor, codec: Codec) -> Tensor:
    """Return rows as they are read, in memory of this process."""
    if codec.stored == "bfloat16":
        return stored.to(torch.float32)  # NumPy has no such type
    return tensor_over(codec.decode(stored.numpy()))


class Decoder:
    """Decodes rows on a GPU, in the current stream, which is the one for copies.

    Args:
        gpu: The GPU.
        staging: Moves the numbers of codecs.
    """

    def __init__(self, gpu: Gpu, staging: Staging) -> None:
        self._gpu = gpu
        self._staging = staging
        self._numbers: dict[Codec, tuple[Tensor, Tensor]] = {}

    def decode(self, stored: Tensor, codec: Codec) -> Tensor:
        """Ask for rows as they are read.

        Args:
            stored: Rows on the device, as they are stored.
            codec: How they are read.
        """
        out = self._gpu.empty(stored.shape, torch.float32)
        if not out.numel():
            return out
        if codec.stored == "int8":
            self._gpu.run(_scale, out, stored, *self._scale_and_offset(codec))
        else:
            self._gpu.run(_widen, out, stored)
        return out

    def _scale_and_offset(self, codec: Codec) -> tuple[Tensor, Tensor]:
        found = self._numbers.get(codec)
        if found is None:
            scale, offset = (torch.tensor(each) for each in (codec.scales, codec.offsets))
            found = self._staging.copy(scale), self._staging.copy(offset)
            self._numbers[codec] = found
        return found


def _scale(out: Tensor, stored: Tensor, scale: Tensor, offset: Tensor) -> None:
    # Not `addcmul`, which rounds once: here and in NumPy the product is rounded, then the sum.
    torch.mul(stored, scale, out=out)
    out.add_(offset)


def _widen(out: Tensor, stored: Tensor) -> None:
    out.copy_(stored)
