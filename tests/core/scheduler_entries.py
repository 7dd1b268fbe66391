"""Registrations as tests write them: the options of the channel beside the other fields."""

from __future__ import annotations

from typing import Any

from penstock.core.events import ChannelRegistered
from penstock.options import ChannelOptions


def registered(
    now: float, channel: int, group: str, slots: int, estimate: float = 0.0, **options: Any
) -> ChannelRegistered:
    """A channel came, with these options."""
    return ChannelRegistered(now, channel, group, slots, ChannelOptions(**options), estimate)
