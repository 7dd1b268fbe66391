"""Stand-ins for GPUs that do their work late, at once or by chance, and to which things happen.

A `PacedGpu` differs from the stand-in in one thing: that a stream waits for another one is itself
work in its queue, as with CUDA. So a delivered batch may be empty still, and only the model, which
is in the same stream, sees it whole. A `Struck` GPU tells of every call, before and after it: there
a test interrupts, fails or closes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from penstock.loader.device.gpu import Gpu
from penstock.testing.digests import digest_of
from tests.loader.device.standin import StandIn, StandInMark
from tests.loader.epochs import torch

# "late": nothing is done before somebody waits for it, so the model takes for ever. "at once": the
# model takes no time. "by chance" is in between.
PACES = ("late", "by chance", "at once")


@dataclass(eq=False)
class PacedGpu(StandIn):
    """A stand-in that keeps a pace, and lets streams wait for each other."""

    pace: str = "late"
    unkept: set[int] = field(default_factory=set)  # memory that nothing keeps for the model

    def __post_init__(self) -> None:
        if self.pace == "by chance" and self.seed is None:
            self.seed = 1
        super().__post_init__()

    def follow(self, mark: StandInMark) -> None:
        self.run(lambda: self.run_until(mark))

    def empty(self, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        out = super().empty(shape, dtype)
        if self._current == "copies" and out.numel():
            self.unkept.add(out.data_ptr())
        return out

    def keep(self, tensors: Iterable[torch.Tensor]) -> None:
        self.unkept.difference_update(tensor.data_ptr() for tensor in tensors)

    def go_on_by_chance(self) -> None:
        if self.pace == "by chance":
            super().go_on_by_chance()
        elif self.pace == "at once":
            self.finish()

    def finish(self) -> None:
        """Do all there is to do."""
        for queue in list(self._streams.values()):
            while queue:
                self._do(queue.popleft())

    def check_settled(self) -> None:
        """Nothing is left behind by loaders that are gone."""
        assert self.unread == 0
        assert self.locked == {}

    def check_mapped(self) -> None:
        """Whatever is page-locked is still somebody's memory."""
        whole = _mapped()
        for begin, end in self.locked.copy().items():
            assert any(first <= begin and end <= last for first, last in whole)


def _mapped() -> list[tuple[int, int]]:
    """The memory that this process has: from each address to another, without a gap."""
    found: list[tuple[int, int]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(address, 16) for address in line.split()[0].split("-"))
        if found and found[-1][1] == begin:
            begin = found.pop()[0]
        found.append((begin, end))
    return found


class Struck:
    """A GPU at whose calls something may happen.

    Args:
        gpu: What does the work.
        strikes: Called before and after each call with a number that rises by one each time, and
            the name of the call. Odd numbers are before a call.
    """

    def __init__(self, gpu: StandIn, strikes: Callable[[int, str], None]) -> None:
        self.gpu = gpu
        self.strikes = strikes
        self.points = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.gpu, name)
        return partial(self._called, name, found) if name in _OF_GPUS else found

    def _called(self, name: str, call: Any, *given: Any) -> Any:
        self.point(name)
        result = call(*given)
        if name == "mark":
            result = StruckMark(self, result)
        elif name == "user_marks":
            result = [StruckMark(self, mark) for mark in result]
        self.point(name)
        return result

    def point(self, name: str) -> None:
        self.points += 1
        self.strikes(self.points, name)


class StruckMark:
    """A mark of such a GPU."""

    def __init__(self, struck: Struck, mark: Any) -> None:
        self._struck = struck
        self._mark = mark

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._mark, name)
        if name not in _OF_MARKS:
            return found
        return partial(self._struck._called, name, found)


_OF_GPUS = {name for name in vars(Gpu) if not name.startswith("_")} - {"device"}
_OF_MARKS = {"passed", "wait", "since"}


class Model:
    """Takes batches that are on a GPU, and notes their bytes when their turn comes there."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._seen: list[_Seen] = []

    def take(self, batch: Any) -> None:
        """Ask for it to be noted, in the current stream; do not wait."""
        assert not self._gpu.unkept.intersection(_places(batch)), "its memory may be used again"
        seen = _Seen()
        self._seen.append(seen)

        def note() -> None:
            seen.digest = digest_of(batch)

        self._gpu.run(note)

    def move_and_take(self, batch: Any) -> None:
        """As a user does whose batches are page-locked: copy, and drop the batch."""
        self.take(batch.apply(self._gpu.copy))

    def __len__(self) -> int:
        return len(self._seen)

    def forget_all_but(self, count: int) -> None:
        """Forget the batches that were taken last, if there are more than so many."""
        del self._seen[count:]

    @property
    def seen(self) -> list[str]:
        """What all batches were, in the order in which they were taken."""
        self._gpu.finish()
        return [each.digest for each in self._seen]


@dataclass(eq=False)
class _Seen:
    """What a batch was; the model's turn may come after it was told to forget the batch."""

    digest: str = "not yet"


def _places(batch: Any) -> set[int]:
    """Where the tensors of a batch are."""
    found = (value for store in batch.stores for value in store.values())
    return {value.data_ptr() for value in found if isinstance(value, torch.Tensor)}


def stand_in_with(monkeypatch: Any, make: Callable[[], Any]) -> None:
    """Let each loader find a GPU of its own, and torch page-lock memory for it."""
    from penstock.loader.device import transfer
    from penstock.loader.pyg import options

    monkeypatch.setattr(transfer, "CudaGpu", lambda device: make())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(options, "_check_there", lambda *given: None)


def torch_pins_with(monkeypatch: Any, gpu: Any) -> None:
    """Let torch, which has no GPU here, page-lock copies of tensors by this one."""

    def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
        room: torch.Tensor = gpu.pinned(tensor.nbytes)
        return room.view(tensor.dtype).view(tensor.shape).copy_(tensor)

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
