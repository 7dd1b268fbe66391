"""One real worker, and the hub's side of its socket in the hands of a test."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy.typing as npt

from penstock.graph import Graph, SharedArray
from penstock.options import PoolOptions
from penstock.sampling.digest import batch_digest
from penstock.sampling.spec import CustomSpec, Feed, NeighborSpec, Spec
from penstock.wire.frames import read
from penstock.wire.messages import (
    BatchId,
    Begun,
    Done,
    Failed,
    FromHubToWorker,
    FromWorkerToHub,
    Heartbeat,
    OpenBackend,
    OpenChannel,
    Ready,
    Retire,
    SampleBatch,
    WorkerConfig,
)
from penstock.wire.stream import Stream
from penstock.workers.arena import Arena
from penstock.workers.worker import FAULTS_VARIABLE
from tests.processes import written_to

Array = npt.NDArray[Any]
M = TypeVar("M", bound=FromWorkerToHub)

# How long anything may take before a test gives up. Never a measure of speed.
PATIENCE_S = 60.0

ROOT = Path(__file__).parents[2]
SPEC = NeighborSpec(num_neighbors=(4, 3))
# For `tests.sampling.graphs.web`.
FEED = Feed(num_inputs=200, batch_size=32, shuffle=True, seed=5)


class Bench:
    """A worker's process, its socket, and the arenas it was shown."""

    def __init__(self, process: subprocess.Popen[bytes], stream: Stream[Any], stderr: Any) -> None:
        self.process = process
        self.stream = stream
        self._stderr = stderr
        self._begins: BatchId | None = None
        self._heard: deque[tuple[FromWorkerToHub, list[int]]] = deque()
        self.beats: list[Heartbeat] = []
        self.arenas: dict[int, Arena] = {}

    # --- saying ---

    def say(self, message: FromHubToWorker, fds: Any = ()) -> None:
        self.stream.send(message, fds)

    def open(
        self,
        spec: Spec,
        feed: Feed,
        *,
        ids: SharedArray | None = None,
        number: int = 1,
        slots: int = 2,
        slot_bytes: int = 1 << 20,
        most_bytes: int = 1 << 26,
        kind: str | None = None,
    ) -> None:
        """Opens backend and channel `number`."""
        arena = self.arenas[number] = Arena.create(slots, slot_bytes, most_bytes, kind=kind)
        fds = list(arena.descriptors) + ([] if ids is None else list(ids.segment.descriptors))
        self.say(OpenBackend(backend=number, spec=spec))
        self.say(OpenChannel(channel=number, backend=number, feed=feed, arena=arena.plan), fds)

    def ask(self, index: int, *, channel: int = 1, epoch: int = 0, slot: int = 0) -> BatchId:
        batch = BatchId(channel, epoch, index)
        self.say(SampleBatch(batch=batch, index=index, slot=slot, attempt=1))
        return batch

    # --- hearing ---

    def hear(self) -> tuple[FromWorkerToHub, list[int]]:
        """The next thing the worker says, but for its heartbeats."""
        while not self._heard:
            assert not self.stream.ended, f"the worker is gone:\n{self.printed()}"
            assert self.stream.wait(PATIENCE_S), "the worker says nothing"
            for message, fds in self.stream.receive():
                if isinstance(message, Heartbeat):
                    self.beats.append(message)
                else:
                    self._heard.append((message, fds))
        return self._heard.popleft()

    def next(self, kind: type[M]) -> M:
        """The next message, which must be of this kind and bring nothing along."""
        message, fds = self.hear()
        assert isinstance(message, kind), message
        assert not fds
        return message

    def done(self) -> Done:
        """Begun and Done of the next batch; Begun may have come with the batch before it."""
        begun = self.begun()
        done = self.next(Done)
        assert done.batch == begun
        self._begins = done.begins
        return done

    def begun(self) -> BatchId:
        """The batch that the worker has begun since it was last heard."""
        announced, self._begins = self._begins, None
        return self.next(Begun).batch if announced is None else announced

    def failed(self) -> Failed:
        begun = self.begun()
        failed = self.next(Failed)
        assert failed.batch == begun
        return failed

    def arrays(self, done: Done, slot: int = 0) -> dict[str, Array]:
        return read(self.arenas[done.batch.channel].memory(slot), done.layouts)

    def digest(self, done: Done, slot: int = 0) -> str:
        return batch_digest(self.arrays(done, slot))

    def until_beat(self, batches: int = 0) -> Heartbeat:
        """The first heartbeat from now on that tells of so many batches."""
        deadline = time.monotonic() + PATIENCE_S
        self.beats.clear()
        while not (self.beats and self.beats[-1].batches >= batches):
            assert self.stream.wait(deadline - time.monotonic()), "no heartbeat"
            assert not self.stream.ended, self.printed()
            for message, fds in self.stream.receive():
                if isinstance(message, Heartbeat):
                    self.beats.append(message)
                else:
                    self._heard.append((message, fds))
        return self.beats[-1]

    # --- the end ---

    def ended(self) -> int:
        """Waits for the worker's end; its exit status."""
        return self.process.wait(PATIENCE_S)

    def last_words(self) -> list[FromWorkerToHub]:
        """All it said before its end, but for heartbeats."""
        self.ended()
        heard = [*self._heard, *self.stream.receive()]
        return [message for message, _ in heard if not isinstance(message, Heartbeat)]

    def retire(self) -> int:
        self.say(Retire())
        return self.ended()

    def printed(self) -> str:
        return written_to(self._stderr).decode(errors="replace")


@contextmanager
def bench(
    graph: Graph,
    *,
    faults: list[dict[str, Any]] | None = None,
    environment: dict[str, str] | None = None,
    ready: bool = True,
    **config: Any,
) -> Iterator[Bench]:
    """A worker that has its outfit, and is ready unless told otherwise; gone at the end."""
    ours, theirs = socket.socketpair()
    more = {} if faults is None else {FAULTS_VARIABLE: json.dumps(faults)}
    with tempfile.TemporaryFile() as stderr:
        with theirs:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-u", "-m", "penstock.workers.worker"),
                    *("--socket", str(theirs.fileno())),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                env={**os.environ, **more, **(environment or {})},
            )
        stream: Stream[FromWorkerToHub] = Stream(ours, FromWorkerToHub)
        made = Bench(process, stream, stderr)
        try:
            names = set(PoolOptions.__struct_fields__) & set(config)
            own = {name: config.pop(name) for name in names}
            options = {"worker": 1, "pool": PoolOptions(**{"beat_every": 0.1, **own}), **config}
            made.say(WorkerConfig(graph=graph.handle(), **options), graph.descriptors)
            if ready:
                made.next(Ready)
            yield made
        finally:
            stream.close()
            process.kill()
            process.wait()
            for arena in made.arenas.values():
                arena.close()


def with_ids(feed: Feed, ids: SharedArray) -> Feed:
    """The feed of these inputs."""
    return msgspec.structs.replace(feed, ids=ids.handle)


def custom(path: Any, name: str, **options: Any) -> CustomSpec:
    return CustomSpec(sampler=f"{path}:{name}", options=options)
