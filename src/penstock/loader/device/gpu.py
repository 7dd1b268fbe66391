"""What is asked of CUDA: page-locking memory, copying on a stream of its own, marks in streams.

`CudaGpu` asks torch, which brings CUDA with it. Tests have a stand-in that copies as late as it
may, and notices memory that changes too early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import torch
from torch import Tensor

# Torch has no types for much of this.
_cuda: Final[Any] = torch.cuda
_core: Final[Any] = torch._C
# Page-locked for all devices of the process.
_PORTABLE: Final = 1


class Mark(Protocol):
    """A point in a stream: the GPU passes it when it has done all that was asked before."""

    def passed(self) -> bool:
        """Return whether the GPU has passed it."""

    def wait(self) -> None:
        """Wait until the GPU has passed it."""

    def since(self, earlier: Any) -> float:
        """Return the seconds between two marks, both passed."""


class Gpu(Protocol):
    """One GPU, as this process uses it."""

    @property
    def device(self) -> torch.device:
        """The device, with its index."""

    def register(self, address: int, nbytes: int) -> None:
        """Page-lock whole pages, so that the GPU can copy from them; RuntimeError if refused."""

    def unregister(self, address: int) -> None:
        """Undo `register`. Nothing may be copied from there any more."""

    def is_pinned(self, tensor: Tensor) -> bool:
        """Return whether a tensor is in page-locked memory."""

    def pinned(self, nbytes: int) -> Tensor:
        """Return new page-locked memory."""

    def copying(self) -> AbstractContextManager[Any]:
        """Return a context in which the stream for copies is the current one."""

    def copy(self, tensor: Tensor) -> Tensor:
        """Ask for a copy on the device, in the current stream; do not wait for it."""

    def copy_into(self, out: Tensor, tensor: Tensor) -> None:
        """Ask for a copy to memory of the device, in the current stream; do not wait for it."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return new memory of the device, of the current stream."""

    def run(self, what: Callable[..., object], *tensors: Tensor) -> None:
        """Ask for `what(*tensors)` in the current stream; do not wait for it.

        Args:
            what: Reads and writes the tensors, and nothing else.
            *tensors: On the device.
        """

    def free_bytes(self) -> int:
        """Return how many bytes of the device's memory nobody has."""

    def mark(self) -> Mark:
        """Return a mark in the current stream."""

    def user_marks(self) -> list[Mark]:
        """Return marks in the streams that a user's copies may be in."""

    def follow(self, mark: Mark) -> None:
        """Let the current stream wait for a mark in another one."""

    def keep(self, tensors: Iterable[Tensor]) -> None:
        """Let memory of these tensors not be used again before the current stream has passed."""


def _is_used(device: int) -> bool:
    """Return whether this process uses a GPU already; to ask one that it does not takes memory."""
    return bool(_core._cuda_hasPrimaryContext(device))


class CudaMark:
    """A mark in a stream of torch's."""

    __slots__ = ("event",)

    def __init__(self, stream: Any) -> None:
        self.event: Any = _cuda.Event(enable_timing=True)
        self.event.record(stream)

    def passed(self) -> bool:
        """Return whether the GPU has passed it."""
        return bool(self.event.query())

    def wait(self) -> None:
        """Wait until the GPU has passed it, without the GIL."""
        self.event.synchronize()

    def since(self, earlier: CudaMark) -> float:
        """Return the seconds between two marks, both passed."""
        return float(earlier.event.elapsed_time(self.event)) / 1000


class CudaGpu:
    """A GPU by torch and CUDA's runtime, which torch has loaded.

    Args:
        device: The device; without an index, the one that is current now.
    """

    def __init__(self, device: torch.device) -> None:
        given: int | None = device.index
        self._device = torch.device("cuda", _cuda.current_device() if given is None else given)
        self._stream = _cuda.Stream(self._device)
        self._runtime = _cuda.cudart()

    @property
    def device(self) -> torch.device:
        """The device, with its index."""
        return self._device

    def register(self, address: int, nbytes: int) -> None:
        """Page-lock whole pages; RuntimeError if refused."""
        with _cuda.device(self.device):
            status = int(self._runtime.cudaHostRegister(address, nbytes, _PORTABLE))
        if status:
            raise RuntimeError(f"CUDA cannot page-lock {nbytes} bytes (error {status})")

    def unregister(self, address: int) -> None:
        """Undo `register`."""
        with _cuda.device(self.device):
            status = int(self._runtime.cudaHostUnregister(address))
        if status:
            raise RuntimeError(f"CUDA cannot release page-locked memory (error {status})")

    def is_pinned(self, tensor: Tensor) -> bool:
        """Return whether a tensor is in page-locked memory."""
        return tensor.is_pinned()

    def pinned(self, nbytes: int) -> Tensor:
        """Return new page-locked memory."""
        return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)

    def copying(self) -> AbstractContextManager[Any]:
        """Return a context in which the stream for copies is the current one."""
        context: AbstractContextManager[Any] = _cuda.stream(self._stream)
        return context

    def copy(self, tensor: Tensor) -> Tensor:
        """Ask for a copy on the device, in the current stream."""
        return tensor.to(self.device, non_blocking=True)

    def copy_into(self, out: Tensor, tensor: Tensor) -> None:
        """Ask for a copy to memory of the device, in the current stream."""
        out.copy_(tensor, non_blocking=True)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return new memory of the device, of the current stream."""
        return torch.empty(tuple(shape), dtype=dtype, device=self.device)

    def run(self, what: Callable[..., object], *tensors: Tensor) -> None:
        """Ask for `what(*tensors)` in the current stream."""
        what(*tensors)

    def free_bytes(self) -> int:
        """Return how many bytes nobody has; torch's own unused memory counts as free."""
        free: int = _cuda.mem_get_info(self.device)[0]
        kept = _cuda.memory_reserved(self.device) - _cuda.memory_allocated(self.device)
        return free + int(kept)

    def mark(self) -> CudaMark:
        """Return a mark in the current stream."""
        return CudaMark(_cuda.current_stream(self.device))

    def user_marks(self) -> list[Mark]:
        """Return marks in the current stream and in the default one, of each GPU in use.

        Users copy to another GPU than the current one, too: `batch.to(f"cuda:{rank}")`.
        """
        others = (at for at in range(_cuda.device_count()) if at != self.device.index)
        found = [self.device.index, *filter(_is_used, others)]
        streams = {
            each(at) for at in found for each in (_cuda.current_stream, _cuda.default_stream)
        }
        return [CudaMark(stream) for stream in streams]

    def follow(self, mark: Mark) -> None:
        """Let the current stream wait for a mark in another one."""
        assert isinstance(mark, CudaMark)
        _cuda.current_stream(self.device).wait_event(mark.event)

    def keep(self, tensors: Iterable[Tensor]) -> None:
        """Let memory of these tensors not be used again before the current stream has passed."""
        current = _cuda.current_stream(self.device)
        for tensor in tensors:
            tensor.record_stream(current)
