"""What the scheduler tells about itself (CONTRACT H), and copies of it."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict

import pytest

from penstock.core.events import (
    BatchDone,
    ChannelUnregistered,
    Deliver,
    EpochStarted,
)
from penstock.core.scheduler import (
    Scheduler,
)
from tests.core.scheduler_hub import Hub, one, only


@pytest.fixture
def hub() -> Hub:
    """One worker, ready, that takes one batch at a time."""
    hub = Hub()
    hub.ready()
    return hub


# --- seeing ----------------------------------------------------------------------------------


def test_one_line_shows_the_scheduler(hub: Hub) -> None:
    """CONTRACT 54"""
    for channel in (1, 2, 3, 4):
        hub.register(channel, slots=3, estimate=1.0)
    order = one(hub.start(2, 10))
    hub.start(3, 7)
    hub.send(EpochStarted(0.0, 4, 5, range(4, 6)))
    hub.done(order)
    hub.send(ChannelUnregistered(0.0, 3))
    assert hub.scheduler.describe() == (
        "channels: 3 registered, 2 active, 2 runnable, 1 leaving; 1:idle 2:e0/1/1/10 4:e5/0/0/2"
    )


def test_the_line_names_only_a_few(hub: Hub) -> None:
    """CONTRACT 54"""
    for channel in range(1000):
        hub.register(channel)
    line = hub.scheduler.describe()
    assert line.endswith("7:idle …")
    assert "1000 registered" in line


def test_totals_remember_channels_that_are_gone(hub: Hub) -> None:
    """CONTRACT 57"""
    hub.register(1)
    second = one(hub.done(one(hub.start(1, 4))))
    hub.failed(second)
    hub.send(ChannelUnregistered(0.0, 1))
    totals = hub.scheduler.statistics().totals
    assert (totals.channels, totals.delivered, totals.failed, totals.cancelled) == (1, 1, 1, 2)


def test_statistics_can_be_written_as_json_at_any_time() -> None:
    """CONTRACT 57"""
    assert json.loads(json.dumps(asdict(Scheduler().statistics())))["channels"] == []
    hub = Hub()
    hub.ready()
    hub.register(1, max_attempts=1)
    hub.failed(one(hub.start(1, 4)))
    numbers = json.loads(json.dumps(asdict(hub.scheduler.statistics())))
    assert numbers["quarantined"][0]["cause"] == "bad seed"
    assert numbers["groups"][0]["ready"] == 1


def test_a_copy_goes_its_own_way(hub: Hub) -> None:
    hub.register(1)
    order = one(hub.start(1, 5))
    twin = copy.deepcopy(hub.scheduler)
    assert only(Deliver, twin.handle(BatchDone(0.0, order.worker, order.batch, 1.0)))
    twin.check()
    assert hub.scheduler.statistics().channels[0].delivered == 0
    assert only(Deliver, hub.done(order))
