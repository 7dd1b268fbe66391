"""What a backend tells about its channels and itself: plain, frozen, made anew each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.client.channel.reader import Reader, ReaderStatistics
from penstock.client.channel.registration import Registration
from penstock.core.plan import static_split

ChannelId: TypeAlias = int | str


@dataclass(frozen=True, slots=True)
class ChannelDescription:
    """A channel in a few numbers. Of one that is not there: epoch -1, and empty."""

    channel_id: ChannelId
    epoch: int = -1
    num_inputs: int = 0
    batch_size: int = 0
    total: int = 0  # batches of this rank's epoch
    given: int = 0  # of those, how many were fetched
    split: tuple[tuple[int, int], ...] = ()  # of the inputs over workers; for showing only

    @classmethod
    def of(
        cls, channel_id: ChannelId, channel: Reader, wishes: Registration, workers: int
    ) -> ChannelDescription:
        """The description of a channel that is there."""
        seen, feed = channel.statistics(), wishes.feed
        return cls(
            channel_id,
            epoch=seen.epoch,
            num_inputs=feed.num_inputs,
            batch_size=feed.batch_size,
            total=seen.total,
            given=seen.due,
            split=static_split(feed.num_inputs, feed.batch_size, max(1, workers)),
        )


@dataclass(frozen=True, slots=True)
class BackendStatistics:
    """The hub's numbers (none if there is no hub), and what each reader has seen."""

    hub: dict[str, Any]
    channels: dict[ChannelId, ReaderStatistics] = field(default_factory=dict)
