"""A channel without a hub: batches are sampled in the caller's thread, when they are asked for.

It has the interface of a `Channel` and gives the same bytes, in private memory. It is for
`num_workers=0`: small graphs, debuggers, systems that have no unix sockets. There is nothing to
wait for, so nothing is sampled ahead.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.channel.batch import Batch
from penstock.client.channel.reader import Content, Reader
from penstock.client.channel.registration import Registration
from penstock.client.channel.reorder_buffer import ReorderBuffer
from penstock.client.naming import search_path
from penstock.core.plan import EpochPlan
from penstock.core.settings import Settings
from penstock.graph import Graph
from penstock.hub.recipes import RECIPES, first_seeds, replay_command, request_for
from penstock.options import LARGEST_BATCH
from penstock.rpc.buffer_pool import BufferPool, lasting
from penstock.rpc.deadline import Deadline
from penstock.rpc.failures import error_of
from penstock.sampling.buffer import SlotTooSmall
from penstock.wire.frames import private_memory, read
from penstock.workers.batch_maker import BatchMaker, Bytes, Written, slot_bytes_for
from penstock.workers.failures import (
    Failure,
    classes_of,
    is_passing,
    raised_by_user,
    report_of,
    too_large,
)
from penstock.workers.incident import HeldBatch
from penstock.workers.recipe import for_batch
from penstock.workers.restraints import private_bytes

# Buffers that are kept for reuse.
_KEPT: Final = 2
# A pool's scheduler waits as long between two attempts.
_SETTINGS: Final = Settings()
# Each channel has its own batch maker, so that different threads can read different channels. So
# these numbers need not be unique.
_BACKEND: Final = 0
_CHANNEL: Final = 0


class InlineChannel(Reader):
    """The batches of one registration, sampled in this process."""

    def __init__(self, graph: Graph, registration: Registration, **options: Any) -> None:
        super().__init__(registration.options.job, **options)
        self.registration = registration
        self._maker: BatchMaker | None = _maker_for(graph, registration)
        slot = registration.options.slot_bytes
        room = slot or slot_bytes_for(registration.spec, graph, registration.feed)
        self._memory, self._slot_bytes = BufferPool(_KEPT), room
        self._most = max(registration.options.max_batch_bytes or LARGEST_BATCH, room)
        self._substituted = self._recipes = 0
        self._attempt = 1  # at the step that is being sampled
        self._quarantined: set[int] = set()

    @property
    def rank(self) -> int:
        """The rank that reads this channel."""
        return self.registration.options.rank

    def plan(self, first: int = 0) -> EpochPlan:
        """Return the plan of an epoch that begins at batch `first` of the list."""
        return self.registration.plan(first)

    def reweigh(self, weight: float) -> None:
        """Check and store the weight. It has no effect, because there are no workers to share."""
        self.registration = self.registration.reweighed(weight)

    # --- hooks of `Reader` ---

    def _begin(self, reading: ReorderBuffer[Content]) -> None:
        self._substituted = self._recipes = 0
        self._quarantined.clear()

    def _wait(self, reading: ReorderBuffer[Content], deadline: Deadline) -> None:
        self._unsure = False  # a batch that an interrupt lost can be sampled again
        if not reading.ready:
            reading.accept(reading.due, self._make(reading))

    def _let_go_of_all(self) -> None:
        self._abandon()
        self._maker = None
        self.registration.inputs.close()

    # --- sampling ---

    def _make(self, reading: ReorderBuffer[Content]) -> Content:
        """Return the batch that is due, or a substitute, or the failure."""
        source, others = reading.due, self._substitutes_for(reading)
        while True:
            try:
                return self._try(reading, source)
            except Exception as error:
                self._quarantined.add(source)
                raised = error
            if (another := next(others, None)) is None:
                return self._failed_batch(reading, source, raised)
            source = another

    def _try(self, reading: ReorderBuffer[Content], source: int) -> _Made:
        """Sample a batch; again, after a while, if it raises what the options say may go away."""
        options = self.registration.options
        for errors in range(options.retry_errors):
            try:
                return self._sample(reading, source, errors)
            except Exception as error:
                if not is_passing(classes_of(error), options.retry_on):
                    raise
            time.sleep(_SETTINGS.error_delay(errors + 1))
        return self._sample(reading, source, options.retry_errors)

    def _failed_batch(
        self, reading: ReorderBuffer[Content], source: int, error: Exception
    ) -> _FailedBatch:
        """Return the failure, with what a rank of a hub would be told of it."""
        registration, index = self.registration, reading.index(source)
        failure = Failure(
            report=report_of(error),
            classes=classes_of(error),
            pid=os.getpid(),
            host=socket.gethostname(),
            private=private_bytes(),
        )
        batch = HeldBatch(
            registration.options.job,
            None,
            reading.epoch,
            reading.due,
            index,
            self._attempt,
            *first_seeds(registration.feed, registration.inputs.given(), reading.epoch, index),
        )
        report = failure.full_report(batch, self._command(reading, index))
        return _FailedBatch(error_of(report), raised_by_user(error))

    def _command(self, reading: ReorderBuffer[Content], index: int) -> str | None:
        """Return the command that replays a batch; None after the first few of an epoch."""
        if self._maker is None or self._recipes == RECIPES:
            return None
        self._recipes += 1
        registration, graph = self.registration, self._maker.graph.handle()
        feed, given = registration.feed, registration.inputs.given()
        return replay_command(
            lambda: for_batch(
                spec=registration.spec,
                feed=feed,
                epoch=reading.epoch,
                index=index,
                graph=graph,
                request=request_for(feed, given, reading.epoch, index),
                job=registration.options.job,
                search_path=search_path(),
            )
        )

    def _substitutes_for(self, reading: ReorderBuffer[Content]) -> Iterator[int]:
        """Yield the steps after the due one, around the epoch, as far as the limit allows."""
        most = self.registration.options.substitutes
        begin, steps = reading.first_step, reading.total - reading.first_step
        for ahead in range(1, steps):
            source = begin + (reading.due - begin + ahead) % steps
            if self._substituted >= most:
                return
            if source not in self._quarantined:
                self._substituted += 1
                yield source

    def _sample(self, reading: ReorderBuffer[Content], source: int, retries: int) -> _Made:
        index, self._attempt = reading.index(source), retries + 1
        began = time.perf_counter()
        memory, written = self._write(reading.epoch, index)
        batch = Batch(
            arrays=read(memory, written.layouts),
            facts=written.facts,
            epoch=reading.epoch,
            step=reading.due,
            index=index,
            substitute=source != reading.due,
            retries=retries,
            cost=time.perf_counter() - began,
            dtypes={layout.name: layout.dtype for layout in written.layouts},
            memory=lasting(memory),
        )
        return _Made(batch)

    def _write(self, epoch: int, index: int) -> tuple[Bytes, Written]:
        assert self._maker is not None
        memory = self._memory.lend(self._slot_bytes)
        try:
            return memory, self._maker.sample(_CHANNEL, epoch, index, memory)
        except SlotTooSmall as small:
            if small.needed > self._most:
                raise too_large(small, self._most) from None
            memory = private_memory(small.needed)
        return memory, self._maker.sample(_CHANNEL, epoch, index, memory)


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """A batch that was sampled in this process."""

    batch: Batch

    def open(self) -> Batch:
        return self.batch

    def drop(self) -> None:
        pass


@dataclass(frozen=True, slots=True, eq=False)
class _FailedBatch:
    """A batch that could not be sampled: what to raise, and what the sampler raised."""

    error: Exception
    raised: BaseException

    def open(self) -> Batch:
        # The error is the one a rank of a hub would get. It has the traceback of what was raised,
        # which Python is not to show once more; debuggers find it as the context.
        self.error.__context__ = self.raised
        raise self.error from None

    def drop(self) -> None:
        pass


def _maker_for(graph: Graph, registration: Registration) -> BatchMaker:
    maker = BatchMaker(graph)
    maker.open_backend(_BACKEND, registration.spec)
    maker.open_channel(_CHANNEL, _BACKEND, registration.feed, registration.inputs.given())
    return maker
