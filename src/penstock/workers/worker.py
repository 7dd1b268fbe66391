"""The worker: a process that samples what it is told to, into memory it is shown.

    python -m penstock.workers.worker --socket FD

It reads messages one after the other and answers them in that order; nothing else drives it. It
says Begun before it touches anything of a batch, so that no kind of death can hide the attempt, and
Done or Failed after; a sampler that raises fails its batch alone. It holds no lock that others
know, and nothing of it is missed when it is killed.

What it costs to start is what it imports: no torch, no pyarrow, and little else.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from penstock.errors import PenstockError, ProtocolError, SamplingError
from penstock.graph import Graph, sharing
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.custom import told
from penstock.wire import framing
from penstock.wire.messages import (
    BatchId,
    Begun,
    CloseBackend,
    CloseChannel,
    Done,
    Failed,
    FromHubToWorker,
    FromWorkerToHub,
    OpenBackend,
    OpenChannel,
    OutOfMemory,
    Ready,
    Report,
    Retire,
    SampleBatch,
    Supplement,
    WorkerConfig,
)
from penstock.wire.stream import Stream
from penstock.workers.arena import Arena
from penstock.workers.batch_maker import BatchMaker, Written
from penstock.workers.exits import EXIT_MEMORY, EXIT_ORPHANED, EXIT_SAMPLER
from penstock.workers.failures import report_of
from penstock.workers.heartbeat import HeartbeatThread, Progress
from penstock.workers.restraints import (
    is_orphan,
    limit_memory,
    mark,
    private_bytes,
    reserve_memory,
    restrain,
)
from penstock.workers.slot_maps import SlotMaps

if TYPE_CHECKING:
    from penstock.workers.faults import Faults

FAULTS_VARIABLE: Final = "PENSTOCK_FAULTS"

# Given up when there is no memory left, so that there is some to say so with. Python takes a
# mebibyte at a time.
_RESERVE: Final = 4 << 20
_PATIENCE: Final = 60.0

_Thing: TypeAlias = tuple[str, int]  # a backend or a channel, by number


class _Inbox:
    """All messages, in order, to the hub's end."""

    def __init__(self, stream: Stream[FromHubToWorker], faults: Faults | None) -> None:
        self._stream = stream
        self._faults = faults
        self._here: deque[tuple[FromHubToWorker, list[int]]] = deque()

    def __iter__(self) -> Iterator[tuple[FromHubToWorker, list[int]]]:
        while self._here or not self._stream.ended:
            if self._here:
                yield self._here.popleft()
            else:
                if self._faults and self._faults.context:  # not before it has its outfit
                    self._faults.at("idle")
                self._stream.wait()
                self._here.extend(self._stream.receive())

    def next_batch(self) -> BatchId | None:
        """The batch that the next message asks for, if one is here and does."""
        if not self._here:
            self._here.extend(self._stream.receive())
        message = self._here[0][0] if self._here else None
        return message.batch if isinstance(message, SampleBatch) else None


class Worker:
    """What a worker has, and how it answers."""

    def __init__(
        self,
        stream: Stream[FromHubToWorker],
        inbox: _Inbox,
        graph: Graph,
        config: WorkerConfig,
        faults: Faults | None,
    ) -> None:
        self._stream = stream
        self._inbox = inbox
        self._limit = config.pool.hard_memory
        self._reserve = None if self._limit is None else reserve_memory(_RESERVE)
        self._progress = Progress()
        self._heartbeat = HeartbeatThread(
            stream, config.pool.beat_every, self._progress, EXIT_ORPHANED
        )
        self._faults = faults
        self._reached: Callable[[str], object] = faults.at if faults else lambda stage: None
        self._maker = BatchMaker(graph, config.search_path, self._reached)
        self._rooms = SlotMaps()
        self._backends: dict[int, int] = {}  # by channel
        # What could not be opened, and why: its batches will tell.
        self._refused: dict[_Thing, Report] = {}
        self._announced: BatchId | None = None  # the batch that Begun was said of with a Done

    def prepare(self, config: WorkerConfig) -> None:
        """What comes before Ready: the sampler it is for, whose mistakes are told by its end."""
        # Before Ready, so that where no thread can be started no worker is said to be; and before
        # the limit, which a thread's first steps do not survive.
        self._heartbeat.start()
        if self._limit is not None:
            limit_memory(self._limit)
        self._reached("starting")
        if config.sampler is not None:
            self._maker.load(config.sampler)

    def run(self) -> int:
        """Answers messages to the last one; returns the exit code."""
        self._say(Ready(pid=os.getpid()))
        for message, fds in self._inbox:
            if isinstance(message, Retire):
                return 0
            self._handle(message, fds)
        return EXIT_ORPHANED

    def strike(self, limit: int, error: MemoryError) -> NoReturn:
        """The last words of a worker without memory. Where they fail, its exit code tells."""
        try:
            if self._reserve is not None:
                self._reserve.close()
            batch = self._progress.batch
            self._say(OutOfMemory(batch=batch, limit=limit, private=private_bytes()))
            sys.stderr.write(f"{told(error)}\n")
        finally:
            os._exit(EXIT_MEMORY)

    def _handle(self, message: FromHubToWorker, fds: list[int]) -> None:
        match message:
            case SampleBatch():
                self._sample(message)
            case OpenBackend(backend=number, spec=spec):
                with self._telling_later(("backend", number)):
                    self._maker.open_backend(number, spec)
            case OpenChannel(channel=number, backend=backend, feed=feed):
                self._backends[number] = backend
                with self._telling_later(("channel", number)):
                    given = self._rooms.open(message, fds)
                    self._maker.open_channel(number, backend, feed, given)
            case CloseBackend(backend=number):
                self._maker.close_backend(number)
                self._refused.pop(("backend", number), None)
            case CloseChannel(channel=number):
                self._maker.close_channel(number)
                self._rooms.close(number)
                self._backends.pop(number, None)
                self._refused.pop(("channel", number), None)
            case Supplement(graph=handle):
                # One whose maker has gone, and taken its file along, cannot be had any more. Who
                # needs it makes it again, here: to die of it would help no worker that follows.
                with suppress(OSError, ValueError, PenstockError):
                    self._maker.supplement(sharing.attach(handle, fds))
            case WorkerConfig() | Retire():
                raise ProtocolError(f"{type(message).__name__} came where it makes no sense")

    @contextmanager
    def _telling_later(self, thing: _Thing) -> Iterator[None]:
        """Nobody listens for how an opening went: if it failed, so will the batches."""
        self._refused.pop(thing, None)
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:
            self._refused[thing] = report_of(error)

    # --- batches -----------------------------------------------------------------------------

    def _sample(self, message: SampleBatch) -> None:
        self._arm(message)
        self._reached("received")
        if message.batch != self._announced:
            self._say(Begun(batch=message.batch))
        self._announced = None  # the same batch may come again, to be made from another's seeds
        self._progress.batch = message.batch
        # By the clock on the wall: what a batch costs the others is how long it keeps this worker
        # from making theirs, be it by computing or by waiting for a disk.
        start = time.perf_counter()
        answer, one_off = self._answer(message, start)
        self._reached("before-message")
        self._send(answer, one_off)
        self._reached("after-message")
        self._progress.batch = None
        self._progress.batches += 1
        if self._faults:
            self._faults.context["batches"] = self._progress.batches

    def _answer(self, message: SampleBatch, start: float) -> tuple[Done | Failed, Arena | None]:
        report = self._refusal(message.batch.channel)
        if report is None:
            try:
                written, one_off = self._written(message)
                cost = time.perf_counter() - start
                self._announced = self._next_batch()
                return _done(message, cost, written, one_off, self._announced), one_off
            except BaseException as error:  # whatever a user's sampler may raise
                if isinstance(error, MemoryError) and self._limit is not None:
                    raise
                report = report_of(error)
        cost = time.perf_counter() - start
        return Failed(batch=message.batch, cost=cost, report=report), None

    def _next_batch(self) -> BatchId | None:
        """The batch to begin next, if it is here: one word less to the hub, who hears of both."""
        # Faults strike between one word and the next: for them each is said by itself.
        return None if self._faults else self._inbox.next_batch()

    def _refusal(self, channel: int) -> Report | None:
        backend = ("backend", self._backends.get(channel, -1))
        return self._refused.get(("channel", channel)) or self._refused.get(backend)

    def _written(self, message: SampleBatch) -> tuple[Written, Arena | None]:
        """The batch in its slot; or in memory of its own, where it is too large for that."""
        channel = message.batch.channel
        memory = self._rooms.slot(channel, message.slot)
        if self._faults:
            self._faults.memory = memory
        name = (channel, message.batch.epoch, message.index)
        try:
            return self._maker.sample(*name, memory), None
        except SlotTooSmall as small:
            one_off = self._rooms.one_off(channel, small)
        try:
            return self._maker.sample(*name, one_off.memory(0)), one_off
        except BaseException:
            one_off.close()
            raise

    def _send(self, answer: Done | Failed, one_off: Arena | None) -> None:
        if self._faults and one_off is None and self._faults.due("mid-message"):
            self._say_in_halves(answer)
        elif one_off is None:
            self._say(answer)
        else:
            self._say(answer, one_off.descriptors)
            one_off.close()  # it lives on with its descriptor, which is on its way

    def _say(self, message: FromWorkerToHub, fds: Sequence[int] = ()) -> None:
        self._stream.send(message, fds)
        while self._stream.pending:  # to a hub that is gone nothing is pending
            self._stream.flush(_PATIENCE)

    # --- faults on order ---------------------------------------------------------------------

    def _arm(self, message: SampleBatch) -> None:
        if self._faults:
            self._faults.context |= {
                "channel": message.batch.channel,
                "epoch": message.batch.epoch,
                "step": message.batch.step,
                "index": message.index,
                "slot": message.slot,
                "attempt": message.attempt,
            }

    def _say_in_halves(self, message: FromWorkerToHub) -> None:
        frame = framing.frame(message)
        half = len(frame) // 2
        with self._heartbeat.speaking:
            os.write(self._stream.fileno(), frame[:half])
            self._reached("mid-message")
            os.write(self._stream.fileno(), frame[half:])


def _done(
    message: SampleBatch,
    cost: float,
    written: Written,
    one_off: Arena | None,
    begins: BatchId | None,
) -> Done:
    return Done(
        batch=message.batch,
        cost=cost,
        layouts=written.layouts,
        nbytes=written.nbytes,
        facts=written.facts,
        one_off=None if one_off is None else one_off.plan.memory,
        begins=begins,
    )


# --- the process -----------------------------------------------------------------------------


def main() -> int:
    """Runs a worker to its end; returns the exit code."""
    restrain()
    sock = socket.socket(fileno=_descriptor(sys.argv[1:]))
    if is_orphan(sock):
        return EXIT_ORPHANED
    faults = _armed_faults()
    stream: Stream[FromHubToWorker] = Stream(sock, FromHubToWorker)
    inbox = _Inbox(stream, faults)
    config, fds = next(iter(inbox), (None, []))
    if config is None:
        return EXIT_ORPHANED
    if not isinstance(config, WorkerConfig):
        raise ProtocolError(f"{type(config).__name__} came first; expected WorkerConfig")
    return _work(stream, inbox, config, fds, faults)


def _work(
    stream: Stream[FromHubToWorker],
    inbox: _Inbox,
    config: WorkerConfig,
    fds: list[int],
    faults: Faults | None,
) -> int:
    mark(config.worker)
    if faults:
        faults.context.update(worker=config.worker, batches=0)
    worker = Worker(stream, inbox, Graph.attach(config.graph, fds), config, faults)
    try:
        worker.prepare(config)
        return worker.run()
    except SamplingError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_SAMPLER
    except MemoryError as error:
        if config.pool.hard_memory is None:
            raise
        worker.strike(config.pool.hard_memory, error)


def _descriptor(arguments: Sequence[str]) -> int:
    match arguments:
        case ["--socket", number] if number.isdecimal():
            return int(number)
        case _:
            sys.exit("usage: python -m penstock.workers.worker --socket FD")


def _armed_faults() -> Faults | None:
    if FAULTS_VARIABLE not in os.environ:
        return None
    from penstock.workers.faults import Faults

    return Faults.armed()


if __name__ == "__main__":
    try:
        status = main()
    except (Exception, KeyboardInterrupt):
        sys.excepthook(*sys.exc_info())
        status = 1
    # Not by way of Python's own end: a thread that a user's sampler started could keep it there
    # for ever, its heart still beating.
    os._exit(status)
