"""How batches reach the device that a user asked for.

A `Transfer` is told when the user wants a batch (`want`), and sees each batch three times: when it
was taken from its channel (`receive`), when it was turned into what the user wants (`begin`), and
when the user is given it (`finish`). Between the last two, other batches may be begun. All of it
happens in the user's thread, which asks the GPU and does not wait for it.
"""

from __future__ import annotations

import logging
import os
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch_geometric.data.data import BaseData

from penstock.client.channel.batch import Batch
from penstock.graph.codec import Codec
from penstock.loader.device.clock import Delivery, DeviceClock
from penstock.loader.device.decoding import CodedRows, Decoder, decoded
from penstock.loader.device.features import BatchRows, Column, DeviceFeatures, RowsLater
from penstock.loader.device.gpu import CudaGpu, Gpu, Mark
from penstock.loader.device.lending import Lending
from penstock.loader.device.pins import Pins
from penstock.loader.device.staging import Staging
from penstock.loader.device.statistics import DeviceStatistics
from penstock.workers.limits import Readings

log = logging.getLogger(__name__)

Room = Callable[[], int | None]
# Batches on the device ahead of the model: more only take memory.
_MOST_AHEAD: Final = 8
# The share of the memory that this process may still use, and bytes, that are page-locked at most.
_LOCKED_SHARE: Final = 0.25
_MOST_LOCKED: Final = 16 << 30


class Transfer(ABC):
    """Brings the batches of one loader to where its user wants them. For one thread at a time."""

    transforms_last = False  # whether users' transforms see a batch where it arrives

    def want(self) -> None:  # noqa: B027 - only a GPU's time is measured
        """Note that the user wants a batch now, whether or not one is there."""

    def make_room(self, room: Room) -> None:  # noqa: B027 - most hold nothing
        """Let go of slots that were read; wait for some if the channel has no room left.

        Args:
            room: Returns how many more slots may be held; None: any number.
        """

    def receive(self, batch: Batch) -> Batch:
        """Take a batch as its channel gives it."""
        return batch

    @abstractmethod
    def begin(self, data: Any, batch: Batch) -> Any:
        """Begin to move what was made of a batch."""

    def finish(self, begun: Any) -> Any:
        """Return what `begin` has begun to move."""
        return begun

    def later(self, column: Column, ids: Tensor) -> Tensor | None:
        """Return what stands for rows of a batch until `begin`; None if workers gather them."""
        return None

    def decoded(self, stored: Tensor, codec: Codec) -> Tensor:
        """Return rows as they are read, or what stands for them until `begin`."""
        return decoded(stored, codec)

    def has_room(self, begun: Sequence[Any]) -> bool:
        """Return whether another batch may be begun beside these, which `begin` has returned."""
        return False

    def statistics(self) -> DeviceStatistics | None:
        """Return a snapshot of the statistics; None if there is nothing to tell."""
        return None

    def close(self) -> None:  # noqa: B027
        """Wait for what still reads from slots. Idempotent."""


class PlainTransfer(Transfer):
    """Moves batches to a device that is not CUDA's, when they are delivered."""

    transforms_last = True

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def begin(self, data: Any, batch: Batch) -> Any:
        """Return the batch as it is."""
        return data

    def finish(self, begun: Any) -> Any:
        """Return the batch on the device."""
        return applied(begun, lambda tensor: tensor.to(self._device))


class PinnedTransfer(Transfer):
    """Leaves batches where they are, in memory that is page-locked there."""

    def __init__(self, gpu: Callable[[], Gpu]) -> None:
        self._make = gpu
        self._locked: tuple[Gpu, Pins, Lending] | None = None

    def make_room(self, room: Room) -> None:
        """Let go of slots that the user's copies have read."""
        if self._locked is not None:
            self._locked[2].look(room)

    def receive(self, batch: Batch) -> Batch:
        """Page-lock the memory of a batch; keep it until the user's copies have read it."""
        if batch.memory is None:
            return batch
        _, pins, lending = self._there()
        pins.cover(batch.memory, batch.arrays.values())
        return replace(batch, arrays=lending.lend(batch.arrays))

    def begin(self, data: Any, batch: Batch) -> Any:
        """Return the batch; what is not in its slot is copied to page-locked memory."""
        gpu, _, _ = self._there()

        def pinned(tensor: Tensor) -> Tensor:
            # A tensor may be on a GPU already because the user's own data is.
            if tensor.device.type != "cpu" or not tensor.numel() or gpu.is_pinned(tensor):
                return tensor
            return tensor.pin_memory()

        return applied(data, pinned)

    def close(self) -> None:
        """Wait for copies of batches that the user has dropped."""
        if self._locked is not None:
            self._locked[2].close()

    def _there(self) -> tuple[Gpu, Pins, Lending]:
        if self._locked is None:
            gpu = self._make()
            self._locked = gpu, Pins(gpu, most_locked()), Lending(gpu)
        return self._locked


class DeviceTransfer(Transfer):
    """Copies batches to a GPU, ahead of the model and beside it, on a stream of its own.

    A slot is held until it was copied. The stream that is current when a batch is delivered waits
    for its copies; the program does not.

    Args:
        gpu: Returns the GPU, which is chosen when the first batch comes.
        ahead_bytes: Bytes of batches that may be on the device, or on their way there, before they
            are asked for; one batch in any case.
        features: Rows that are kept on the device; None: all rows come with the batches.
    """

    transforms_last = True

    def __init__(
        self, gpu: Callable[[], Gpu], ahead_bytes: int, features: DeviceFeatures | None = None
    ) -> None:
        self._make = gpu
        self._ahead_bytes = ahead_bytes
        self._features = features
        self._there: _Tools | None = None
        self._held: deque[_Held] = deque()  # until they are copied
        self._clock = DeviceClock()
        self._wanted: Mark | None = None  # behind what the user asked for before the batch
        self._moved = self._staged = 0
        self._owner = os.getpid()

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # The loader was dropped: what is being copied must not go before it was. At exit the memory
        # stays until CUDA has ended, and in a fork there is no CUDA.
        if not is_exiting() and os.getpid() == getattr(self, "_owner", None):
            self.close()

    def want(self) -> None:
        """Mark the moment: the GPU has nothing to do from then on until the batch is there."""
        if self._there is not None:
            self._wanted = self._there.gpu.mark()

    def make_room(self, room: Room) -> None:
        """Give back slots that were copied."""
        held = self._held
        while held:
            mark = held[0].mark or self._mark_copies(held[0])
            if not mark.passed():
                left = room() if len(held) <= 2 * _MOST_AHEAD else 0
                if left is None or left > 0:
                    return
                mark.wait()
            held.popleft()

    def _mark_copies(self, held: _Held) -> Mark:
        """Set the mark of a slot that an interrupt has left without one."""
        gpu = self._tools().gpu
        with gpu.copying():
            held.mark = gpu.mark()
        return held.mark

    def receive(self, batch: Batch) -> Batch:
        """Page-lock the memory of a batch."""
        if batch.memory is not None:
            self._tools().pins.cover(batch.memory, batch.arrays.values())
        return batch

    def later(self, column: Column, ids: Tensor) -> Tensor | None:
        """Return what stands for rows that are taken on the device; None if it has them not."""
        return None if self._features is None else self._features.later(column, ids)

    def decoded(self, stored: Tensor, codec: Codec) -> Tensor:
        """Return what stands for rows that are decoded on the device."""
        return CodedRows.of(stored, codec)

    def begin(self, data: Any, batch: Batch) -> _Moving:
        """Ask for copies of all tensors on the device, and for the rows that are kept there."""
        tools = self._tools()
        gpu = tools.gpu
        if self._features is not None:
            self._features.load(gpu, tools.staging)
        # Held from now on, whatever happens: without enough memory on the device, for example, only
        # some tensors are moved.
        held = _Held(batch.arrays)
        self._held.append(held)
        move = _Move(self._asked, tools.decoder)
        with gpu.copying():
            if self._features is not None:
                move.rows = self._features.batch(gpu, tools.staging, tools.decoder)
            begun = gpu.mark()
            data = applied(data, move)
            held.mark = copied = gpu.mark()
        tensors = move.moved
        return _Moving(data, tensors, sum(each.nbytes for each in tensors), begun, copied)

    def _asked(self, tensor: Tensor) -> Tensor:
        """Ask for a copy of a tensor on the device."""
        tools = self._tools()
        gpu = tools.gpu
        # What is copied by its bytes is plain: torch itself moves the users' own kinds of tensors.
        is_plain = type(tensor) is Tensor and tensor.layout is torch.strided
        if tensor.device.type != "cpu" or tensor.requires_grad or not is_plain:
            return tensor.to(gpu.device)
        if not tensor.numel():
            return gpu.copy(tensor)
        self._moved += tensor.nbytes
        if tools.pins.covers(tensor.data_ptr(), tensor.nbytes) and gpu.is_pinned(tensor):
            return gpu.copy(tensor)
        self._staged += tensor.nbytes
        return tools.staging.copy(tensor)

    def finish(self, begun: _Moving) -> Any:
        """Return the batch on the device; the current stream waits for it."""
        gpu = self._tools().gpu
        wanted = self._wanted or gpu.mark()  # of the first batch, only copies are waited for
        gpu.follow(begun.copied)
        gpu.keep(begun.tensors)
        self._clock.note(Delivery(wanted, begun.begun, begun.copied, gpu.mark()))
        return begun.data

    def has_room(self, begun: Sequence[Any]) -> bool:
        """Return whether another batch may be moved beside these."""
        if not begun:
            return True
        nbytes = sum(each.nbytes for each in begun if isinstance(each, _Moving))
        return len(begun) < _MOST_AHEAD and nbytes < self._ahead_bytes

    def statistics(self) -> DeviceStatistics | None:
        """Return a snapshot of the statistics."""
        if self._there is None:
            return None
        tools, kept = self._there, self._features
        return DeviceStatistics(
            device=str(tools.gpu.device),
            bytes=self._moved + (0 if kept is None else kept.moved),
            staged=self._staged,
            pinned=tools.pins.nbytes,
            waited_for_batches=self._clock.batches,
            waited_for_copies=self._clock.copies,
            features=0 if kept is None else kept.nbytes,
            row_bytes=0 if kept is None else kept.row_bytes,
            row_bytes_moved=0 if kept is None else kept.moved,
        )

    def close(self) -> None:
        """Wait for the copies that are under way; let go of tables of features."""
        self.make_room(lambda: 0)
        if self._features is not None:
            self._features.release()

    def _tools(self) -> _Tools:
        if self._there is None:
            gpu = self._make()
            staging = Staging(gpu)
            self._there = _Tools(gpu, Pins(gpu, most_locked()), staging, Decoder(gpu, staging))
        return self._there


@dataclass(frozen=True, slots=True, eq=False)
class _Tools:
    """What moves batches, made for the GPU that is chosen when the first batch comes."""

    gpu: Gpu
    pins: Pins
    staging: Staging
    decoder: Decoder


class _Move:
    """Asks for copies of the tensors of one batch, of each once.

    A closure that calls itself would be a cycle of references: the slot of a batch would be held
    until the garbage collector comes by.
    """

    def __init__(self, ask: Callable[[Tensor], Tensor], decoder: Decoder) -> None:
        self._ask = ask
        self._decoder = decoder
        self.rows: BatchRows | None = None
        # By its identity, each tensor of the batch, which so lives on, and what it is moved to.
        self._there: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def moved(self) -> list[Tensor]:
        """What the tensors were moved to."""
        return [out for _, out in self._there.values()]

    def __call__(self, tensor: Any) -> Any:
        if not isinstance(tensor, Tensor):  # PyG asks for everything in a batch
            return tensor
        found = self._there.get(id(tensor))
        if found is None:
            found = self._there[id(tensor)] = tensor, self._moved(tensor)
        return found[1]

    def _moved(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, RowsLater):
            assert self.rows is not None
            return self.rows.take(tensor, self)
        if isinstance(tensor, CodedRows):
            return self._decoder.decode(self._ask(tensor.stored), tensor.codec)
        return self._ask(tensor)


@dataclass(slots=True, eq=False)
class _Held:
    """The arrays of a batch, which are being copied; `mark` is behind the copies."""

    arrays: Any
    mark: Mark | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Moving:
    """A batch on its way to the device."""

    data: Any
    tensors: list[Tensor]
    nbytes: int
    begun: Mark
    copied: Mark


def applied(data: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a batch, or what a user's transform made of it, with all its tensors changed."""
    if isinstance(data, BaseData):
        return data.apply(change)
    return pytree.tree_map_only(Tensor, change, data)


def transfer_of(
    device: torch.device | None,
    *,
    pin_memory: bool,
    ahead_bytes: int,
    features: DeviceFeatures | None = None,
) -> Transfer | None:
    """Return the transfer that a loader's options ask for; None if batches stay where they are."""
    if device is not None and device.type == "cuda":
        return DeviceTransfer(lambda: CudaGpu(device), ahead_bytes, features)
    if device is not None and device.type != "cpu":
        return PlainTransfer(device)
    if pin_memory and torch.cuda.is_available():
        # The device that is current when the first batch comes: asking for it earlier would use
        # GPU 0 in ranks that have not chosen theirs yet.
        return PinnedTransfer(lambda: CudaGpu(torch.device("cuda")))
    return None


def most_locked(readings: Readings | None = None) -> int:
    """Return how many bytes a loader page-locks at most."""
    found = readings or Readings.now()
    rooms = [room for room in (found.memory_free, found.memory_room) if room is not None]
    return min([_MOST_LOCKED, *(int(room * _LOCKED_SHARE) for room in rooms)])
