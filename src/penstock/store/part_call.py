"""A question about a part of a graph: asked of a server that has it, and of another if need be.

A question changes nothing, so it may be asked repeatedly, and of several servers at once. If a
server is lost, another one is asked at once; if there is none, the call waits for one. An answer
that is late is asked of another server, too, and the first one counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import HubGone, Overloaded, ServerGone
from penstock.rpc.deadline import Deadline
from penstock.rpc.reception import Inbox
from penstock.rpc.rpc_client import Answered, ArraySink, PendingCall, RpcClient
from penstock.store.part_server import PartServer
from penstock.wire.payload import NOTHING, Packed

if TYPE_CHECKING:
    from penstock.store.servers import StoreServers

log = logging.getLogger(__name__)

# How often a call is made: not for ever, because it may be what kills the servers.
TIMES: Final = 5
# What a server refuses a call with if another server may grant it.
_ANOTHER_MAY: Final = (HubGone, Overloaded)
_NEVER: Final = Deadline(None)


@dataclass(slots=True, eq=False)
class _Attempt:
    """A call as it was asked of one server."""

    server: PartServer
    client: RpcClient
    pending: PendingCall
    asked_at: float
    is_hedge: bool = False
    bytes_in: int = 0  # when it was last looked at

    def has_moved(self) -> bool:
        """Return whether its answer is on its way, and bytes have come since this was last asked.

        A large answer over a slow network is not late.
        """
        before, self.bytes_in = self.bytes_in, self.client.connection.bytes_moved[0]
        return self.pending.is_arriving and self.bytes_in != before


class PartCall:
    """A question about a part, which was asked of a server that has it. Made by `StoreServers`.

    One thread at a time may use it. Whoever drops it gives it up.
    """

    __slots__ = (
        "_arguments",
        "_attempts",
        "_error",
        "_inbox",
        "_into",
        "_kind",
        "_late_from",
        "_losses",
        "_outcome",
        "_packed",
        "_part",
        "_patience",
        "_refusers",
        "_store",
        "_verb",
        "_waiting_since",
    )

    def __init__(
        self,
        store: StoreServers,
        part: int,
        verb: str,
        arguments: dict[str, Any],
        packed: Packed,
        into: Callable[[], ArraySink] | None = None,
    ) -> None:
        self._store = store
        self._part = part
        self._verb = verb
        self._arguments = arguments
        self._packed = packed
        # Calls of one verb take longer with more ids: those within a factor of four are alike.
        self._kind = verb, packed.nbytes.bit_length() // 2
        self._into = into  # makes what takes the answer of one attempt as it comes
        self._inbox: Inbox = SimpleQueue()
        self._attempts: list[_Attempt] = []
        self._losses = 0
        self._refusers: list[PartServer] = []  # which were full
        self._patience: Deadline | None = None  # while no server has the part
        self._waiting_since: float | None = None  # the first wait
        self._late_from: float | None = None  # from when on a wait may be late
        self._outcome: Answered | None = None
        self._error: Exception | None = None

    @property
    def part(self) -> int:
        """The part that was asked about."""
        return self._part

    def wait(self, seconds: float | None) -> bool:
        """Wait until `result` returns at once; return False if it does not after so many seconds.

        A server that is lost meanwhile is made up for, as in `result`.
        """
        return self._go_on(Deadline(seconds))

    def result(self, timeout: float | None = None) -> Answered:
        """Return the answer: plain data, and arrays by name.

        Args:
            timeout: Seconds to wait; None: as long as the part has a server, or patience lasts.

        Raises:
            ServerGone: The part has no server, and patience has ended; names the part and the
                addresses that were tried.
            TimeoutError: The answer has not come in time; it can still be waited for.
            Exception: What went wrong at the server.
        """
        if not self._go_on(Deadline(timeout)):
            raise TimeoutError(
                f"no server of part {self._part} has answered {self._verb} in {timeout} s"
            )
        if self._error is not None:
            raise self._error
        assert self._outcome is not None
        return self._outcome

    def abandon(self) -> None:
        """Give the call up: its answers will be skipped. Idempotent."""
        for attempt in self._attempts:
            attempt.pending.abandon()
        self._attempts = []

    # --- asking ------------------------------------------------------------------------------

    def ask(self, *, as_hedge: bool = False) -> bool:
        """Ask a server that was not asked yet; return False if there is none."""
        store = self._store
        asked = [*self._refusers, *(attempt.server for attempt in self._attempts)]
        while (found := store.choose(self._part, self._kind, asked)) is not None:
            server, client = found
            if as_hedge and server.is_late(client):
                return False
            try:
                pending = client.begin(
                    self._verb,
                    self._arguments,
                    self._packed,
                    _NEVER,
                    self._inbox,
                    None if self._into is None else self._into(),
                )
            except Exception as error:
                if not client.is_over(look=False):
                    raise
                store.note_loss(server, client, error)
                continue
            self._attempts.append(_Attempt(server, client, pending, time.monotonic(), as_hedge))
            self._patience = self._late_from = None
            store.note_call(server, as_hedge=as_hedge)
            return True
        return False

    def _go_on(self, deadline: Deadline) -> bool:
        """Wait for the outcome, and ask again where that helps; return False at the deadline."""
        while not self._is_over:
            if self._attempts:
                self._await(deadline)
            else:
                self._refusers.clear()
                if not self.ask() and not self._wait_for_server(deadline):
                    return False
            if deadline.passed and not self._has_come():
                return self._is_over
        return True

    @property
    def _is_over(self) -> bool:
        return self._outcome is not None or self._error is not None

    def _wait_for_server(self, deadline: Deadline) -> bool:
        if self._patience is None:
            self._patience = Deadline(self._store.patience)
        return self._store.wait_for_part(self._part, self._patience, deadline)

    def _await(self, deadline: Deadline) -> None:
        """Wait until something has come, or is late."""
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if self._late_from is None:
            self._late_from = now
        due = self._store.late_at(self._part, self._verb, self._late_from, len(self._attempts))
        until = deadline if due is None else deadline.or_sooner(Deadline(max(0.0, due - now)))
        if self._store.reception.wait(self._inbox, self._has_come, until):
            self._settle()
        elif due is not None and not deadline.passed:
            self._hedge()

    def _has_come(self) -> bool:
        return any(attempt.pending.has_come for attempt in self._attempts)

    # --- what came ---------------------------------------------------------------------------

    def _settle(self) -> None:
        """Take what has come: an answer, an error, or the loss of a server."""
        for attempt in list(self._attempts):
            if not attempt.pending.has_come:
                continue
            try:
                answered = attempt.pending.result()
            except Exception as error:
                self._attempts.remove(attempt)
                self._note_failure(attempt, error)
            else:
                self._attempts.remove(attempt)
                self._take(attempt, answered)
                return

    def _take(self, attempt: _Attempt, answered: Answered) -> None:
        assert self._waiting_since is not None
        self._outcome = answered
        attempt.server.pace.note(self._kind, attempt.pending.told_at - attempt.asked_at)
        for other in self._attempts:
            other.server.pace.note_at_least(self._kind, time.monotonic() - other.asked_at)
        self._store.note_answer(
            attempt.server, self._verb, time.monotonic() - self._waiting_since, attempt.is_hedge
        )
        self._let_go()

    def _note_failure(self, attempt: _Attempt, error: Exception) -> None:
        if attempt.client.is_over(look=False):
            self._losses += 1
            self._store.note_loss(attempt.server, attempt.client, error)
            if self._losses >= TIMES:
                self._fail(
                    ServerGone(
                        f"servers of part {self._part} were lost {self._losses} times while they "
                        f"were asked to {self._verb}, the last at {attempt.server.address}: "
                        f"{error}. It will not be asked again"
                    )
                )
            elif not self._attempts:
                self.ask()
        elif isinstance(error, _ANOTHER_MAY) and self._ask_instead_of(attempt.server):
            log.info("%s refuses to %s: %s", attempt.server.address, self._verb, error)
        else:
            self._fail(error)

    def _ask_instead_of(self, refuser: PartServer) -> bool:
        """Return whether another server was asked, or is asked now, than one that refuses."""
        self._refusers.append(refuser)
        return bool(self._attempts) or self.ask()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._let_go()

    def _let_go(self) -> None:
        """Give up what else was asked, and keep no arrays that nobody needs any more."""
        if self._attempts:
            self.abandon()
        self._packed, self._arguments, self._into = NOTHING, {}, None

    def _hedge(self) -> None:
        """Ask another server, too, unless the answer is on its way."""
        self._late_from = time.monotonic()
        if any(attempt.has_moved() for attempt in self._attempts):
            return
        for attempt in self._attempts:
            attempt.server.note_late(attempt.client)
        if self._store.lateness.may_ask_twice():
            self.ask(as_hedge=True)
