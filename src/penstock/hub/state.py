"""The house: everything a hub holds, in one place, so that each part can be handed what it needs.

It holds and it closes; the loop, the reception, the floor and the errands do the rest.
"""

from __future__ import annotations

import secrets
import selectors
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from penstock.core.scheduler import Scheduler
from penstock.core.settings import Settings
from penstock.hub.backends import HubBackends
from penstock.hub.channels import HubChannels
from penstock.hub.connection import RankConnection
from penstock.hub.ready_waiters import ReadyWaiters
from penstock.hub.shared_graph import SharedGraph
from penstock.hub.timings import Timing
from penstock.hub.worker_records import WorkerRecord
from penstock.wire.messages import HubConfig, WorkerGone
from penstock.workers.pool import Pool

STORIES_KEPT: Final = 64
LOSSES_KEPT: Final = 16


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that died: when (by the system's monotonic clock), why, and over which batch."""

    worker: int
    pid: int
    at: float
    verdict: str
    batch: str | None


class HubState:
    """What a hub has: the graph, the scheduler, the pool, and records of all who are in it.

    `now` is the time of the current turn of the loop: one reading for all that happens in it.
    """

    def __init__(self, config: HubConfig, fds: Sequence[int]) -> None:
        self.config = config
        self.boot = secrets.token_hex(8)
        self.now = time.monotonic()
        self.started = self.now
        self.selector = selectors.DefaultSelector()
        self.graph = SharedGraph(config.graph, fds)
        config.pool.check()
        self.scheduler = Scheduler(Settings.of(config.pool))
        self.pool = Pool(
            config.graph,
            self.graph.descriptors(config.graph),
            self.selector,
            search_path=config.search_path,
            options=config.pool,
        )
        self.backends = HubBackends()
        self.channels = HubChannels()
        self.waiters = ReadyWaiters()
        # Of each group, what its last worker died of that never became ready.
        self.stories: dict[str, str] = {}
        # The last few workers that died, for whoever looks at the numbers.
        self.losses: deque[Loss] = deque(maxlen=LOSSES_KEPT)
        # Workers came or went since those who wait for them were last looked after.
        self.workers_changed = False
        self.connections: dict[int, RankConnection] = {}
        # Connections to which something was said in this turn.
        self.touched: set[RankConnection] = set()
        # Connections that have said more than was answered yet.
        self.backlogged: set[RankConnection] = set()
        self.turns = 0
        self.destroying = Timing("destroying")
        self.records: dict[int, WorkerRecord] = {}
        # How large the pool is to be; its workers are started when somebody first needs them.
        self.workers = config.workers
        self.groups: dict[str, int] = {}

    def tell_founder(self, news: WorkerGone) -> None:
        """Has the founder's process log it; one that reads nothing has had enough to read."""
        for connection in self.connections.values():
            if connection.founder and connection.greeted and not connection.overfull:
                connection.send(news)

    def keep_story(self, group: str, story: str) -> None:
        """Remembers what a worker died of that never became ready; the latest of each group."""
        self.stories.pop(group, None)
        self.stories[group] = story
        if len(self.stories) > STORIES_KEPT:
            del self.stories[next(iter(self.stories))]

    def close(self) -> None:
        """Ends every worker, in bounded time, and lets go of all memory. Idempotent."""
        with ExitStack() as stack:  # each, whatever becomes of the others
            stack.callback(self.selector.close)
            stack.callback(self.graph.close)
            for channel in self.channels:
                stack.callback(channel.close)
            for connection in self.connections.values():
                stack.callback(connection.close)
            stack.callback(self.pool.close)
