"""A post: one worker as the hub deals with it, from its start until it has been reaped.

Workers are told of backends and channels only when the first batch needs them, so that a new one
has little to hear. The post remembers what its worker has been told, and what it has been given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.core.events import BatchKey
from penstock.hub.channels import HubChannel
from penstock.hub.shared_graph import SharedGraph
from penstock.wire.messages import (
    CloseBackend,
    CloseChannel,
    FromHubToWorker,
    OpenBackend,
    OpenChannel,
    Supplement,
)
from penstock.workers.pool import Pool, WorkerHandle


@dataclass(frozen=True, slots=True)
class Assignment:
    """A batch that a worker was given."""

    batch: BatchKey
    index: int  # in the global list
    slot: int
    attempt: int
    given: float  # when


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """One worker, what it knows and what it has."""

    worker: WorkerHandle
    pool: Pool
    tasks: dict[BatchKey, Assignment] = field(default_factory=dict)
    begun: BatchKey | None = None
    supplements: int = 0
    backends: set[int] = field(default_factory=set)
    channels: set[int] = field(default_factory=set)
    # It has said something impossible: it is being killed, and not listened to any more.
    shunned: bool = False
    # It is to be killed, and may go on for a moment: this is what it was at when that was decided.
    doomed: bool = False
    culprit: Assignment | None = None

    @property
    def id(self) -> int:
        return self.worker.id

    @property
    def to_blame(self) -> Assignment | None:
        """What it would die of if it died now."""
        if self.doomed:
            return self.culprit
        return self.tasks.get(self.begun) if self.begun is not None else None

    def doom(self) -> None:
        """Whatever it begins from here on is not to blame for its end."""
        self.culprit, self.doomed = self.to_blame, True

    def send(self, message: FromHubToWorker, fds: Sequence[int] = ()) -> None:
        """Says something, without waiting. To a worker that is gone it is said in vain."""
        self.pool.send(self.id, message, fds)

    def prepare(self, channel: HubChannel, graph: SharedGraph) -> None:
        """Tells the worker what it must know before the first batch of a channel."""
        backend = channel.backend
        if backend.number not in self.backends:
            self._supplement(graph)
            self.send(OpenBackend(backend=backend.number, spec=backend.spec))
            self.backends.add(backend.number)
        if channel.number not in self.channels:
            self.send(
                OpenChannel(
                    channel=channel.number,
                    backend=backend.number,
                    feed=channel.feed,
                    arena=channel.arena.plan,
                ),
                (*channel.arena.descriptors, *channel.ids),
            )
            self.channels.add(channel.number)

    def forget_channel(self, channel: int) -> None:
        """Nothing more of it will be asked for."""
        if channel in self.channels:
            self.channels.discard(channel)
            self.send(CloseChannel(channel=channel))

    def forget_backend(self, backend: int) -> None:
        """Nothing more of it will be asked for."""
        if backend in self.backends:
            self.backends.discard(backend)
            self.send(CloseBackend(backend=backend))

    def _supplement(self, graph: SharedGraph) -> None:
        for handle in graph.supplements[self.supplements :]:
            self.send(Supplement(graph=handle), graph.descriptors(handle))
        self.supplements = len(graph.supplements)
