"""A stand-in for a GPU: it copies as late as it may, and checks what CUDA leaves to its users.

Copies are queued by stream and read their source only when they are carried out: when somebody
waits for a mark behind them, or now and then by chance. Whatever writes to memory that a copy has
still to read so changes what arrives. Its device is the CPU.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

POISON = 0x5A


class Misuse(AssertionError):
    """What CUDA would answer with an error, or worse."""


@dataclass(eq=False)
class StandInMark:
    gpu: StandIn
    stream: str
    at: float | None = None  # when it was passed, by the stand-in's count of what it has done

    def passed(self) -> bool:
        self.gpu.go_on_by_chance()
        return self.at is not None

    def wait(self) -> None:
        self.gpu.waits += self.at is None
        self.gpu.run_until(self)

    def since(self, earlier: StandInMark) -> float:
        assert self.at is not None
        assert earlier.at is not None
        return self.at - earlier.at


@dataclass(eq=False)
class StandIn:
    """A `Gpu`. `seed` decides what is carried out by chance; None: nothing is."""

    seed: int | None = None
    most_bytes: int | None = None  # that it page-locks before it refuses
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    locked: dict[int, int] = field(default_factory=dict)  # end of each range, by its begin
    registered: int = 0  # how often
    free: int = 1 << 40  # bytes of its memory
    done: int = 0
    waits: int = 0
    copied: int = 0  # bytes

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._streams: dict[str, deque[Any]] = {}
        self._current = "current"
        self._own: list[torch.Tensor] = []

    # --- page-locking ---

    def register(self, address: int, nbytes: int) -> None:
        if address % mmap.PAGESIZE or nbytes % mmap.PAGESIZE or nbytes <= 0:
            raise Misuse(f"{address:#x} + {nbytes} are not whole pages")
        for begin, end in self.locked.copy().items():
            if address < end and begin < address + nbytes:
                raise Misuse("page-locked already")
        if self.most_bytes is not None and self.nbytes + nbytes > self.most_bytes:
            raise RuntimeError("no more memory can be page-locked")
        self.locked[address] = address + nbytes
        self.registered += 1

    def unregister(self, address: int) -> None:
        begin, end = address, self.locked.pop(address)
        for work in self._waiting():
            if isinstance(work, _Copy) and begin <= work.begin < end:
                raise Misuse("a copy was still to read from there")

    @property
    def nbytes(self) -> int:
        return sum(end - begin for begin, end in self.locked.copy().items())

    @property
    def unread(self) -> int:
        """How many copies are still to read their memory."""
        return sum(isinstance(work, _Copy) for work in self._waiting())

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return self._is_locked(tensor.data_ptr(), tensor.nbytes)

    def _is_locked(self, begin: int, nbytes: int) -> bool:
        end = begin + nbytes
        own = ((each.data_ptr(), each.data_ptr() + each.nbytes) for each in self._own)
        # A copy: memory may be collected, and so unlocked, at any moment.
        return any(a <= begin and end <= b for a, b in (*self.locked.copy().items(), *own))

    def pinned(self, nbytes: int) -> torch.Tensor:
        self._own.append(torch.empty(nbytes, dtype=torch.uint8, device="cpu"))
        return self._own[-1]

    # --- copying ---

    @contextmanager
    def copying(self) -> Iterator[None]:
        before, self._current = self._current, "copies"
        try:
            yield
        finally:
            self._current = before

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        out = self.empty(tensor.shape, tensor.dtype)
        self.copy_into(out, tensor)
        return out

    def copy_into(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        if tensor.numel() and not self.is_pinned(tensor):
            raise Misuse("a copy from memory that is not page-locked, or in two ranges")
        self._queue(self._current).append(_Copy(out, tensor))
        self.go_on_by_chance()

    def empty(self, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        out = torch.empty(tuple(shape), dtype=dtype, device=self.device)
        if out.numel():
            out.view(-1).view(torch.uint8).fill_(POISON)
        return out

    def run(self, what: Any, *tensors: torch.Tensor) -> None:
        self._queue(self._current).append(_Work(what, tensors))
        self.go_on_by_chance()

    def free_bytes(self) -> int:
        return self.free

    def mark(self) -> StandInMark:
        return self.mark_in(self._current)

    def mark_in(self, stream: str) -> StandInMark:
        mark = StandInMark(self, stream)
        self._queue(stream).append(mark)
        return mark

    def user_marks(self) -> list[Any]:
        return [self.mark_in("current"), self.mark_in("default")]

    def follow(self, mark: StandInMark) -> None:
        self.run_until(mark)  # a test reads at once what it is given

    def keep(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            assert isinstance(tensor, torch.Tensor)

    # --- what it does when ---

    def run_until(self, mark: StandInMark) -> None:
        queue = self._queue(mark.stream)
        while mark.at is None:
            self._do(queue.popleft())

    def go_on_by_chance(self) -> None:
        if self.seed is not None:
            for queue in self._streams.values():
                while queue and self._chance.random() < 0.4:
                    self._do(queue.popleft())

    def _do(self, work: Any) -> None:
        self.done += 1
        if isinstance(work, StandInMark):
            work.at = float(self.done)
        elif isinstance(work, _Work):
            work.what(*work.tensors)
        else:
            if work.nbytes and not self._is_locked(work.begin, work.nbytes):
                raise Misuse("memory was unlocked before it was read")
            work.carry_out()
            self.copied += work.nbytes

    def _queue(self, stream: str) -> deque[Any]:
        return self._streams.setdefault(stream, deque())

    def _waiting(self) -> Iterator[Any]:
        for queue in self._streams.values():
            yield from queue


@dataclass(frozen=True)
class _Work:
    """What is to be done with tensors of the device."""

    what: Any
    tensors: tuple[torch.Tensor, ...]


class _Copy:
    """A copy as CUDA knows it: by address. It keeps nothing alive."""

    def __init__(self, out: torch.Tensor, source: torch.Tensor) -> None:
        self.out = out  # the memory of the device is the device's
        self.begin = source.data_ptr()
        self.nbytes = source.nbytes

    def carry_out(self) -> None:
        if self.nbytes:
            there = (ctypes.c_char * self.nbytes).from_address(self.begin)
            source = torch.from_numpy(np.frombuffer(bytearray(there), np.uint8))
            self.out.view(-1).view(torch.uint8).copy_(source)


def stand_in_for_cuda(monkeypatch: Any, gpu: StandIn) -> None:
    """Let loaders find this GPU where they look for one of CUDA's."""
    from penstock.loader.device import transfer
    from penstock.loader.pyg import options

    monkeypatch.setattr(transfer, "CudaGpu", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(options, "_check_there", lambda *given: None)
