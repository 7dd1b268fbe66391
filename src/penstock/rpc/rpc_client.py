"""Calls of many threads over one connection: each waits for its own answer only.

One of the waiting threads receives for all of them, so that an answer reaches its thread without
another thread in between. When it has its own answer, it passes this role on to the next waiting
thread. Answers come in any order, and a small one does not wait for a large one, because calls are
spread over lanes. A thread that stops waiting, by a timeout or an interrupt, does not disturb the
others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.errors import ProtocolError
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.failures import error_of
from penstock.wire.frames import Bytes, private_memory, read
from penstock.wire.framing import CALL_LANES
from penstock.wire.messages import Answer, Call, FromServerToRank, Refused
from penstock.wire.payload import Arrays, Packed

Answered: TypeAlias = tuple[Any, Arrays]
# A function, so that each thread that is told of a failure raises an error object of its own.
Failure: TypeAlias = Callable[[], Exception]

# The most calls without an answer at a time; further calls wait here. A server takes more (setting:
# max_calls), so that there is room for the calls that do not wait.
AT_ONCE: Final = 48
_WAITS_FOR_NOBODY: Final = frozenset({"destroy_sampling_input", "exit", "ping"})
# Put into an inbox to wake its thread, which then checks whether anybody receives, or whether there
# is room for its call.
_LOOK: Final = None
# Seconds after which a thread checks without being woken: an interrupt may have lost the wake-up.
_LOOK_S: Final = 1.0
_NO_BYTES: Final = private_memory(0)

# A `SimpleQueue` is reentrant: a signal handler may make a call at any moment.
_Inbox: TypeAlias = "SimpleQueue[Answered | Failure | None]"


class PendingCalls:
    """The calls that are not answered yet. Handles the answers."""

    def __init__(self) -> None:
        self.waiting: dict[int, _Inbox] = {}
        self.sent: set[int] = set()  # not answered, including those that were given up
        self.outside: dict[int, _Inbox] = {}  # those who wait until fewer calls are sent
        self.failure: Failure | None = None

    @property
    def owed(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self.waiting)

    def wants(self, request: int) -> bool:
        """Return whether anybody waits for the answer to a call."""
        if request in self.waiting:
            return True
        self.forget(request)  # its answer will be skipped, and `hear` not called
        return False

    def hear(self, message: FromServerToRank, payload: Bytes | None) -> None:
        """Handle an answer or a refusal."""
        match message:
            case Answer():
                memory = _NO_BYTES if payload is None else payload
                arrays = read(memory, message.arrays) if message.arrays else {}
                self._tell(message.request, (message.value, arrays))
            case Refused(request=0, report=report):
                self.fail(partial(error_of, report))
            case Refused(request=number, report=report):
                self._tell(number, partial(error_of, report))
            case _:
                raise ProtocolError(f"expected Answer, got {type(message).__name__}")

    def _tell(self, number: int, outcome: Answered | Failure) -> None:
        self.forget(number)
        if (inbox := self.waiting.get(number)) is not None:  # otherwise the call was given up
            inbox.put(outcome)

    def forget(self, number: int) -> None:
        """Note that a call is no longer without an answer, so that another one can be sent."""
        self.sent.discard(number)
        if self.outside:
            _wake_one(self.outside)

    def end(self, error: Exception) -> None:
        """Note that there will be no more answers."""
        self.fail(partial(type(error), *error.args))

    def fail(self, failure: Failure) -> None:
        """Tell everybody who waits that the connection failed. The first reason stands."""
        self.failure = self.failure or failure
        for inbox in (*self.waiting.values(), *self.outside.values()):
            inbox.put(self.failure)


class _Receiver(NamedTuple):
    """The waiting call that receives for all, and its thread.

    `before` is the receiver before it in the same thread, which a signal handler has interrupted.
    """

    inbox: _Inbox
    thread: int
    before: _Receiver | None


class RpcClient:
    """A driven connection for calls. Any thread may call, and close it."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection
        self._numbers = count(1)
        self._calls = PendingCalls()
        self._receiver: _Receiver | None = None
        # Reentrant: it is held for a few instructions, during which a signal handler may call.
        self._taking_turns = threading.RLock()
        self._closing = False
        connection.listen(self._calls)

    def is_over(self, *, look: bool = True) -> bool:
        """Return whether the connection is known to have ended.

        If `look` is true and nobody else receives, first process what has come.
        """
        if look and self._calls.failure is None and self._receiver is None:
            inbox: _Inbox = SimpleQueue()
            try:
                if self._take_turn(inbox):
                    self._connection.drive(0)
            finally:
                self._end_turn(inbox)
            self._hand_on()
        return self._calls.failure is not None

    def call(
        self, verb: str, arguments: dict[str, Any], arrays: Packed, deadline: Deadline
    ) -> Answered:
        """Make a call, and return plain data and arrays; raise what went wrong at the server."""
        calls, number = self._calls, next(self._numbers)
        inbox: _Inbox = SimpleQueue()
        call = Call(request=number, verb=verb, arguments=arguments, arrays=arrays.arrays)
        if len(calls.sent) >= AT_ONCE and verb not in _WAITS_FOR_NOBODY:
            self._wait_for_room(number, inbox, deadline)
        if not calls.waiting:
            self._connection.note_asked()
        calls.waiting[number] = inbox
        try:
            self._send(call, arrays)
            return self._outcome(inbox, deadline)
        finally:
            self._end_turn(inbox)
            del calls.waiting[number]
            if calls.waiting:
                self._hand_on()

    def close(self) -> None:
        """Say goodbye, and tell whoever waits. Idempotent; never waits."""
        self._closing = True
        self._calls.end(ConnectionResetError("it was closed"))
        if self._receiver is not None:
            self._connection.take_leave()  # wakes the receiver, which then closes the connection
        self._shut()

    # --- calling -----------------------------------------------------------------------------

    def _send(self, call: Call, arrays: Packed) -> None:
        self._check()
        self._calls.sent.add(call.request)
        try:
            self._connection.send(call, arrays, 1 + call.request % CALL_LANES)
        except ProtocolError:  # the connection has ended just now
            self._check()
            raise
        except ValueError:  # the call is too large, and was not sent
            self._calls.forget(call.request)
            raise

    def _wait_for_room(self, number: int, inbox: _Inbox, deadline: Deadline) -> None:
        """Wait until few enough calls lack an answer; those that were given up count, too."""
        outside = self._calls.outside
        outside[number] = inbox
        try:
            while len(self._calls.sent) >= AT_ONCE:
                self._receive(inbox, deadline)
                if callable(failure := self._next(inbox, deadline)):
                    raise failure()
        except TimeoutError:
            raise TimeoutError(f"{AT_ONCE} other calls are not answered yet") from None
        finally:
            self._end_turn(inbox)
            del outside[number]
            if outside:
                _wake_one(outside)

    def _outcome(self, inbox: _Inbox, deadline: Deadline) -> Answered:
        while True:
            self._receive(inbox, deadline)
            outcome = self._next(inbox, deadline)
            if isinstance(outcome, tuple):
                return outcome
            if outcome is not _LOOK:
                raise outcome()

    def _next(self, inbox: _Inbox, deadline: Deadline) -> Answered | Failure | None:
        """Return the next item of the inbox; `_LOOK` if nothing comes for a while."""
        if not inbox.empty():
            return inbox.get_nowait()  # only this thread takes from it
        self._check()
        if deadline.passed:
            raise TimeoutError("the server has not answered in time")
        with suppress(Empty):
            return inbox.get(timeout=Deadline(_LOOK_S).or_sooner(deadline).remaining)
        return _LOOK

    def _check(self) -> None:
        if self._calls.failure is not None:
            raise self._calls.failure()

    # --- receiving ---------------------------------------------------------------------------

    def _receive(self, inbox: _Inbox, deadline: Deadline) -> None:
        """Receive for all, until there is something for `inbox`; return at once if another does."""
        if not self._take_turn(inbox):
            return
        drive = self._connection.drive
        while inbox.empty() and self._calls.failure is None:
            # The wait is bounded, because a signal handler may have received what we wait for.
            left = deadline.remaining
            seconds = _LOOK_S if left is None or left > _LOOK_S else left
            if not drive(seconds) and deadline.passed:
                break
        self._end_turn(inbox)

    def _take_turn(self, inbox: _Inbox) -> bool:
        """Make `inbox` the receiver; return False if another thread receives, or while closing.

        Callers must call `_end_turn` in a `finally` that they have entered before, so that an
        interrupt cannot leave a receiver behind that receives nothing.
        """
        me = threading.get_ident()
        with self._taking_turns:
            before = self._receiver
            if self._closing or (before is not None and before.thread != me):
                return False
            self._receiver = _Receiver(inbox, me, before)
            return True

    def _end_turn(self, inbox: _Inbox) -> None:
        """End the turn of `inbox`, if it is the receiver."""
        receiver = self._receiver
        if receiver is not None and receiver.inbox is inbox:
            self._receiver = receiver.before
            if self._closing:
                self._shut()

    def _hand_on(self) -> None:
        """Wake another waiting thread to receive, if nobody does. Called by each that stops."""
        if self._receiver is None:
            _wake_one(self._calls.waiting)

    def _shut(self) -> None:
        """Close the connection; if somebody receives, leave it to them, when they are done."""
        with self._taking_turns:
            if self._receiver is None:
                self._connection.close()


def _wake_one(inboxes: dict[int, _Inbox]) -> None:
    for inbox in list(inboxes.values())[:1]:
        inbox.put(_LOOK)
