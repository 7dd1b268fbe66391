"""A hub as a real process, and ranks that speak to it in bare messages.

Waits are bounds for liveness only: a test that is well never comes near them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import psutil

from penstock.core.plan import num_batches
from penstock.graph import Graph
from penstock.options import PoolOptions
from penstock.sampling.spec import Feed, NeighborSpec, Spec
from penstock.wire import frames
from penstock.wire.messages import (
    PROTOCOL,
    AskStatistics,
    AskWorkers,
    BackendCreated,
    BatchLost,
    BatchReady,
    CreateBackend,
    EpochDone,
    FromHubToRank,
    FromRankToHub,
    Hello,
    HubConfig,
    Refused,
    Registered,
    Resized,
    ReturnSlot,
    StartEpoch,
    Statistics,
    Stop,
    Welcome,
    WorkerGone,
)
from penstock.wire.stream import Stream
from penstock.wire.transport.unix import UnixListener, socket_address
from penstock.workers.arena import Arena
from penstock.workers.batch_maker import BatchMaker
from tests.processes import written_to
from tests.wishes import register

PATIENCE_S = 60.0
# Where workers find `tests.hub.samplers`.
ROOT = str(Path(__file__).parents[2])
PROGRAM = ("-m", "penstock.hub.process")
SPEC = NeighborSpec(num_neighbors=(3, 2))

_Kind = TypeVar("_Kind", bound=FromHubToRank)
Arrays = dict[str, npt.NDArray[Any]]


def small_graph(num_nodes: int = 200, degree: int = 5, seed: int = 0) -> Graph:
    """A graph in shared memory with features and labels."""
    random = np.random.default_rng(seed)
    edges = random.integers(0, num_nodes, (2, num_nodes * degree))
    features = random.standard_normal((num_nodes, 4)).astype(np.float32)
    return Graph.from_coo(edges, num_nodes, x=features, y=np.arange(num_nodes))


def feed(num_inputs: int = 40, batch_size: int = 4, **more: Any) -> Feed:
    """All nodes from the first on, shuffled."""
    return Feed(num_inputs=num_inputs, batch_size=batch_size, **{"shuffle": True, **more})


class Rank:
    """One connection to a hub."""

    def __init__(self, sock: socket.socket) -> None:
        self.stream: Stream[FromHubToRank] = Stream(sock, FromHubToRank)
        self._heard: deque[tuple[FromHubToRank, list[int]]] = deque()
        self._requests = 0
        self.news: list[WorkerGone] = []  # which comes whenever it does, to founders

    @classmethod
    def join(cls, address: str) -> Self:
        """Connects, and greets."""
        rank = cls.knock(address)
        rank.greet()
        return rank

    @classmethod
    def knock(cls, address: str) -> Self:
        """Connects, and says nothing."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(socket_address(address))
        return cls(sock)

    def greet(self, protocol: int = PROTOCOL) -> Welcome:
        self.say(Hello(protocol=protocol, pid=os.getpid()))
        return self.hear(Welcome)

    def say(self, message: FromRankToHub, fds: Sequence[int] = ()) -> None:
        self.stream.send(message, fds)
        assert self.stream.flush(PATIENCE_S)

    def ask(self, request: Any, answer: type[_Kind], fds: Sequence[int] = ()) -> _Kind:
        """Asks something; the answer must be of this kind, and comes before anything else."""
        self._requests += 1
        self.say(msgspec.structs.replace(request, request=self._requests), fds)
        said = self.hear(answer)
        assert getattr(said, "request", None) == self._requests
        return said

    def hear(self, kind: type[_Kind], patience: float = PATIENCE_S) -> _Kind:
        """The next message, which must be of this kind. Descriptors with it are in `fds`."""
        message = self.next(patience)
        assert isinstance(message, kind), f"expected {kind.__name__}, got {message}"
        return message

    def next(self, patience: float = PATIENCE_S) -> FromHubToRank:
        deadline = time.monotonic() + patience
        while not self._heard:
            assert self.stream.wait(deadline - time.monotonic()), "the hub says nothing"
            for message, fds in self.stream.receive():
                if isinstance(message, WorkerGone):
                    self.news.append(message)
                else:
                    self._heard.append((message, fds))
            if not self._heard and self.stream.ended:
                raise EOFError("the hub has closed the connection")
        message, self.fds = self._heard.popleft()
        return message

    def waits_for_end(self) -> list[FromHubToRank]:
        """All that is said until the hub closes the connection."""
        said: list[FromHubToRank] = []
        with contextlib.suppress(EOFError):
            while True:
                said.append(self.next())
        return said

    # --- what most tests need ---

    def backend(self, spec: Spec = SPEC, **more: Any) -> int:
        wish = CreateBackend(request=0, spec=spec, **more)
        return self.ask(wish, BackendCreated).backend

    def register(
        self, backend: int, inputs: Feed | None = None, fds: Sequence[int] = (), **more: Any
    ) -> Channel:
        wish = register(request=0, backend=backend, feed=inputs or feed(), **more)
        return Channel(self, self.ask(wish, Registered, fds))

    def workers(self, backend: int | None = None) -> int:
        """Waits until all workers are ready; how many there are."""
        return self.ask(AskWorkers(request=0, backend=backend), Resized).workers

    def statistics(self) -> dict[str, Any]:
        return self.ask(AskStatistics(request=0), Statistics).numbers

    def until(self, so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first numbers that are so; each question waits for an answer."""
        deadline = time.monotonic() + PATIENCE_S
        while not so(numbers := self.statistics()):
            assert time.monotonic() < deadline, numbers
        return numbers

    def worker_pids(self) -> list[int]:
        return [worker["pid"] for worker in self.statistics()["pool"]["workers"]]

    def refusal(self, request: Any, fds: Sequence[int] = ()) -> str:
        """Asks something that must be refused; kind and message of the refusal."""
        report = self.ask(request, Refused, fds).report
        return f"{report.kind}: {report.message}"

    def close(self) -> None:
        for _, fds in self._heard:
            for fd in fds:
                os.close(fd)
        self.stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Channel:
    """One channel, whose batches are read and copied out."""

    def __init__(self, rank: Rank, registered: Registered) -> None:
        self.rank = rank
        self.number = registered.channel
        fd = rank.fds[0] if rank.fds else None
        self.arena = Arena.attach(registered.arena, fd)

    def start(self, epoch: int, **more: int) -> None:
        self.rank.say(StartEpoch(channel=self.number, epoch=epoch, **more))

    def give_back(self, slot: int) -> None:
        self.rank.say(ReturnSlot(channel=self.number, slot=slot))

    def read(self, ready: BatchReady) -> Arrays:
        """A copy of a batch's arrays; its slot goes back."""
        arrays = self.peek(ready)
        self.give_back(ready.slot)
        return arrays

    def peek(self, ready: BatchReady) -> Arrays:
        """A copy of a batch's arrays."""
        if ready.one_off is None:
            memory = self.arena.memory(ready.slot)
        else:
            fd = self.rank.fds[0] if self.rank.fds else None
            with Arena.attach_one_off(ready.one_off, fd) as arena:
                memory = arena.memory(0)
        return {name: array.copy() for name, array in frames.read(memory, ready.layouts).items()}

    def finish(self) -> tuple[dict[int, Arrays], list[BatchLost], EpochDone]:
        """Reads the epoch to its end: batches by their index, errors, and the announcement."""
        batches: dict[int, Arrays] = {}
        lost: list[BatchLost] = []
        while True:
            match said := self.rank.next():
                case BatchReady(index=index):
                    assert index not in batches
                    batches[index] = self.read(said)
                case BatchLost():
                    lost.append(said)
                case EpochDone():
                    return batches, lost, said
                case _:
                    raise AssertionError(f"unexpected: {said}")

    def epoch(self, epoch: int) -> dict[int, Arrays]:
        """A whole epoch, in which nothing may go wrong."""
        self.start(epoch)
        batches, lost, done = self.finish()
        assert not lost
        assert (done.channel, done.epoch) == (self.number, epoch)
        assert (done.delivered, done.failed, done.cancelled) == (len(batches), 0, 0)
        return batches


class HubProcess:
    """A hub that was started, its process, and the founder's connection."""

    def __init__(
        self, graph: Graph, workers: int = 1, program: Sequence[str] = PROGRAM, **more: Any
    ) -> None:
        self.address = f"unix://@penstock-test-{uuid.uuid4().hex}"
        names = set(PoolOptions.__struct_fields__) & set(more)
        told = {
            "address": self.address,
            "graph": graph.handle(),
            "workers": workers,
            "search_path": (ROOT,),
            "pool": PoolOptions(**{name: more.pop(name) for name in names}),
            **more,
        }
        self.address = told["address"]
        self.listener = UnixListener(self.address)
        self.founder, self.process, self.log = start_hub(program)
        self.founder.say(HubConfig(**told), (self.listener.fileno(), *graph.descriptors))

    def greet(self) -> Self:
        self.founder.greet()
        return self

    def end(self) -> int:
        """Stops it; its exit status."""
        if self.process.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self.founder.stream.send(Stop())
        self.founder.close()
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.listener.close()

    def logged(self) -> str:
        """What it has written to its standard error so far."""
        return written_to(self.log).decode()

    def close(self) -> None:
        self.end()
        self.log.close()


def start_hub(
    program: Sequence[str] = PROGRAM,
) -> tuple[Rank, subprocess.Popen[bytes], Any]:
    """A hub's process that has been told nothing yet."""
    ours, theirs = socket.socketpair()
    log = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked for the hub closes it
    process = subprocess.Popen(
        [sys.executable, "-P", *program, "--control", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stderr=log,
    )
    theirs.close()
    return Rank(ours), process, log


@contextlib.contextmanager
def running_hub(graph: Graph | None = None, workers: int = 1, **more: Any) -> Iterator[HubProcess]:
    """A hub that has been founded and greeted; it must end well."""
    with contextlib.nullcontext(graph) if graph else small_graph() as there:
        hub = HubProcess(there, workers, **more)
        try:
            yield hub.greet()
            status = hub.end()
            assert status == 0, hub.logged()
        finally:
            hub.close()


def inline(epoch: int = 0, spec: Spec = SPEC, inputs: Feed | None = None) -> dict[int, Arrays]:
    """What an epoch on the small graph must look like: sampled here, without any process."""
    inputs = inputs or feed()
    memory = np.zeros(1 << 20, np.uint8)
    batches = {}
    with small_graph() as graph:
        maker = BatchMaker(graph)
        maker.open_backend(1, spec)
        maker.open_channel(1, 1, inputs)
        for index in range(num_batches(inputs.num_inputs, inputs.batch_size, inputs.drop_last)):
            written = maker.sample(1, epoch, index, memory)
            arrays = frames.read(memory, written.layouts)
            batches[index] = {name: array.copy() for name, array in arrays.items()}
    return batches


def same(one: dict[int, Arrays], other: dict[int, Arrays]) -> bool:
    """Whether two epochs are equal, byte for byte."""
    return one.keys() == other.keys() and all(
        one[index].keys() == other[index].keys()
        and all(np.array_equal(one[index][name], other[index][name]) for name in one[index])
        for index in one
    )


def wait_until_gone(pid: int) -> None:
    """Until a process that is not our child has ended and been reaped."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(PATIENCE_S)
