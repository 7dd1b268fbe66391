"""All statistics of a hub as plain data: the only view that other processes have of it."""

from __future__ import annotations

import resource
import time
from typing import Any

import msgspec

from penstock.hub.channels import HubChannel
from penstock.hub.state import HubState


def gather(state: HubState) -> dict[str, Any]:
    """Return the statistics of the scheduler, the pool and the hub."""
    return {
        "scheduler": _plain(state.scheduler.statistics()),
        "describe": state.scheduler.describe(),
        "pool": _plain(state.pool.statistics()),
        "hub": _hub(state),
        "moved": None if state.moved is None else _plain(state.moved),
        "losses": [_plain(loss) for loss in state.losses],
        "channels": {str(channel.number): _channel(channel) for channel in state.channels},
    }


def _hub(state: HubState) -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "boot": state.boot,
        "address": state.config.address,
        "age": state.now - state.started,
        "cpu": time.process_time(),
        "peak": usage.ru_maxrss * 1024,
        "connections": len(state.connections),
        "backends": len(state.backends),
        "channels": len(state.channels),
        "waiting_for_workers": len(state.waiters),
        "arena_bytes": state.channels.slot_bytes,
        "arena_resident": sum(channel.arena.resident for channel in state.channels),
        "turns": state.turns,
        "destroying": state.destroying.numbers(),
    }


def _channel(channel: HubChannel) -> dict[str, Any]:
    return {
        "job": channel.options.job,
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
