"""What went before: a channel as it was at one moment, so that its story can begin there.

Events are remembered for a while only. This stands for those that were forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.epoch import Epoch
from penstock.core.events import Batch, ChannelRegistered
from penstock.core.slots import Slots


class Held(NamedTuple):
    """A batch on its way: at a worker, or to be tried again."""

    worker: int | None
    batch: Batch
    slot: int
    source: int
    attempt: int
    began: float | None
    too_late: bool


@dataclass(frozen=True, slots=True)
class Recap:
    """A channel between two events: copies that nobody changes any more.

    Of what its batches cost, and of its turns, it knows nothing: a replay needs neither.
    """

    now: float
    entry: ChannelRegistered
    weight: float
    leaving: bool
    epoch: Epoch
    slots: Slots
    held: tuple[Held, ...]  # those at workers first, each worker's in its order
    attempts_lost: int
    substitutes: int
