"""All numbers of a hub, as one piece of plain data: the only thing that others look at."""

from __future__ import annotations

import resource
import time
from typing import Any

import msgspec

from penstock.hub.channels import Channel
from penstock.hub.house import House


def gather(house: House) -> dict[str, Any]:
    """The scheduler's numbers, the pool's and the hub's own."""
    return {
        "scheduler": _plain(house.scheduler.statistics()),
        "describe": house.scheduler.describe(),
        "pool": _plain(house.pool.statistics()),
        "hub": _hub(house),
        "losses": [_plain(loss) for loss in house.losses],
        "channels": {str(channel.number): _channel(channel) for channel in house.channels},
    }


def _hub(house: House) -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "boot": house.boot,
        "address": house.found.address,
        "age": house.now - house.started,
        "cpu": time.process_time(),
        "peak": usage.ru_maxrss * 1024,
        "connections": len(house.connections),
        "backends": len(house.backends),
        "channels": len(house.channels),
        "waiting_for_workers": len(house.muster),
        "arena_bytes": house.channels.slot_bytes,
        "arena_resident": sum(channel.arena.resident for channel in house.channels),
        "turns": house.turns,
        "destroying": house.destroying.numbers(),
    }


def _channel(channel: Channel) -> dict[str, Any]:
    return {
        "job": channel.job,
        "backend": channel.backend.number,
        "pid": channel.connection.pid,
        "slots": channel.arena.plan.slots,
        "slot_bytes": channel.arena.plan.slot_bytes,
        "resident": channel.arena.resident,
        "unread": channel.connection.stream.queued,
        "handing_out": channel.handing_out.numbers(),
        "fetching": channel.fetching.numbers(),
    }


def _plain(statistics: object) -> dict[str, Any]:
    plain = msgspec.to_builtins(statistics, str_keys=True)
    assert isinstance(plain, dict)
    return plain
