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
from penstock.hub.backends import Backends
from penstock.hub.channels import Channels
from penstock.hub.connection import Connection
from penstock.hub.hosted import HostedGraph
from penstock.hub.muster import Muster
from penstock.hub.posts import Post
from penstock.hub.timings import Timing
from penstock.wire.messages import Found, WorkerGone
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


class House:
    """What a hub has: the graph, the scheduler, the pool, and records of all who are in it.

    `now` is the time of the current turn of the loop: one reading for all that happens in it.
    """

    def __init__(self, found: Found, fds: Sequence[int]) -> None:
        self.found = found
        self.boot = secrets.token_hex(8)
        self.now = time.monotonic()
        self.started = self.now
        self.selector = selectors.DefaultSelector()
        self.graph = HostedGraph(found.graph, fds)
        self.scheduler = Scheduler(settings_of(found))
        self.pool = Pool(
            found.graph,
            self.graph.descriptors(found.graph),
            self.selector,
            search_path=found.search_path,
            hard_memory=found.hard_memory,
            beat_every=found.beat_every,
        )
        self.backends = Backends()
        self.channels = Channels()
        self.muster = Muster()
        # Of each crew, what its last worker died of that never became ready.
        self.stories: dict[str, str] = {}
        # The last few workers that died, for whoever looks at the numbers.
        self.losses: deque[Loss] = deque(maxlen=LOSSES_KEPT)
        # Workers came or went since those who wait for them were last looked after.
        self.staff_changed = False
        self.connections: dict[int, Connection] = {}
        # Connections to which something was said in this turn.
        self.touched: set[Connection] = set()
        # Connections that have said more than was answered yet.
        self.backlogged: set[Connection] = set()
        self.turns = 0
        self.destroying = Timing("destroying")
        self.posts: dict[int, Post] = {}
        # How large the pool is to be; its workers are started when somebody first needs them.
        self.workers = found.workers
        self.crews: dict[str, int] = {}

    def tell_founder(self, news: WorkerGone) -> None:
        """Has the founder's process log it; one that reads nothing has had enough to read."""
        for connection in self.connections.values():
            if connection.founder and connection.greeted and not connection.overfull:
                connection.send(news)

    def keep_story(self, crew: str, story: str) -> None:
        """Remembers what a worker died of that never became ready; the latest of each crew."""
        self.stories.pop(crew, None)
        self.stories[crew] = story
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


def settings_of(found: Found) -> Settings:
    """The scheduler's settings as the founder wished them; ValueError if they make no sense."""
    settings = Settings(
        worker_concurrency=found.worker_concurrency,
        silence=found.silence,
        start_limit=found.start_limit,
        max_batches=found.max_batches,
        max_age=found.max_age,
        soft_memory=found.soft_memory,
        hard_memory=found.hard_memory,
        trim_after=found.trim_after,
    )
    if found.silence <= found.beat_every:
        raise ValueError(
            f"silence is {found.silence:g} s and beat_every {found.beat_every:g} s: between two "
            "heartbeats every worker would be taken for dead"
        )
    return settings
