"""A hub whose batches were all made beforehand, to measure only their transport.

It speaks the hub's side of the protocol to a real server. Each slot of a channel holds one real
batch, sampled once; whenever a slot is returned, the same bytes are delivered again.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from penstock import Graph
from penstock.client.hub.joined import JoinedHub
from penstock.core.plan import EpochPlan
from penstock.sampling.spec import Feed
from penstock.wire.messages import (
    PROTOCOL,
    BackendCreated,
    BatchId,
    BatchReady,
    CreateBackend,
    EpochDone,
    FromRankToHub,
    Hello,
    Register,
    Registered,
    ReturnSlot,
    StartEpoch,
    Welcome,
)
from penstock.wire.payload import pack_batch
from penstock.wire.stream import Stream
from penstock.wire.transport.unix import socket_address
from penstock.workers.arena import Arena
from penstock.workers.batch_maker import BatchMaker, slot_bytes_for

_BACKEND: Final = 1
_CHANNEL: Final = 1


class CannedHub(JoinedHub):
    """Stands in for the hub of `serve`: a child process with a canned hub."""

    num_workers = 0

    def __init__(self, graph: Graph, num_workers: Any, *, address: Any = None, **_: Any) -> None:
        address = f"unix://@penstock-canned-{uuid.uuid4().hex}"
        super().__init__(address, graph)
        command = [sys.executable, __file__, address, *map(str, self.registration)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        self.nbytes = json.loads(self._child.stdout.readline())["nbytes"]
        self.pid = self._child.pid

    registration: tuple[object, ...] = ()

    def start(self) -> None:
        """Do nothing: it is running already."""

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()


def run_canned_server(folder: Path, spec: Any, seeds: int, slots: int, **options: Any) -> None:
    """Run a real server over a canned hub, until standard input ends."""
    from penstock.server import serving

    CannedHub.registration = (folder, seeds, slots, msgspec.json.encode(spec).decode())
    serving.HubProcess = CannedHub  # type: ignore[assignment, misc]
    with serving.serve(folder, num_workers=1, **options) as server:
        print(json.dumps({"address": server.address, "nbytes": server.hub.nbytes}), flush=True)
        sys.stdin.read()


class Canned:
    """One channel, whose slots are full."""

    def __init__(self, graph: Graph, spec: Any, seeds: int, slots: int) -> None:
        feed = Feed(num_inputs=graph.num_nodes(), batch_size=seeds, shuffle=True)
        self._arena = Arena.create(slots, slot_bytes_for(spec, graph, feed), 1 << 40)
        station = BatchMaker(graph)
        station.open_backend(_BACKEND, spec)
        self._ready = []
        for slot in range(slots):
            written = _written(station, graph, slot, seeds, self._arena.memory(slot))
            ready = {"layouts": written.layouts, "facts": written.facts}
            self._ready.append({**ready, "nbytes": written.nbytes})
        self._left, self._next, self._epoch, self._plan = 0, 0, 0, EpochPlan(1, 1)
        self._out = 0

    @property
    def nbytes(self) -> int:
        """The average number of bytes sent per batch."""
        slots = enumerate(self._ready)
        sizes = [pack_batch(self._arena.memory(at), one["layouts"]).nbytes for at, one in slots]
        return sum(sizes) // len(sizes)

    def hear(self, stream: Stream[FromRankToHub], message: FromRankToHub) -> None:
        match message:
            case Hello():
                stream.send(Welcome(protocol=PROTOCOL, boot="canned", pid=os.getpid(), address=""))
            case CreateBackend(request=request):
                stream.send(BackendCreated(request=request, backend=_BACKEND))
            case Register(request=request, feed=feed):
                self._plan = EpochPlan(feed.num_inputs, feed.batch_size)
                answer = Registered(request=request, channel=_CHANNEL, arena=self._arena.plan)
                stream.send(answer, self._arena.descriptors)
            case StartEpoch(epoch=epoch):
                self._epoch, self._next = epoch, 0
                for slot in range(len(self._ready)):
                    self._deliver(stream, slot)
            case ReturnSlot(slot=slot):
                self._deliver(stream, slot)

    def _deliver(self, stream: Stream[FromRankToHub], slot: int) -> None:
        total = self._plan.num_batches
        if self._next < total:
            batch = BatchId(_CHANNEL, self._epoch, self._next)
            stream.send(BatchReady(batch=batch, index=self._next, slot=slot, **self._ready[slot]))
            self._next += 1
            if self._next == total:
                stream.send(
                    EpochDone(
                        channel=_CHANNEL, epoch=self._epoch, delivered=total, failed=0, cancelled=0
                    )
                )


def _written(station: BatchMaker, graph: Graph, slot: int, seeds: int, memory: Any) -> Any:
    from penstock.sampling.request import Request

    ids = np.random.default_rng(slot).integers(0, graph.num_nodes(), seeds)
    return station.make(_BACKEND, Request(0, 0, slot, ids, np.arange(seeds)), memory)


def main() -> None:
    from penstock.sampling.spec import NeighborSpec

    address, folder, seeds, slots, spec = sys.argv[1:]
    with Graph.open(folder) as graph, socket.socket(socket.AF_UNIX) as listening:
        decoded = msgspec.json.decode(spec, type=NeighborSpec)
        canned = Canned(graph, decoded, int(seeds), int(slots))
        listening.bind(socket_address(address))
        listening.listen()
        print(json.dumps({"nbytes": canned.nbytes}), flush=True)
        serve(listening, canned)


def serve(listening: socket.socket, canned: Canned) -> None:
    selector, streams = selectors.DefaultSelector(), dict[int, Stream[FromRankToHub]]()
    selector.register(listening, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listening:
                visitor, _ = listening.accept()
                streams[visitor.fileno()] = Stream(visitor, FromRankToHub)
                selector.register(visitor, selectors.EVENT_READ)
                continue
            stream = streams[key.fd]
            for message, fds in stream.receive():
                for fd in fds:
                    os.close(fd)
                canned.hear(stream, message)
            if stream.ended:
                selector.unregister(key.fileobj)
                del streams[key.fd]
                stream.close()


if __name__ == "__main__":
    main()
