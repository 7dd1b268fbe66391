"""The hub's record of one worker, from its start until it was reaped.

Workers are told about a backend or a channel only when the first batch needs it, so that a new
worker gets few messages. The record holds what its worker was told, and which batches it has.
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
    given: float  # when it was given


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """One worker: the backends and channels it knows, and the batches it has."""

    worker: WorkerHandle
    pool: Pool
    tasks: dict[BatchKey, Assignment] = field(default_factory=dict)
    begun: BatchKey | None = None
    supplements: int = 0
    backends: set[int] = field(default_factory=set)
    channels: set[int] = field(default_factory=set)
    # It has sent something impossible: it is being killed, and its messages are ignored.
    distrusted: bool = False
    # It is to be killed, and may go on for a moment. `culprit` is what it had begun before that.
    doomed: bool = False
    culprit: Assignment | None = None

    @property
    def id(self) -> int:
        return self.worker.id

    @property
    def to_blame(self) -> Assignment | None:
        """The batch that counts as the cause if the worker dies now."""
        if self.doomed:
            return self.culprit
        return self.tasks.get(self.begun) if self.begun is not None else None

    def doom(self) -> None:
        """Note that the worker is to be killed: batches it begins later are not the cause."""
        self.culprit, self.doomed = self.to_blame, True

    def send(self, message: FromHubToWorker, fds: Sequence[int] = ()) -> None:
        """Send a message without blocking. If the worker is gone, nothing happens."""
        self.pool.send(self.id, message, fds)

    def prepare(self, channel: HubChannel, graph: SharedGraph) -> None:
        """Tell the worker what it must know before the first batch of a channel."""
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
        """Tell the worker to close a channel that needs no more batches."""
        if channel in self.channels:
            self.channels.discard(channel)
            self.send(CloseChannel(channel=channel))

    def forget_backend(self, backend: int) -> None:
        """Tell the worker to close a backend that needs no more batches."""
        if backend in self.backends:
            self.backends.discard(backend)
            self.send(CloseBackend(backend=backend))

    def _supplement(self, graph: SharedGraph) -> None:
        for handle in graph.supplements[self.supplements :]:
            self.send(Supplement(graph=handle), graph.descriptors(handle))
        self.supplements = len(graph.supplements)
