"""The shared state of a hub, so that each module finds what it needs in one place.

It only holds and closes things; the loop, the message handlers and the executor act on them.
"""

from __future__ import annotations

import secrets
import selectors
import socket
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
from penstock.wire.messages import HubConfig, Moved, Notice, WorkerGone
from penstock.workers.pool import Pool

STORIES_KEPT: Final = 64
LOSSES_KEPT: Final = 16
NOTICES_KEPT: Final = 64
# Seconds after which a notice that comes again is news.
TELL_AGAIN_S: Final = 30.0


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that died: when (on the system's monotonic clock), why, and with which batch."""

    worker: int
    pid: int
    at: float
    verdict: str
    batch: str | None


class HubState:
    """The state of a hub: the graph, the scheduler, the pool, and records of workers and ranks.

    `now` is the time of the current turn of the loop: one reading for all that happens in it.
    """

    def __init__(self, config: HubConfig, fds: Sequence[int]) -> None:
        self.config = config
        self.boot = secrets.token_hex(8)
        self.host = socket.gethostname()  # for reports
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
        # By group, the autopsy of its last worker that died before it was ready.
        self.stories: dict[str, str] = {}
        # The last few workers that died, for the statistics.
        self.losses: deque[Loss] = deque(maxlen=LOSSES_KEPT)
        # Workers have started or ended since `waiters` was last checked.
        self.workers_changed = False
        self.connections: dict[int, RankConnection] = {}
        # Connections that the loop must look at before this turn ends.
        self.touched: set[RankConnection] = set()
        # Connections with messages that are not answered yet.
        self.backlogged: set[RankConnection] = set()
        self.turns = 0
        # What workers have moved to make batches of a graph in parts; None for any other.
        self.moved: Moved | None = None
        self._told_at: dict[str, float] = {}  # notices, and when they last came
        self.destroying = Timing("destroying")
        self.records: dict[int, WorkerRecord] = {}
        # The size of the pool; its workers are started when a rank first needs them.
        self.workers = config.workers
        self.groups: dict[str, int] = {}

    def tell_once(self, text: str) -> None:
        """Send a notice to the founder, unless another worker has said the same lately."""
        told = self._told_at.get(text)
        if told is None or self.now - told > TELL_AGAIN_S:
            self.tell_founder(Notice(text=text))
        self._told_at.pop(text, None)
        self._told_at[text] = self.now
        while len(self._told_at) > NOTICES_KEPT:
            del self._told_at[next(iter(self._told_at))]

    def tell_founder(self, news: WorkerGone | Notice) -> None:
        """Send news to the founder, which logs them; skip it if it has too much unread."""
        for connection in self.connections.values():
            if connection.founder and connection.greeted and not connection.overfull:
                connection.send(news)

    def keep_story(self, group: str, story: str) -> None:
        """Keep the autopsy of a worker that died before it was ready, the latest of each group."""
        self.stories.pop(group, None)
        self.stories[group] = story
        if len(self.stories) > STORIES_KEPT:
            del self.stories[next(iter(self.stories))]

    def close(self) -> None:
        """End all workers, in bounded time, and release all memory. Idempotent."""
        with ExitStack() as stack:  # each is closed even if closing another fails
            stack.callback(self.selector.close)
            stack.callback(self.graph.close)
            for channel in self.channels:
                stack.callback(channel.close)
            for connection in self.connections.values():
                stack.callback(connection.close)
            stack.callback(self.pool.close)
