"""What a backend reports about its channels and itself: plain frozen data, made at each call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.client.channel.reader import Reader, ReaderStatistics
from penstock.client.channel.registration import Registration
from penstock.core.plan import static_split

ChannelId: TypeAlias = int | str


@dataclass(frozen=True, slots=True)
class ChannelDescription:
    """A channel in a few numbers. For a channel that does not exist: epoch -1, and empty."""

    channel_id: ChannelId
    epoch: int = -1
    num_inputs: int = 0
    batch_size: int = 0
    total: int = 0  # batches of this rank in the epoch
    given: int = 0  # how many of them were fetched
    split: tuple[tuple[int, int], ...] = ()  # of the inputs over the workers; for display only

    @classmethod
    def of(
        cls, channel_id: ChannelId, channel: Reader, registration: Registration, workers: int
    ) -> ChannelDescription:
        """Return the description of an open channel."""
        seen, feed = channel.statistics(), registration.feed
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
    """The hub's statistics (empty if there is no hub), and those of each reader."""

    hub: dict[str, Any]
    channels: dict[ChannelId, ReaderStatistics] = field(default_factory=dict)
