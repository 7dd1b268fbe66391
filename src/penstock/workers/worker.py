"""The worker: a process that samples the batches it is asked for, into shared memory.

    python -m penstock.workers.worker --socket FD

It reads messages one after the other and answers them in that order; nothing else drives it. It
sends Begun before it touches anything of a batch, so that no kind of death can hide the attempt,
and Done or Failed after. A sampler that raises fails only its batch. A worker holds no lock that
other processes share, and can be killed at any time without loss.

Starting one costs what it imports: no torch, no pyarrow, and little else.
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

import msgspec

from penstock.errors import PenstockError, ProtocolError, SamplingError
from penstock.graph import Graph, sharing
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.custom import traceback_of
from penstock.store.attach import attach
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
from penstock.workers.failures import classes_of, report_of
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
    from penstock.workers.notices import Notices

FAULTS_VARIABLE: Final = "PENSTOCK_FAULTS"

# Freed when memory has run out, so that there is some for reporting it. Python allocates a mebibyte
# at a time.
_RESERVE: Final = 4 << 20
_PATIENCE: Final = 60.0

_Thing: TypeAlias = tuple[str, int]  # a backend or a channel, by number


class _Inbox:
    """All messages of the hub, in order, until the hub closes the connection."""

    def __init__(self, stream: Stream[FromHubToWorker], faults: Faults | None) -> None:
        self._stream = stream
        self._faults = faults
        self._here: deque[tuple[FromHubToWorker, list[int]]] = deque()

    def __iter__(self) -> Iterator[tuple[FromHubToWorker, list[int]]]:
        while self._here or not self._stream.ended:
            if self._here:
                yield self._here.popleft()
            else:
                if self._faults and self._faults.context:  # not before it has its WorkerConfig
                    self._faults.at("idle")
                self._stream.wait()
                self._here.extend(self._stream.receive())

    def next_batch(self) -> BatchId | None:
        """Return the batch that the next message asks for, if one has come and does so."""
        if not self._here:
            self._here.extend(self._stream.receive())
        message = self._here[0][0] if self._here else None
        return message.batch if isinstance(message, SampleBatch) else None


class Worker:
    """A worker's state, and its answers to messages."""

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
        self._notices: Notices | None = None
        if graph.is_in_parts:  # others need no logging, which takes time to import
            from penstock.workers.notices import Notices

            self._notices = Notices()
        self._rooms = SlotMaps()
        self._backends: dict[int, int] = {}  # by channel
        # Backends and channels that could not be opened, and why; their batches report it.
        self._refused: dict[_Thing, Report] = {}
        self._announced: BatchId | None = None  # the batch whose Begun was sent with the last Done

    def prepare(self, config: WorkerConfig) -> None:
        """Do what comes before Ready; errors in the user's sampler end the worker."""
        # The heartbeat starts before Ready, so that a worker which cannot start a thread is never
        # reported ready; and before the memory limit, under which a thread cannot start.
        self._heartbeat.start()
        if self._limit is not None:
            limit_memory(self._limit)
        self._reached("starting")
        if config.sampler is not None:
            self._maker.load(config.sampler)

    def run(self) -> int:
        """Answer messages until the last one; return the exit code."""
        self._say(Ready(pid=os.getpid()))
        for message, fds in self._inbox:
            if isinstance(message, Retire):
                return 0
            self._handle(message, fds)
        return EXIT_ORPHANED

    def strike(self, limit: int, error: MemoryError) -> NoReturn:
        """Report that there is no memory, and exit. If the report fails, the exit code tells."""
        try:
            if self._reserve is not None:
                self._reserve.close()
            batch = self._progress.batch
            self._say(OutOfMemory(batch=batch, limit=limit, private=private_bytes()))
            sys.stderr.write(f"{traceback_of(error)}\n")
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
                # If the process that made these arrays has gone, with its file, they cannot be
                # mapped. Whoever needs them makes them again in this worker; to die here would not
                # help the next worker either.
                with suppress(OSError, ValueError, PenstockError):
                    self._maker.supplement(sharing.attach(handle, fds))
            case WorkerConfig() | Retire():
                raise ProtocolError(f"{type(message).__name__} came where it makes no sense")

    @contextmanager
    def _telling_later(self, thing: _Thing) -> Iterator[None]:
        """Keep the error of an opening, which has no answer, for the batches that need it."""
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
        self._announced = None  # a substitute for this batch, made from other seeds, may follow
        self._progress.batch = message.batch
        # Wall-clock time: the cost of a batch to others is how long it keeps this worker from
        # making theirs, by computing or by waiting for a disk.
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
        report, classes = self._refusal(message.batch.channel), tuple[str, ...]()
        if report is None:
            try:
                before = self._maker.graph.moved
                written, one_off = self._written(message)
                cost = time.perf_counter() - start
                self._announced = self._next_batch()
                done = _done(message, cost, written, one_off, self._announced)
                if before is not None and (after := self._maker.graph.moved) is not None:
                    notices = () if self._notices is None else self._notices.take()
                    moved = after.since(before)
                    done = msgspec.structs.replace(done, moved=moved, notices=notices)
                return done, one_off
            except BaseException as error:  # whatever a user's sampler may raise
                if isinstance(error, MemoryError) and self._limit is not None:
                    raise
                report, classes = report_of(error), classes_of(error)
        failed = Failed(
            batch=message.batch,
            cost=time.perf_counter() - start,
            report=report,
            classes=classes,
            private=private_bytes(),
        )
        return failed, None

    def _next_batch(self) -> BatchId | None:
        """Return the next batch if it is here: Done then announces it, which saves a message."""
        # Faults happen between two messages, so with faults each message is sent on its own.
        return None if self._faults else self._inbox.next_batch()

    def _refusal(self, channel: int) -> Report | None:
        backend = ("backend", self._backends.get(channel, -1))
        return self._refused.get(("channel", channel)) or self._refused.get(backend)

    def _written(self, message: SampleBatch) -> tuple[Written, Arena | None]:
        """Make the batch in its slot, or in memory of its own if the slot is too small."""
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
            one_off.close()  # the descriptor, which is on its way, keeps the memory

    def _say(self, message: FromWorkerToHub, fds: Sequence[int] = ()) -> None:
        self._stream.send(message, fds)
        while self._stream.pending:  # nothing is pending for a hub that is gone
            self._stream.flush(_PATIENCE)

    # --- injected faults ---------------------------------------------------------------------

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
    """Run a worker to its end; return the exit code."""
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
    worker = Worker(stream, inbox, attach(config.graph, fds), config, faults)
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
    # Not by a normal exit of Python: a thread that a user's sampler started could block it for
    # ever, while heartbeats go on.
    os._exit(status)
