"""Handles the messages of ranks: checks them, answers them, and passes events to the scheduler.

A request that cannot be granted is refused, with the reason. A message that is not valid at all
(another rank's channel, a slot that does not exist, the wrong order) ends the connection that sent
it, and no other. No message of a rank stops the hub, except `Stop` from the rank that started it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Final

from penstock.core.events import (
    ChannelUnregistered,
    EpochStarted,
    SlotReturned,
    WeightChanged,
    check_weight,
)
from penstock.core.scheduler import SchedulerError
from penstock.errors import Overloaded, PenstockError, ProtocolError
from penstock.hub.backends import BUILT_IN, HubBackend, check_spec
from penstock.hub.channels import (
    HubChannel,
    arena_bytes,
    check_inputs,
    plan_of,
    registration_of,
    slots_for,
)
from penstock.hub.connection import RankConnection
from penstock.hub.instructions import Executor
from penstock.hub.reports import report_of
from penstock.hub.state import HubState
from penstock.hub.statistics import gather
from penstock.options import LARGEST_BATCH
from penstock.wire.messages import (
    PROTOCOL,
    AskGraph,
    AskStatistics,
    AskWorkers,
    BackendCreated,
    CreateBackend,
    FromRankToHub,
    GraphHere,
    Hello,
    HubConfig,
    Refused,
    Register,
    Registered,
    Resize,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Statistics,
    Stop,
    Unregister,
    Welcome,
)
from penstock.workers.arena import Arena
from penstock.workers.batch_maker import slot_bytes_for
from penstock.workers.limits import MOST_WORKERS

log = logging.getLogger(__name__)

MOST_WAITING: Final = 64

_Request = CreateBackend | Register | Resize | AskWorkers | AskStatistics | AskGraph


class RankMessages:
    """Handles the messages of ranks. `stopping` is set when the founder has sent Stop."""

    def __init__(self, state: HubState, executor: Executor) -> None:
        self._state = state
        self._executor = executor
        self.stopping = False
        self._described = ""

    def hear(self, connection: RankConnection, message: FromRankToHub, fds: Sequence[int]) -> None:
        """Handle one message, and take ownership of the descriptors that came with it."""
        left = list(fds)
        try:
            self._hear(connection, message, left)
        except ProtocolError as error:
            self.expel(connection, error)
        finally:
            for fd in left:
                os.close(fd)

    def expel(self, connection: RankConnection, error: ProtocolError) -> None:
        """Send the error to the rank, and mark the connection to be closed."""
        log.warning("%r is closed: %s", connection, error)
        connection.send(Refused(request=0, report=report_of(error)))
        connection.end(str(error))

    def farewell(self, connection: RankConnection) -> None:
        """Release the channels, backends and waiting requests of a connection that has ended."""
        for number in sorted(connection.channels):
            self._unregister(connection, number)
        for number in connection.backends:
            if backend := self._state.backends.get(number):
                backend.holders.discard(connection.number)
                self._executor.release(backend)
        self._state.waiters.drop(connection)

    def waiters(self) -> None:
        """Answer waiting requests that can be answered, after workers have changed."""
        if self._state.waiters:
            groups = self._state.scheduler.statistics().groups
            self._state.waiters.look(groups, self._state.stories)

    # --- messages ----------------------------------------------------------------------------

    def _hear(self, connection: RankConnection, message: FromRankToHub, fds: list[int]) -> None:
        connection.conversation.rank_says(message)
        if fds and not isinstance(message, CreateBackend | Register):
            raise ProtocolError(f"{len(fds)} descriptors came with {type(message).__name__}")
        match message:
            case ReturnSlot():
                self._return(connection, message)
            case StartEpoch():
                self._start(connection, message)
            case Unregister(channel=number):
                self._leave(connection, number)
            case Reweigh():
                self._reweigh(connection, message)
            case Hello():
                self._hello(connection, message)
            case Stop():
                self._stop(connection)
            case HubConfig():
                raise ProtocolError("HubConfig is sent once, by the rank that starts the hub")
            case _:
                self._request(connection, message, fds)

    def _hello(self, connection: RankConnection, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            raise ProtocolError(
                f"you speak protocol {hello.protocol}, this hub {PROTOCOL}: "
                "install the same version of penstock-gnn on both sides"
            )
        connection.pid = hello.pid
        connection.send(
            Welcome(
                protocol=PROTOCOL,
                boot=self._state.boot,
                pid=os.getpid(),
                address=self._state.config.address,
            )
        )

    def _stop(self, connection: RankConnection) -> None:
        if not connection.founder:
            raise ProtocolError("only the rank that started the hub may stop it")
        self.stopping = True

    # --- requests, each of which is answered -------------------------------------------------

    def _request(self, connection: RankConnection, request: _Request, fds: list[int]) -> None:
        try:
            self._grant(connection, request, fds)
        except (
            ValueError,
            KeyError,
            ArithmeticError,
            OSError,
            MemoryError,
            PenstockError,
        ) as error:
            if isinstance(error, ProtocolError | SchedulerError):
                raise
            log.info("%r is refused %s: %s", connection, type(request).__name__, error)
            connection.send(Refused(request=request.request, report=report_of(error)))

    def _grant(self, connection: RankConnection, request: _Request, fds: list[int]) -> None:
        match request:
            case CreateBackend():
                self._create_backend(connection, request, fds)
            case Register():
                self._register(connection, request, fds)
            case Resize():
                self._resize(connection, request)
            case AskWorkers():
                self._ask_workers(connection, request)
            case AskStatistics():
                numbers = gather(self._state)
                connection.send(Statistics(request=request.request, numbers=numbers))
            case AskGraph():
                handle = self._state.graph.handle
                answer = GraphHere(request=request.request, graph=handle)
                connection.send(answer, self._state.graph.descriptors(handle))

    def _create_backend(
        self, connection: RankConnection, register: CreateBackend, fds: list[int]
    ) -> None:
        state = self._state
        if register.workers is not None:
            _check_workers(register.workers, least=1)
        self._supplement(register, fds)
        check_spec(register.spec, state.graph.graph)
        backend = state.backends.find(register.spec) or state.backends.create(register.spec)
        backend.holders.add(connection.number)
        connection.backends.add(backend.number)
        backend.workers = max(backend.workers, register.workers or 0)
        backend.follows |= register.workers is None
        self._ensure_group(backend)
        connection.send(BackendCreated(request=register.request, backend=backend.number))

    def _supplement(self, register: CreateBackend, fds: list[int]) -> None:
        if register.supplement is None:
            if fds:
                raise ProtocolError(f"{len(fds)} descriptors came with a backend that needs none")
            return
        taken, fds[:] = list(fds), []
        self._state.graph.supplement(register.supplement, taken)

    def _ensure_group(self, backend: HubBackend) -> None:
        """Start the backend's group if it does not exist, or enlarge it if necessary."""
        wanted = backend.group_size(self._state.workers)
        if backend.group not in self._state.groups or self._state.groups[backend.group] < wanted:
            self._executor.size_group(backend.group, wanted)

    def _resize(self, connection: RankConnection, register: Resize) -> None:
        """Resize the pool: the group of the built-in samplers, and groups that follow its size."""
        _check_workers(register.workers)
        state = self._state
        state.workers = register.workers
        groups = {backend.group: backend.group_size(state.workers) for backend in state.backends}
        if BUILT_IN in state.groups or not groups:
            groups[BUILT_IN] = state.workers
        for group, workers in groups.items():
            self._executor.size_group(group, workers)
        awaited = BUILT_IN if BUILT_IN in groups else next(iter(groups))
        self._await_workers(connection, register.request, awaited)

    def _register(self, connection: RankConnection, register: Register, fds: list[int]) -> None:
        state = self._state
        backend = state.backends.get(register.backend)
        if backend is None:
            raise KeyError(f"there is no backend {register.backend} on this boot of the hub")
        register.options.check()
        plan = plan_of(register.feed, register.options)
        check_inputs(backend.spec, register.feed, state.graph.graph, fds)
        self._check_room(register)
        arena = self._arena(register, backend)
        ids, fds[:] = tuple(fds), []
        channel = HubChannel(
            number=state.channels.next_number(),
            connection=connection,
            backend=backend,
            feed=register.feed,
            options=register.options,
            arena=arena,
            ids=ids,
            plan=plan,
        )
        self._enrol(channel)
        connection.send(
            Registered(request=register.request, channel=channel.number, arena=arena.plan),
            arena.descriptors,
        )
        self.describe(f"{channel} came")

    def _enrol(self, channel: HubChannel) -> None:
        try:
            self._executor.tell(registration_of(self._state.now, channel, self._state.graph.graph))
        except BaseException:  # whatever happened, its memory must not stay in use
            channel.close()
            raise
        self._state.channels.add(channel)
        channel.connection.channels.add(channel.number)
        channel.backend.channels.add(channel.number)

    def _check_room(self, register: Register) -> None:
        limit = self._state.config.pool.max_channels
        if len(self._state.channels) >= limit:
            raise Overloaded(
                f"the hub has {limit} channels, as many as it may have (setting: max_channels)"
            )

    def _arena(self, register: Register, backend: HubBackend) -> Arena:
        state, options, pool = self._state, register.options, self._state.config.pool
        workers = state.groups.get(backend.group, 0)
        slot_bytes = options.slot_bytes
        if slot_bytes is None:
            slot_bytes = slot_bytes_for(backend.spec, state.graph.graph, register.feed)
        slots = slots_for(options, workers, pool.worker_concurrency, slot_bytes)
        limit, there = pool.max_arena_bytes, state.channels.slot_bytes
        if limit is not None and there + arena_bytes(slots, slot_bytes) > limit:
            raise Overloaded(
                f"{slots} slots of {slot_bytes} bytes do not fit: {there} of {limit} bytes "
                "are taken by other channels (setting: max_arena_bytes)"
            )
        return Arena.create(slots, slot_bytes, options.max_batch_bytes or LARGEST_BATCH)

    def _ask_workers(self, connection: RankConnection, request: AskWorkers) -> None:
        group = BUILT_IN
        if request.backend is not None:
            backend = self._state.backends.get(request.backend)
            if backend is None:
                raise KeyError(f"there is no backend {request.backend} on this boot of the hub")
            group = backend.group
        # The size is set even if it does not change: that may start a trial of an open breaker.
        wanted = self._state.groups.get(group) or self._state.workers
        self._executor.size_group(group, wanted)
        self._await_workers(connection, request.request, group)

    def _await_workers(self, connection: RankConnection, request: int, group: str) -> None:
        if self._state.waiters.waiting(connection) >= MOST_WAITING:
            raise Overloaded(f"{MOST_WAITING} requests of this connection wait for workers already")
        self._state.waiters.add(connection, request, group)
        self.waiters()

    # --- a channel's life --------------------------------------------------------------------

    def _channel(self, connection: RankConnection, number: int) -> HubChannel | None:
        """Return the connection's channel; None if it is gone.

        Raises:
            ProtocolError: It never existed, or belongs to another connection.
        """
        if number in connection.channels:
            return self._state.channels[number]
        if not 1 <= number <= self._state.channels.last:
            raise ProtocolError(f"channel {number} was never registered")
        if self._state.channels.get(number) and self._state.channels[number].leaving is None:
            raise ProtocolError(f"channel {number} belongs to another connection")
        return None

    def _return(self, connection: RankConnection, said: ReturnSlot) -> None:
        channel = self._channel(connection, said.channel)
        if channel is None:
            return
        if not 0 <= said.slot < channel.arena.plan.slots:
            raise ProtocolError(f"{channel} has no slot {said.slot}")
        channel.asked[said.slot] = self._state.now
        self._executor.tell(SlotReturned(self._state.now, channel.number, said.slot))

    def _start(self, connection: RankConnection, said: StartEpoch) -> None:
        channel = self._channel(connection, said.channel)
        if channel is None or said.epoch <= channel.epoch:
            return
        try:
            plan = channel.plan.starting_at(said.first)
        except ValueError as error:
            raise ProtocolError(f"{channel} cannot start epoch {said.epoch}: {error}") from None
        steps = plan.batches_per_rank
        if not 0 <= said.first_step <= steps or said.epoch >= 2**63:
            raise ProtocolError(
                f"{channel} cannot start epoch {said.epoch} at step {said.first_step}: "
                f"it has {steps} steps"
            )
        channel.start(said.epoch, plan, self._state.now)
        wanted = range(said.first_step, steps)
        self._executor.tell(EpochStarted(self._state.now, channel.number, said.epoch, wanted))
        self.describe(f"{channel} started epoch {said.epoch}")

    def _reweigh(self, connection: RankConnection, said: Reweigh) -> None:
        try:
            check_weight(said.weight)
        except ValueError as error:
            raise ProtocolError(str(error)) from None
        if channel := self._channel(connection, said.channel):
            self._executor.tell(WeightChanged(self._state.now, channel.number, said.weight))

    def _leave(self, connection: RankConnection, number: int) -> None:
        # Unregistering a channel that never existed or is gone does nothing; unregistering a
        # channel of another connection is an error.
        known = 1 <= number <= self._state.channels.last
        if known and self._channel(connection, number):
            self._unregister(connection, number)

    def _unregister(self, connection: RankConnection, number: int) -> None:
        channel = self._state.channels[number]
        connection.channels.discard(number)
        channel.leaving = time.monotonic()  # not `now`: other channels may have left in this turn
        self._executor.tell(ChannelUnregistered(self._state.now, number))
        self.describe(f"{channel} left")

    def describe(self, why: str = "") -> None:
        """Log the scheduler's state in one line, unless it is the same as the last one."""
        if not log.isEnabledFor(logging.INFO):
            return
        line = self._state.scheduler.describe()
        if why or line != self._described:
            log.info("%s", f"{why}; {line}" if why else line)
        self._described = line


def _check_workers(workers: int, least: int = 0) -> None:
    if not least <= workers <= MOST_WORKERS:
        raise ValueError(f"workers is {workers}; expected {least} to {MOST_WORKERS}")
